"""Adapter: the members of lists in Cassandra. Every method may raise DatabaseUnavailable."""

import zlib
from collections import defaultdict
from collections.abc import Sequence
from typing import Any, Final

from starling_api.lists.lists import ListRow
from starling_common.cassandra.database import Database, Write

_PUT: Final = "INSERT INTO {ks}.list_members (workspace, list_key, bucket, user_id, generation) VALUES (?, ?, ?, ?, ?)"
_DROP: Final = "DELETE FROM {ks}.list_members WHERE workspace = ? AND list_key = ? AND bucket = ? AND user_id = ?"
_ROWS: Final = (
    "SELECT bucket, user_id, generation FROM {ks}.list_members "
    "WHERE workspace = ? AND list_key = ? AND bucket = ? AND user_id > ? LIMIT ?"
)
_IS_ON: Final = "SELECT user_id FROM {ks}.list_members WHERE workspace = ? AND list_key = ? AND bucket = ? AND user_id = ?"
_RESERVE: Final = "INSERT INTO {ks}.list_writers (workspace, list_key, owner) VALUES (?, ?, ?) IF NOT EXISTS USING TTL 60"
_RENEW: Final = "UPDATE {ks}.list_writers USING TTL 60 SET owner = ? WHERE workspace = ? AND list_key = ? IF owner = ?"
_RELEASE: Final = "DELETE FROM {ks}.list_writers WHERE workspace = ? AND list_key = ? IF owner = ?"

_BUCKETS: Final = 256
"""Cassandra partitions of one list. Many, because every removed user leaves a tombstone that reads scan for a day.
The value must never change: it is part of every row's key."""


class CassandraLists:
    """The members of lists. Only the request with the write lock of a list writes its rows."""

    def __init__(self, database: Database) -> None:
        self._database = database

    def put(self, workspace: str, key: str, users: Sequence[str], generation: int) -> None:
        """Idempotent."""
        rows = [(workspace, key, _bucket(user), user, generation) for user in users]
        self._database.write_batches(_by_bucket(_PUT, rows))

    def drop(self, workspace: str, key: str, users: Sequence[str]) -> None:
        """Idempotent."""
        self._database.write_batches(_by_bucket(_DROP, [(workspace, key, _bucket(user), user) for user in users]))

    def rows(self, workspace: str, key: str, after: tuple[int, str], most: int) -> Sequence[ListRow]:
        """Read one bucket, then two, four and so on in parallel until `most` rows are found.

        A page of a long list is in one bucket; the members of a short list are in all buckets.
        """
        bucket, user = after
        found: list[ListRow] = []
        parallel = 1
        while bucket < _BUCKETS and len(found) < most:
            last = min(bucket + parallel, _BUCKETS)
            queries = [(workspace, key, one, user if one == after[0] else "", most) for one in range(max(0, bucket), last)]
            for rows in self._database.read_each(_ROWS, queries):
                found.extend(ListRow(**row) for row in rows)
            bucket, parallel = last, parallel * 2
        return found[:most]

    def holding(self, workspace: str, keys: Sequence[str], user: str) -> list[str]:
        """Return the lists with this user, by one parallel query for each list."""
        found = self._database.read_each(_IS_ON, [(workspace, key, _bucket(user), user) for key in keys])
        return [key for key, rows in zip(keys, found, strict=True) if rows]

    def reserve(self, workspace: str, key: str, owner: str) -> bool:
        """Reserve or renew the write lock for a minute. It expires automatically if its owner dies."""
        return self._database.write_if(_RENEW, (owner, workspace, key, owner)) or self._database.write_if(
            _RESERVE, (workspace, key, owner)
        )

    def release(self, workspace: str, key: str, owner: str) -> None:
        """Has no effect if the lock has expired."""
        self._database.write_if(_RELEASE, (workspace, key, owner))


def _bucket(user: str) -> int:
    return zlib.crc32(user.encode()) % _BUCKETS


def _by_bucket(statement: str, rows: Sequence[tuple[Any, ...]]) -> list[list[Write]]:
    # The third value is the bucket. A batch within one Cassandra partition is one mutation.
    buckets: dict[int, list[Write]] = defaultdict(list)
    for row in rows:
        buckets[row[2]].append((statement, row))
    return list(buckets.values())
