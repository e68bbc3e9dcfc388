"""Pure core: the interface of adapters, and what all of them have in common."""

import json
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, Protocol, TypeAlias, TypeVar

from starling_audience.changes import Change

T = TypeVar("T")

JSON_TYPE: Final = "application/json"
_MOST_DETAIL: Final = 300
_ADDRESS: Final = re.compile(r"[^\s@\"']+@[^\s@\"']+")
_ENDING: Final = frozenset({401, 403, 410})
"""The credentials or the rights are refused, or the audience is gone: only an administrator can mend that."""
_AGAIN: Final = frozenset({408, 425, 429})


@dataclass(frozen=True, slots=True)
class AudienceRequest:
    """One request. `entries`: the changes of each element of its body, in order. No representation shows the body or a header."""

    method: str
    url: str
    headers: Mapping[str, str]
    body: bytes
    entries: Sequence[Sequence[Change]]

    @property
    def changes(self) -> list[Change]:
        """Return the changes of all elements."""
        return [change for entry in self.entries for change in entry]

    def __repr__(self) -> str:
        return f"AudienceRequest({self.method}, entries={len(self.entries)})"


@dataclass(frozen=True, slots=True)
class Response:
    """An answer. `body`: as much of it as was read."""

    status: int
    body: bytes = b""
    retry_after_seconds: float | None = None

    def json(self) -> Any:
        """Return the body as JSON; None if it is none."""
        try:
            return json.loads(self.body)
        except (ValueError, RecursionError):
            return None


@dataclass(frozen=True, slots=True)
class Taken:
    """The request was taken. `rejected`: number of an element -> why it alone was not."""

    rejected: Mapping[int, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Refused:
    """The whole request was refused, because of its elements. `rejected`: those that are the cause, if the answer names them."""

    why: str
    rejected: Mapping[int, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Again:
    """The other side cannot take requests at present. `retry_after_seconds`: the delay that it requested."""

    why: str
    retry_after_seconds: float | None = None


@dataclass(frozen=True, slots=True)
class Ended:
    """The other side takes nothing more from this target, until an administrator changes it."""

    why: str


Result: TypeAlias = Taken | Refused | Again | Ended


class Adapter(Protocol):
    """Builds requests and reads answers. Two calls with the same changes return the same requests: repetitions are idempotent."""

    name: str
    max_changes: int
    """The most changes of one batch."""

    def has_identifier(self, change: Change) -> bool:
        """Return whether the other side can find the user."""

    def requests(self, changes: Sequence[Change]) -> list[AudienceRequest]:
        """Return the requests for changes of different users or segments, all of which have an identifier."""

    def read(self, request: AudienceRequest, response: Response) -> Result:
        """Return the result of a request."""


def result_of_status(name: str, response: Response, detail: str = "") -> Result | None:
    """Return the result of an answer that was not taken, by its status; None for 2xx."""
    status = response.status
    if 200 <= status < 300:
        return None
    why = f"{name} answered {status}{': ' if detail else ''}{detail}"[:_MOST_DETAIL]
    if status in _ENDING:
        return Ended(why)
    if status in _AGAIN or status >= 500:
        return Again(why, response.retry_after_seconds)
    if 300 <= status < 400:
        return Again(f"{why}: redirects are not followed: correct base_url")
    return Refused(why)


def chunks(
    values: Iterable[T], most: int, most_bytes: int | None = None, size: Callable[[T], int] = lambda _: 0
) -> Iterator[list[T]]:
    """Yield the values in order, in lists of at most so many values and so many bytes. `size`: the bytes of a value."""
    found: list[T] = []
    used = 0
    for value in values:
        bytes_ = size(value)
        if found and (len(found) == most or (most_bytes is not None and used + bytes_ > most_bytes)):
            yield found
            found, used = [], 0
        found.append(value)
        used += bytes_
    if found:
        yield found


def to_json(document: object) -> bytes:
    """Return compact JSON."""
    return json.dumps(document, separators=(",", ":")).encode("utf-8", "surrogatepass")


def by_user(changes: Iterable[Change]) -> list[list[Change]]:
    """Return the changes of each user together, in the order of the first one."""
    found: dict[str, list[Change]] = {}
    for change in changes:
        found.setdefault(change.user_id, []).append(change)
    return list(found.values())


def by_segment(changes: Iterable[Change]) -> dict[tuple[str, bool], list[Change]]:
    """Return the changes by segment and by whether the user belongs into it."""
    found: dict[tuple[str, bool], list[Change]] = {}
    for change in changes:
        found.setdefault((change.segment, change.is_member), []).append(change)
    return found


def text_of(value: object) -> str:
    """Return a text of an answer, for a reason. Addresses in it are replaced: reasons are logged."""
    if not isinstance(value, str | int):
        return ""
    return _ADDRESS.sub("***", str(value)[:_MOST_DETAIL]).encode("utf-8", "replace").decode()
