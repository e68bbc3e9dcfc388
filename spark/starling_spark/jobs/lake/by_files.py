"""Adapter: a micro-batch into a lake in a directory: the workers write the files, the driver commits them."""

from collections.abc import Callable, Mapping, Sequence
from typing import TypeAlias

from pyspark.sql import DataFrame

from starling_spark.jobs.lake.transform import reading
from starling_spark.lakehouse.data_files import DataFile, Plan, Refused, Target, Told, write_files, write_refused
from starling_spark.lakehouse.iceberg import Lake
from starling_spark.lakehouse.opened import Opened
from starling_spark.lakehouse.positions import Place, Position
from starling_spark.lakehouse.tables import QUARANTINE, LakeTable

Again: TypeAlias = Callable[[Mapping[Place, tuple[int, int]]], DataFrame]
"""`sources.RECORDS` of each (topic, partition), from the first offset to before the second; it may give more."""

_REPEATING = ("workspace", "origin_topic", "origin_partition")


def by_files(lake: Lake, tables: Sequence[LakeTable], batch: DataFrame, opened: Opened, again: Again) -> dict[str, int]:
    """Rows that each table got; one that saw no record is not named. `again` reads what is refused once more, with headers."""
    targets = {table.name: _target(lake, table.name, table.sorted_by, (table.kind, *table.sorted_by[:-1])) for table in tables}
    quarantine = _target(lake, QUARANTINE, (), ("code",))
    plan = Plan(
        {topic: reading(table, opened.wire, opened.columns[table.name]) for table in tables for topic in table.topics},
        {topic: targets[table.name] for table in tables for topic in table.topics},
        quarantine.position,
    )
    told = write_files(batch, plan)
    ends = _ends(told)
    written: dict[str, int] = {}
    # First: what one try refuses, the next may read, its schema being known by then. Twice is better than not at all.
    if told.refused:
        letters = write_refused(again(_spans(told.refused)), quarantine, told.refused)
        written[QUARANTINE] = _commit(lake, quarantine, letters, ends)
    for table in tables:
        own = {place: end for place, end in ends.items() if place[0] in table.topics}
        if own:
            written[table.name] = _commit(lake, targets[table.name], told.files, own)
    return written


def _target(lake: Lake, table: str, sorted_by: tuple[str, ...], few: tuple[str, ...]) -> Target:
    return Target(table, *lake.standing(table), sorted_by, (*few, *_REPEATING))


def _spans(refused: Sequence[Refused]) -> dict[Place, tuple[int, int]]:
    """From the first refused record of each partition to behind the last."""
    spans: dict[Place, tuple[int, int]] = {}
    for one in refused:
        first, end = spans.get((one.topic, one.partition), (min(one.offsets), 0))
        spans[one.topic, one.partition] = min(first, *one.offsets), max(end, max(one.offsets) + 1)
    return spans


def _ends(told: Told) -> dict[Place, int]:
    ends: dict[Place, int] = {}
    for topic, number, end in told.ends:
        ends[topic, number] = max(end, ends.get((topic, number), 0))
    return ends


def _commit(lake: Lake, target: Target, files: Sequence[DataFile], ends: Mapping[Place, int]) -> int:
    after: Position = {**target.position, **{place: max(end, target.position.get(place, 0)) for place, end in ends.items()}}
    if after == target.position:
        return 0
    return lake.append_files(target.table, [file for file in files if file.table == target.table], after)
