"""Pure core: what the next round holds. One round is one transaction over all running tasks."""

from collections.abc import Callable, Iterable, Sequence
from typing import Any, Final, NamedTuple

from starling_stream.fold.task import Step, Task
from starling_stream.fold.task_fold import SLICE_TIMERS
from starling_stream.model.phase import Phase
from starling_stream.model.processor import Inbound

IDLE_UNIT_MICROS = 1_000_000
"""How often an idle task under the wall clock says how far its time is, if anybody wants to know."""

MARKERS_MICROS = 200_000
"""How often offsets are committed that only move over transaction markers."""

SMALL_RECORDS: Final = 1_000
"""Fewer waiting records than this are not folded while the round before is on its way to the broker. They could not go on before
it is there, and whatever came meanwhile would have to wait for one round more. At 5,500 events a second on two busy cores, p50 and
p99 of an event's way in half a minute each, in turn: 160/456, 108/374 ms with this; 129/326, 162/415 without, and 240/700 to
320/1,090 without it in the first minute of a worker, where 160/456 was.
"""


class Limits(NamedTuple):
    """Bounds of one round: records of all tasks together, keys that one task switches, timers of all tasks together."""

    records: int
    switch_keys: int
    timers: int = SLICE_TIMERS


class Rounds:
    """Takes steps of tasks together. `now` is the wall clock in microseconds everywhere."""

    def __init__(self, limits: Limits, adopt_plan: Callable[[], bytes]) -> None:
        self._limits = limits
        self._adopt_plan = adopt_plan
        self._plan: bytes | None = None
        self._first = 0
        self._idle_unit_at: dict[int, int] = {}
        self._markers_at: dict[int, int] = {}

    def adopt(self, tasks: Iterable[Task[Any]]) -> None:
        """Take over a new plan if there is one; not before every running task is under the last."""
        if self._plan is None or not any(self._is_behind(task) for task in tasks):
            self._plan = self._adopt_plan()

    def to_begin(self, tasks: Iterable[Task[Any]]) -> Task[Any] | None:
        """The task that has to begin a switch now: one after the other, so that a processor keeps one task's past at a time."""
        behind = [task for task in tasks if self._is_behind(task)]
        for task in behind:
            if task.partial is not None:
                task.partial.hurry()  # a switch is for every user: it waits until all are local
        ready = [task for task in behind if task.partial is None]
        return ready[0] if ready and not any(task.fold.switching for task in behind) else None

    def collect(self, tasks: Sequence[Task[Any]], now: int) -> list[Step]:
        """The steps of all tasks that have something to do; none when nothing is to be done now."""
        running = [task for task in tasks if task.phase is Phase.RUNNING]
        if not running:
            return []
        self._first = (self._first + 1) % len(running)
        in_turn = running[self._first :] + running[: self._first]
        taken = self._take(in_turn, now)
        # A wave of timers is fired in small slices between the records, so that none of these waits for it; where records are
        # many, as many timers keep pace with them.
        share = max(1, self._limits.timers // len(running))
        steps = (self._step(task, taken[task.partition], now, max(share, len(taken[task.partition]))) for task in in_turn)
        return [step for step in steps if step is not None]

    def is_small(self, tasks: Sequence[Task[Any]]) -> bool:
        """Whether little waits: few records, no timer that is due, nobody to be switched."""
        running = [task for task in tasks if task.phase is Phase.RUNNING]
        if any(not task.drained or task.fold.switching or self._is_behind(task) for task in running):
            return False
        return sum(task.merge.size(topic) for task in running for topic in task.topics) < min(SMALL_RECORDS, self._limits.records)

    def next_release(self, tasks: Iterable[Task[Any]]) -> int | None:
        """When the first record that is only held will be free."""
        instants = [task.merge.next_release() for task in tasks if task.phase is Phase.RUNNING]
        return min((instant for instant in instants if instant is not None), default=None)

    def _is_behind(self, task: Task[Any]) -> bool:
        """Under an older plan: it is switched before it processes anything more."""
        return self._plan is not None and task.fold.meta.plan != self._plan

    def _take(self, tasks: Sequence[Task[Any]], now: int) -> dict[int, Sequence[Inbound]]:
        """Everybody's share first, then what is left over to those with more, in turn."""
        ready = [task for task in tasks if not self._is_behind(task)]
        share = max(1, self._limits.records // max(1, len(ready)))
        taken: dict[int, list[Inbound]] = {task.partition: [] for task in tasks}
        left = self._limits.records
        for task in ready:
            taken[task.partition] = task.merge.take(min(share, left), now)
            left -= len(taken[task.partition])
        for task in ready:
            if left > 0 and len(taken[task.partition]) == share:
                more = task.merge.take(left, now)
                taken[task.partition] += more
                left -= len(more)
        return dict(taken)

    def _step(self, task: Task[Any], records: Sequence[Inbound], now: int, timers: int) -> Step | None:
        fold = task.fold
        if fold.switching and self._plan is not None:
            sealed = fold.switch_slice(self._plan, task.view, self._limits.switch_keys)
            task.drained = False
            return Step(task.partition, sealed, (), task.unmoved_offset())
        if self._is_behind(task):
            return None
        idle = None if records else task.idle_instant(now)
        records = task.prepared(records, idle)
        if records or self._has_due(task, idle) or self._reports(task, idle, now):
            sealed = fold.step(records, task.view, idle, timers)
            task.drained = sealed.drained and task.sees_timers(sealed.meta.stream_time_ms)
            offsets = task.offsets_after(records, task.drained) or task.unmoved_offset()
            return Step(task.partition, sealed, records, offsets)
        return self._markers(task, now)

    def _has_due(self, task: Task[Any], idle: int | None) -> bool:
        until = task.fold.due_until(idle)
        # Once more, too, when who is due has been brought meanwhile: up to where the step will look whether all are here.
        sees_all = task.sees_timers(max(until, task.fold.meta.stream_time_ms))
        return (not task.drained and sees_all) or bool(task.view.due(until, 1))

    def _reports(self, task: Task[Any], idle: int | None, now: int) -> bool:
        """Whether time has gone on for long enough without any record that it is worth a unit."""
        if idle is None or task.service.on_stream_time is None or idle <= task.fold.meta.stream_time_ms:
            return False
        if now - self._idle_unit_at.get(task.partition, 0) < IDLE_UNIT_MICROS:
            return False
        self._idle_unit_at[task.partition] = now
        return True

    def _markers(self, task: Task[Any], now: int) -> Step | None:
        if now - self._markers_at.get(task.partition, 0) < MARKERS_MICROS:
            return None
        self._markers_at[task.partition] = now
        offsets = task.offsets_after((), task.drained)
        return Step(task.partition, None, (), offsets) if offsets else None
