"""Pure core: the life of one partition number, from assignment to revocation, and what it can commit at any moment."""

from collections.abc import Mapping, Sequence
from typing import Final, Generic, NamedTuple

from starling_common.outcome import Refused
from starling_common.settings import Clock
from starling_common.wire import DecodeError
from starling_stream.fold.merge import Arrival, OrderedMerge
from starling_stream.fold.pending_view import PendingView
from starling_stream.fold.task_fold import TaskFold
from starling_stream.model.errors import BatchMissing
from starling_stream.model.meta import TaskMeta
from starling_stream.model.phase import Phase
from starling_stream.model.ports import Changed, PartialView, Sealed, StateView
from starling_stream.model.processor import Inbound, S, Service
from starling_stream.model.records import RawRecord, all_topics

_COLD_RECORDS: Final = 1_000
"""Records in one unit while users have to be brought: so the first is out soon, and the next are read meanwhile."""

IDLE_UNIT_MICROS = 1_000_000
"""The interval in which an idle task under the wall clock reports its stream time, where the service has `on_stream_time`."""

MARKERS_MICROS = 200_000
"""The interval in which offsets that only move over transaction markers are committed."""


class Step(NamedTuple):
    """One task's part of a round. `offsets`: for each input whose next offset moves, where to.

    With a unit of work there is at least one: where none moves, an input's offset is sent again as it is.
    """

    partition: int
    sealed: Sealed | None
    records: Sequence[Inbound]
    offsets: Mapping[str, int]


class Task(Generic[S]):
    """All co-partitioned inputs of one partition number, in one generation of the group.

    Used by one thread. Units are taken one after the other; at most one is on its way while the next is being made.
    """

    def __init__(self, service: Service[S], partition: int, generation: int) -> None:
        self.service = service
        self.partition = partition
        self.generation = generation
        self.phase = Phase.ASSIGNED
        self.topics = all_topics(service)
        self.merge = OrderedMerge(self.topics, service.hold_ms, service.bulk_topics)
        self.drained = True
        self.committed_meta = TaskMeta()
        self._accepted: dict[str, int] = {}
        self._processed: dict[str, int] = {}
        self._submitted: dict[str, int] = {}
        self._committed: dict[str, int] = {}
        self._in_transit = dict.fromkeys(self.topics, 0)
        self._arrived: dict[str, int] = {}
        """The last offset of the last batch that came."""
        self._ends: dict[str, tuple[int, int]] = {}
        """Topics that are read to their end: up to which offset, and when the broker told so (ms)."""
        self._pending: Mapping[bytes, Changed] = {}
        self.partial: PartialView | None = None
        """The view while some users are not local yet."""
        self._below: StateView | None = None
        self._fold: TaskFold[S] | None = None
        self._idle_unit_at = 0
        self._markers_at = 0

    def run(self, below: StateView, fold: TaskFold[S], offsets: Mapping[str, int]) -> None:
        """The store is ready. `offsets`: where inputs resume, for one of them at least; earlier records are dropped."""
        self.phase = Phase.RUNNING
        self._below, self._fold = below, fold
        self.committed_meta = fold.meta
        self._committed = dict(offsets)
        self._submitted = dict(offsets)
        self._processed = dict(offsets)
        self.merge.drop_before(offsets)

    def warm(self, below: StateView) -> None:
        """All users are local now."""
        self.partial, self._below = None, below

    def step(self, records: Sequence[Inbound], now: int, timers: int) -> Step | None:
        """Fold these records and the timers that are due; return None if the task has nothing to commit.

        While some users are not loaded, the records that need them go back to the merge. `now` in microseconds of the wall clock.
        """
        idle = None if records else self.idle_instant(now)
        records = self._loaded(records, idle)
        if not records and not self._has_due(idle) and not self._reports(idle, now):
            return self._markers(now)
        sealed = self.fold.step(records, self.view, idle, timers)
        self.drained = sealed.drained and self._sees_timers(sealed.meta.stream_time_ms)
        return Step(self.partition, sealed, records, self._offsets_after(records) or self.unmoved_offset())

    def switch_step(self, plan: bytes, limit: int) -> Step:
        """Switch the next keys to the plan in force, at most `limit`."""
        sealed = self.fold.switch_slice(plan, self.view, limit)
        self.drained = False
        return Step(self.partition, sealed, (), self.unmoved_offset())

    def _loaded(self, records: Sequence[Inbound], idle_until_ms: int | None) -> Sequence[Inbound]:
        """Return the first of these records whose users are local; the others go back to the merge while users are loaded."""
        partial = self.partial
        if partial is None:
            return records
        first, later = records[:_COLD_RECORDS], records[_COLD_RECORDS:]
        if partial.covers([record.key for record in first], self._reach(first, idle_until_ms)):
            self.merge.put_back(later)
            return first
        self.merge.put_back(records)
        return ()

    def _sees_timers(self, until_ms: int) -> bool:
        """Return whether all users due up to that instant are local."""
        return self.partial is None or self.partial.sees(until_ms)

    def _has_due(self, idle_until_ms: int | None) -> bool:
        until = self.fold.due_until(idle_until_ms)
        # A step is needed again when the users due by then have been loaded meanwhile.
        sees_all = self._sees_timers(max(until, self.fold.meta.stream_time_ms))
        return (not self.drained and sees_all) or bool(self.view.due(until, 1))

    def _reports(self, idle_until_ms: int | None, now: int) -> bool:
        """Return whether stream time alone is worth a unit: it moved, and the last idle unit is long enough ago."""
        if idle_until_ms is None or self.service.on_stream_time is None or idle_until_ms <= self.fold.meta.stream_time_ms:
            return False
        if now - self._idle_unit_at < IDLE_UNIT_MICROS:
            return False
        self._idle_unit_at = now
        return True

    def _markers(self, now: int) -> Step | None:
        if now - self._markers_at < MARKERS_MICROS:
            return None
        self._markers_at = now
        offsets = self._offsets_after(())
        return Step(self.partition, None, (), offsets) if offsets else None

    def _reach(self, records: Sequence[Inbound], idle_until_ms: int | None) -> int:
        """How far stream time may be after these records."""
        wall = self.service.clock is Clock.WALL
        instants = [record.received_at // 1000 if wall else record.event_time_ms or 0 for record in records]
        return max(self.fold.meta.stream_time_ms, idle_until_ms or 0, *instants)

    @property
    def fold(self) -> TaskFold[S]:
        """Raises: RuntimeError before `run`."""
        if self._fold is None:
            raise RuntimeError(f"partition {self.partition} is {self.phase}, it has no state yet")
        return self._fold

    @property
    def view(self) -> StateView:
        """The task's rows, what is on its way included. Raises: RuntimeError before `run`."""
        if self._below is None:
            raise RuntimeError(f"partition {self.partition} is {self.phase}, it has no state yet")
        return PendingView(self._below, self._pending) if self._pending else self._below

    def announce(self, counts: Mapping[str, int], ends: Mapping[str, tuple[int | None, int | None, int]]) -> None:
        """A fetch happened: so many batches of these topics are on their way here, and that is how far each is read."""
        for topic, count in counts.items():
            self._in_transit[topic] += count
        for topic, (position, last_stable, told_ms) in ends.items():
            if position is None or last_stable is None or position < last_stable:
                self._ends.pop(topic, None)
            else:
                self._ends[topic] = position, told_ms
        self._tell_ends()

    def arrive(self, topic: str, records: Sequence[RawRecord], arrival: Arrival, after: int | None = None) -> None:
        """A batch that was announced is here. Records that were here before are dropped. `after`: the last offset before it.

        Raises: what decoding raises; the batch is then still on its way, and may be brought again. BatchMissing.
        """
        came = max(self._arrived.get(topic, -1), self._committed.get(topic, 0) - 1)
        if after is not None and after > came:
            raise BatchMissing(
                f"{topic} {self.partition}: a batch up to offset {after} was read and did not come, only up to {came}"
            )
        first = max(self._accepted.get(topic, 0), self._committed.get(topic, 0))
        service, partition = self.service, self.partition
        fresh = [decode_record(service, topic, partition, record) for record in records if record.offset >= first]
        self._in_transit[topic] -= 1
        if records:
            self._arrived[topic] = max(came, records[-1].offset)
        if fresh:
            self._accepted[topic] = fresh[-1].offset + 1
            self.merge.add(topic, fresh, arrival)
        self._tell_ends()

    def _offsets_after(self, records: Sequence[Inbound]) -> dict[str, int]:
        """The next offsets of the inputs once these records are processed, for those that move.

        A topic that is read to its end moves beyond the markers of transactions that lie there. A clock topic stays
        behind while timers are left that are due.
        """
        processed = self._processed
        for record in records:
            processed[record.topic] = record.offset + 1
        for topic, (end, _) in self._ends.items():
            if not self._in_transit[topic] and not self.merge.size(topic) and end > processed.get(topic, -1):
                processed[topic] = end
        held = () if self.drained else self.service.clock_topics
        moved = {
            topic: offset for topic, offset in processed.items() if topic not in held and offset > self._submitted.get(topic, 0)
        }
        self._submitted.update(moved)
        return moved

    def unmoved_offset(self) -> dict[str, int]:
        """One input's next offset as the transactions so far leave it, for a unit that moves none.

        The consumer group checks the generation of a transaction only where offsets are sent with it. The offset is that of the
        last transaction submitted, not of the last one committed: the former may still be under way, and the group must not go
        back behind it.
        """
        for topic, offset in self._submitted.items():
            return {topic: offset}
        return {}

    def submitted(self, sealed: Sealed | None) -> None:
        """The step is on its way to the broker: the next one reads through its changes."""
        self._pending = sealed.changes if sealed is not None else {}

    def landed(self, step: Step) -> None:
        """The step was committed and is in the store."""
        self._committed.update(step.offsets)
        self._pending = {}
        if step.sealed is not None:
            self.committed_meta = step.sealed.meta

    def give_back(self, steps: Sequence[Step]) -> None:
        """These steps, in their order, did not happen: their records will be released again, from the committed state."""
        for step in reversed(steps):
            self.merge.put_back(step.records)
        self._pending = {}
        self._submitted = dict(self._committed)
        self._processed = dict(self._committed)
        self.fold.reset(self.committed_meta)
        self.drained = False

    def committed_offset(self, topic: str) -> int:
        """The next record of the input after the last commit; 0 when there was none."""
        return self._committed.get(topic, 0)

    def idle_instant(self, now: int) -> int | None:
        """Under the wall clock, what stream time may move to when no record is at hand. `now` in microseconds."""
        if self.service.clock is Clock.WALL and self.merge.is_idle():
            return now // 1000 - self.service.hold_ms
        return None

    def revoke(self) -> None:
        """Forget everything in memory."""
        self.phase = Phase.REVOKED
        self.merge = OrderedMerge(self.topics, self.service.hold_ms, self.service.bulk_topics)
        self._pending, self._below, self._fold, self.partial = {}, None, None, None

    def _tell_ends(self) -> None:
        told = {topic: told_ms for topic, (_, told_ms) in self._ends.items() if not self._in_transit[topic]}
        self.merge.set_ends({topic: told.get(topic) for topic in self.topics})


_new = tuple.__new__


def decode_record(service: Service[S], topic: str, partition: int, record: RawRecord) -> Inbound:
    """Never raises on data: what cannot be decoded, or has no key, carries a `Refused` as its value.

    Such a record takes its place in the order of arrival by the broker's timestamp.
    """
    key, raw = record.key or b"", record.value or b""
    if not key and topic not in service.clock_topics:
        return _refused(
            topic, partition, record, Refused("missing_key", "the record has no key: write it with workspace/id as its key")
        )
    try:
        value, received_at, event_time_ms, own_key = service.processor.decode(topic, raw)
    except DecodeError as error:
        return _refused(topic, partition, record, Refused(error.code, str(error)))
    # Hot: once for each record; a named tuple's own constructor takes twice as long.
    inbound = (topic, partition, record.offset, own_key or key, value, received_at, event_time_ms, record.headers, raw)
    return _new(Inbound, inbound)


def _refused(topic: str, partition: int, record: RawRecord, why: Refused) -> Inbound:
    key, raw = record.key or b"", record.value or b""
    arrived = record.timestamp * 1000
    return Inbound(topic, partition, record.offset, key, why, arrived, None, record.headers, raw)
