"""Adapter: where the history before a cut is: in the lake up to its position, in the topic from there on."""

from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass, field
from typing import Final

from pyspark.sql import DataFrame

from starling_common.kafka.topics import BEHAVIOUR
from starling_spark.jobs.profiles.query.published import Spans
from starling_spark.kafka.checkpoints import Offsets
from starling_spark.lakehouse.iceberg import Lake
from starling_spark.lakehouse.in_force import EVENT_TABLES

_TABLE: Final = EVENT_TABLES[BEHAVIOUR]


@dataclass(frozen=True, slots=True)
class Past:
    """The records of the events topic before a cut, by partition.

    `lake_ends`: the offsets before which the lake has them; `spans`: those of the topic; `missing`: those that neither has.
    """

    lake_ends: Mapping[int, int] = field(default_factory=dict)
    spans: Spans = field(default_factory=dict)
    missing: Mapping[int, tuple[int, int]] = field(default_factory=dict)

    @property
    def records(self) -> int:
        """How many records there are, approximately."""
        return sum(self.lake_ends.values()) + sum(end - first for first, end in self.spans.values())


def divided(topic: str, cut: Offsets, lake_ends: Mapping[int, int], left: Spans) -> Past:
    """Return where the records before the cut are. `left`: the spans that the topic still has."""
    from_lake: dict[int, int] = {}
    spans: dict[tuple[str, int], tuple[int, int]] = {}
    missing: dict[int, tuple[int, int]] = {}
    for (name, partition), end in cut.items():
        if name != topic:
            continue
        lake_end = min(end, lake_ends.get(partition, 0))
        first = min(end, max(lake_end, left.get((topic, partition), (0, 0))[0]))
        if lake_end:
            from_lake[partition] = lake_end
        if lake_end < first:
            missing[partition] = (lake_end, first)
        if first < end:
            spans[topic, partition] = (first, end)
    return Past(from_lake, spans, missing)


@dataclass(frozen=True, slots=True)
class PastEvents:
    """The events topic and the lake. `left`: what the topic still has; `reading`: the lake at one snapshot, None without a lake."""

    topic: str
    left: Callable[[], Spans]
    reading: Callable[[], AbstractContextManager[Lake | None]]

    @contextmanager
    def before(self, cut: Offsets) -> Iterator[tuple[Past, DataFrame | None]]:
        """Yield where the records before the cut are, and the lake's table of them. Raises: KafkaException, LakePositionLost."""
        with self.reading() as lake:
            ends = self._lake_ends(lake)  # first: what the topic deletes afterwards is before them
            past = divided(self.topic, cut, ends, self.left())
            yield past, lake.rows(_TABLE) if lake is not None and past.lake_ends else None

    def _lake_ends(self, lake: Lake | None) -> dict[int, int]:
        if lake is None or not lake.exists(_TABLE):
            return {}
        return {partition: end for (name, partition), end in lake.position(_TABLE).items() if name == self.topic and end > 0}
