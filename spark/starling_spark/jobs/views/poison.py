"""Adapter: the records of an unfinished micro-batch at which a view raises, found by bisection.

A view's rows are computed inside Spark, where an exception ends the query and names no record. A query that ended leaves a planned
micro-batch in its checkpoint. The next start computes the rows of this batch once more; if that raises too, it bisects the batch.
"""

import json
from collections.abc import Callable, Iterator, Mapping
from contextlib import closing
from typing import Final

from confluent_kafka import OFFSET_BEGINNING, Consumer
from pyspark.sql import DataFrame

from starling_common.failures import is_of_installation, poison
from starling_common.kafka.clients import consumer_config, offsets
from starling_common.outcome import Refused
from starling_common.telemetry.logs import log
from starling_spark.directories import Directory
from starling_spark.kafka.checkpoints import Checkpoint

Place = tuple[str, int]
Span = tuple[int, int]
Spans = Mapping[Place, Span]
"""(topic, partition) -> the records from the first offset to before the second."""

_FILE: Final = "refused.json"
_SECONDS: Final = 30.0


class FailedRecords:
    """The records that a view leaves out, in a file of its checkpoint."""

    def __init__(self, directory: Directory) -> None:
        self._directory = directory

    def places(self) -> list[tuple[str, int, int]]:
        """Return topic, partition and offset of each."""
        return [(topic, partition, offset) for topic, partition, offset in json.loads(self._directory.read(_FILE) or "[]")]

    def add(self, places: list[tuple[str, int, int]]) -> None:
        """Store more of them."""
        self._directory.write(_FILE, json.dumps([*self.places(), *places]))


def unfinished(directory: Directory, brokers: str) -> Spans:
    """Return the present records of the micro-batch that is planned and not completed. Raises: KafkaException."""
    checkpoint = Checkpoint(directory)
    planned, begun = checkpoint.planned(), checkpoint.offsets()
    if not planned:
        return {}
    with closing(Consumer(consumer_config(brokers, "starling-views-unfinished"))) as consumer:
        starts = offsets(consumer, sorted(planned), OFFSET_BEGINNING, _SECONDS)
    firsts = {place: max(begun.get(place, 0), starts[place]) for place in planned}
    return {place: (firsts[place], end) for place, end in planned.items() if end > firsts[place]}


def found_by_bisection(
    spans: Spans, read: Callable[[Spans], DataFrame], rows: Callable[[DataFrame], DataFrame]
) -> Iterator[tuple[str, int, int, Refused]]:
    """Yield each record at which `rows` raises although `read` does not. Raises: failures of `read`, such as an absent broker."""
    cause = _failure(spans, read, rows)
    if cause is None:
        return
    log(__name__).error("batch_failed_again", records=_count(spans), error=str(cause).partition("\n")[0])
    if _count(spans) > 1:
        for half in _halves(spans):
            yield from found_by_bisection(half, read, rows)
        return
    [((topic, partition), (offset, _))] = [(place, span) for place, span in spans.items() if span[1] > span[0]]
    yield topic, partition, offset, poison(cause)


def _failure(spans: Spans, read: Callable[[Spans], DataFrame], rows: Callable[[DataFrame], DataFrame]) -> Exception | None:
    """Return the exception of the rows of these records; None without one."""
    try:
        rows(read(spans)).write.format("noop").mode("overwrite").save()
    except Exception as cause:
        if is_of_installation(cause):
            raise
        read(spans).write.format("noop").mode("overwrite").save()
        return cause
    return None


def _count(spans: Spans) -> int:
    return sum(end - first for first, end in spans.values())


def _halves(spans: Spans) -> tuple[Spans, Spans]:
    """Return the first and the second half of the records, partition by partition."""
    left, first, second = _count(spans) // 2, dict[Place, Span](), dict[Place, Span]()
    for place, (start, end) in spans.items():
        middle = min(end, start + left)
        left -= middle - start
        if middle > start:
            first[place] = (start, middle)
        if end > middle:
            second[place] = (middle, end)
    return first, second
