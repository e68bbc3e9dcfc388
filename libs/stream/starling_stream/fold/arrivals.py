"""Pure core: the merge of inputs whose sources publish low watermarks. It releases records exactly in the order of arrival."""

from bisect import bisect_left
from collections import deque
from collections.abc import Iterable, Mapping, Sequence
from typing import Final

from starling_stream.fold.merge import Arrival, OrderedMerge
from starling_stream.model.processor import Inbound

_NONE: Final = 1 << 62

_LOOKAHEAD: Final = 500
"""Records that stay in the merge while their topic has unread records: an older one of another source may follow them."""

_DISORDER_MICROS: Final = 130_000_000
"""The longest time for which a source waits for its broker. A record that arrives later than that is a replayed one."""

_AHEAD_MICROS: Final = 10_000_000
"""How far the clock of a source may be ahead. The `received_at` of a record beyond that is wrong."""

_BOUNDS: Final = 8
"""Bounds that wait until their ends are read. While a task lags, newer ones replace one another."""


class _Pending:
    """The waiting records of one topic in the order of `keys`, which are their `received_at` with few exceptions.

    `lasts`: for each record the index of the last one of its group; None if every record is a group of its own. The records of a
    group lie across one another in the log, so the input's offset can be committed before or after the whole group only.
    """

    __slots__ = ("end_answered_ms", "keys", "lasts", "rank", "reached", "records", "top")

    def __init__(self, rank: int) -> None:
        self.rank = rank
        self.records: list[Inbound] = []
        self.keys: list[int] = []
        self.lasts: list[int] | None = None
        self.top = 0
        """The greatest key so far."""
        self.reached = 0
        """The next offset that was not received."""
        self.end_answered_ms: int | None = None

    def add(self, records: Sequence[Inbound], arrived_at: int) -> None:
        """Append fetched records."""
        keys = [record.received_at for record in records]
        if keys[0] < self.top or keys[-1] > arrived_at + _AHEAD_MICROS or keys != sorted(keys):
            keys = self._placed(keys, arrived_at)
        in_order = keys[0] >= self.top and keys == sorted(keys)
        self.top = max(self.top, *keys)
        if in_order:
            if self.lasts is not None:
                self.lasts += range(len(self.records), len(self.records) + len(records))
            self.records = [*self.records, *records]
            self.keys = [*self.keys, *keys]
        else:
            self._set([*self.records, *records], [*self.keys, *keys])

    def put_back(self, records: Sequence[Inbound]) -> None:
        """Prepend records in the order in which they were released."""
        most = self.keys[0] if self.keys else self.top
        keys, last = [], 0
        for record in records:
            last = max(last, min(record.received_at, most))
            keys.append(last)
        self._set([*records, *self.records], [*keys, *self.keys])

    def drop_before(self, offset: int) -> None:
        """Drop the records before that offset."""
        kept = [index for index, record in enumerate(self.records) if record.offset >= offset]
        self._set([self.records[index] for index in kept], [self.keys[index] for index in kept])

    def drop_first(self, count: int) -> None:
        """Drop the records that were released."""
        self.records = self.records[count:]
        self.keys = self.keys[count:]
        if self.lasts is not None:
            lasts = [last - count for last in self.lasts[count:]]
            self.lasts = None if all(index == last for index, last in enumerate(lasts)) else lasts

    def first_offset(self) -> int:
        """Return the least offset of the waiting records."""
        return self.records[0].offset if self.lasts is None else min([record.offset for record in self.records])

    def group_start(self, bound: int) -> int:
        """Return the bound, or the key at which the group begins that lies across it."""
        at = self._across(bound)
        if at is None or self.lasts is None:
            return bound
        last = self.lasts[at]
        while at > 0 and self.lasts[at - 1] == last:
            at -= 1
        return self.keys[at]

    def group_end(self, bound: int) -> int:
        """Return the bound, or the one after the group that lies across it."""
        at = self._across(bound)
        return bound if at is None or self.lasts is None else self.keys[self.lasts[at]] + 1

    def _across(self, bound: int) -> int | None:
        if self.lasts is None:
            return None
        index = bisect_left(self.keys, bound)
        return index - 1 if 0 < index <= self.lasts[index - 1] else None

    def _placed(self, keys: Sequence[int], arrived_at: int) -> list[int]:
        """Give a replayed record, and one with a wrong `received_at`, the place that it has in its log."""
        placed, top = [], self.top
        for key in keys:
            if key > arrived_at + _AHEAD_MICROS:
                key = top or arrived_at  # noqa: PLW2901
            elif key < top - _DISORDER_MICROS:
                key = top  # noqa: PLW2901
            top = max(top, key)
            placed.append(key)
        return placed

    def _set(self, records: Sequence[Inbound], keys: Sequence[int]) -> None:
        order = sorted(range(len(records)), key=keys.__getitem__)
        self.records = [records[index] for index in order]
        self.keys = [keys[index] for index in order]
        self.lasts = _group_lasts([record.offset for record in self.records])


def _group_lasts(offsets: Sequence[int]) -> list[int] | None:
    """Return for each record the index of the last one of its group: the smallest groups whose offsets follow one another."""
    least_after = [_NONE] * (len(offsets) + 1)
    for index in range(len(offsets) - 1, -1, -1):
        least_after[index] = min(offsets[index], least_after[index + 1])
    lasts: list[int] = []
    most = first = -1
    is_disordered = False
    for index, offset in enumerate(offsets):
        most = max(most, offset)
        if most < least_after[index + 1]:
            is_disordered |= index > first + 1
            lasts += [index] * (index - first)
            first = index
    return lasts if is_disordered else None


class ArrivalMerge(OrderedMerge):
    """Releases records in the order of `received_at`, whichever source and topic they are from; ties go by the order of the topics.

    A *bound* promises that no source will write a record with an earlier `received_at`. It comes with the ends of the topics, which
    the broker reported afterwards. When all topics are read up to those ends, every record below the bound is here, and can be
    released. A topic with a long backlog need not be read to its end; its last records stay, because older ones may follow.
    """

    def __init__(self, topics: Sequence[str]) -> None:
        super().__init__(topics, 0)
        self._pending = {topic: _Pending(rank) for rank, topic in enumerate(topics)}
        self._by_rank = tuple(self._pending.values())
        self._unread: deque[tuple[int, Mapping[str, int]]] = deque()
        """Bounds whose ends are not read, with the ends, ascending."""
        self._confirmed = 0
        self.noted = 0
        """The latest bound."""

    def add(self, topic: str, records: Sequence[Inbound], arrived: Arrival) -> None:
        """Append fetched records of one topic."""
        if records:
            self._pending[topic].add(records, arrived.arrived_at)

    def put_back(self, records: Iterable[Inbound]) -> None:
        """Return the records that were taken last, in the order in which they were taken; they are released again first."""
        by_topic: dict[str, list[Inbound]] = {}
        for record in records:
            by_topic.setdefault(record.topic, []).append(record)
        for topic, again in by_topic.items():
            self._pending[topic].put_back(again)

    def drop_before(self, offsets: Mapping[str, int]) -> None:
        """Drop the topics' records before these offsets."""
        for topic, first in offsets.items():
            self._pending[topic].drop_before(first)

    def set_ends(self, ends: Mapping[str, int | None]) -> None:
        """As `OrderedMerge.set_ends`; the ends only count for `is_idle`."""
        for topic, answered_ms in ends.items():
            self._pending[topic].end_answered_ms = answered_ms

    def set_reached(self, topic: str, offset: int) -> None:
        """Set the next offset of the topic that was not received."""
        self._pending[topic].reached = offset

    def note_bound(self, bound: int, ends: Mapping[str, int]) -> None:
        """Take a bound, in microseconds, and the topics' ends that the broker reported after it was known."""
        if bound <= self.noted:
            return
        self.noted = bound
        self._unread.append((bound, ends))
        if len(self._unread) > _BOUNDS:
            del self._unread[-2]

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
        """Return about `limit` records in order: more if they cannot be committed without the ones that follow."""
        bound = self._bound()
        if self.first_key() >= bound or limit <= 0:
            return []
        ready = [(pending, bisect_left(pending.keys, bound)) for pending in self._by_rank]
        if sum(count for _, count in ready) > limit:
            ready = self._within(limit, ready)
        records: list[Inbound] = []
        keys: list[int] = []
        for pending, count in ready:
            records += pending.records[:count]
            keys += pending.keys[:count]
            pending.drop_first(count)
        return [records[index] for index in sorted(range(len(records)), key=keys.__getitem__)]

    def next_release(self) -> int | None:
        """Return None: records wait for their sources, not for the clock."""
        return None

    def _within(self, limit: int, ready: Sequence[tuple[_Pending, int]]) -> list[tuple[_Pending, int]]:
        """Return how many records of each topic to release, about `limit` in all, so that no group is divided."""
        ranked = sorted([(key, pending.rank) for pending, count in ready for key in pending.keys[: min(count, limit + 1)]])
        if not any(pending.lasts for pending, _ in ready):
            taken = [rank for _, rank in ranked[:limit]]
            return [(pending, taken.count(pending.rank)) for pending, _ in ready]
        cut = ranked[limit][0]
        if cut == ranked[0][0]:
            cut += 1
        while (closed := max([pending.group_end(cut) for pending, _ in ready])) > cut:
            cut = closed
        return [(pending, bisect_left(pending.keys, cut)) for pending, _ in ready]

    def _bound(self) -> int:
        """Return the key before which records can be released."""
        while self._unread and all(self._pending[topic].reached >= end for topic, end in self._unread[0][1].items()):
            self._confirmed = self._unread.popleft()[0]
        bound = self._confirmed
        full = False
        if self._unread:
            ahead, ends = self._unread[-1]
            for topic, end in ends.items():
                pending = self._pending[topic]
                if pending.reached < end:
                    spare = len(pending.records) - _LOOKAHEAD
                    full = full or spare > _LOOKAHEAD
                    ahead = min(ahead, pending.keys[spare]) if spare > 0 else 0
            bound = max(bound, ahead)
        closed = self._closed(bound)
        if full and ahead and self.first_key() >= closed:
            return self._closed(self.noted)
        return closed

    def _closed(self, bound: int) -> int:
        """Return the greatest bound up to that one that divides no group."""
        while (start := min([pending.group_start(bound) for pending in self._by_rank])) < bound:
            bound = start
        return bound
