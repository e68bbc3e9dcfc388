"""Edge: streaming queries, followed until the job is stopped. A failed query ends the process."""

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from threading import Event

from confluent_kafka import KafkaException
from pyspark.sql.streaming.query import StreamingQuery

from starling_common.kafka.lost_input import InputLost, cure
from starling_common.telemetry.logs import log
from starling_spark.kafka.groups import Ends, GroupOffsets, end_offsets
from starling_spark.session.query_metrics import QueryMetrics

_POLL_SECONDS = 0.2


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


class Follower:
    """Follows queries that read the same topics, and commits the offsets of the slowest one to the group."""

    def __init__(self, group: GroupOffsets) -> None:
        self._group = group
        self._problem: str | None = "not started yet"

    def problem(self) -> str | None:
        """Return why the job is not ready; None when it is ready."""
        return self._problem

    def follow(self, queries: Sequence[Running], stopping: Event, stop_seconds: float) -> None:
        """Poll the queries until `stopping`, then stop them. Raises: StreamingQueryException when a query failed."""
        self._problem = None
        watched = [WatchedQuery(running) for running in queries]
        try:
            while not stopping.wait(_POLL_SECONDS):
                advanced = [one.poll() for one in watched]
                if any(advanced):
                    self._commit(_reached(watched))
        finally:
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
