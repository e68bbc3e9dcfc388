"""Core: the audit log: what a successful write adds to it, and its pages."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, NamedTuple, Protocol
from urllib.parse import unquote

import msgspec

from starling_api.http.access.auth import Caller
from starling_api.http.pagination import PageOf, instant_parameter, make_cursor
from starling_common.cassandra.read_models import DAY_MS, audit_period
from starling_common.telemetry.logs import log
from starling_common.time.instants import format_instant

DEFAULT_SECONDS: Final = 30 * 86_400
"""How far back changes are looked for without `since`."""

MAX_SCANNED: Final = 50_000
"""Rows after which a page ends, however few of them are wanted."""

_RETENTION_MICROS: Final = 1_095 * DAY_MS * 1_000
"""How long the projector's table and the topic have a change."""

_READ_ROWS: Final = 1_000
"""Rows of one read of the table."""

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
    method: str | None = None
    resource: str | None = None
    key: str | None = None
    since: str | None = None


class AuditRow(NamedTuple):
    """One row of the table, in the order of its columns."""

    recorded_at_micros: int
    resource: str
    key: str
    correlation_id: str
    actor: str
    actor_name: str
    role: str
    method: str
    path: str
    revision_before: int | None
    revision_after: int | None


AuditPosition = tuple[int, str, str, str]
"""Instant in microseconds, resource, key and correlation id of a row."""


class AuditTable(Protocol):
    """The changes that the projector has written. Every method may raise DatabaseUnavailable."""

    def read(self, workspace: str, period: int, after: AuditPosition, most: int) -> Sequence[AuditRow]:
        """Return the first rows of a period after a position, the oldest first. `period`: see `audit_period`."""


class Audit:
    """The audit log of all workspaces."""

    def __init__(self, publish: Publish, table: AuditTable, now_micros: Callable[[], int]) -> None:
        """`publish` returns once the broker has the record. `now_micros`: the wall clock."""
        self._publish = publish
        self._table = table
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

    def page(self, workspace: str, wanted: AuditFilter, page: PageOf) -> dict[str, Any]:
        """Return a page, the oldest change first. `next_cursor` is None at the end of the log.

        Raises: BadRequest (`bad_cursor`, `bad_instant`), DatabaseUnavailable.
        """
        now = self._now_micros()
        since_ms = now // 1000 - 1000 * DEFAULT_SECONDS if wanted.since is None else instant_parameter("since", wanted.since)
        # A change before the retention has expired, and a cursor from before `since` begins there.
        first = (max(since_ms * 1000, now - _RETENTION_MICROS), "", "", "")
        start = max(page.after(_LIST, first), first)
        found, following = self._wanted(workspace, wanted, (start[0], start[1], start[2], start[3]), page.limit)
        cursor = None if following is None else make_cursor(_LIST, following)
        items = [_item(workspace, row) for row in found]
        return {"items": items, "next_cursor": cursor, "as_of": format_instant(now // 1000)}

    def _wanted(
        self, workspace: str, wanted: AuditFilter, position: AuditPosition, limit: int
    ) -> tuple[list[AuditRow], AuditPosition | None]:
        """Return at most `limit` wanted rows after a position, and the position of the next page; None at the end of the log."""
        found: list[AuditRow] = []
        scanned, period = 0, audit_period(position[0])
        # The clock of another process may be ahead of this one.
        last = audit_period(self._now_micros()) + 1
        while period <= last:
            rows = self._table.read(workspace, period, position, _READ_ROWS)
            for row in rows:
                if _is_wanted(row, wanted):
                    if len(found) == limit:
                        return found, _position(found[-1])
                    found.append(row)
                position = _position(row)
            scanned += len(rows)
            if len(rows) < _READ_ROWS:
                period += 1
            elif scanned >= MAX_SCANNED:
                return found, position
        return found, None


def _position(row: AuditRow) -> AuditPosition:
    return row.recorded_at_micros, row.resource, row.key, row.correlation_id


def _is_wanted(row: AuditRow, wanted: AuditFilter) -> bool:
    fields = ("actor", "method", "resource", "key")
    return all(getattr(wanted, field) in (None, getattr(row, field)) for field in fields)


def _item(workspace: str, row: AuditRow) -> dict[str, Any]:
    """Return a change as the response contains it."""
    fields = row._asdict()
    recorded_at = format_instant(fields.pop("recorded_at_micros") // 1000)
    return {"recorded_at": recorded_at, "workspace": workspace, **fields}
