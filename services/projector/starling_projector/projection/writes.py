"""Pure core, hot path: the rows of a batch as writes, each Cassandra partition in batches of its own."""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final, TypeAlias

from starling_projector.projection.destinations import FIRST, LAST, TABLES, Destination
from starling_projector.projection.rows import Row

Write: TypeAlias = tuple[str, Sequence[Any]]
"""A statement and its values, as `Database.write_batches` takes them."""

_BATCH_ROWS: Final = 100
"""Rows of one batch. An event has at most 32 KiB; the database accepts mutations of half a segment of its commit log, 8 MiB."""
_PARTITION_COLUMNS: Final = {"definitions": 2, "audit_log": 2}
"""Columns of a table's partition key; three where the table is not listed."""
_MEMBER: Final = Destination.MEMBER
_MEMBER_GONE: Final = Destination.MEMBER_GONE


def newest(rows: Iterable[Row]) -> list[Row]:
    """Return the row with the highest timestamp of each key; the last one of several with the same."""
    found: dict[tuple[Any, ...], Row] = {}
    for row in rows:
        # An entry and an exit are two states of one row. The creation of a definition has a column of its own.
        place = (_MEMBER if row.destination is _MEMBER_GONE else row.destination, row.key)
        known = found.get(place)
        if known is None or row.written >= known.written:
            found[place] = row
    return list(found.values())


def phases(rows: Iterable[Row]) -> tuple[list[Row], list[Row], list[Row]]:
    """Divide the rows into those to write before and after all others, in the order of writing."""
    first: list[Row] = []
    middle: list[Row] = []
    last: list[Row] = []
    for row in rows:
        if row.destination in FIRST:
            first.append(row)
        elif row.destination in LAST:
            last.append(row)
        else:
            middle.append(row)
    return first, middle, last


def by_partition(rows: Iterable[Row], statements: Mapping[Destination, str]) -> list[list[Write]]:
    """Return unlogged batches of one Cassandra partition each: 20 rows in one mutation cost a fifth of 20 mutations."""
    partitions: dict[tuple[Any, ...], list[Write]] = {}
    for destination, key, columns, written in rows:
        table = TABLES[destination]
        values: tuple[Any, ...] = (written, *key) if destination is _MEMBER_GONE else (*key, *columns, written)
        place: tuple[Any, ...] = (table, key[: _PARTITION_COLUMNS.get(table, 3)])
        writes = partitions.get(place)
        if writes is None:
            writes = partitions[place] = []
        writes.append((statements[destination], values))
    return [writes[start : start + _BATCH_ROWS] for writes in partitions.values() for start in range(0, len(writes), _BATCH_ROWS)]
