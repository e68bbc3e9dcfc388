"""Adapter: a micro-batch into a lake to which workers cannot write: rows return to the JVM, and Iceberg's writer writes them.

Iceberg has clients for more stores and more of their settings than the workers.
"""

from collections.abc import Mapping, Sequence
from functools import reduce
from typing import NamedTuple

from pyspark import StorageLevel
from pyspark.sql import DataFrame, types

from starling_spark.jobs.lake.by_files import Counted
from starling_spark.jobs.lake.transform import beyond, read, refused, rows, spans
from starling_spark.lakehouse.iceberg import Lake
from starling_spark.lakehouse.positions import Span, Tip, TopicPartition, after, is_in, of_topics, partly_in
from starling_spark.lakehouse.schema.opened import Opened
from starling_spark.lakehouse.schema.tables import QUARANTINE, LakeTable


def by_rows(
    lake: Lake, tables: Sequence[LakeTable], batch: DataFrame, opened: Opened, counted: Counted = lambda _: None
) -> dict[str, int]:
    """Write a micro-batch, and return the number of rows by table with input."""
    # On disk alone, because the memory of an executor has to suffice for a micro-batch of any size.
    persisted = [batch.persist(StorageLevel.DISK_ONLY)]
    try:
        batch_spans = spans(batch)
        quarantined = lake.tip(QUARANTINE)
        written: dict[str, int] = {}
        parts: list[_Part] = []
        for table in tables:
            own = of_topics(batch_spans, table.topics)
            if own:
                part = _read(table, batch, own, (lake.tip(table.name), quarantined), opened)
                persisted.append(part.found.persist(StorageLevel.DISK_ONLY))
                parts.append(part)
        # The quarantine is committed first, from the same decoding: a repeated batch may decode a record whose schema is
        # registered by then.
        count = _quarantine(lake, parts, quarantined, counted)
        if count:
            written[QUARANTINE] = count
        for part in parts:
            written[part.table.name] = _write(lake, part)
        return written
    finally:
        for one in persisted:
            one.unpersist()


class _Part(NamedTuple):
    """The decoded and refused records of a batch for one table; `columns`: the table's columns."""

    table: LakeTable
    own: Mapping[TopicPartition, Span]
    tip: Tip
    found: DataFrame
    columns: types.StructType


def _read(table: LakeTable, batch: DataFrame, own: Mapping[TopicPartition, Span], tips: tuple[Tip, Tip], opened: Opened) -> _Part:
    known = {partition: min(tip.position.get(partition, 0) for tip in tips) for partition in own}
    columns = opened.columns[table.name]
    found = read(beyond(batch, partly_in(known, own)), table, opened.wire, columns)
    return _Part(table, own, tips[0], found, columns)


def _write(lake: Lake, part: _Part) -> int:
    position = part.tip.position
    if is_in(position, part.own):
        return 0
    found = beyond(part.found, partly_in(position, part.own))
    return lake.append(part.table.name, rows(found, part.columns), after(position, part.own), part.tip)


def _quarantine(lake: Lake, parts: Sequence[_Part], tip: Tip, counted: Counted) -> int:
    position = tip.position
    quarantined = [refused(beyond(part.found, partly_in(position, part.own))) for part in parts]
    own = {partition: span for part in parts for partition, span in part.own.items()}
    found = reduce(DataFrame.unionByName, quarantined) if quarantined else None
    if found is None or is_in(position, own) or found.isEmpty():
        return 0
    count = lake.append(QUARANTINE, found, after(position, own), tip)
    counted({row["code"]: row["count"] for row in found.groupBy("code").count().collect()})
    return count
