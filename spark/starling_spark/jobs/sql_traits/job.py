"""Edge: performs the runs that wait, one after another: pins the lake, executes the statement, and publishes what has changed.

The rows of a run of a trait are complete in the lake before the first value is published. So a run that is killed goes on where it
was: it either executes the statement again, or publishes the same values with the same ids. The run of a view replaces its table,
or of an incremental one the rows of the days with new events.
The checks of a definition are evaluated on the result before it is published; the run of an event type has nothing but checks.
"""

import threading
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import partial
from typing import Final, NamedTuple, Protocol

from py4j.protocol import Py4JError
from pyspark import StorageLevel
from pyspark.errors import AnalysisException, ParseException, PySparkException, QueryContextType
from pyspark.sql import DataFrame, SparkSession

from starling_common.cassandra.read_models import COMPUTED_TRAIT, EVENT_TYPE, VIEW
from starling_common.kafka.clients import BrokerUnavailable
from starling_common.settings import Clock
from starling_common.telemetry.logs import log
from starling_common.time.instants import wall_clock_ms
from starling_rules.sql.event_types import with_event_types
from starling_rules.sql.incremental import incremental_of
from starling_rules.sql.runs import ACTIVE, FAILED, MAX_ATTEMPTS, REFUSED, WAITING
from starling_rules.sql.statement import AS_OF, sql_errors, tables_read
from starling_rules.sql.tables import EVENTS, PRODUCTS
from starling_spark.jobs.sql_traits.checks.checking import CheckFailed, Checking
from starling_spark.jobs.sql_traits.checks.quality import QualityResults
from starling_spark.jobs.sql_traits.days import SUMMARY, Asked, Plan, digest, planned
from starling_spark.jobs.sql_traits.event_types import CheckedEvents
from starling_spark.jobs.sql_traits.plan import PlanRefused, check_plan, scanned_bytes
from starling_spark.jobs.sql_traits.products import Listing, Products
from starling_spark.jobs.sql_traits.results import Results, Target
from starling_spark.jobs.sql_traits.store import Check, Computed, Run, RunStore, Stored
from starling_spark.jobs.sql_traits.tables import SOURCES, NoTables, as_of_ms, pinned_tables, sources_of
from starling_spark.jobs.sql_traits.values import ResultRefused
from starling_spark.jobs.sql_traits.views import ViewTables, view_lake
from starling_spark.lakehouse.iceberg import Lake
from starling_spark.lakehouse.lineage import table_datasets
from starling_spark.lakehouse.pinned import PinnedLake, Pinning, pinned
from starling_spark.lineage.datasets import Dataset, Flow
from starling_spark.lineage.runs import OFF, JobName, Lineage, RunLineage
from starling_spark.session.failures import first_cause

PINNING: Final = Pinning("sql-traits")
_ENDED: Final = {COMPUTED_TRAIT: "sql_trait_ended", VIEW: "sql_view_ended", EVENT_TYPE: "event_type_checked"}
"""Kind -> the name of the end of a run in the log."""
_JOBS: Final = {COMPUTED_TRAIT: "sql_traits", VIEW: "sql_views", EVENT_TYPE: "event_types"}
"""Kind -> the first part of the name of a job in events of OpenLineage."""
_GROUP: Final = "sql-trait"
_CANCEL_SECONDS: Final = 1.0
_MOST_MESSAGE: Final = 1_000


@dataclass(frozen=True, slots=True)
class Limits:
    """The bounds of one statement. Units: `max_seconds`. `max_users`: of a trait; `max_rows`: of a view."""

    max_bytes: int
    max_users: int
    max_seconds: float
    max_rows: int = 100_000_000


@dataclass(frozen=True, slots=True)
class Place:
    """The lake from which the runs read, and where they publish. `clock`: the source of `:as_of`.

    `keep_hours`: of former rows; `checks_keep_days`: of the outcome of checks.
    """

    namespace: str
    target: Target
    listing: Listing
    clock: Clock
    orphan_hours: float
    keep_hours: float = 72.0
    pinning: Pinning = PINNING
    checks_keep_days: int = 90


class Stores(NamedTuple):
    """The runs of the three kinds."""

    traits: RunStore
    views: RunStore
    event_types: RunStore


class Output(Protocol):
    """What becomes of the results of a kind: values of users, tables, or nothing. `kind`: of their definitions."""

    kind: str

    def write(self, run: Run, statement: DataFrame, check: Check, plan: Plan | None) -> Stored:
        """Store the result of a run in one commit. `check` is called before it is published.

        `plan`: of a view that is incremental. Raises: ResultRefused, and the errors of Spark and of `check`.
        """

    def forget(self, run: Run, *kept: str) -> None:
        """Delete what runs of the same definition have left, except those with the ids `kept`."""

    def withdraw(self, run: Run) -> None:
        """Delete the result of an archived definition."""

    def publish(self, run: Run) -> int:
        """Publish what a run has changed; return the number of records."""

    def maintain(self) -> None:
        """Delete the files of former results."""

    def datasets(self, run: Run, rows: int | None = None, published: int | None = None) -> Iterable[Dataset]:
        """Return what a run writes: `rows` in the lake, and `published` records."""


class NotRun(Exception):
    """A statement without a result. `state`: refused or failed; the text is the reason."""

    def __init__(self, state: str, reason: str) -> None:
        super().__init__(reason)
        self.state = state


class SqlTraitJob:
    """Performs runs. `spark`: a session of its own for each statement is derived from it."""

    def __init__(self, spark: SparkSession, stores: Stores, place: Place, limits: Limits, lineage: Lineage = OFF) -> None:
        self._spark = spark
        self._lineage = lineage
        self._event_types = stores.traits.event_types
        self._place = place
        self._limits = limits
        lake = Lake(spark, place.namespace)
        self._products = Products(spark, lake, place.listing, place.orphan_hours)
        self._outputs: Sequence[tuple[RunStore, Output]] = (
            (stores.traits, Results(spark, lake, place.target, limits.max_users, place.orphan_hours)),
            (stores.views, ViewTables(spark, limits.max_rows, place.keep_hours, place.orphan_hours)),
            (stores.event_types, CheckedEvents(lake)),
        )
        self._quality = QualityResults(lake, place.checks_keep_days, place.keep_hours, place.orphan_hours)

    def run(self, is_stopping: Callable[[], bool]) -> Counter[str]:
        """Perform each run that waits or was interrupted, the oldest first; return the number of runs by their state.

        A run whose values cannot be published now has to wait: `waiting` in the result. Raises: DatabaseUnavailable.
        """
        states: Counter[str] = Counter()
        postponed: set[tuple[str, str]] = set()
        while not is_stopping():
            waiting = [
                (run, store, output)
                for store, output in self._outputs
                for run in store.unfinished()
                if (output.kind, run.run) not in postponed
            ]
            if not waiting:
                break
            run, store, output = min(waiting, key=lambda one: one[0].queued_at_ms)
            if not store.begin(run):
                continue  # the API queued another run meanwhile
            with self._lineage.run(_job_of(run, output), is_stopping=is_stopping) as lineage:
                state, message = self._performed(run, store, output, is_stopping, lineage)
                if state is None:
                    lineage.abort()
                    break  # the tasks were cancelled: the run stays as it is
                if state != ACTIVE:
                    lineage.fail(f"{state}: {message}")
            if state == WAITING:
                postponed.add((output.kind, run.run))
            states[state] += 1
            log(__name__).info(_ENDED[output.kind], workspace=run.workspace, key=run.key, run=run.run, state=state, message=message)
        if states:
            for _, output in self._outputs:
                output.maintain()
            self._quality.maintain()
            self._products.maintain()
        return states

    def stop(self) -> None:
        """Cancel the tasks in progress, from another thread."""
        self._spark.sparkContext.cancelAllJobs()

    def _performed(
        self, run: Run, store: RunStore, output: Output, is_stopping: Callable[[], bool], lineage: RunLineage
    ) -> tuple[str | None, str | None]:
        """Perform one run and store its end; return its state and message. State None: the job is stopping."""
        try:
            run = self._complete(run, store, output, lineage)
        except NotRun as error:
            if is_stopping():
                return None, None
            output.forget(run, *filter(None, [run.result]))
            store.end_without(run, error.state, str(error)[:_MOST_MESSAGE])
            return error.state, str(error)[:_MOST_MESSAGE]
        try:
            published = output.publish(run)
        except (PySparkException, Py4JError) as error:
            if is_stopping():
                return None, None
            reason = f"the values could not be published: {first_cause(error)}: the job tries again"
            store.postpone(run, reason)
            return WAITING, reason
        lineage.knows(lambda: Flow((), tuple(output.datasets(run, published=published))))
        store.end_published(run, ACTIVE, published)
        output.forget(run, run.run)
        return ACTIVE, None

    def _complete(self, run: Run, store: RunStore, output: Output, lineage: RunLineage) -> Run:
        """Return the run with its rows complete in the lake. Raises: NotRun."""
        if run.computed_at_ms is not None:
            return run
        if run.attempts >= MAX_ATTEMPTS:
            reason = f"the job ended {run.attempts} times during this run: narrow the statement, or give the job more memory"
            raise NotRun(FAILED, reason)
        output.forget(run, *filter(None, [run.result]))  # rows of an attempt that was killed
        computed = self._withdrawn(run, output) if run.archived else self._computed(run, store, output, lineage)
        lineage.computes(computed.as_of_ms)
        store.set_computed(run, computed)
        return run._replace(as_of_ms=computed.as_of_ms, computed_at_ms=computed.computed_at_ms)

    def _withdrawn(self, run: Run, output: Output) -> Computed:
        """Return the result of an archived definition, which has no rows. By the event clock it does not advance the time."""
        output.withdraw(run)
        now_ms = wall_clock_ms()
        return Computed(now_ms if self._place.clock is Clock.WALL else run.as_of_ms or 0, now_ms, 0, 0)

    def _computed(self, run: Run, store: RunStore, output: Output, lineage: RunLineage) -> Computed:
        event_types = self._event_types(run.workspace)
        errors = sql_errors(run.sql, with_event_types(event_types), is_view=output.kind != COMPUTED_TRAIT)
        if errors:
            first = errors[0]
            raise NotRun(REFUSED, f"line {first.line}, column {first.column}: {first.reason}: {first.cure}")
        read = tables_read(run.sql)
        checking = Checking(run, output.kind, store, self._quality)
        session = self._session(run)
        try:
            if PRODUCTS in read:
                self._products.refresh()
            used = [one for one in event_types if one.table in read]
            with pinned(Lake(session, self._place.namespace), self._place.pinning) as lake:
                tables = pinned_tables(lake, run.workspace, used)
                sources = sources_of(read, used)
                lineage.knows(lambda: Flow(table_datasets(lake, *sources), ()))
                at_ms = as_of_ms(tables, self._place.clock)
                statement = _statement(session, run, tables, at_ms)
                plan = self._plan(lake, run, statement, None if EVENTS in read else [one.event for one in used], at_ms)
                if plan is not None:
                    statement = _statement(session, run, pinned_tables(lake, run.workspace, used, plan), at_ms)
                scanned = self._checked(statement)
                checking.refuse_misfits(statement)
                # Rows that are read more than once are stored, so that the statement is executed once.
                with self._time_limit(), _on_disk(statement, wanted=output.kind == VIEW or checking.is_needed):
                    stored = output.write(run, statement, partial(checking.check, at_ms), plan)
        except (AnalysisException, ParseException, PlanRefused, ResultRefused) as error:
            raise NotRun(REFUSED, _place(error, run.sql) + first_cause(error)) from error
        except CheckFailed as error:
            if output.kind == EVENT_TYPE:  # the outcome of checks is all that its run writes
                lineage.knows(lambda: Flow((), tuple(output.datasets(run))))
            raise NotRun(FAILED, str(error)) from error
        except (PySparkException, Py4JError, NoTables, BrokerUnavailable) as error:
            raise NotRun(FAILED, _place(error, run.sql) + first_cause(error)) from error
        lineage.knows(lambda: Flow((), tuple(output.datasets(run, stored.rows))))
        if stored.problem is not None:
            raise NotRun(REFUSED, stored.problem)
        by_day = () if plan is None else (None if plan.days is None else len(plan.days), plan.late_rows)
        return Computed(at_ms, wall_clock_ms(), stored.rows, scanned, *by_day)

    def _plan(self, lake: PinnedLake, run: Run, statement: DataFrame, names: Sequence[str] | None, at_ms: int) -> Plan | None:
        """Return the days that a run of an incremental view computes; None for another definition. `names`: of the events."""
        incremental = incremental_of(run.incremental)
        if incremental is None:
            return None
        defined = digest(run.sql, statement.schema, run.timezone, incremental.column)
        before = view_lake(lake.spark, run.workspace).summary(run.key, SUMMARY)
        with self._time_limit():
            return planned(lake, incremental, before, Asked(run.workspace, names, defined, at_ms, self._place.clock))

    def _session(self, run: Run) -> SparkSession:
        session = self._spark.newSession()
        session.conf.set("spark.sql.session.timeZone", run.timezone)
        # `${env:…}` in a text would else be replaced by a variable of this process.
        session.conf.set("spark.sql.variable.substitute", "false")
        session.conf.set("spark.sql.crossJoin.enabled", "false")
        return session

    def _checked(self, statement: DataFrame) -> int:
        """Return the estimate of the bytes that the statement reads. Raises: PlanRefused, AnalysisException."""
        check_plan(statement, frozenset(SOURCES.values()))
        found = scanned_bytes(statement)
        if found > self._limits.max_bytes:
            raise PlanRefused(
                f"the statement reads {found} bytes, and at most {self._limits.max_bytes} are allowed: narrow event_time, or raise "
                "STARLING_SQL_TRAITS_MAX_BYTES"
            )
        return found

    @contextmanager
    def _time_limit(self) -> Iterator[None]:
        """Cancel the tasks of the block when its time is over. Raises: NotRun then."""
        context, is_over, has_ended = self._spark.sparkContext, threading.Event(), threading.Event()

        def cancel() -> None:
            if has_ended.wait(self._limits.max_seconds):
                return
            is_over.set()
            context.cancelJobGroup(_GROUP)
            while not has_ended.wait(_CANCEL_SECONDS):
                context.cancelJobGroup(_GROUP)  # Spark cancels the jobs that run, and not those that begin later

        timer = threading.Thread(target=cancel, name="sql-trait-limit", daemon=True)
        context.setJobGroup(_GROUP, "a statement in SQL", interruptOnCancel=True)
        timer.start()
        try:
            yield
        except (PySparkException, Py4JError) as error:
            if is_over.is_set():
                raise self._too_slow() from error
            raise
        finally:
            has_ended.set()
            timer.join()
            # A group that stays set would cancel the tasks of the next run too.
            context.setLocalProperty("spark.jobGroup.id", None)  # type: ignore[arg-type]  # as PySpark documents it
        if is_over.is_set():
            raise self._too_slow()

    def _too_slow(self) -> NotRun:
        reason = f"the statement took longer than {self._limits.max_seconds:g} seconds"
        return NotRun(FAILED, f"{reason}: narrow it, or raise STARLING_SQL_TRAITS_MAX_MINUTES")


@contextmanager
def _on_disk(rows: DataFrame, *, wanted: bool) -> Iterator[None]:
    """Keep the rows that the block reads on the disks of the executors until its end."""
    if not wanted:
        yield
        return
    rows.persist(StorageLevel.DISK_ONLY)
    try:
        yield
    finally:
        rows.unpersist()


def _statement(session: SparkSession, run: Run, tables: Mapping[str, DataFrame], at_ms: int) -> DataFrame:
    for name, rows in tables.items():
        rows.createOrReplaceTempView(name)
    return session.sql(run.sql, {AS_OF: datetime.fromtimestamp(at_ms / 1000, UTC)})


def _job_of(run: Run, output: Output) -> JobName:
    return JobName(f"{_JOBS[output.kind]}.{run.workspace}.{run.key}", sql=run.sql)


def _place(error: Exception, sql: str) -> str:
    """Return the line and the column of an error of Spark in the statement; empty without them."""
    for one in error.getQueryContext() if isinstance(error, PySparkException) else ():
        if one.contextType() is QueryContextType.SQL and sql.startswith(one.fragment(), one.startIndex()):
            at = one.startIndex()
            return f"line {sql.count(chr(10), 0, at) + 1}, column {at - sql.rfind(chr(10), 0, at)}: "
    return ""
