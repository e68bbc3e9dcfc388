"""Edge: streaming queries, followed until the job is stopped. A failed query ends the process."""

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from threading import Event

from confluent_kafka import KafkaException
from pyspark import SparkContext
from pyspark.sql.streaming.query import StreamingQuery

from starling_common.kafka.lost_input import InputLost, cure
from starling_common.telemetry.health import Turns
from starling_common.telemetry.logs import log
from starling_spark.kafka.groups import Ends, GroupOffsets, end_offsets
from starling_spark.session.query_metrics import QueryMetrics

_POLL_SECONDS = 0.2
_LOOK_SECONDS = 10.0
_MOST_STALLED_SECONDS = 900.0
"""Longer than any single task of a micro-batch."""
_MOST_TURN_SECONDS = 300.0
"""A turn of the driver's loop makes short calls of the JVM and at most one commit, which has a time-out of a minute."""


@dataclass(frozen=True, slots=True)
class Running:
    """A started query of a stage. `moved` is called once with each new progress (Spark's JSON)."""

    stage: str
    query: StreamingQuery
    metrics: QueryMetrics
    moved: Callable[[str], None] = lambda _progress: None


class WatchedQuery:
    """A started query that is polled for progress; each progress is recorded once."""

    def __init__(self, running: Running) -> None:
        self.query = running.query
        self.progress: str | None = None
        """The progress of the last completed micro-batch, as Spark's JSON."""
        self._running = running

    def poll(self, *, is_last: bool = False) -> bool:
        """Return whether there is a new progress. Raises: InputLost, StreamingQueryException if it failed, unless `is_last`."""
        failure = self.query.exception()
        if failure is not None and not is_last:
            raise _explained(failure, self.query.name, self._running.stage) from failure
        last = self.query.lastProgress
        if last is None or last.json == self.progress:
            return False
        self.progress = last.json
        self._running.metrics.record(self.progress)
        self._running.moved(self.progress)
        return True


def _explained(failure: Exception, name: str | None, stage: str) -> Exception:
    """Return an error with the cure if the checkpoint continues at records that no longer exist, else the failure itself."""
    text = str(failure)
    if "failOnDataLoss" not in text and "KAFKA_DATA_LOSS" not in text:
        return failure
    return InputLost(
        f"{name or 'the query'}: the checkpoint continues at records that Kafka no longer has: they expired before they were "
        f"processed, or the topic was created again. Stop the job. {cure(stage)}. Spark: {text.splitlines()[0]}"
    )


def driver_turns() -> Turns:
    """Return the turns of a driver's loop. Calls of a JVM that hangs do not return."""
    return Turns("the driver's loop", _MOST_TURN_SECONDS)


class Stall:
    """Whether a job makes no progress although there is input and the broker answers.

    An idle query reports a new progress every second. The driver's thread calls `look`, others read `problem`. Without a first
    progress there are no topics to ask for, unless `ends` knows them.
    """

    def __init__(
        self, ends: Callable[[Sequence[str]], Ends], work: Callable[[], object], clock: Callable[[], float] = time.monotonic
    ) -> None:
        """`ends`: the ends of topics, from the broker. `work`: a value that changes with every completed task of Spark."""
        self._ends = ends
        self._work = work
        self._clock = clock
        self._state: object = None
        self._since = self._next_look = clock()
        self.problem: str | None = None

    def begin(self) -> None:
        """Begin the time again, as when a query is started."""
        self._state, self._since, self.problem = None, self._clock(), None

    def look(self, progress: object, reached: Ends) -> None:
        """Compare the progress and the completed tasks with those of the last look. `reached`: the offsets of the progress."""
        now = self._clock()
        if now < self._next_look:
            return
        self._next_look = now + _LOOK_SECONDS
        state = (progress, self._work())
        if state != self._state:
            self._state, self._since, self.problem = state, now, None
        elif now - self._since >= _MOST_STALLED_SECONDS and self._has_input(reached):
            self.problem = f"no progress for {now - self._since:.0f} s although there is input: restart this process"

    def _has_input(self, reached: Ends) -> bool:
        try:
            ends = self._ends(sorted({topic for topic, _ in reached}))
        except KafkaException:
            return False
        return any(end > reached.get(place, 0) for place, end in ends.items())


def completed_tasks() -> object:
    """Return the completed tasks of every active stage of Spark."""
    context = SparkContext._active_spark_context  # noqa: SLF001 - pyspark offers no other access to the running context
    if context is None:
        return ()
    tracker = context.statusTracker()
    found = ((stage, tracker.getStageInfo(stage)) for stage in tracker.getActiveStageIds())
    return tuple((stage, info.numCompletedTasks) for stage, info in found if info is not None)


class Follower:
    """Follows queries that read the same topics, and commits the offsets of the slowest one to the group."""

    def __init__(self, group: GroupOffsets) -> None:
        self._group = group
        self._problem: str | None = "not started yet"
        self._turns = driver_turns()
        self._stall = Stall(group.ends, completed_tasks)

    def failures(self) -> Mapping[str, str | None]:
        """Return the failed checks by name that only a restart of the process corrects."""
        return {"driver": self._turns.problem(), "query": self._stall.problem}

    def problem(self) -> str | None:
        """Return why the job is not ready; None when it is ready."""
        return self._problem

    def follow(self, queries: Sequence[Running], stopping: Event, stop_seconds: float) -> None:
        """Poll the queries until `stopping`, then stop them. Raises: StreamingQueryException when a query failed."""
        self._problem = None
        watched = [WatchedQuery(running) for running in queries]
        self._stall.begin()
        try:
            while not stopping.wait(_POLL_SECONDS):
                self._turns.turned()
                advanced = [one.poll() for one in watched]
                self._stall.look([one.progress for one in watched], _reached(watched))
                if any(advanced):
                    self._commit(_reached(watched))
        finally:
            self._turns.rest()
            deadline = time.monotonic() + stop_seconds
            for one in watched:
                stop_between_batches(one.query, deadline)
                one.poll(is_last=True)
            self._commit(_reached(watched))

    def _commit(self, ends: Ends) -> None:
        try:
            self._group.commit(ends)
        except KafkaException as error:
            # The results are written. Only the reported lag is too high until the broker is back.
            log(__name__).warning("positions_not_committed", error=str(error))
            self._problem = f"the broker does not answer: {error}"
        else:
            self._problem = None


def _reached(watched: Sequence[WatchedQuery]) -> Ends:
    return slowest([end_offsets(one.progress) for one in watched if one.progress is not None], len(watched))


def slowest(ends: Sequence[Ends], queries: int) -> Ends:
    """Return the lowest end of each partition; empty while a query has no progress yet."""
    if len(ends) < queries:
        return {}
    partitions = {partition for one in ends for partition in one}
    return {partition: min(one[partition] for one in ends if partition in one) for partition in partitions}


def stop_between_batches(query: StreamingQuery, deadline: float) -> None:
    """Stop after the current micro-batch, or within it at `deadline` (monotonic seconds); Spark then repeats it after a restart."""
    before = query.lastProgress
    while query.isActive and query.status["isTriggerActive"] and time.monotonic() < deadline:
        now = query.lastProgress
        if now is not None and (before is None or now.batchId != before.batchId):
            break
        time.sleep(0.05)
    query.stop()
