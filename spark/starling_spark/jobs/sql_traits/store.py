"""Adapter: the runs of traits and views in SQL and of checks of event types, and the event types, in Cassandra.

Every method may raise DatabaseUnavailable.
"""

import json
from collections.abc import Callable
from typing import Final, NamedTuple, TypeAlias

from pyspark.sql import DataFrame

from starling_common.cassandra.database import Database
from starling_common.cassandra.read_models import ARCHIVED, EVENT_TYPE
from starling_common.time.instants import wall_clock_ms
from starling_rules.sql.event_types import EventType, event_type_of
from starling_rules.sql.runs import RUNNING, UNFINISHED, WAITING


class Run(NamedTuple):
    """The newest run of a trait or a view, or of the checks of an event type.

    `run`: its id; `attempts`: how often the job has begun it; `result`: the id of the last complete run.
    `as_of_ms`: the value of `:as_of`; `computed_at_ms`: when the rows of this run were complete in the lake, None before.
    `users`: the number of rows of the last complete run, of a trait that of users, of an event type that of
    events; `checks`: of the result, as JSON; `incremental`: of a view, as JSON (`starling_rules.sql.incremental`).
    """

    workspace: str
    key: str
    version: int
    sql: str
    timezone: str
    archived: bool
    state: str
    run: str
    queued_at_ms: int
    attempts: int
    as_of_ms: int | None = None
    computed_at_ms: int | None = None
    result: str | None = None
    users: int | None = None
    checks: str | None = None
    incremental: str | None = None


class Computed(NamedTuple):
    """What the statement returned. Units: epoch ms; `rows`: of a trait, users; `scanned_bytes`: the estimate of its plan.

    `days`: of a view that is incremental, the number of days computed, None: all; `late_rows`: the events of days that wait.
    """

    as_of_ms: int
    computed_at_ms: int
    rows: int
    scanned_bytes: int
    days: int | None = None
    late_rows: int | None = None


class Stored(NamedTuple):
    """What is wrong with the rows of a run, and their number; of a trait, that of users. `problem` None: nothing."""

    rows: int
    problem: str | None


Check: TypeAlias = Callable[[DataFrame, int], None]
"""Called with the rows of a result before they are published, and their number; raises if they must not be."""

TRAITS: Final = "sql_traits"
VIEWS: Final = "sql_views"
EVENT_TYPE_CHECKS: Final = "event_type_checks"
"""The tables of the runs."""

_COLUMNS: Final = ", ".join(Run._fields)
_ALL: Final = f"SELECT {_COLUMNS} FROM {{ks}}.TABLE"  # noqa: S608 - the names of our columns
_EVENT_TYPES: Final = "SELECT status, document FROM {ks}.definitions WHERE workspace = ? AND kind = ?"
_OWN: Final = "WHERE workspace = ? AND key = ? IF run = ?"
_BEGIN: Final = f"UPDATE {{ks}}.TABLE SET state = ?, attempts = ? {_OWN} AND state IN (?, ?)"  # noqa: S608 - as above
_COMPUTED: Final = (
    "UPDATE {ks}.TABLE SET as_of_ms = ?, computed_at_ms = ?, users = ?, scanned_bytes = ?, days = ?, late_rows = ? "
    "WHERE workspace = ? AND key = ? IF run = ?"
)
_PUBLISHED: Final = (
    "UPDATE {ks}.TABLE SET state = ?, result = ?, published = ?, ended_at_ms = ?, message = null "
    "WHERE workspace = ? AND key = ? IF run = ?"
)
_NOT_RUN: Final = f"UPDATE {{ks}}.TABLE SET state = ?, message = ?, ended_at_ms = ? {_OWN}"  # noqa: S608 - as above
_CHECKED: Final = f"UPDATE {{ks}}.TABLE SET check_results = ? {_OWN}"  # noqa: S608 - as above
_POSTPONED: Final = f"UPDATE {{ks}}.TABLE SET message = ? {_OWN}"  # noqa: S608 - as above


class RunStore:
    """Reads and writes the table of a kind. A change has no effect once the API has queued another run."""

    def __init__(self, database: Database, table: str = TRAITS) -> None:
        self._database = database
        self._table = table

    def unfinished(self) -> list[Run]:
        """Return the runs that wait or were interrupted, in the order in which they were queued."""
        found = [Run(**row) for row in self._database.read(self._of(_ALL))]
        return sorted((run for run in found if run.state in UNFINISHED), key=lambda run: (run.queued_at_ms, run.workspace, run.key))

    def event_types(self, workspace: str) -> list[EventType]:
        """Return the event types of a workspace that are not archived."""
        rows = self._database.read(_EVENT_TYPES, (workspace, EVENT_TYPE))
        found = [event_type_of(json.loads(row["document"])) for row in rows if row["status"] != ARCHIVED]
        return [one for one in found if one is not None]

    def begin(self, run: Run) -> bool:
        """Begin a run once more; return False if it is not the newest one any more."""
        values = (RUNNING, run.attempts + 1, run.workspace, run.key, run.run, WAITING, RUNNING)
        return self._database.write_if(self._of(_BEGIN), values)

    def set_checked(self, run: Run, results: str) -> bool:
        """Store the outcome of the checks of a run, as JSON."""
        return self._database.write_if(self._of(_CHECKED), (results, run.workspace, run.key, run.run))

    def set_computed(self, run: Run, computed: Computed) -> bool:
        """Store that the rows of the run are complete in the lake."""
        return self._database.write_if(self._of(_COMPUTED), (*computed, run.workspace, run.key, run.run))

    def end_published(self, run: Run, state: str, published: int) -> bool:
        """End a run whose values are published."""
        values = (state, run.run, published, wall_clock_ms(), run.workspace, run.key, run.run)
        return self._database.write_if(self._of(_PUBLISHED), values)

    def end_without(self, run: Run, state: str, message: str) -> bool:
        """End a run without values. Those of the run before stay."""
        return self._database.write_if(self._of(_NOT_RUN), (state, message, wall_clock_ms(), run.workspace, run.key, run.run))

    def postpone(self, run: Run, message: str) -> bool:
        """Let a run wait for a part that does not respond. It stays `running`: some of its values may be published already."""
        return self._database.write_if(self._of(_POSTPONED), (message, run.workspace, run.key, run.run))

    def _of(self, statement: str) -> str:
        return statement.replace("TABLE", self._table)
