"""Core: the audit log: what a successful write adds to it, and its pages."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, NamedTuple
from urllib.parse import unquote

import msgspec

from starling_api.feed.changes import DatedFeed, FeedStep, page_answer, position_at, scan, starting
from starling_api.http.access.auth import Caller
from starling_api.http.pagination import instant_parameter
from starling_common.telemetry.logs import log
from starling_common.time.instants import format_instant

DEFAULT_SECONDS: Final = 30 * 86_400
"""How far back changes are looked for without `since`."""

MAX_SCANNED: Final = 50_000
"""Maximum records that one page scans. Those of other workspaces are not decoded."""

_LIST: Final = "audit"
_BATCH: Final = ":batch"
_MEMBERS: Final = "/members"


@dataclass(frozen=True, slots=True)
class Act:
    """One write request. `path`: as sent, without the query."""

    caller: Caller
    method: str
    path: str
    correlation_id: str

    @property
    def resource(self) -> str:
        """Return the collection of the path, such as `segments`."""
        return self.path.removeprefix("/v1/").partition("/")[0].removesuffix(_BATCH)

    @property
    def key(self) -> str | None:
        """Return the key in the path; None for a write to the whole collection."""
        return unquote(self.path.removeprefix("/v1/").partition("/")[2].partition("/")[0]) or None


class Changed(NamedTuple):
    """One changed resource. The revisions are those of definitions; other resources have none."""

    key: str
    before: int | None
    after: int | None


Publish = Callable[[Mapping[str, Any]], None]


def changed_by(act: Act, body: str, before: Mapping[str, int], after: int | None) -> list[Changed]:
    """Return the resources that a write changed. A definition with the same revision as before is left out.

    `body`: the response; `before`: the revisions by key; `after`: the revision after the write, None if it is unknown.
    """
    document = msgspec.json.decode(body) if body else {}
    if act.path.endswith(_BATCH):
        found = [Changed(one["key"], before.get(one["key"]), one["revision"]) for one in document["items"]]
    else:
        key = act.key or str(document.get("key") or document.get("id"))
        found = [Changed(key, before.get(key), after)]
    # An upload changes the members of a list, and not its definition.
    return [one for one in found if one.before is None or one.before != one.after or act.path.endswith(_MEMBERS)]


def record_of(act: Act, changed: Changed, now_micros: int) -> dict[str, Any]:
    """Return the `AuditRecorded` of a change."""
    return {
        "recorded_at": now_micros,
        "workspace": act.caller.workspace,
        "actor": act.caller.name,
        "actor_name": act.caller.title,
        "role": act.caller.role.value,
        "method": act.method,
        "path": act.path,
        "resource": act.resource,
        "key": changed.key,
        "revision_before": changed.before,
        "revision_after": changed.after,
        "correlation_id": act.correlation_id,
    }


class AuditFilter(NamedTuple):
    """The wanted changes. None: any."""

    actor: str | None = None
    resource: str | None = None
    key: str | None = None
    since: str | None = None


@dataclass(frozen=True, slots=True)
class AuditScan:
    """A request for changes, as `feed.changes.scan` takes it."""

    workspace: str
    wanted: AuditFilter
    since_ms: int
    limit: int

    def is_wanted(self, key: bytes, _value: bytes) -> bool:
        """Return whether the record's key allows it to be wanted."""
        return key.startswith(f"{self.workspace}/".encode())

    def item_of(self, seen: FeedStep) -> dict[str, Any] | None:
        """Return the change as the response contains it; None if it is not wanted."""
        record = seen.record
        if record is None or record["recorded_at"] < self.since_ms * 1000:
            return None
        for field in ("actor", "resource", "key"):
            wanted = getattr(self.wanted, field)
            if wanted is not None and record[field] != wanted:
                return None
        try:
            return {**record, "recorded_at": format_instant(record["recorded_at"] // 1000)}
        except (ValueError, OverflowError, OSError) as error:
            log(__name__).warning("audit_unreadable", origin=(seen.partition, seen.next_offset - 1), reason=str(error))
            return None


class Audit:
    """The audit log of all workspaces."""

    def __init__(self, publish: Publish, audit_log: DatedFeed, now_micros: Callable[[], int]) -> None:
        """`publish` returns once the broker has the record. `now_micros`: the wall clock."""
        self._publish = publish
        self._log = audit_log
        self._now_micros = now_micros

    def record(self, act: Act, changes: Sequence[Changed]) -> None:
        """Publish one record for each change.

        The write itself has succeeded, so a failure does not fail it: the record is logged as `audit_not_published` instead.
        """
        for changed in changes:
            record = record_of(act, changed, self._now_micros())
            try:
                self._publish(record)
            except Exception:  # noqa: BLE001 - the log takes the record, whatever the reason
                log(__name__).exception("audit_not_published", record=record)

    def page(self, workspace: str, wanted: AuditFilter, cursor: str | None, limit: int) -> dict[str, Any]:
        """Return a page, the oldest change first. `next_cursor` is None at the end of the log.

        Raises: BadRequest (`bad_cursor`, `bad_instant`), CursorExpired, BrokerUnavailable, RegistryUnavailable, SchemaMissing.
        """
        now_ms = self._now_micros() // 1000
        since_ms = now_ms - 1000 * DEFAULT_SECONDS if wanted.since is None else instant_parameter("since", wanted.since)
        spans = self._log.spans()
        start = position_at(self._log, since_ms, spans) if cursor is None else starting(cursor, spans, _LIST)
        page = scan(self._log, AuditScan(workspace, wanted, since_ms, limit), start, spans, MAX_SCANNED)
        return page_answer(page, _LIST, now_ms)
