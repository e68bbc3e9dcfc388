"""Core: computed traits and views in SQL, and checks of event types: their runs are queued here, and a Spark job performs them."""

import json
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, NamedTuple, Protocol

from starling_api.definitions.definition import Definition
from starling_api.definitions.event_types import checked_statement
from starling_api.definitions.kinds.kind import Kind
from starling_api.definitions.kinds.kinds import EVENT_TYPES, TRAITS, VIEWS
from starling_api.definitions.statements import is_runnable, is_sql
from starling_api.http.errors import Archived, BadRequest, NotFound
from starling_api.ports import InForce
from starling_common.cassandra.read_models import ARCHIVED
from starling_common.time.instants import format_instant
from starling_rules.sql.incremental import FIELD, stored
from starling_rules.sql.runs import RUNNING, UNFINISHED, WAITING, Queued, ScheduledSql, is_due, run_id
from starling_rules.sql.schedule import next_run_ms

Document = dict[str, Any]

_NOT_STARTED: Final = "an operator starts the job: run it, or set STARLING_SQL_TRAITS_RUNNER of the API"


class RunRow(NamedTuple):
    """The newest run of a statement, and the result of the last run that ended.

    `state`, `message`: of the newest run. The other fields are those of the last run that got so far: `as_of_ms`, its time, and
    once the statement was executed `users`, of a view the number of rows, and `scanned_bytes`; at its end `published`, the number
    of changed values. `checks`: those of the newest run, as JSON; `check_results`: their outcome in the last run that came to them.
    `days`, `late_rows`: of an incremental view, the number of days that it computed, None for all, and late events that wait.
    """

    workspace: str
    key: str
    version: int
    archived: bool
    state: str
    queued_at_ms: int
    as_of_ms: int | None = None
    ended_at_ms: int | None = None
    users: int | None = None
    published: int | None = None
    scanned_bytes: int | None = None
    message: str | None = None
    checks: str | None = None
    check_results: str | None = None
    days: int | None = None
    late_rows: int | None = None

    @property
    def queued(self) -> Queued:
        """Return the newest run."""
        return Queued(self.version, self.archived, self.state, self.queued_at_ms)


class RunStore(Protocol):
    """The table of the runs. Every method may raise DatabaseUnavailable."""

    def every(self) -> Sequence[RunRow]:
        """Return the statements of all workspaces."""

    def of(self, workspace: str) -> Sequence[RunRow]:
        """Return the statements of a workspace."""

    def queue(self, statement: ScheduledSql, run: str, now_ms: int, before: RunRow | None) -> bool:
        """Queue a run after the run `before` (None: the first one); return False if another process queued one meanwhile."""


class TraitReader(Protocol):
    """The read model of definitions. Every method may raise DatabaseUnavailable."""

    def definitions(self, workspace: str, kind: str) -> Sequence[Definition]:
        """Return the definitions of a workspace."""

    def everywhere(self, kind: str) -> Sequence[InForce]:
        """Return the definitions of all workspaces, without their documents."""


@dataclass(frozen=True, slots=True)
class SqlRuns:
    """The statements of one kind of definition, in all workspaces. `is_started`: the API starts the job that runs them."""

    store: RunStore
    reader: TraitReader
    now_ms: Callable[[], int]
    is_started: bool = True
    kind: Kind = TRAITS

    def queue_due(self) -> dict[str, int]:
        """Queue the runs that are due; return the number of unfinished runs by state. Raises: DatabaseUnavailable.

        Several processes may do so at the same time: of two, one queues a run.
        """
        workspaces = sorted({one.workspace for one in self.reader.everywhere(self.kind.name)})
        rows = {(row.workspace, row.key): row for row in self.store.every()}
        unfinished = dict.fromkeys((WAITING, RUNNING), 0)
        for workspace in workspaces:
            for trait in _in_sql(self.kind, workspace, self.reader.definitions(workspace, self.kind.name)):
                before, now_ms = rows.get((workspace, trait.key)), self.now_ms()
                if is_due(trait, _newest(before, trait), now_ms) and self._queue(trait, before, now_ms):
                    unfinished[WAITING] += 1
                elif before is not None and before.state in UNFINISHED:
                    unfinished[before.state] += 1
        return unfinished

    def failed_checks(self) -> Counter[tuple[str, str]]:
        """Return the number of checks that failed in the last run of their definition, by workspace and severity.

        Raises: DatabaseUnavailable.
        """
        return Counter(
            (row.workspace, one["severity"])
            for row in self.store.every()
            if not row.archived
            for one in _checked(row)["checks"] or ()
            if not one["passed"]
        )

    def run(self, workspace: str, key: str, *, full: bool = False, dry_run: bool = False) -> Definition:
        """Queue a run now and return the definition. A run that waits or runs is not queued again.

        `full`: a view that is incremental computes all days.

        Raises: NotFound, Archived, BadRequest (`not_sql`).
        """
        found = next((one for one in self.reader.definitions(workspace, self.kind.name) if one.key == key), None)
        if found is None:
            raise NotFound(self.kind.title, key)
        if found.status == ARCHIVED:
            raise Archived(f"{key!r} is archived: create a {self.kind.title} with another key")
        if not (is_sql(found.document) and is_runnable(found.document)):
            raise BadRequest("not_sql", f"{key!r} is a measure of events, which is always up to date: only SQL traits have runs")
        before = next((row for row in self.store.of(workspace) if row.key == key), None)
        if not dry_run and (before is None or before.state not in UNFINISHED):
            (trait,) = _in_sql(self.kind, workspace, [found], full=full)
            self._queue(trait, before, self.now_ms())
        return found

    def shown(self, workspace: str, definitions: Sequence[Definition]) -> Mapping[str, Document]:
        """Return by key the fields that the runs add to the documents of these definitions."""
        traits = _in_sql(self.kind, workspace, definitions)
        if self.kind is EVENT_TYPES:
            traits = [one for one in traits if not one.archived]
        if not traits:
            return {}
        rows = {row.key: row for row in self.store.of(workspace)}
        return {trait.key: self._shown(trait, rows.get(trait.key)) for trait in traits}

    def _queue(self, trait: ScheduledSql, before: RunRow | None, now_ms: int) -> bool:
        # Later than the run before, also by a clock that is behind: the time is part of the id.
        at_ms = now_ms if before is None else max(now_ms, before.queued_at_ms + 1)
        return self.store.queue(trait, run_id(trait.workspace, trait.key, trait.version, at_ms), at_ms, before)

    def _shown(self, trait: ScheduledSql, row: RunRow | None) -> Document:
        if trait.archived:
            return {"last_run": self._last_run(row), "next_run_at": None}
        is_new = row is None or (row.version < trait.version and row.state != RUNNING)
        state = WAITING if row is None or is_new else row.state
        last = self._last_run(row)
        if state == WAITING and not self.is_started and last["message"] is None:
            last["message"] = _NOT_STARTED
        return {
            "status": state,
            "last_run": last,
            "next_run_at": format_instant(next_run_ms(trait.schedule, trait.timezone, self.now_ms())),
        }

    def _last_run(self, row: RunRow | None) -> Document:
        """Return the newest run as it is shown; without one its fields are null."""
        found = row or _NONE
        result = {"rows": found.users} if self.kind is not TRAITS else {"users": found.users, "published": found.published}
        by_day = {"days": found.days, "late_rows": found.late_rows} if self.kind is VIEWS else {}
        return {
            "as_of": None if found.as_of_ms is None else format_instant(found.as_of_ms),
            "ended_at": None if found.ended_at_ms is None else format_instant(found.ended_at_ms),
            **result,
            **by_day,
            "scanned_bytes": found.scanned_bytes,
            "message": found.message,
            **_checked(found),
        }


def _checked(row: RunRow) -> Document:
    """Return the outcome of the checks as it is shown; null before the first one, and for a definition without checks."""
    if row.checks is None or row.check_results is None:
        return {"checked_at": None, "checks": None}
    found = json.loads(row.check_results)
    return {"checked_at": format_instant(found["checked_at_ms"]), "checks": found["checks"]}


def _newest(row: RunRow | None, statement: ScheduledSql) -> Queued | None:
    """Return the newest run of a statement; None too for the last one of removed checks, after which an event type got new ones."""
    if row is None or (row.archived and row.version < statement.version and row.state != RUNNING):
        return None
    return row.queued


def _in_sql(kind: Kind, workspace: str, definitions: Sequence[Definition], *, full: bool = False) -> list[ScheduledSql]:
    if kind is EVENT_TYPES:
        return [_of_event_type(workspace, one) for one in definitions]
    return [
        ScheduledSql(
            workspace,
            one.key,
            one.version,
            one.document["sql"],
            one.document["schedule"],
            one.document.get("timezone") or "UTC",
            one.status == ARCHIVED,
            json.dumps(one.document["checks"]) if one.document.get("checks") else None,
            stored(one.document.get(FIELD), full=full),
        )
        for one in definitions
        if is_sql(one.document) and is_runnable(one.document)
    ]


def _of_event_type(workspace: str, definition: Definition) -> ScheduledSql:
    """Return the checks of an event type; without some its last run is withdrawn, as that of an archived one."""
    document, sql = definition.document, checked_statement(definition.document)
    if sql is None or definition.status == ARCHIVED:
        return ScheduledSql(workspace, definition.key, definition.version, sql or "", "", "UTC", archived=True)
    checks = json.dumps(document["checks"])
    schedule, zone = document["schedule"], document.get("timezone") or "UTC"
    return ScheduledSql(workspace, definition.key, definition.version, sql, schedule, zone, archived=False, checks=checks)


_NONE: Final = RunRow("", "", 0, archived=False, state=WAITING, queued_at_ms=0)
