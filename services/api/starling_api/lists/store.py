"""Adapter: who is on which list, in Cassandra. Every method raises DatabaseUnavailable when there is no answer."""

import zlib
from collections import defaultdict
from collections.abc import Sequence
from typing import Any, Final

from starling_api.lists.lists import ListRow
from starling_common.database import Database, Write

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
"""Cassandra partitions that one list is spread over; many, for each user taken off leaves a mark that reads pass for a day.
Never changes: it is part of every row's key."""


class CassandraLists:
    """Written by the request that holds the list, nobody else."""

    def __init__(self, database: Database) -> None:
        self._database = database

    def put(self, workspace: str, key: str, users: Sequence[str], generation: int) -> None:
        """May be repeated."""
        rows = [(workspace, key, _bucket(user), user, generation) for user in users]
        self._database.write_batches(_by_bucket(_PUT, rows))

    def drop(self, workspace: str, key: str, users: Sequence[str]) -> None:
        """May be repeated."""
        self._database.write_batches(_by_bucket(_DROP, [(workspace, key, _bucket(user), user) for user in users]))

    def rows(self, workspace: str, key: str, after: tuple[int, str], most: int) -> Sequence[ListRow]:
        """One bucket, then two, four and so on until there are enough: a long list's page is in one, a short list in all."""
        bucket, user = after
        found: list[ListRow] = []
        side_by_side = 1
        while bucket < _BUCKETS and len(found) < most:
            last = min(bucket + side_by_side, _BUCKETS)
            asked = [(workspace, key, one, user if one == after[0] else "", most) for one in range(max(0, bucket), last)]
            for rows in self._database.read_each(_ROWS, asked):
                found.extend(ListRow(**row) for row in rows)
            bucket, side_by_side = last, side_by_side * 2
        return found[:most]

    def holding(self, workspace: str, keys: Sequence[str], user: str) -> list[str]:
        """One row a list, side by side."""
        found = self._database.read_each(_IS_ON, [(workspace, key, _bucket(user), user) for key in keys])
        return [key for key, rows in zip(keys, found, strict=True) if rows]

    def reserve(self, workspace: str, key: str, owner: str) -> bool:
        """For a minute; free again by itself when its owner died."""
        return self._database.write_if(_RENEW, (owner, workspace, key, owner)) or self._database.write_if(
            _RESERVE, (workspace, key, owner)
        )

    def release(self, workspace: str, key: str, owner: str) -> None:
        """Changes nothing when it was lost already."""
        self._database.write_if(_RELEASE, (workspace, key, owner))


def _bucket(user: str) -> int:
    return zlib.crc32(user.encode()) % _BUCKETS


def _by_bucket(statement: str, rows: Sequence[tuple[Any, ...]]) -> list[list[Write]]:
    # The third value is the bucket: a batch within one partition is one write.
    buckets: dict[int, list[Write]] = defaultdict(list)
    for row in rows:
        buckets[row[2]].append((statement, row))
    return list(buckets.values())
