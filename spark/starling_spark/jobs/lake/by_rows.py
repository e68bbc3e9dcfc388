"""Adapter: a micro-batch into a lake anywhere: rows go back to the JVM, and Iceberg's own writer brings them to where it can.

For object stores, whose addresses and credentials Iceberg's catalog alone knows.
"""

from collections.abc import Mapping, Sequence
from functools import reduce
from typing import NamedTuple

from pyspark import StorageLevel
from pyspark.sql import DataFrame, types

from starling_spark.jobs.lake.transform import beyond, read, refused, rows, spans
from starling_spark.lakehouse.iceberg import Lake
from starling_spark.lakehouse.opened import Opened
from starling_spark.lakehouse.positions import Place, Position, Span, after, is_in, of_topics, partly_in
from starling_spark.lakehouse.tables import QUARANTINE, LakeTable


def by_rows(lake: Lake, tables: Sequence[LakeTable], batch: DataFrame, opened: Opened) -> dict[str, int]:
    """Rows that each table got; one that saw no record is not named."""
    kept = [batch.persist(StorageLevel.MEMORY_AND_DISK)]
    try:
        there = spans(batch)
        quarantined = lake.position(QUARANTINE)
        written: dict[str, int] = {}
        parts: list[_Part] = []
        for table in tables:
            own = of_topics(there, table.topics)
            if own:
                part = _read(table, batch, own, (lake.position(table.name), quarantined), opened)
                kept.append(part.found.persist(StorageLevel.MEMORY_AND_DISK))
                parts.append(part)
        # First, and of the same reading: what one try refuses, the next may read, its schema being known by then.
        count = _quarantine(lake, parts, quarantined)
        if count:
            written[QUARANTINE] = count
        for part in parts:
            written[part.table.name] = _write(lake, part)
        return written
    finally:
        for one in kept:
            one.unpersist()


class _Part(NamedTuple):
    """What a batch holds for one table, read or refused, as `decoding.decoded`; `there`: the table's columns."""

    table: LakeTable
    own: Mapping[Place, Span]
    position: Position
    found: DataFrame
    there: types.StructType


def _read(
    table: LakeTable, batch: DataFrame, own: Mapping[Place, Span], positions: tuple[Position, Position], opened: Opened
) -> _Part:
    known = {place: min(position.get(place, 0) for position in positions) for place in own}
    there = opened.columns[table.name]
    found = read(beyond(batch, partly_in(known, own)), table, opened.wire, there)
    return _Part(table, own, positions[0], found, there)


def _write(lake: Lake, part: _Part) -> int:
    if is_in(part.position, part.own):
        return 0
    found = beyond(part.found, partly_in(part.position, part.own))
    return lake.append(part.table.name, rows(found, part.there), after(part.position, part.own))


def _quarantine(lake: Lake, parts: Sequence[_Part], position: Position) -> int:
    letters = [refused(beyond(part.found, partly_in(position, part.own))) for part in parts]
    own = {place: span for part in parts for place, span in part.own.items()}
    there = reduce(DataFrame.unionByName, letters) if letters else None
    if there is None or is_in(position, own) or there.isEmpty():
        return 0
    return lake.append(QUARANTINE, there, after(position, own))
