"""Pure core: the content of the next batch. One batch is one transaction over all running tasks."""

from collections.abc import Callable, Iterable, Sequence
from typing import Any, Final, NamedTuple

from starling_stream.fold.merge import take_fairly
from starling_stream.fold.task import Step, Task
from starling_stream.fold.task_fold import SLICE_TIMERS
from starling_stream.model.phase import Phase
from starling_stream.model.ports import Sealed
from starling_stream.model.processor import Inbound

SMALL_RECORDS: Final = 1_000
"""Fewer waiting records are not folded while the last transaction is being committed.

Such a batch could not be committed before the last one, and records received meanwhile would wait for one batch more. At 5,500
events a second on two busy cores, p50 and p99 of an event's latency in half a minute each, alternating: 160/456, 108/374 ms with
this; 129/326, 162/415 without, and 240/700 to 320/1,090 without it in the first minute of a worker, where 160/456 was.
"""


MAX_PAUSE_SECONDS: Final = 30.0
"""The longest time for which a new plan waits for the records that waited for the last one."""


BATCH_OUTPUTS: Final = 50_000
"""Outputs of one batch, about. A transaction must end within its timeout (20 s), or the broker aborts it and fences the worker.

With 20 segments an event has 3.5 outputs, and a batch of 10,000 events stays below this. With 1,000 segments it had 47, and the
470,000 outputs of such a batch took longer than the timeout.
"""

FIRST_RECORDS: Final = 1_000
"""Records and timers of the first batch, before any outputs are known."""

FIRST_KEYS: Final = 200
"""Keys of the first slice of a switch."""

LEAST_ITEMS: Final = 20
"""Records, timers or keys of a batch at least, however many outputs each has."""


class Limits(NamedTuple):
    """Limits of one batch: records of all tasks together, keys that one task switches, timers of all tasks together."""

    records: int
    switch_keys: int
    timers: int = SLICE_TIMERS


class _Fanout:
    """The outputs of one record, timer or switched key, estimated from the last batches. The next batch is sized by them."""

    __slots__ = ("each",)

    def __init__(self, first: int) -> None:
        """`first`: how many items the first batch has at most."""
        self.each = BATCH_OUTPUTS / first

    def bound(self, limit: int) -> int:
        """Return how many items the next batch has at most."""
        return min(limit, max(LEAST_ITEMS, int(BATCH_OUTPUTS / self.each)))

    def note(self, items: int, outputs: int) -> None:
        """Note a batch. The estimate rises at once and decreases by half a batch, so the batches at most double."""
        if items:
            self.each = max(outputs / max(items, LEAST_ITEMS), self.each / 2, 1.0)


class Batches:
    """Collects the steps of all tasks for one transaction. `now` is the wall clock in microseconds."""

    def __init__(self, limits: Limits, adopt_plan: Callable[[], bytes]) -> None:
        self._limits = limits
        self._adopt_plan = adopt_plan
        self._plan: bytes | None = None
        self._first = 0
        self._switch_began: float | None = None
        self._adopt_at = 0.0
        self._events = _Fanout(FIRST_RECORDS)
        self._switches = _Fanout(FIRST_KEYS)

    def adopt(self, tasks: Iterable[Task[Any]], now: float) -> None:
        """Adopt a new plan if there is one, once every running task has the last plan. `now`: monotonic seconds.

        Records of a task wait during its switch. A newer plan waits afterwards for as long as the switch of all tasks took,
        `MAX_PAUSE_SECONDS` at most: one workspace could change its plan at every moment.
        """
        if self._plan is not None and any(self._is_behind(task) for task in tasks):
            if self._switch_began is None:
                self._switch_began = now
            return
        if self._switch_began is not None:
            self._adopt_at = now + min(now - self._switch_began, MAX_PAUSE_SECONDS)
            self._switch_began = None
        if now >= self._adopt_at:
            self._plan = self._adopt_plan()

    def next_to_switch(self, tasks: Iterable[Task[Any]]) -> Task[Any] | None:
        """Return the task to switch next, or None: one at a time, so that a processor keeps the past of one task in memory."""
        behind = [task for task in tasks if self._is_behind(task)]
        for task in behind:
            if task.partial is not None:
                task.partial.expedite()  # a switch needs every user
        ready = [task for task in behind if task.partial is None]
        return ready[0] if ready and not any(task.fold.switching for task in behind) else None

    def collect(self, tasks: Sequence[Task[Any]], now: int) -> list[Step]:
        """Return the steps of all tasks with work to do; none if there is no work."""
        running = [task for task in tasks if task.phase is Phase.RUNNING]
        if not running:
            return []
        self._first = (self._first + 1) % len(running)
        in_turn = running[self._first :] + running[: self._first]
        ready = {task.partition: task.merge for task in in_turn if not self._waits(task)}
        taken = take_fairly(ready, self._events.bound(self._limits.records), now)
        # A burst of timers is fired in small slices between the records, so that no record waits for all of them. Where records are
        # many, as many timers keep pace with them.
        share = max(1, self._events.bound(self._limits.timers) // len(running))
        steps = []
        items = outputs = 0
        for task in in_turn:
            records = taken.get(task.partition, ())
            step = self._step(task, records, now, max(share, len(records)))
            if step is not None:
                steps.append(step)
                if step.sealed is not None and not task.fold.switching:
                    items += len(step.records) + step.sealed.fired
                    outputs += _outputs(step.sealed)
        self._events.note(items, outputs)
        return steps

    def is_small(self, tasks: Sequence[Task[Any]]) -> bool:
        """Return whether little work waits: few records, no due timer, no switch."""
        running = [task for task in tasks if task.phase is Phase.RUNNING]
        if any(not task.drained or task.fold.switching for task in running):
            return False
        return sum(task.merge.size(topic) for task in running for topic in task.topics) < min(
            SMALL_RECORDS, self._events.bound(self._limits.records)
        )

    def next_release(self, tasks: Iterable[Task[Any]]) -> int | None:
        """Return when the merge releases the next held record, in microseconds; None if none is held."""
        instants = [task.merge.next_release() for task in tasks if task.phase is Phase.RUNNING]
        return min((instant for instant in instants if instant is not None), default=None)

    def _is_behind(self, task: Task[Any]) -> bool:
        """Return whether the task has an older plan."""
        return self._plan is not None and task.fold.meta.plan != self._plan

    def _waits(self, task: Task[Any]) -> bool:
        """Return whether the task processes no record before it is switched: its switch has begun, or its plan is unknown here."""
        return self._is_behind(task) and (task.fold.switching or not task.service.processor.has_plan(task.fold.meta.plan))

    def _step(self, task: Task[Any], records: Sequence[Inbound], now: int, timers: int) -> Step | None:
        if task.fold.switching and self._plan is not None:
            keys = self._switches.bound(self._limits.switch_keys)
            sliced = task.switch_step(self._plan, keys)
            if sliced is not None and sliced.sealed is not None:
                self._switches.note(keys, _outputs(sliced.sealed))
            return sliced
        return None if self._waits(task) else task.step(records, now, timers)


def _outputs(sealed: Sealed) -> int:
    return len(sealed.outputs) + len(sealed.sent)
