"""Adapter: the records of a partition in the lake, selected by the driver and read row by row in a worker."""

from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import reduce
from typing import Any, Final, TypeAlias

import pyarrow as pa
from pyspark.sql import DataFrame, Window, functions

from starling_common.failures import is_of_installation, poison
from starling_rules.events import Reported
from starling_spark.history.past import FIELDS, lake_rows
from starling_spark.history.records import InputRecord, past_record
from starling_spark.jobs.backfill.planning import Stretch
from starling_spark.jobs.backfill.reading import Refuse, ignore
from starling_spark.lakehouse.iceberg import Lake
from starling_spark.lakehouse.in_force import PAST_TABLES
from starling_spark.lakehouse.pinned import Pinning, pinned
from starling_stream.model.processor import Inbound

Stretches: TypeAlias = Mapping[str, Stretch]
"""Topic -> the offsets that are read from the lake instead of the topic."""

PINNING: Final = Pinning("backfill")
_TOPICS: Final = tuple(FIELDS)
_SO_FAR: Final = "so_far"


@dataclass(frozen=True, slots=True)
class LakeHistory:
    """The lake in the driver of the job. `prefix`: of the topic names, for installations that share a broker."""

    lake: Lake
    prefix: str = ""
    pinning: Pinning = PINNING

    @contextmanager
    def pinned(self) -> Iterator["LakeHistory"]:
        """Yield the lake at the snapshots that are read, which maintenance keeps until the end of the block."""
        with pinned(self.lake, self.pinning) as lake:
            yield replace(self, lake=lake)

    def ends(self, partition: int) -> dict[str, int]:
        """Return by topic the first offset of that partition that the lake lacks. Raises: LakePositionLost."""
        tables = {topic: table for topic, table in PAST_TABLES.items() if self.lake.exists(table)}
        return {topic: self.lake.position(table).get((self.prefix + topic, partition), 0) for topic, table in tables.items()}

    def rows(self, partition: int, stretches: Stretches) -> DataFrame:
        """Return `history.past.PAST` of these stretches of one partition, in one task, in the merge order of the topics."""
        rows = reduce(DataFrame.unionByName, [self._rows(partition, topic, stretch) for topic, stretch in stretches.items()])
        rows, order = rows.repartition(1), ["offset"]
        if len(stretches) > 1:
            # A merge compares the heads of the topics, so an earlier record behind a later one of its topic has to wait.
            so_far = Window.partitionBy("place").orderBy("offset").rowsBetween(Window.unboundedPreceding, Window.currentRow)
            rows = rows.withColumn(_SO_FAR, functions.max("received_at").over(so_far)).repartition(1)
            order = [_SO_FAR, "place", "offset"]
        return rows.sortWithinPartitions(*order)

    def _rows(self, partition: int, topic: str, stretch: Stretch) -> DataFrame:
        table = self.lake.rows(PAST_TABLES[topic])
        first = functions.col("offset") >= stretch.first
        return lake_rows(table, topic, FIELDS[topic], {partition: stretch.end}).where(first)


@dataclass(frozen=True, slots=True)
class LakeRecords:
    """Arrow batches of `LakeHistory.rows` -> records. `on_read` is called with the number of records; `mine`: the keys to keep."""

    batches: Iterable[pa.RecordBatch]
    on_read: Callable[[int], None]
    mine: Callable[[bytes], bool] | None = None
    refuse: Refuse = ignore

    def records(self) -> Iterator[Inbound]:
        """Yield each record once, in the order of the rows."""
        for batch in self.batches:
            for row in batch.to_pylist():
                key, topic = row["key"] or b"", _TOPICS[row["place"]]
                if not key:
                    continue  # refused live
                # A record of another slice advances stream time too.
                value = self._record(row, topic) if self.mine is None or self.mine(key) else None
                moment = row["instant_ms"]
                yield Inbound(topic, row["partition"], row["offset"], key, value, row["received_at"], moment, (), b"")
            self.on_read(batch.num_rows)

    def _record(self, row: Mapping[str, Any], topic: str) -> InputRecord | Reported | None:
        try:
            return past_record(row)
        except Exception as cause:
            if is_of_installation(cause):
                raise
            self.refuse((topic, row["partition"], row["offset"]), poison(cause))
            return None
