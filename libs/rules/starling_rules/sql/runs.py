"""Pure core: the states of statements in SQL, and when their next runs begin. The API queues runs, the Spark job performs them."""

from typing import Final, NamedTuple

from starling_common.values import deterministic_id
from starling_rules.sql.schedule import next_run_ms

WAITING: Final = "waiting"
RUNNING: Final = "running"
ACTIVE: Final = "active"
REFUSED: Final = "refused"
FAILED: Final = "failed"
UNFINISHED: Final = frozenset({WAITING, RUNNING})

PRODUCED_BY: Final = "sql-traits"
"""The header `produced_by` of the values."""

MAX_ATTEMPTS: Final = 3
"""Starts of one run. A run that ends the process of the job each time would keep the others from running."""


class ScheduledSql(NamedTuple):
    """The statement of a definition in force, a computed trait or a view, with its schedule.

    `checks`: of its result, as JSON; `incremental`: how a view is computed by the day, as JSON (`sql.incremental.stored`).
    """

    workspace: str
    key: str
    version: int
    sql: str
    schedule: str
    timezone: str
    archived: bool
    checks: str | None = None
    incremental: str | None = None


class Queued(NamedTuple):
    """The newest run of a statement, as it was queued. `state`: of that run."""

    version: int
    archived: bool
    state: str
    queued_at_ms: int


def is_due(statement: ScheduledSql, newest: Queued | None, now_ms: int) -> bool:
    """Return whether to queue a run now: for a new definition, for a new version, and at the times of the schedule.

    Times that passed while a run was queued or running, or while no process ran, lead to one run together. A run of an archived
    definition withdraws its result.
    """
    if newest is None:
        return not statement.archived
    if newest.state == RUNNING or newest.archived:
        return False
    if statement.archived or statement.version > newest.version:
        return True
    return newest.state not in UNFINISHED and next_run_ms(statement.schedule, statement.timezone, newest.queued_at_ms) <= now_ms


def run_id(workspace: str, key: str, version: int, queued_at_ms: int) -> str:
    """Return the id of a run. A repetition after a kill is the same run."""
    return deterministic_id("sql-trait-run", workspace, key, version, queued_at_ms)
