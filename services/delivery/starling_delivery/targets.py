"""Pure core: the webhooks in force, as a fold over their definition records."""

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final, NamedTuple

from starling_common.outcome import Done, Outcome, Refused
from starling_common.security.sealing import Place, Sealer, Unreadable
from starling_common.wire import Record

STANDARD: Final = "standard"
SEGMENT_TRACK: Final = "segment-track"
SEGMENT_IDENTIFY: Final = "segment-identify"
_FORMATS: Final = frozenset({STANDARD, SEGMENT_TRACK, SEGMENT_IDENTIFY})
"""The formats of a message: the membership change itself, or a call of the Segment specification."""

_MOST_ITEMS: Final = 100
_MOST_WAIT_MS: Final = 1000


@dataclass(frozen=True, slots=True)
class Batching:
    """How many membership changes one request has at most, and how long the first of them waits for others."""

    max_items: int
    max_wait_ms: int


@dataclass(frozen=True, slots=True)
class Target:
    """One webhook. `segments` empty means every segment; `events` holds `entered` and/or `exited`.

    `previous_secret` is the one before the last rotation; it signs too until `previous_until_ms`. `batching` None: one membership
    change a request. `problem`: the reason why its secrets cannot be decrypted, so that nothing is sent; it has no secrets then.
    `document`: as stored, with encrypted secrets. `rate`: the most requests a second, of all processes; None: no limit.
    """

    workspace: str
    key: str
    version: int
    url: str
    secret: str
    segments: frozenset[str]
    events: frozenset[str]
    disabled: bool
    document: Mapping[str, Any]
    format: str = STANDARD
    headers: Mapping[str, str] = field(default_factory=dict)
    previous_secret: str | None = None
    previous_until_ms: int = 0
    batching: Batching | None = None
    problem: str | None = None
    rate: float | None = None

    def secrets(self, now_ms: int) -> tuple[str, ...]:
        """Return the secrets that sign a message at that time, the newest first."""
        if self.previous_secret is None or now_ms >= self.previous_until_ms:
            return (self.secret,)
        return (self.secret, self.previous_secret)

    def wants(self, segment_key: str, event: str) -> bool:
        """Return whether the webhook receives such changes of the segment."""
        return not self.disabled and event in self.events and (not self.segments or segment_key in self.segments)


class Targets:
    """All webhooks by workspace and key. One thread writes, others read without a lock: each read is one dict look-up."""

    def __init__(self, sealer: Sealer | None = None) -> None:
        """`sealer`: decrypts the secrets; None: only plain ones can be read."""
        self._sealer = sealer or Sealer()
        self._by_workspace: dict[str, dict[str, Target]] = {}

    def apply(self, record: Mapping[str, Any]) -> None:
        """Apply one DefinitionChanged record. Raises: ValueError if its document is not a webhook."""
        known = dict(self._by_workspace.get(record["workspace"], {}))
        if record["action"] == "ARCHIVED":
            known.pop(record["key"], None)
        else:
            known[record["key"]] = parse_target(record, self._sealer)
        self._by_workspace[record["workspace"]] = dict(sorted(known.items()))

    def of(self, workspace: str) -> list[Target]:
        """Return the webhooks of a workspace, sorted by key."""
        return list(self._by_workspace.get(workspace, {}).values())

    def problems(self) -> list[str]:
        """Return the reasons why webhooks cannot be sent."""
        found = (target for workspace in list(self._by_workspace.values()) for target in workspace.values())
        return [target.problem for target in found if target.problem is not None and not target.disabled]

    def find(self, workspace: str, key: str) -> Target | None:
        """Return one webhook; None for an unknown or archived key."""
        return self._by_workspace.get(workspace, {}).get(key)


def fold_target(targets: Targets, record: Record) -> Outcome[Targets]:
    """Return the webhooks after one DefinitionChanged record. The API checks documents before it writes them."""
    try:
        targets.apply(record)
    except ValueError as error:
        return Refused("definition_refused", str(error))
    return Done(targets)


def parse_target(record: Mapping[str, Any], sealer: Sealer) -> Target:
    """Return the target of a definition record. Raises: ValueError with the missing field."""
    document = json.loads(record["document"])
    if document.get("format", STANDARD) not in _FORMATS:
        raise ValueError(f"webhook {record['workspace']}/{record['key']}: the format {document['format']!r} is unknown")
    try:
        opened = _opened(record, document, sealer)
        return Target(
            workspace=record["workspace"],
            key=record["key"],
            version=record["version"],
            url=document["url"],
            secret=opened.secret,
            segments=frozenset(document.get("segments") or ()),
            events=frozenset(document.get("events") or ("entered", "exited")),
            disabled=bool(document.get("disabled", False)) or record["action"] == "DISABLED",
            document=document,
            format=document.get("format", STANDARD),
            headers=opened.headers,
            previous_secret=opened.previous_secret,
            previous_until_ms=int(document.get("previous_secret_until_ms", 0)),
            batching=_batching(document.get("batch")),
            problem=opened.problem,
            rate=None if document.get("rate") is None else float(document["rate"]),
        )
    except (KeyError, TypeError) as cause:
        raise ValueError(f"webhook {record['workspace']}/{record['key']}: {cause} is missing or of the wrong type") from cause


class _Opened(NamedTuple):
    """The plain secrets of a document."""

    secret: str = ""
    headers: Mapping[str, str] = {}
    previous_secret: str | None = None
    problem: str | None = None


def _opened(record: Mapping[str, Any], document: Mapping[str, Any], sealer: Sealer) -> _Opened:
    """Return the secrets, or the reason why they cannot be decrypted. A previous secret that cannot be decrypted signs no more."""

    def plain(field_: str, stored: str) -> str:
        # The same places as in the API, which encrypts them: a secret keeps its place when it becomes the previous one.
        return sealer.open(stored, Place(record["workspace"], f"webhook/{record['key']}", field_))

    try:
        secret = plain("secret", document["secret"])
        headers = {name: plain(f"headers/{name}", value) for name, value in (document.get("headers") or {}).items()}
    except Unreadable as cause:
        return _Opened(problem=str(cause))
    previous = document.get("previous_secret")
    try:
        return _Opened(secret, headers, None if previous is None else plain("secret", previous))
    except Unreadable:
        return _Opened(secret, headers)


def _batching(batch: Mapping[str, int] | None) -> Batching | None:
    """Return the batching of a document, within the limits of this release."""
    if batch is None:
        return None
    return Batching(max(1, min(batch["max_items"], _MOST_ITEMS)), max(0, min(batch["max_wait_ms"], _MOST_WAIT_MS)))
