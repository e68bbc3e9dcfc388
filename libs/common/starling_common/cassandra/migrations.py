"""Adapter: moves the rows of earlier releases' tables into the present ones, as a step of the deployment."""

from collections.abc import Callable, Sequence
from typing import Any, Final, NamedTuple

from starling_common.cassandra.database import Database, Row
from starling_common.cassandra.read_models import user_partition

_PAGE_ROWS: Final = 1_000
_TABLES: Final = "SELECT table_name FROM system_schema.tables WHERE keyspace_name = ?"
_USER: Final = "workspace, source_partition, bucket, user_id"


class _Move(NamedTuple):
    """A table of release 0.1.0, and the write of one of its rows to the present table. `values`: those after the user's key."""

    table: str
    read: str
    write: str
    values: Callable[[Row], tuple[Any, ...]]


_MOVES: Final = (
    _Move(
        "profiles",
        "SELECT workspace, user_id, anonymous_ids, traits, group_id, event_time_ms, received_at_micros, "
        "WRITETIME(traits) AS written FROM {ks}.profiles",
        f"INSERT INTO {{ks}}.user_profiles ({_USER}, profile) VALUES (?, ?, ?, ?, ?) USING TIMESTAMP ?",  # noqa: S608 - constants
        lambda row: (
            (row["anonymous_ids"], row["traits"], row["group_id"], row["event_time_ms"], row["received_at_micros"]),
            row["written"],
        ),
    ),
    _Move(
        "user_segments",
        "SELECT workspace, user_id, segment_key, status, sequence, effective_at_ms, segment_version, "
        "WRITETIME(status) AS written FROM {ks}.user_segments",
        f"INSERT INTO {{ks}}.user_memberships ({_USER}, segment_key, change) "  # noqa: S608 - constants
        "VALUES (?, ?, ?, ?, ?, ?) USING TIMESTAMP ?",
        lambda row: (
            row["segment_key"],
            (row["status"], row["sequence"], row["effective_at_ms"], row["segment_version"]),
            row["written"],
        ),
    ),
    _Move(
        "user_events",
        "SELECT workspace, user_id, event_time_ms, event_id, kind, name, message_id, details, received_at_micros, correlation_id, "
        "WRITETIME(details) AS written, TTL(details) AS seconds FROM {ks}.user_events",
        f"INSERT INTO {{ks}}.user_history ({_USER}, event_time_ms, event_id, event) "  # noqa: S608 - constants
        "VALUES (?, ?, ?, ?, ?, ?, ?) USING TIMESTAMP ? AND TTL ?",
        lambda row: (
            row["event_time_ms"],
            row["event_id"],
            tuple(row[name] for name in ("kind", "name", "message_id", "details", "received_at_micros", "correlation_id")),
            row["written"],
            row["seconds"] or 0,
        ),
    ),
)


def move_user_tables(database: Database, keyspace: str, partitions: int) -> dict[str, int]:
    """Copy the users' rows of release 0.1.0 with their timestamps, then drop their tables. Return the rows copied by old table.

    Safe to repeat after a failure. A projector of 0.1.0 that still runs fails at the dropped tables without a commit, and the next
    release reads its records again. `partitions`: number of partitions of the topics keyed by profile. Raises: DatabaseUnavailable.
    """
    present = {row["table_name"] for row in database.read(_TABLES, (keyspace,))}
    moved: dict[str, int] = {}
    for move in _MOVES:
        if move.table not in present:
            continue
        moved[move.table] = 0
        for rows in database.pages(move.read, (), _PAGE_ROWS):
            database.write_each(move.write, [_values(move, row, partitions) for row in rows])
            moved[move.table] += len(rows)
    for move in _MOVES:
        if move.table in moved:
            database.write(f"DROP TABLE IF EXISTS {{ks}}.{move.table}", ())
    return moved


def _values(move: _Move, row: Row, partitions: int) -> Sequence[Any]:
    return (*user_partition(row["workspace"], row["user_id"], partitions), row["user_id"], *move.values(row))
