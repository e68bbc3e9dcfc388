"""Edge: streaming queries followed until the job is told to stop. What goes wrong with one is the process's end."""

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from threading import Event

from confluent_kafka import KafkaException
from pyspark.sql.streaming.query import StreamingQuery

from starling_common.logs import log
from starling_spark.kafka.groups import Ends, GroupOffsets, end_offsets
from starling_spark.session.query_metrics import QueryMetrics

_POLL_SECONDS = 0.2


@dataclass(frozen=True, slots=True)
class Running:
    """A started query. `moved` is called once for each progress that completes a micro-batch, with Spark's JSON."""

    query: StreamingQuery
    metrics: QueryMetrics
    moved: Callable[[str], None] = lambda _progress: None


class Watched:
    """A started query, looked at again and again; its metrics are told of each progress once."""

    def __init__(self, running: Running) -> None:
        self.query = running.query
        self.progress: str | None = None
        """Of the last micro-batch that was completed, as Spark's JSON."""
        self._running = running

    def look(self, *, is_last: bool = False) -> bool:
        """Whether there is a new progress. Raises: StreamingQueryException when the query failed, unless `is_last`."""
        failure = self.query.exception()
        if failure is not None and not is_last:
            raise failure
        last = self.query.lastProgress
        if last is None or last.json == self.progress:
            return False
        self.progress = last.json
        self._running.metrics.tell(self.progress)
        self._running.moved(self.progress)
        return True


class Follower:
    """Follows queries that read the same topics; the group is told how far the slowest of them is."""

    def __init__(self, group: GroupOffsets) -> None:
        self._group = group
        self._problem: str | None = "not started yet"

    def problem(self) -> str | None:
        """What keeps the job from being ready."""
        return self._problem

    def follow(self, queries: Sequence[Running], stopping: Event, stop_seconds: float) -> None:
        """Until `stopping`. Raises: StreamingQueryException when a query failed."""
        self._problem = None
        watched = [Watched(running) for running in queries]
        try:
            while not stopping.wait(_POLL_SECONDS):
                news = [one.look() for one in watched]
                if any(news):
                    self._tell(_reached(watched))
        finally:
            deadline = time.monotonic() + stop_seconds
            for one in watched:
                stop_between_batches(one.query, deadline)
                one.look(is_last=True)
            self._tell(_reached(watched))

    def _tell(self, ends: Ends) -> None:
        try:
            self._group.tell(ends)
        except KafkaException as error:
            # What was written is safe; only lag looks larger than it is until the broker is back.
            log(__name__).warning("positions_not_committed", error=str(error))
            self._problem = f"the broker does not answer: {error}"
        else:
            self._problem = None


def _reached(watched: Sequence[Watched]) -> Ends:
    return slowest([end_offsets(one.progress) for one in watched if one.progress is not None], len(watched))


def slowest(ends: Sequence[Ends], queries: int) -> Ends:
    """What all queries have done; nothing while one of them has not told."""
    if len(ends) < queries:
        return {}
    places = {place for one in ends for place in one}
    return {place: min(one[place] for one in ends if place in one) for place in places}


def stop_between_batches(query: StreamingQuery, deadline: float) -> None:
    """Stop when the micro-batch at hand is done, or in its midst at `deadline` (monotonic seconds): it is repeated later."""
    before = query.lastProgress
    while query.isActive and query.status["isTriggerActive"] and time.monotonic() < deadline:
        now = query.lastProgress
        if now is not None and (before is None or now.batchId != before.batchId):
            break
        time.sleep(0.05)
    query.stop()
