"""Pure core: what a provider reports of one message, and what its parsers raise."""

import json
from collections.abc import Mapping
from enum import Enum, auto
from typing import Any, Final, NamedTuple

from starling_common.time.instants import LATEST_MS, parse_instant
from starling_common.values import EpochMs

_MOST_DETAIL: Final = 300

DELIVERED: Final = "DELIVERED"
OPENED: Final = "OPENED"
CLICKED: Final = "CLICKED"
BOUNCED: Final = "BOUNCED"
COMPLAINED: Final = "COMPLAINED"
UNSUBSCRIBED: Final = "UNSUBSCRIBED"
FAILED: Final = "FAILED"


class Malformed(ValueError):
    """The body is not what the provider sends. The message states what is expected."""


class Unauthorised(Exception):
    """The request is not proven to be the provider's."""


class Effect(Enum):
    """What a report changes beyond the message itself."""

    NONE = auto()
    HARD_BOUNCE = auto()
    """The address is suppressed."""
    SOFT_BOUNCE = auto()
    """The messenger counts it, and suppresses the address after several in a row."""
    COMPLAINT = auto()
    """The address is suppressed for marketing."""
    REFUSAL = auto()
    """The person refuses the purpose of the message in its channel."""
    STOP = auto()
    """The person has replied STOP: the address is suppressed until the reply START."""


class Report(NamedTuple):
    """A report about one message.

    `token`: names the message; None without one. `event_id`: the same in a repetition. `at_ms`: when it happened; None: unknown.
    `body`: of a request that contains this report alone. `problem`: why the report has no meaning; its other fields are empty then.
    `by_machine`: a program opened or clicked.
    """

    body: bytes
    event_id: str
    outcome: str = ""
    token: str | None = None
    at_ms: int | None = None
    detail: str | None = None
    status_code: int | None = None
    effect: Effect = Effect.NONE
    by_machine: bool = False
    problem: str | None = None


class Reply(NamedTuple):
    """A text that a person has sent to the number of a target. `address`: the person's number. `stops`: STOP, otherwise START."""

    message_id: str
    address: str
    stops: bool


class Parsed(NamedTuple):
    """The reports of a request, and the number of those without a meaning here, such as that a message was queued.

    `reply`: of a person. `is_text`: the request is a text of a person, with a meaning here or without.
    """

    reports: list[Report]
    ignored: int = 0
    reply: Reply | None = None
    is_text: bool = False


def json_of(body: bytes, expected: str) -> Any:
    """Return the JSON of a body. Raises: Malformed."""
    try:
        return json.loads(body)
    except (ValueError, RecursionError) as error:
        raise Malformed(f"the body is no JSON: {error}: expected {expected}") from error


def object_at(fields: Mapping[str, Any], name: str) -> Mapping[str, Any]:
    """Return the object of that name; an empty one if there is none."""
    found = fields.get(name)
    return found if isinstance(found, Mapping) else {}


def text_at(fields: Mapping[str, Any], name: str) -> str:
    """Return the text of that name; an empty one if there is none."""
    found = fields.get(name)
    return found if isinstance(found, str) else ""


def token_of(text: str | None) -> str | None:
    """Return a token without the white space of a folded header; None without one."""
    return "".join(text.split()) or None if isinstance(text, str) else None


def instant_of(text: str) -> int | None:
    """Return the epoch milliseconds of an ISO 8601 time; None for anything else."""
    try:
        return _valid(parse_instant(text))
    except (ValueError, OverflowError):
        return None


def seconds_of(found: Any) -> int | None:
    """Return the epoch milliseconds of seconds; None for anything else."""
    is_number = isinstance(found, int | float) and not isinstance(found, bool)
    return _valid(int(found * 1000)) if is_number and 0 <= found <= LATEST_MS else None


def detail_of(*parts: str) -> str | None:
    """Return a line of text from the parts that are not empty; None without any."""
    text = " ".join(" ".join(parts).split())[:_MOST_DETAIL]
    return text.encode("utf-8", "replace").decode() or None


def _valid(at_ms: int) -> EpochMs | None:
    return EpochMs(at_ms) if 0 <= at_ms <= LATEST_MS else None
