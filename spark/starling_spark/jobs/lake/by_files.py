"""Adapter: a micro-batch into the lake. The workers write the files, the driver commits them."""

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from typing import TypeAlias

from pyspark.sql import DataFrame

from starling_spark.jobs.lake.transform import reading
from starling_spark.lakehouse.data_files import DataFile, Plan, Refused, Target, TaskResult, write_files, write_refused
from starling_spark.lakehouse.iceberg import Lake
from starling_spark.lakehouse.positions import Position, TopicPartition
from starling_spark.lakehouse.schema.opened import Opened
from starling_spark.lakehouse.schema.tables import QUARANTINE, LakeTable

Counted: TypeAlias = Callable[[Mapping[str, int]], None]
"""Counts the records that a committed batch refused, by code."""

Reread: TypeAlias = Callable[[Mapping[TopicPartition, tuple[int, int]]], DataFrame]
"""Returns `sources.RECORDS` of each (topic, partition), from the first offset to before the second, or more of them."""

_REPEATING = ("workspace", "origin_topic", "origin_partition")


def by_files(
    lake: Lake, tables: Sequence[LakeTable], batch: DataFrame, opened: Opened, reread: Reread, counted: Counted = lambda _: None
) -> dict[str, int]:
    """Write a micro-batch, and return the number of rows by table with input. `reread` reads refused records with their headers."""
    targets = {table.name: _target(lake, table.name, table.sorted_by, (table.kind, *table.sorted_by[:-1])) for table in tables}
    quarantine = _target(lake, QUARANTINE, (), ("code",))
    plan = Plan(
        {topic: reading(table, opened.wire, opened.columns[table.name]) for table in tables for topic in table.topics},
        {topic: targets[table.name] for table in tables for topic in table.topics},
        quarantine.position,
    )
    result = write_files(batch, plan)
    ends = _ends(result)
    written: dict[str, int] = {}
    # The quarantine is committed first: a repeated batch may decode a record whose schema is registered by then, and a record in
    # two tables is better than one in none.
    if result.refused:
        files = write_refused(reread(_spans(result.refused)), quarantine, result.refused)
        written[QUARANTINE] = _commit(lake, quarantine, files, ends)
        codes: Counter[str] = Counter()
        for one in result.refused:
            codes[one.why.code] += len(one.offsets)
        counted(codes)
    for table in tables:
        own = {partition: end for partition, end in ends.items() if partition[0] in table.topics}
        if own:
            written[table.name] = _commit(lake, targets[table.name], result.files, own)
    return written


def _target(lake: Lake, table: str, sorted_by: tuple[str, ...], few: tuple[str, ...]) -> Target:
    layout, tip, store = lake.layout_tip_and_store(table)
    return Target(table, layout, tip, sorted_by, (*few, *_REPEATING), store)


def _spans(refused: Sequence[Refused]) -> dict[TopicPartition, tuple[int, int]]:
    """Return the offsets of each partition from the first refused record to after the last."""
    spans: dict[TopicPartition, tuple[int, int]] = {}
    for one in refused:
        first, end = spans.get((one.topic, one.partition), (min(one.offsets), 0))
        spans[one.topic, one.partition] = min(first, *one.offsets), max(end, max(one.offsets) + 1)
    return spans


def _ends(result: TaskResult) -> dict[TopicPartition, int]:
    ends: dict[TopicPartition, int] = {}
    for topic, number, end in result.ends:
        ends[topic, number] = max(end, ends.get((topic, number), 0))
    return ends


def _commit(lake: Lake, target: Target, files: Sequence[DataFile], ends: Mapping[TopicPartition, int]) -> int:
    after: Position = {**target.position, **{one: max(end, target.position.get(one, 0)) for one, end in ends.items()}}
    if after == target.position:
        return 0
    return lake.append_files(target.table, [file for file in files if file.table == target.table], after, target.tip)
