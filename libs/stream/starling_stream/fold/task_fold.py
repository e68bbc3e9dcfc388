"""Pure core: the fold of one task. Its input are records, its output is a sealed unit of work; it defines the order of effects."""

from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Final, Generic

import msgspec

from starling_common.outcome import Refused
from starling_common.records.dead_letters import SWITCH_ORIGIN, TIMER_ORIGIN
from starling_common.settings import Clock
from starling_stream.fold.unit_of_work import UnitOfWork
from starling_stream.model.errors import ProcessorError, StatesTooLarge
from starling_stream.model.meta import TaskMeta
from starling_stream.model.ports import Changed, Refusal, Sealed, StateView
from starling_stream.model.processor import History, Inbound, S, Service
from starling_stream.model.rows import MAX_STATE_BYTES, row_after

POSTPONED_MS: Final = 86_400_000
"""The delay of a timer that the processor cannot fire. The next record of the key sets it again."""

_BEFORE_SLASH: Final = b".\xff"
_AFTER_SLASH: Final = b"0"

SLICE_TIMERS: Final = 1_000
"""The default number of timers that one step fires."""


class TaskFold(Generic[S]):
    """The part of a task without I/O: stream time, plan, and the processing of each record.

    Every step returns a `Sealed` and assumes its commit. After an abort, `reset` restores the committed meta. Steps of one fold
    never run concurrently.

    A timer due exactly at stream time waits while further records of that instant may follow: an event of the same key at the same
    instant must be evaluated together with it, in whichever batch it arrives. The timer fires when stream time has passed the
    instant, or when a clock record (or the idle wall clock) ends it. A record of the time topic ends the instant that it reaches.
    """

    def __init__(self, service: Service[S], partition: int, meta: TaskMeta) -> None:
        self.service = service
        self.partition = partition
        self.meta = meta
        self._clock_topics = frozenset(service.clock_topics)
        self._time_topic = service.time_topic
        self._over_ms = self._first_over_ms(meta)
        """The last instant that was ended: timers due at it may fire. Not stored; set again after a restart."""
        self._switched_to: bytes | None = None
        """The last key that was switched; None outside a switch."""

    @property
    def switching(self) -> bool:
        """Return whether a switch is in progress."""
        return self._switched_to is not None

    def reset(self, meta: TaskMeta) -> None:
        """Discard every step since that meta; a switch in progress starts again (it is safe to repeat)."""
        self.meta = meta
        self._switched_to = None
        self._over_ms = self._first_over_ms(meta)

    def _first_over_ms(self, meta: TaskMeta) -> int:
        """Return stream time with a time topic, whose records end the instants that they reach; otherwise -1."""
        return -1 if self._time_topic is None else meta.stream_time_ms

    def due_until(self, idle_until_ms: int | None = None) -> int:
        """Return the instant up to which timers fire in the next step, if no record moves stream time first."""
        return self._fires_until(max(self.meta.stream_time_ms, idle_until_ms or 0), max(self._over_ms, idle_until_ms or -1))

    def owes_report(self) -> bool:
        """Return whether an instant that `Service.on_instant_over` has not received is over, if no timer is due."""
        return self.service.on_instant_over is not None and self._over(self.meta.stream_time_ms) > self.meta.over_ms

    def step(
        self,
        records: Sequence[Inbound],
        view: StateView,
        idle_until_ms: int | None = None,
        timers: int = SLICE_TIMERS,
        *,
        reports_over: bool = True,
    ) -> Sealed:
        """Fold records in order, then fire at most `timers` due timers.

        `idle_until_ms`: without records stream time moves to this instant (wall clock only). `reports_over`: call
        `Service.on_instant_over` if an instant is over.
        """
        over_ms, meta = self._over_ms, self.meta
        try:
            try:
                return self._step(records, view, idle_until_ms, timers, reports_over=reports_over)
            except StatesTooLarge as cause:
                return self._step(records, view, idle_until_ms, timers, frozenset(cause.keys), reports_over=reports_over)
        except Exception:
            self._over_ms, self.meta = over_ms, meta
            raise

    def _step(
        self,
        records: Sequence[Inbound],
        view: StateView,
        idle_until_ms: int | None,
        timers: int,
        watched: Collection[bytes] = (),
        *,
        reports_over: bool,
    ) -> Sealed:
        """Fold and fire. Records that would make the state of a `watched` key too large are refused. Raises: StatesTooLarge."""
        unit = self._unit(view, self.meta.plan)
        if records:
            unit.load([record.key for record in records])
            if watched:
                self._fold_watched(records, unit, watched)
            else:
                self._fold(records, unit)
            unit.order = max(unit.order, last_order(records))
        if idle_until_ms is not None and idle_until_ms >= unit.stream_time_ms:
            unit.stream_time_ms = self._over_ms = idle_until_ms
        fired, drained, late_ms = self._fire(unit, view, timers)
        changes = unit.changes(bounded=not watched)
        self._report_over(records, unit, reports=drained and reports_over)
        sealed = self._seal(unit, self.meta.plan, changes, fired, drained)
        return sealed._replace(late_ms=late_ms) if fired else sealed

    def check(self, view: StateView) -> None:
        """Fold nothing, and discard the result. Raises: the error of a unit that fails whatever its records are."""
        meta = self.meta
        self._step((), view, None, 0, reports_over=False)
        self.meta = meta

    def postpone(self, view: StateView, idle_until_ms: int | None, why: Refused) -> Sealed | None:
        """Move the first due timer by `POSTPONED_MS` without the processor, with a dead letter; None if no timer is due."""
        now = self.due_until(idle_until_ms)
        due = view.due(now, 1)
        if not due:
            return None
        key = due[0][1]
        before = view.rows((key,))[0] or b""
        after = row_after(before, now + POSTPONED_MS, before[16:])
        changes = {} if after is None else {key: Changed(before, after)}
        return self._without_processor(changes, key, TIMER_ORIGIN, why)

    def skip_switch(self, view: StateView, why: Refused) -> Sealed | None:
        """Leave the next key of a switch as it is, with a dead letter; None if no key is left."""
        keys = self._keys_to_switch(view, 1)
        if not keys:
            return None
        self._switched_to = keys[0]
        return self._without_processor({}, keys[0], SWITCH_ORIGIN, why)

    def _without_processor(self, changes: Mapping[bytes, Changed], key: bytes, origin: str, why: Refused) -> Sealed:
        self.meta = msgspec.structs.replace(self.meta, units=self.meta.units + 1, offsets={}, beyond={})
        received_at = max(0, self.meta.stream_time_ms) * 1000
        record = Inbound(origin, self.partition, -1, key, None, received_at, None, (), b"")
        return Sealed(self.partition, self.meta, changes, (), (Refusal(record, why.code, why.message),), 0, drained=False)

    def begin_switch(self, history: History) -> None:
        """Start a switch: the processor may read the past. May block: `History` reads from the broker."""
        self.service.processor.before_switch(history)
        self._switched_to = b""

    def switch_slice(self, plan: bytes, view: StateView, limit: int) -> Sealed:
        """Switch the next keys to the plan in force; the last slice stores the plan's name in the task's meta."""
        if self._switched_to is None:
            raise ProcessorError("a slice was requested outside a switch")
        processor, unit = self.service.processor, self._unit(view, plan)
        keys = self._keys_to_switch(view, limit)
        unit.load(keys)
        for key in keys:
            state = unit.get(key)
            if state is not None:
                processor.switch(key, state, unit)
        last = len(keys) < limit
        # First the states are encoded, which may fail: a repeated slice needs what `after_switch` releases.
        changes = unit.changes(bounded=False)
        if last:
            processor.after_switch(unit)
        self._report_over((), unit, reports=False)
        sealed = self._seal(unit, plan if last else self.meta.plan, changes, 0, drained=False)
        self._switched_to = None if last else keys[-1]
        return sealed

    def _keys_to_switch(self, view: StateView, limit: int) -> list[bytes]:
        """Return the next keys of the switch, ascending; fewer than `limit` only at its end."""
        after = self._switched_to or b""
        prefixes = self.service.processor.switched_prefixes(self.partition)
        if prefixes is None:
            return view.keys(after, limit)
        found: list[bytes] = []
        for prefix in prefixes:
            end = prefix[:-1] + _AFTER_SLASH
            if after < end and len(found) < limit:
                # `keys` excludes the first argument. No key is UTF-8 and greater than this one, but less than the prefix.
                later = view.keys(max(after, prefix[:-1] + _BEFORE_SLASH), limit - len(found))
                found += [key for key in later if prefix <= key < end]
        return found

    def _unit(self, view: StateView, plan: bytes) -> UnitOfWork[S]:
        return UnitOfWork(self.partition, plan, self.meta.stream_time_ms, self.service.processor, view.rows, self.meta.order)

    def _fold(self, records: Iterable[Inbound], unit: UnitOfWork[S]) -> None:
        # Hot: once for each record.
        process, clock_topics = self.service.processor.process, self._clock_topics
        wall, time_topic = self.service.clock is Clock.WALL, self._time_topic
        for record in records:
            if time_topic is not None:
                instant = record.event_time_ms if record.topic == time_topic else None
            else:
                instant = record.received_at // 1000 if wall else record.event_time_ms
            if instant is not None and instant > unit.stream_time_ms:
                unit.stream_time_ms = instant
            if instant is not None and record.topic in clock_topics:
                self._over_ms = max(self._over_ms, instant)
            value = record.value
            if type(value) is Refused:
                unit.refuse(record, value.code, value.message)
            elif record.topic not in clock_topics:
                process(record, unit)

    def _fold_watched(self, records: Iterable[Inbound], unit: UnitOfWork[S], watched: Collection[bytes]) -> None:
        for record in records:
            if record.key not in watched:
                self._fold((record,), unit)
                continue
            mark = unit.mark(record.key)
            self._fold((record,), unit)
            size = unit.state_bytes(record.key)
            # A state that timers and definitions made too large may become smaller.
            if size > max(MAX_STATE_BYTES, len(mark.state or b"")):
                unit.take_back(record.key, mark)
                message = f"the state of {record.key.decode(errors='replace')} would have {size:,} bytes, over {MAX_STATE_BYTES:,}"
                unit.refuse(record, "state_too_large", message)

    def _fire(self, unit: UnitOfWork[S], view: StateView, limit: int) -> tuple[int, bool, int]:
        """Return how many timers fired, whether no due timer is left, and how late the oldest was in milliseconds."""
        reached = unit.stream_time_ms
        now = unit.stream_time_ms = self._fires_until(reached, self._over_ms)
        stored = view.due(now, limit + unit.written() + 1)
        due = sorted([entry for entry in stored if not unit.has_put(entry[1])] + unit.due_until(now))
        unit.load([key for _, key in due[:limit]])
        fire = self.service.processor.fire
        for _, key in due[:limit]:
            fire(key, unit)
            if not unit.has_put(key):
                raise ProcessorError(f"{self.service.stage}: fire did not put {key!r}: put it with a later due_ms or None")
            later = unit.due_of(key)
            if later is not None and later <= now:
                raise ProcessorError(f"{self.service.stage}: fire left {key!r} due at {later}, not after {now}")
        unit.stream_time_ms = reached
        return min(len(due), limit), len(due) <= limit, now - due[0][0] if due else 0

    @staticmethod
    def _fires_until(stream_time_ms: int, over_ms: int) -> int:
        return stream_time_ms if over_ms >= stream_time_ms else stream_time_ms - 1

    def _seal(self, unit: UnitOfWork[S], plan: bytes, changes: Mapping[bytes, Changed], fired: int, drained: bool) -> Sealed:
        hook = self.service.on_stream_time
        if hook is not None:
            hook(self.partition, unit.stream_time_ms, unit)
        over_ms, received_at = self.meta.over_ms, self.meta.received_at
        self.meta = TaskMeta(
            self.meta.units + 1, unit.stream_time_ms, plan, order=unit.order, over_ms=over_ms, received_at=received_at
        )
        return unit.seal(self.meta, changes, fired, drained)

    def _report_over(self, records: Sequence[Inbound], unit: UnitOfWork[S], *, reports: bool) -> None:
        """Note when these records were received; call `Service.on_instant_over` if an instant is over, and `reports`."""
        report = self.service.on_instant_over
        if report is None:
            return
        received_at = max([record.received_at for record in records], default=0)
        received_at = max(self.meta.received_at, unit.last_received_at(), received_at)
        over_ms = self._over(unit.stream_time_ms)
        if reports and over_ms > self.meta.over_ms:
            report(over_ms, received_at, unit)
            received_at = max(received_at, unit.last_received_at())
        else:
            over_ms = self.meta.over_ms
        self.meta = msgspec.structs.replace(self.meta, over_ms=over_ms, received_at=received_at)

    def _over(self, stream_time_ms: int) -> int:
        """Return the last instant at or before which no later output is caused, once the timers up to it have fired.

        A late record is processed at stream time. That instant is over only if a clock record of the event clock ended it.
        """
        is_ended = self._over_ms >= stream_time_ms and self._time_topic is None and self.service.clock is Clock.EVENT
        return stream_time_ms if is_ended else stream_time_ms - 1


def last_order(records: Sequence[Inbound]) -> int:
    """Return the order of the last record that has one; 0 without one."""
    for record in reversed(records):
        if record.previous_order is not None:
            last: int = record.received_at
            return last
    return 0
