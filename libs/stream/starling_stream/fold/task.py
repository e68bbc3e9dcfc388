"""Pure core: one partition number of a stage, from assignment to revocation, and the offsets that it can commit."""

from collections.abc import Mapping, Sequence
from typing import Final, Generic, NamedTuple

from starling_common.failures import is_of_installation, poison
from starling_common.outcome import Refused
from starling_common.records.dead_letters import bad_received_at, clock_ahead
from starling_common.settings import Clock
from starling_common.time.instants import LATEST_MS, MAX_EDGE_AHEAD_MS
from starling_common.wire import DecodeError
from starling_stream.fold.arrivals import ArrivalMerge
from starling_stream.fold.beyond import Beyond
from starling_stream.fold.bisection import Bisection
from starling_stream.fold.merge import Arrival, OrderedMerge, Reach
from starling_stream.fold.pending_view import PendingView
from starling_stream.fold.task_fold import TaskFold
from starling_stream.model.errors import BatchMissing
from starling_stream.model.meta import TaskMeta
from starling_stream.model.phase import Phase
from starling_stream.model.ports import Changed, NoFailures, PartialView, Sealed, StateView, TaskFailures
from starling_stream.model.processor import Inbound, S, Service
from starling_stream.model.records import RawRecord, all_topics

_LOADING_RECORDS: Final = 1_000
"""Records in one unit while users are loaded: the first unit is committed soon, and the next users are loaded meanwhile."""

IDLE_UNIT_MICROS = 1_000_000
"""The interval in which an idle task under the wall clock reports its stream time, if the service has a function for it."""

OVER_MICROS = 200_000
"""The least time between two calls of `Service.on_instant_over` for one task."""

MARKERS_MICROS = 200_000
"""The interval in which offsets that only move over transaction markers are committed."""


_LATEST_MICROS: Final = LATEST_MS * 1000 + 999

_MAX_KEY_BYTES: Final = 60_000
"""The backing store accepts keys of 65,535 bytes, and a longer one could never be flushed. Ids have 512 bytes at most."""


class Step(NamedTuple):
    """One task's part of a batch. `offsets`: the next offset of each input that advances.

    With a unit of work it has at least one entry: if no input advances, the present offset of one is sent again.
    """

    partition: int
    sealed: Sealed | None
    records: Sequence[Inbound]
    offsets: Mapping[str, int]
    beyond: Beyond = Beyond()
    timers: int = 0
    """The timers, or the keys of a switch, that the unit of work was to process at most."""


class Task(Generic[S]):
    """All co-partitioned inputs of one partition number, as long as it stays with the worker.

    Used by one thread. Units are folded one after the other; while one is committed, the next can be folded.
    """

    def __init__(self, service: Service[S], partition: int, generation: int) -> None:
        self.service = service
        self.partition = partition
        self.generation = generation
        self.phase = Phase.ASSIGNED
        self.topics = all_topics(service)
        self.merge = new_merge(service)
        self.drained = True
        self.committed_meta = TaskMeta()
        self._accepted: dict[str, int] = {}
        self._processed: dict[str, int] = {}
        self._submitted: dict[str, int] = {}
        self._committed: dict[str, int] = {}
        self._beyond = Beyond()
        self._committed_beyond = Beyond()
        self._in_transit = dict.fromkeys(self.topics, 0)
        self._arrived: dict[str, int] = {}
        """Topic -> the last offset of the last fetch that was received."""
        self._positions: dict[str, int] = {}
        """Topic -> the next offset to fetch."""
        self._reaches: dict[str, Reach] = {}
        """Topic -> how far it is fetched, by the last response of the broker."""
        self._ends: dict[str, tuple[int, int]] = {}
        """Topics that are read to their end: up to which offset, and when the broker reported it (ms)."""
        self._pending: Mapping[bytes, Changed] = {}
        self.partial: PartialView | None = None
        """The view while some users are only in the backing store."""
        self._below: StateView | None = None
        self._fold: TaskFold[S] | None = None
        self._idle_unit_at = 0
        self._over_at = 0
        self._markers_at = 0
        self._failures: TaskFailures = NoFailures()
        self._bisection = Bisection()
        self._unfireable: Refused | None = None
        """Why the processor cannot fire the first due timer; the next unit postpones it."""
        self._unswitchable: Refused | None = None
        """Why the processor cannot switch the next key; the next unit passes over it."""
        self._output_refused: Refused | None = None
        """Why the broker refuses the output of the first timer in the step that is about to be rolled back."""

    def run(self, below: StateView, fold: TaskFold[S], offsets: Mapping[str, int], failures: TaskFailures | None = None) -> None:
        """Start with a restored store. `offsets`: where inputs resume, for at least one of them; earlier records are dropped."""
        if failures is not None:
            self._failures, self._bisection = failures, Bisection(failures.failed_at())
        self._below, self._fold = below, fold
        self.committed_meta = fold.meta
        self._committed = dict(offsets)
        self._submitted = dict(offsets)
        self._processed = dict(offsets)
        self.merge.drop_before(offsets)
        self.merge.follows = fold.meta.order
        if isinstance(self.merge, ArrivalMerge):
            self._beyond = self._committed_beyond = Beyond.stored(fold.meta, offsets)
            for topic, processed in self._beyond.offsets.items():
                self.merge.drop(topic, processed)
        self._update_ends()
        self.phase = Phase.RUNNING  # last, because another thread may read the merge then

    def all_loaded(self, below: StateView) -> None:
        """Replace the partial view: all users are loaded."""
        self.partial, self._below = None, below

    def step(self, records: Sequence[Inbound], now: int, timers: int) -> Step | None:
        """Fold these records and the timers that are due; return None if the task has nothing to commit.

        While some users are not loaded, the records that need them go back to the merge. `now` in microseconds of the wall clock.
        If the processor raises, all records go back, and None is returned; smaller units follow until one record is found.
        Raises: failures of the installation.
        """
        idle = None if records else self.idle_instant(now)
        records = self._loaded(records, idle)
        if self._bisection.searching:
            records, timers = self._part(records, idle)
        reports_over = self._may_report_over(records, idle, now)
        owes = reports_over and self.fold.owes_report()
        if not (records or self._has_due(idle) or self._reports(idle, now) or owes):
            return self._markers(now)
        why, over_ms = self._unfireable, self.fold.meta.over_ms
        try:
            postponed = None if why is None or records else self.fold.postpone(self.view, idle, why)
            sealed = postponed or self.fold.step(records, self.view, idle, timers, reports_over=reports_over)
        except Exception as cause:  # noqa: BLE001 - the cause may be a record, which must not stop the others
            self.merge.put_back(self._classified(self.fold.meta.units, records, timers, cause))
            return None
        if not records:
            self._unfireable = None
        if sealed.meta.over_ms > over_ms:
            self._over_at = now
        self.drained = sealed.drained and self._timers_loaded(sealed.meta.stream_time_ms)
        offsets = self._offsets_after(records) or self.unmoved_offset()
        return Step(self.partition, sealed, records, offsets, self._beyond, timers)

    def switch_step(self, plan: bytes, limit: int) -> Step | None:
        """Switch the next keys to the plan in force, at most `limit`; None if the processor raised and the unit is rolled back."""
        if self._bisection.searching:
            limit = min(limit, self._bisection.timers)
        why = self._unswitchable
        try:
            skipped = None if why is None else self.fold.skip_switch(self.view, why)
            sealed = skipped or self.fold.switch_slice(plan, self.view, limit)
        except Exception as cause:  # noqa: BLE001 - as in `step`
            self._classified(self.fold.meta.units, (), limit, cause)
            return None
        self._unswitchable = None
        self.drained = False
        return Step(self.partition, sealed, (), self.unmoved_offset(), self._beyond, limit)

    def output_refused(self, step: Step, cause: Exception) -> Step:
        """Return a step whose output the broker refuses, to roll back: a single record is marked as refused."""
        if step.sealed is None:
            return step
        records = self._classified(step.sealed.meta.units - 1, step.records, step.timers, cause, is_fold=False)
        return step._replace(records=records)

    def _part(self, records: Sequence[Inbound], idle_until_ms: int | None) -> tuple[Sequence[Inbound], int]:
        """Return the records and the number of timers for a unit of a search: due timers first, then records."""
        bisection = self._bisection
        if self._has_due(idle_until_ms):
            self.merge.put_back(records)
            return (), bisection.timers
        self.merge.put_back(records[bisection.records :])
        return records[: bisection.records], 0

    def _classified(
        self, units: int, records: Sequence[Inbound], timers: int, cause: Exception, *, is_fold: bool = True
    ) -> Sequence[Inbound]:
        """Note a failed unit; return its records for the merge. The single record of a unit is the cause and is marked as refused.

        Raises: the cause, if no record can be.
        """
        if is_fold and is_of_installation(cause):
            raise cause
        was_searching = self._bisection.searching
        is_found = self._bisection.failed(units, len(records), timers)
        if not was_searching:
            self._failures.failed(units, cause)
        if not is_found:
            return records
        if is_fold:
            self.fold.check(self.view)
        why = poison(cause)
        if not records:
            self._failures.found(f"a timer or a switch of partition {self.partition}", why)
            if not is_fold:
                self._output_refused = why
            elif self.fold.switching:
                self._unswitchable = why
            else:
                self._unfireable = why
            return records
        record = records[0]
        self._failures.found(f"{record.topic}:{record.partition}:{record.offset}", why)
        return (record._replace(value=why, event_time_ms=None),)

    def _loaded(self, records: Sequence[Inbound], idle_until_ms: int | None) -> Sequence[Inbound]:
        """Return the first of these records whose users are local; the others go back to the merge while users are loaded."""
        partial = self.partial
        if partial is None:
            return records
        first, later = records[:_LOADING_RECORDS], records[_LOADING_RECORDS:]
        if partial.is_loaded([record.key for record in first], self._reach(first, idle_until_ms)):
            self.merge.put_back(later)
            return first
        self.merge.put_back(records)
        return ()

    def _timers_loaded(self, until_ms: int) -> bool:
        """Return whether all users due up to that instant are local."""
        return self.partial is None or self.partial.is_loaded_until(until_ms)

    def _has_due(self, idle_until_ms: int | None) -> bool:
        until = self.fold.due_until(idle_until_ms)
        # A step is needed again when the users due by then have been loaded meanwhile.
        all_loaded = self._timers_loaded(max(until, self.fold.meta.stream_time_ms))
        return (not self.drained and all_loaded) or bool(self.view.due(until, 1))

    def _reports(self, idle_until_ms: int | None, now: int) -> bool:
        """Return whether stream time alone is worth a unit: it moved, and the last idle unit is long enough ago."""
        reports = self.service.on_stream_time is not None or self.service.on_instant_over is not None
        if idle_until_ms is None or not reports or idle_until_ms <= self.fold.meta.stream_time_ms:
            return False
        if now - self._idle_unit_at < IDLE_UNIT_MICROS:
            return False
        self._idle_unit_at = now
        return True

    def _may_report_over(self, records: Sequence[Inbound], idle_until_ms: int | None, now: int) -> bool:
        """Return whether this step may report that an instant is over: not too soon, and with every user who is due by then."""
        if self.service.on_instant_over is None or now - self._over_at < OVER_MICROS:
            return False
        return self.partial is None or self.partial.is_loaded_until(self._reach(records, idle_until_ms))

    def _markers(self, now: int) -> Step | None:
        if now - self._markers_at < MARKERS_MICROS:
            return None
        self._markers_at = now
        offsets = self._offsets_after(())
        return Step(self.partition, None, (), offsets, self._beyond) if offsets else None

    def _reach(self, records: Sequence[Inbound], idle_until_ms: int | None) -> int:
        """Return the greatest stream time that these records can lead to."""
        time_topic, wall = self.service.time_topic, self.service.clock is Clock.WALL
        if time_topic is not None:
            instants = [record.event_time_ms or 0 for record in records if record.topic == time_topic]
        else:
            instants = [record.received_at // 1000 if wall else record.event_time_ms or 0 for record in records]
        return max(self.fold.meta.stream_time_ms, idle_until_ms or 0, *instants)

    @property
    def fold(self) -> TaskFold[S]:
        """Return the fold. Raises: RuntimeError before `run`."""
        if self._fold is None:
            raise RuntimeError(f"partition {self.partition} is {self.phase}, it has no state yet")
        return self._fold

    @property
    def view(self) -> StateView:
        """Return the task's rows with pending changes. Raises: RuntimeError before `run`."""
        if self._below is None:
            raise RuntimeError(f"partition {self.partition} is {self.phase}, it has no state yet")
        return PendingView(self._below, self._pending) if self._pending else self._below

    def note_fetch(self, counts: Mapping[str, int], ends: Mapping[str, tuple[int | None, int | None, int | None, int]]) -> None:
        """Note how many fetches of each topic are in transit to this task, and how far each topic is read (an `End`)."""
        for topic, count in counts.items():
            self._in_transit[topic] += count
        for topic, (position, last_stable, high_watermark, answered_ms) in ends.items():
            if position is not None:
                self._positions[topic] = position
            if position is None or high_watermark is None:
                self._reaches.pop(topic, None)
            else:
                self._reaches[topic] = Reach(position, high_watermark, answered_ms)
            if position is None or last_stable is None or position < last_stable:
                self._ends.pop(topic, None)
            else:
                self._ends[topic] = position, answered_ms
        self._update_ends()

    def receive(self, topic: str, records: Sequence[RawRecord], arrival: Arrival, after: int | None = None) -> None:
        """Decode a fetch into the merge; records before the accepted offset are dropped.

        `after`: the last offset of the fetch before it. Raises: BatchMissing, and the errors of decoding; the fetch then stays in
        transit and may be received again.
        """
        received = max(self._arrived.get(topic, -1), self._committed.get(topic, 0) - 1)
        if after is not None and after > received:
            raise BatchMissing(
                f"{topic} {self.partition}: the records after offset {received} up to {after} were fetched "
                "and did not reach the task"
            )
        first = max(self._accepted.get(topic, 0), self._committed.get(topic, 0))
        service, partition = self.service, self.partition
        new = self._unprocessed(topic, [record for record in records if record.offset >= first])
        # Of an ordered topic the order moves stream time. It may be far after the record's own arrival, but not after the fetch.
        arrived_at = arrival.arrived_at if topic in service.ordered else 0
        fresh = [decode_record(service, topic, partition, record, arrived_at) for record in new]
        self._in_transit[topic] -= 1
        if records:
            self._arrived[topic] = max(received, records[-1].offset)
        if fresh:
            self._accepted[topic] = fresh[-1].offset + 1
            if isinstance(self.merge, ArrivalMerge):
                self.merge.add_appended(topic, fresh, [record.timestamp for record in new])
            else:
                self.merge.add(topic, fresh, arrival)
        self._update_ends()

    def _unprocessed(self, topic: str, records: Sequence[RawRecord]) -> Sequence[RawRecord]:
        """Return the records that the task had not processed when it started."""
        processed = self._committed_beyond.offsets.get(topic)
        return records if processed is None else [record for record in records if record.offset not in processed]

    def _offsets_after(self, records: Sequence[Inbound]) -> dict[str, int]:
        """Return the next offsets of the inputs after these records, for the inputs that advance.

        A topic that is read to its end advances over the transaction markers there. A clock topic does not advance while due timers
        are left, or the instant that it has ended is not reported.
        """
        processed = self._processed
        for record in records:
            processed[record.topic] = max(record.offset + 1, processed.get(record.topic, 0))
        if isinstance(self.merge, ArrivalMerge):
            # It releases the records of a topic in another order than that of their offsets.
            waiting = {topic: self.merge.first_offset(topic) for topic in self.topics}
            self._beyond = self._beyond.after(records, waiting, processed)
            processed.update(self._beyond.positions)
        for topic, (end, _) in self._ends.items():
            if not self._in_transit[topic] and not self.merge.size(topic) and end > processed.get(topic, -1):
                processed[topic] = end
        held = self.service.clock_topics if not self.drained or self.fold.owes_report() else ()
        moved = {
            topic: offset for topic, offset in processed.items() if topic not in held and offset > self._submitted.get(topic, 0)
        }
        self._submitted.update(moved)
        return moved

    def unmoved_offset(self) -> dict[str, int]:
        """Return one input's next offset after the submitted transactions, for a unit that advances no input.

        The consumer group checks the generation of a transaction only when offsets are sent with it. The offset is that of the last
        transaction submitted, not of the last one committed: the former may be pending, and the group's offset must not decrease.
        """
        for topic, offset in self._submitted.items():
            return {topic: offset}
        return {}

    def submitted_beyond(self) -> Mapping[str, Sequence[int]]:
        """Return the ranges of processed records after `submitted_offsets`, as in `TaskMeta`."""
        return self._beyond.ranges()

    def submitted_offsets(self) -> dict[str, int]:
        """Return the next offsets of all inputs after the submitted transactions."""
        return dict(self._submitted)

    def submitted(self, sealed: Sealed | None) -> None:
        """Read through this step's changes from now on: its transaction is being committed."""
        self._pending = sealed.changes if sealed is not None else {}

    def committed(self, step: Step) -> None:
        """Take over the offsets of a step that was committed and stored."""
        self._committed.update(step.offsets)
        self._committed_beyond = step.beyond
        self._pending = {}
        if step.sealed is not None:
            self.committed_meta = step.sealed.meta
            self._bisection.committed(len(step.records))

    def roll_back(self, steps: Sequence[Step]) -> None:
        """Return the records of these aborted steps, in their order, to the merge and reset to the committed state."""
        for step in reversed(steps):
            self.merge.put_back(step.records)
        # What was found after the aborted steps may not be the first timer or key now.
        self._unfireable, self._unswitchable, self._output_refused = self._output_refused, None, None
        self._pending = {}
        self._submitted = dict(self._committed)
        self._processed = dict(self._committed)
        self._beyond = self._committed_beyond
        self.fold.reset(self.committed_meta)
        self.drained = False

    def committed_offset(self, topic: str) -> int:
        """Return the next offset of the input after the last commit; 0 if there was none."""
        return self._committed.get(topic, 0)

    def idle_instant(self, now: int) -> int | None:
        """Return the instant to which an idle task may move stream time (wall clock only); else None. `now` in microseconds."""
        if self.service.clock is Clock.WALL and self.service.time_topic is None and self.merge.is_idle():
            return now // 1000 - self.service.hold_ms
        return None

    def revoke(self) -> None:
        """Drop everything in memory."""
        self.phase = Phase.REVOKED
        self.merge = new_merge(self.service)
        self._pending, self._below, self._fold, self.partial = {}, None, None, None

    def _update_ends(self) -> None:
        ends_answered = {topic: answered_ms for topic, (_, answered_ms) in self._ends.items() if not self._in_transit[topic]}
        self.merge.set_ends({topic: ends_answered.get(topic) for topic in self.topics})
        for topic in self.topics if self.service.time_topic is not None else self.service.ordered:
            self.merge.set_reach(topic, None if self._in_transit[topic] else self._reaches.get(topic))
        if isinstance(self.merge, ArrivalMerge):
            for topic in self.service.sourced:
                accepted = max(self._accepted.get(topic, 0), self._committed.get(topic, 0))
                self.merge.set_reached(topic, accepted if self._in_transit[topic] else max(accepted, self._positions.get(topic, 0)))


def new_merge(service: Service[S]) -> OrderedMerge:
    """Return an empty merge of the service's inputs."""
    topics = all_topics(service)
    if service.sourced:
        return ArrivalMerge(topics)
    return OrderedMerge(topics, service.hold_ms, service.bulk_topics, service.ordered, service.time_topic)


_new = tuple.__new__


def decode_record(service: Service[S], topic: str, partition: int, record: RawRecord, arrived_at: int = 0) -> Inbound:
    """Return the decoded record. Never raises on data: the value of an undecodable record or bad key is a `Refused`.

    Such a record is ordered by the broker's timestamp. `arrived_at`: when an ordered record was fetched, in microseconds.
    """
    key, raw = record.key or b"", record.value or b""
    is_clock = topic in service.clock_topics
    # Hot: once for each record.
    if not (is_clock or (key.find(b"/") > 0 and len(key) <= _MAX_KEY_BYTES and key.isascii())):
        bad_key = _bad_key(key)
        if bad_key is not None:
            return _refused(topic, partition, record, bad_key)
    try:
        value, received_at, event_time_ms, own_key, previous = service.processor.decode(topic, raw)
    except DecodeError as error:
        return _refused(topic, partition, record, Refused(error.code, str(error)))
    except Exception as cause:
        if is_of_installation(cause):
            raise
        return _decoded_again(service, topic, partition, record)
    why = _bad_key(own_key) if own_key else None
    if not 0 <= received_at <= _LATEST_MICROS:
        # The merge would never release it, or any record after it.
        why = bad_received_at(received_at)
    if why is not None:
        return _refused(topic, partition, record, why)
    if received_at > (record.timestamp + MAX_EDGE_AHEAD_MS) * 1000 and record.timestamp > 0 and not is_clock:
        # Its instant would move stream time of all users of the partition, and could not be taken back.
        known_ms = max(record.timestamp, arrived_at // 1000)
        if received_at > (known_ms + MAX_EDGE_AHEAD_MS) * 1000 and (arrived_at or topic not in service.ordered):
            return _refused(topic, partition, record, clock_ahead(received_at // 1000 - known_ms))
    # Hot: once for each record; a named tuple's own constructor takes twice as long.
    inbound = (topic, partition, record.offset, own_key or key, value, received_at, event_time_ms, record.headers, raw, previous)
    return _new(Inbound, inbound)


def _bad_key(key: bytes) -> Refused | None:
    if not key:
        return Refused("missing_key", "the record has no key: write it with workspace/id as its key")
    try:
        workspace, separator, _ = key.decode().partition("/")
    except UnicodeDecodeError:
        return Refused("bad_key", "the key is not UTF-8: write the record with workspace/id as its key")
    if not (workspace and separator):
        return Refused("bad_key", f"the key {key[:80]!r} is not workspace/id: write the record with workspace/id as its key")
    if len(key) > _MAX_KEY_BYTES:
        return Refused("bad_key", f"the key has {len(key)} bytes, more than {_MAX_KEY_BYTES}: send shorter ids")
    return None


def _decoded_again(service: Service[S], topic: str, partition: int, record: RawRecord) -> Inbound:
    """Decode a record after a failure. Decoding has no state, so the second failure of the same record follows at once."""
    try:
        value, received_at, event_time_ms, own_key, previous = service.processor.decode(topic, record.value or b"")
    except Exception as cause:
        if is_of_installation(cause):
            raise
        return _refused(topic, partition, record, poison(cause))
    bad_key = _bad_key(own_key) if own_key else None
    if bad_key is not None:
        return _refused(topic, partition, record, bad_key)
    key, raw = own_key or record.key or b"", record.value or b""
    return Inbound(topic, partition, record.offset, key, value, received_at, event_time_ms, record.headers, raw, previous)


def _refused(topic: str, partition: int, record: RawRecord, why: Refused) -> Inbound:
    key, raw = record.key or b"", record.value or b""
    arrived = record.timestamp * 1000
    return Inbound(topic, partition, record.offset, key, why, arrived, None, record.headers, raw)
