"""Pure core: the ordered merge. It releases a task's inputs by `received_at`, in the same order live, lagging or replayed."""

from collections import deque
from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Final, NamedTuple

from starling_stream.model.processor import Inbound

_NO_BOUND: Final = 1 << 62

_BULK_SHARE: Final = 10
"""A bulk input gets at most a tenth of the records released at once: 1,000 records a batch by default.

An event waits for one such batch at most, and under load the other inputs keep nine tenths. With a quarter, and two busy cores,
events took seconds.
"""


class Arrival(NamedTuple):
    """The instant at which records were received: the wall clock here (microseconds) and the broker's response (milliseconds)."""

    arrived_at: int
    answered_ms: int = 0


class _Batch:
    """The records of one fetch, and how many of them were taken."""

    __slots__ = ("arrived", "records", "taken")

    def __init__(self, records: Sequence[Inbound], arrived: Arrival) -> None:
        self.records = records
        self.taken = 0
        self.arrived = arrived

    def head(self) -> Inbound:
        return self.records[self.taken]

    def take(self, last_received_at: int, limit: int) -> list[Inbound]:
        """Return the next records that were received up to and including that instant."""
        records, start = self.records, self.taken
        end = stop = min(len(records), start + limit)
        for position in range(start, stop):
            if records[position].received_at > last_received_at:
                end = position
                break
        self.taken = end
        return list(records[start:end])

    def take_chain(self, last_received_at: int, limit: int) -> list[Inbound]:
        """Return the next records in order, up to the first whose predecessor is not among them."""
        records, start = self.records, self.taken
        end = min(len(records), start + limit)
        order = -1
        for position in range(start, end):
            record = records[position]
            if record.received_at > last_received_at or (order >= 0 and record.previous_order and record.previous_order != order):
                end = position
                break
            order = record.received_at
        self.taken = end
        return list(records[start:end])


class Reach(NamedTuple):
    """How far a topic is read. `high_watermark`: its end with open transactions, as the broker reported it at `answered_ms`."""

    position: int
    high_watermark: int
    answered_ms: int


class _Gap:
    """The wait for the predecessor of one record, in a topic that has no record here.

    The records of one transaction become visible topic by topic, and nothing bounds the time in between. The predecessor was
    appended before the record became visible, so it is below the high watermark of every later request. It was deleted, by
    retention, if the topic is read up to that mark and it did not come.
    """

    __slots__ = ("_after_ms", "_answers", "_end", "successor")

    def __init__(self, successor: Inbound, answered_ms: int) -> None:
        self.successor = successor
        self._after_ms = answered_ms
        self._answers = 0
        self._end: int | None = None

    def is_deleted(self, reach: Reach | None) -> bool:
        """Return whether the predecessor cannot come any more."""
        if reach is None:
            return False
        if reach.answered_ms > self._after_ms:
            self._after_ms = reach.answered_ms
            self._answers += 1
        # The request of the first answer may have been sent before the record became visible.
        if self._answers >= _ANSWERS:
            self._end = reach.high_watermark if self._end is None else min(self._end, reach.high_watermark)
        return self._end is not None and reach.position >= self._end


_ANSWERS: Final = 2


class _Complete:
    """The instant at which all records of a topic that existed then are read, visible or not.

    The high watermark includes the records of open transactions. That of one response is at least that of the instant of the
    response before it, after which its request was sent.
    """

    __slots__ = ("_answered_ms", "_at_ms", "_until", "since_ms")

    def __init__(self) -> None:
        self.since_ms = -1
        """The instant, in ms of the local clock; -1 if it is unknown."""
        self._answered_ms = 0
        self._at_ms = 0
        self._until: int | None = None
        """The offset up to which the records of `_at_ms` lie; None without a wait."""

    def note(self, reach: Reach) -> None:
        """Take a response, or a newer position after the last one."""
        if reach.answered_ms > self._answered_ms:
            if self._until is None:
                self._at_ms, self._until = self._answered_ms, reach.high_watermark
            self._answered_ms = reach.answered_ms
        if self._until is not None and reach.position >= self._until:
            self.since_ms, self._until = self._at_ms, None


class _Input:
    """The fetched records of one topic. `is_bulk`: its records are released in slices; `is_ordered`: they have an order.

    `end_answered_ms`: when the broker last reported that no record follows them; None if one may follow.
    """

    __slots__ = ("batches", "complete", "end_answered_ms", "gap", "is_bulk", "is_ordered", "rank", "reach", "size")

    def __init__(self, rank: int, *, is_bulk: bool, is_ordered: bool) -> None:
        self.rank = rank
        self.is_bulk = is_bulk
        self.is_ordered = is_ordered
        self.batches: deque[_Batch] = deque()
        self.size = 0
        self.end_answered_ms: int | None = None
        self.reach: Reach | None = None
        self.gap: _Gap | None = None
        self.complete = _Complete()

    def lacks(self, successor: Inbound, answered_ms: int) -> bool:
        """Return whether the predecessor of a record cannot come from this topic. `answered_ms`: of the record's fetch."""
        if self.gap is None or self.gap.successor is not successor:
            self.gap = _Gap(successor, answered_ms)
        return self.gap.is_deleted(self.reach)

    def order(self) -> tuple[int, int]:
        return self.batches[0].head().received_at, self.rank

    def take(self, last_received_at: int, held_until: int | None, limit: int, *, chained: bool = False) -> list[Inbound]:
        """Return records of the first fetch. `held_until`: records received later are held.

        `chained`: stop before a record whose predecessor is not among the returned ones.
        """
        batch = self.batches[0]
        if held_until is not None and batch.arrived.arrived_at > held_until:
            last_received_at = min(last_received_at, held_until)
        taken = batch.take_chain(last_received_at, limit) if chained else batch.take(last_received_at, limit)
        self.size -= len(taken)
        if batch.taken == len(batch.records):
            self.batches.popleft()
        return taken


class OrderedMerge:
    """Releases records in the order of `received_at`; ties go by the order of the topics.

    A record is released when every other topic has a record or is read to its end. While a topic is at its end, the record must
    also have been received at least `hold` ago, by the edge's clock or, should that be fast, by the local clock since the fetch. A
    topic with unread records is waited for. So is a topic whose end the broker has not reported since it returned the record: after
    an outage, or from another broker, older records may follow.

    Records of ordered topics are a chain: each names the order of its predecessor, in whichever of these topics that is. A record
    whose predecessor was released needs no wait for the other ordered topics. Any other waits for its predecessor, until every
    ordered topic is read so far that the predecessor must have been deleted.

    A record of the time topic, whose producer gives it a `received_at` not before that of any record on which it depends, waits for
    everything that was in the other topics when it was fetched, also for records of transactions that are not visible yet. Records
    received later do not wait for it.

    Of a bulk topic only a share is released at once. Its remaining records wait for the next batch, also behind the time topic.
    These are the two cases in which records are released in another order.
    """

    def __init__(
        self,
        topics: Sequence[str],
        hold_ms: int,
        bulk_topics: Collection[str] = (),
        ordered: Collection[str] = (),
        time_topic: str | None = None,
    ) -> None:
        self._hold_micros = hold_ms * 1000
        self._inputs = {
            topic: _Input(rank, is_bulk=topic in bulk_topics, is_ordered=topic in ordered) for rank, topic in enumerate(topics)
        }
        self.follows = 0
        """The order of the last record released from an ordered topic."""
        self._in_rank_order = tuple(self._inputs.values())
        self._time_input = None if time_topic is None else self._inputs[time_topic]

    def add(self, topic: str, records: Sequence[Inbound], arrived: Arrival) -> None:
        """Append fetched records of one topic."""
        if records:
            waiting = self._inputs[topic]
            waiting.batches.append(_Batch(records, arrived))
            waiting.size += len(records)

    def put_back(self, records: Iterable[Inbound]) -> None:
        """Return the records that were taken last, in the order in which they were taken; they are released again first."""
        by_topic: dict[str, list[Inbound]] = {}
        for record in records:
            by_topic.setdefault(record.topic, []).append(record)
        for topic, again in by_topic.items():
            waiting = self._inputs[topic]
            waiting.batches.appendleft(_Batch(again, Arrival(0)))
            waiting.size += len(again)
            first = again[0].previous_order
            if first is not None:
                self.follows = min(self.follows, first)

    def drop_before(self, offsets: Mapping[str, int]) -> None:
        """Drop the topics' records before these offsets."""
        for topic, first in offsets.items():
            waiting = self._inputs[topic]
            kept = [(batch, [r for r in batch.records[batch.taken :] if r.offset >= first]) for batch in waiting.batches]
            waiting.batches = deque(_Batch(records, batch.arrived) for batch, records in kept if records)
            waiting.size = sum(len(records) for _, records in kept)

    def set_ends(self, ends: Mapping[str, int | None]) -> None:
        """Set for each topic when the broker reported its end (ms); None: not read to its end, or fetched records are missing."""
        for topic, answered_ms in ends.items():
            self._inputs[topic].end_answered_ms = answered_ms

    def set_reach(self, topic: str, reach: Reach | None) -> None:
        """Set how far a topic is read, of ordered topics or beside a time topic; None: unknown, or fetched records are missing."""
        self._inputs[topic].reach = reach
        if reach is not None:
            self._inputs[topic].complete.note(reach)

    def size(self, topic: str) -> int:
        """Return how many records of the topic wait."""
        return self._inputs[topic].size

    def is_needed(self, topic: str) -> bool:  # noqa: ARG002 - one shape for all merges
        """Return whether an unread record of the topic precedes all that wait."""
        return False

    def is_idle(self) -> bool:
        """Return whether every topic is empty and read to its end."""
        return all(waiting.end_answered_ms is not None and not waiting.size for waiting in self._in_rank_order)

    def take(self, limit: int, now: int) -> list[Inbound]:
        """Return at most `limit` records, in order. `now` in microseconds of the wall clock."""
        out: list[Inbound] = []
        bulk_left = max(1, limit // _BULK_SHARE)
        while len(out) < limit:
            full = [waiting for waiting in self._in_rank_order if waiting.size]
            held_until = None if len(full) == len(self._in_rank_order) else now - self._hold_micros
            if not bulk_left:
                full = [waiting for waiting in full if not waiting.is_bulk]
            full = self._without_waiting_time(full)
            if not full:
                break
            first = min(full, key=_Input.order)
            if self._must_wait(first):
                break
            left = limit - len(out)
            chained = first.is_ordered and any(waiting.is_ordered for waiting in self._in_rank_order if not waiting.size)
            most = min(left, bulk_left) if first.is_bulk else left
            run = first.take(_last_before(first, full), held_until, most, chained=chained)
            if not run:
                break
            if first.is_ordered and run[-1].previous_order is not None:
                self.follows = run[-1].received_at
            if first.is_bulk:
                bulk_left -= len(run)
            out += run
        return out

    def next_release(self) -> int | None:
        """Return when the next record has been held long enough, in microseconds; None if it waits for something else."""
        full = [waiting for waiting in self._in_rank_order if waiting.size]
        if len(full) == len(self._in_rank_order):
            return None
        full = self._without_waiting_time(full)
        if not full:
            return None
        first = min(full, key=_Input.order)
        batch = first.batches[0]
        return None if self._must_wait(first) else min(batch.head().received_at, batch.arrived.arrived_at) + self._hold_micros

    def _without_waiting_time(self, full: list[_Input]) -> list[_Input]:
        """Return these inputs without the time topic if its first record must wait: the others pass it."""
        timed = self._time_input
        if timed is None or not timed.size:
            return full
        fetched_ms = timed.batches[0].arrived.answered_ms
        others = [waiting for waiting in self._in_rank_order if not (waiting is timed or waiting.size or waiting.is_bulk)]
        if self._must_wait(timed) or any(waiting.complete.since_ms <= fetched_ms for waiting in others):
            return [waiting for waiting in full if waiting is not timed]
        return full

    def _must_wait(self, first: _Input) -> bool:
        batch = first.batches[0]
        head, given_ms = batch.head(), batch.arrived.answered_ms
        previous = head.previous_order
        in_chain = previous is not None and previous <= self.follows
        empty = [waiting for waiting in self._in_rank_order if not waiting.size]
        if in_chain:
            empty = [waiting for waiting in empty if not waiting.is_ordered]
        elif previous is not None and not all(waiting.lacks(head, given_ms) for waiting in empty if waiting.is_ordered):
            return True
        ends = [waiting.end_answered_ms for waiting in empty]
        return any(answered_ms is None or answered_ms < given_ms for answered_ms in ends)


def take_fairly(merges: Mapping[int, OrderedMerge], limit: int, now: int) -> dict[int, Sequence[Inbound]]:
    """Return at most `limit` records, by the key of their merge: an equal share of each first, then the rest of those with more.

    `now` in microseconds of the wall clock.
    """
    share = max(1, limit // max(1, len(merges)))
    taken: dict[int, list[Inbound]] = {}
    left = limit
    for number, merge in merges.items():
        taken[number] = merge.take(min(share, left), now)
        left -= len(taken[number])
    for number, merge in merges.items():
        if left > 0 and len(taken[number]) == share:
            more = merge.take(left, now)
            taken[number] += more
            left -= len(more)
    return dict(taken)


def _last_before(first: _Input, full: Sequence[_Input]) -> int:
    """Return the last `received_at` that precedes the first record of every other topic."""
    others = [waiting.order() for waiting in full if waiting is not first]
    if not others:
        return _NO_BOUND
    received_at, rank = min(others)
    return received_at if first.rank < rank else received_at - 1
