"""Pure core: the merge of inputs whose sources publish low watermarks. It releases records exactly in the order of arrival."""

from bisect import bisect_left, bisect_right
from collections import deque
from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Final, NamedTuple

from starling_common.time.instants import LONGEST_APPEND_MS
from starling_stream.fold.merge import Arrival, OrderedMerge
from starling_stream.model.processor import Inbound

_NONE: Final = 1 << 62

_LONGEST_APPEND_MICROS: Final = LONGEST_APPEND_MS * 1000

_AHEAD_MICROS: Final = 10_000_000
"""How far the clock of a source may be ahead of the broker's. The `received_at` of a record beyond that is wrong."""

_CLOCKS_MICROS: Final = 1_000_000
"""The difference of clocks that a record with another order than that of its `received_at` waits for."""

_BOUNDS: Final = 8
"""Bounds that wait until their ends are read. While a task lags, newer ones replace one another."""

_LAGGING_RECORDS: Final = 1_000
"""So many records of a topic wait only if the ends move faster than they are reached."""


def arrival_key(received_at: int, appended_ms: int) -> int:
    """Return the instant by which a record is ordered, in microseconds: `received_at`, if the broker appended it soon afterwards.

    A replayed record, and one of a source with a wrong clock, is ordered by the append. The key depends on the record alone, so
    that every reader has the same order. `appended_ms`: the timestamp of the broker; not positive if it is unknown.
    """
    appended = appended_ms * 1000
    if appended <= 0 or appended - _LONGEST_APPEND_MICROS <= received_at <= appended + _AHEAD_MICROS:
        return received_at
    return appended + _CLOCKS_MICROS


class Horizon(NamedTuple):
    """The least keys of the unread records of one topic, as far as the topic was read ahead.

    `floors`: for each block of the topic, by its first offset in `starts`, the least key of its records and of all later ones.
    `after`: the least key of the records at the offset `until` and later.
    """

    starts: Sequence[int]
    floors: Sequence[int]
    until: int
    after: int

    def floor(self, reached: int) -> int:
        """Return a key below which no record at the offset `reached` or later is; 0 if it is unknown."""
        if reached >= self.until:
            return self.after
        block = bisect_right(self.starts, reached) - 1
        return self.floors[block] if block >= 0 else 0


class _Pending:
    """The waiting records of one topic in the order of `keys`. Other threads may read the keys."""

    __slots__ = ("end_answered_ms", "horizon", "is_ordered", "keys", "rank", "reached", "records")

    def __init__(self, rank: int) -> None:
        self.rank = rank
        self.records: list[Inbound] = []
        self.keys: list[int] = []
        self.is_ordered = True
        """Whether the offsets are in order too."""
        self.reached = 0
        """The next offset that was not received."""
        self.horizon: Horizon | None = None
        self.end_answered_ms: int | None = None

    def add(self, records: Sequence[Inbound], keys: list[int]) -> None:
        """Insert fetched records, whose offsets follow those that wait."""
        least = min(keys)
        if (not self.keys or least >= self.keys[-1]) and keys == sorted(keys):
            self.records += records
            self.keys += keys
            return
        place = bisect_right(self.keys, least)
        later, later_keys = [*self.records[place:], *records], [*self.keys[place:], *keys]
        order = sorted(range(len(later)), key=later_keys.__getitem__)
        self.records[place:] = [later[index] for index in order]
        self.keys[place:] = [later_keys[index] for index in order]
        self.is_ordered = False

    def put_back(self, records: Sequence[Inbound], keys: Sequence[int]) -> None:
        """Prepend records with keys before all others."""
        self.records = [*records, *self.records]
        self.keys = [*keys, *self.keys]
        self.is_ordered = False

    def keep(self, kept: Sequence[int]) -> None:
        """Drop the records but those at these places."""
        self.records = [self.records[index] for index in kept]
        self.keys = [self.keys[index] for index in kept]

    def drop_first(self, count: int) -> None:
        """Drop the records that were released."""
        self.records = self.records[count:]
        self.keys = self.keys[count:]
        self.is_ordered = self.is_ordered or not self.records

    def first_offset(self) -> int:
        """Return the least offset of the waiting records."""
        return self.records[0].offset if self.is_ordered else min([record.offset for record in self.records])


class ArrivalMerge(OrderedMerge):
    """Releases records in the order of their keys (`arrival_key`), whichever source and topic they are from.

    A *bound* promises that no source will write a record with an earlier key. It comes with the ends of the topics, which the
    broker reported afterwards. When all topics are read up to those ends, every record below the bound can be released.
    While a topic has a backlog, a `Horizon` states the least key of its unread records. Ties go by the order of the topics.
    """

    def __init__(self, topics: Sequence[str]) -> None:
        super().__init__(topics, 0)
        self._pending = {topic: _Pending(rank) for rank, topic in enumerate(topics)}
        self._by_rank = tuple(self._pending.values())
        self._unread: deque[tuple[int, Mapping[str, int]]] = deque()
        """Bounds whose ends are not read, with the ends, ascending."""
        self._ahead: tuple[_Pending, ...] = ()
        """The topics with a horizon."""
        self._confirmed = 0
        self._first = 0
        """The least key of the records that were put back. All of their keys are negative, below every bound."""
        self.noted = 0
        """The latest bound."""

    def add(self, topic: str, records: Sequence[Inbound], arrived: Arrival) -> None:  # noqa: ARG002 - the clock is the broker's
        """Append fetched records of one topic whose append times are unknown."""
        self.add_appended(topic, records, [0] * len(records))

    def add_appended(self, topic: str, records: Sequence[Inbound], appended_ms: Sequence[int]) -> None:
        """Append fetched records of one topic, with the broker's timestamps."""
        if records:
            keys = [arrival_key(record.received_at, at) for record, at in zip(records, appended_ms, strict=True)]
            self._pending[topic].add(records, keys)

    def put_back(self, records: Iterable[Inbound]) -> None:
        """Return the records that were taken last, in the order in which they were taken; they are released again first."""
        again = list(records)
        self._first -= len(again)
        by_topic: dict[str, tuple[list[Inbound], list[int]]] = {}
        for key, record in enumerate(again, self._first):
            of_topic, keys = by_topic.setdefault(record.topic, ([], []))
            of_topic.append(record)
            keys.append(key)
        for topic, (of_topic, keys) in by_topic.items():
            self._pending[topic].put_back(of_topic, keys)

    def drop_before(self, offsets: Mapping[str, int]) -> None:
        """Drop the topics' records before these offsets."""
        for topic, first in offsets.items():
            pending = self._pending[topic]
            pending.keep([index for index, record in enumerate(pending.records) if record.offset >= first])

    def drop(self, topic: str, offsets: Collection[int]) -> None:
        """Drop the topic's records at these offsets."""
        pending = self._pending[topic]
        pending.keep([index for index, record in enumerate(pending.records) if record.offset not in offsets])

    def set_ends(self, ends: Mapping[str, int | None]) -> None:
        """As `OrderedMerge.set_ends`; the ends only count for `is_idle`."""
        for topic, answered_ms in ends.items():
            self._pending[topic].end_answered_ms = answered_ms

    def set_reached(self, topic: str, offset: int) -> None:
        """Set the next offset of the topic that was not received."""
        self._pending[topic].reached = offset

    def reached(self, topic: str) -> int:
        """Return the next offset of the topic that was not received. May be called from any thread."""
        return self._pending[topic].reached

    def note_bound(self, bound: int, ends: Mapping[str, int]) -> None:
        """Take a bound, in microseconds, and the topics' ends that the broker reported after it was known."""
        if bound <= self.noted:
            return
        self.noted = bound
        self._unread.append((bound, ends))
        if len(self._unread) > _BOUNDS:
            del self._unread[-2]

    def set_horizons(self, horizons: Mapping[str, Horizon]) -> None:
        """Take the horizons of all topics to which sources write; none once they are read to their ends."""
        for topic, pending in self._pending.items():
            pending.horizon = horizons.get(topic)
        self._ahead = tuple([pending for pending in self._by_rank if pending.horizon is not None])

    def is_unread(self, ends: Mapping[str, int]) -> bool:
        """Return whether a topic is not read up to that end. May be called from any thread."""
        return any(self._pending[topic].reached < end for topic, end in ends.items())

    def is_lagging(self, ends: Mapping[str, int]) -> bool:
        """Return whether records wait for a topic that will not soon be read to its end. May be called from any thread."""
        return self.is_unread(ends) and any(len(pending.keys) > _LAGGING_RECORDS for pending in self._by_rank)

    def is_needed(self, topic: str) -> bool:
        """Return whether an unread record of the topic precedes all that wait: it is read even if many wait."""
        pending = self._pending[topic]
        horizon = pending.horizon
        if horizon is None:
            return False
        floor = horizon.floor(pending.reached)
        return floor < horizon.after and floor <= self.first_key()

    def first_key(self) -> int:
        """Return a bound below which nothing waits. May be called from any thread."""
        return min([key for pending in self._by_rank for key in pending.keys[:1]], default=_NONE)

    def first_offset(self, topic: str) -> int | None:
        """Return the least offset of the topic's waiting records; None if none waits."""
        pending = self._pending[topic]
        return pending.first_offset() if pending.records else None

    def size(self, topic: str) -> int:
        """Return how many records of the topic wait."""
        return len(self._pending[topic].records)

    def is_idle(self) -> bool:
        """Return whether every topic is empty and read to its end."""
        return all(pending.end_answered_ms is not None and not pending.records for pending in self._by_rank)

    def take(self, limit: int, now: int) -> list[Inbound]:  # noqa: ARG002 - the clock is the sources'
        """Return at most `limit` records in order."""
        bound = self._bound()
        if self.first_key() >= bound or limit <= 0:
            return []
        counts = [bisect_left(pending.keys, bound) for pending in self._by_rank]
        if sum(counts) > limit:
            counts = self._within(limit, counts)
        records: list[Inbound] = []
        keys: list[int] = []
        for pending, count in zip(self._by_rank, counts, strict=True):
            records += pending.records[:count]
            keys += pending.keys[:count]
            pending.drop_first(count)
        return [records[index] for index in sorted(range(len(records)), key=keys.__getitem__)]

    def next_release(self) -> int | None:
        """Return None: records wait for their sources, not for the clock."""
        return None

    def _within(self, limit: int, counts: Sequence[int]) -> list[int]:
        """Return how many records of each topic are among the first `limit` of all."""
        ranked = sorted(
            [
                (key, pending.rank)
                for pending, count in zip(self._by_rank, counts, strict=True)
                for key in pending.keys[: min(count, limit)]
            ]
        )
        taken = [rank for _, rank in ranked[:limit]]
        return [taken.count(pending.rank) for pending in self._by_rank]

    def _bound(self) -> int:
        """Return the key before which records can be released."""
        while self._unread and not self.is_unread(self._unread[0][1]):
            self._confirmed = self._unread.popleft()[0]
        floors = [pending.horizon.floor(pending.reached) for pending in self._ahead if pending.horizon is not None]
        return max(self._confirmed, min(floors, default=0))
