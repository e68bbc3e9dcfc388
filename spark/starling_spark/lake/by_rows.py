"""Adapter: a micro-batch into a lake anywhere: rows go back to the JVM, and Iceberg's own writer brings them to where it can.

For object stores, whose addresses and credentials Iceberg's catalog alone knows.
"""

from collections.abc import Mapping, Sequence

from pyspark import StorageLevel
from pyspark.sql import DataFrame

from starling_spark.lake.iceberg import Lake
from starling_spark.lake.opened import Opened
from starling_spark.lake.positions import Place, Span, after, is_in, of_topics, partly_in
from starling_spark.lake.tables import QUARANTINE, LakeTable
from starling_spark.lake.transform import beyond, read, refused, rows, spans


def by_rows(lake: Lake, tables: Sequence[LakeTable], batch: DataFrame, opened: Opened) -> dict[str, int]:
    """Rows that each table got; one that saw no record is not named."""
    batch = batch.persist(StorageLevel.MEMORY_AND_DISK)
    try:
        there = spans(batch)
        written: dict[str, int] = {}
        doubtful: list[LakeTable] = []
        for table in tables:
            own = of_topics(there, table.topics)
            if own:
                written[table.name], is_whole = _write_table(lake, table, batch, own, opened)
                doubtful += [] if is_whole else [table]
        if doubtful:
            written[QUARANTINE] = _quarantine(lake, doubtful, batch, there, opened)
        return written
    finally:
        batch.unpersist()


def _write_table(lake: Lake, table: LakeTable, batch: DataFrame, own: Mapping[Place, Span], opened: Opened) -> tuple[int, bool]:
    """How many rows, and whether they are certainly all that the batch has for this table."""
    position = lake.position(table.name)
    if is_in(position, own):
        return 0, False
    known = partly_in(position, own)
    there = opened.columns[table.name]
    found = read(beyond(batch, known), table, opened.wire, there)
    count = lake.append(table.name, rows(found, there), after(position, own))
    return count, not known and count == sum(span.records for span in own.values())


def _quarantine(lake: Lake, tables: list[LakeTable], batch: DataFrame, there: Mapping[Place, Span], opened: Opened) -> int:
    own = of_topics(there, [topic for table in tables for topic in table.topics])
    position = lake.position(QUARANTINE)
    if is_in(position, own):
        return 0
    left = beyond(batch, partly_in(position, own))
    first, *others = [refused(read(left, table, opened.wire, opened.columns[table.name])) for table in tables]
    for other in others:
        first = first.unionByName(other)
    return lake.append(QUARANTINE, first, after(position, own))
