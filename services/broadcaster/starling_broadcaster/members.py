"""Adapter: the members of a segment in Cassandra, page by page. Every method may raise DatabaseUnavailable."""

from typing import Final, NamedTuple

from starling_broadcaster.plan import Broadcast
from starling_common.cassandra.database import Database
from starling_common.cassandra.read_models import MEMBER_BUCKETS
from starling_messages.broadcast_progress import Written

_PROGRESS: Final = "SELECT stream_time_ms FROM {ks}.segmenter_progress WHERE id = 0"
_MEMBERS: Final = (
    "SELECT user_id, entered_at_ms FROM {ks}.segment_members "
    "WHERE workspace = ? AND segment_key = ? AND bucket = ? AND user_id > ? LIMIT ?"
)


class Page(NamedTuple):
    """The next members of a broadcast, and how far it is once they are written."""

    users: list[str]
    after: Written


class Members:
    """Reads what the projector wrote."""

    def __init__(self, database: Database) -> None:
        self._database = database

    def as_of(self) -> int | None:
        """Return the stream time, epoch ms, up to which the members are known; None before any partition has one."""
        # A partition without a stream time has no data.
        times = [row["stream_time_ms"] for row in self._database.read(_PROGRESS) if row["stream_time_ms"] > 0]
        return min(times, default=None)

    def page(self, broadcast: Broadcast, written: Written, most: int) -> Page:
        """Return the next members, of at most so many rows, without those who entered after the instant of the broadcast.

        A person who has left meanwhile is in no row. The messenger checks each membership again.
        """
        users: list[str] = []
        read, bucket, last = 0, written.bucket, written.user_id
        while bucket < MEMBER_BUCKETS:
            values = broadcast.workspace, broadcast.segment, bucket, last, most - read
            rows = self._database.read(_MEMBERS, values)
            users += [row["user_id"] for row in rows if row["entered_at_ms"] <= broadcast.listed_at]
            read += len(rows)
            if read >= most:
                last = rows[-1]["user_id"]
                break
            bucket, last = bucket + 1, ""
        done = bucket >= MEMBER_BUCKETS
        return Page(users, Written(written.members + len(users), bucket, last, done))
