"""The instants that are over: reported once, in order, and only when all timers up to them have fired."""

from collections.abc import Callable, Sequence
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from starling_common.settings import Clock
from starling_stream.fold.batches import Batches, Limits
from starling_stream.fold.memory import MemoryRows
from starling_stream.fold.merge import Arrival
from starling_stream.fold.task import IDLE_UNIT_MICROS, OVER_MICROS, Step, Task
from starling_stream.fold.task_fold import TaskFold
from starling_stream.model.meta import TaskMeta
from starling_stream.model.ports import StateView
from starling_stream.model.processor import Inbound, Unit
from starling_stream.model.records import ReadRecord
from starling_stream.testing import Fed, MemoryTask
from tests.unit.stream.counting import HOUR_MS, Counted, counting, event

NOW = 10**15


class Run:
    """One task whose batches are committed at once, and the instants that it reports, with their `received_at`."""

    def __init__(self, clock: Clock, timers: int = 3) -> None:
        self.reported: list[tuple[int, int]] = []
        self.service = counting(clock, on_instant_over=self._over)
        self.rows = MemoryRows()
        self.now = NOW
        self.offsets = {"in": 0, "clock": 0}
        self._limits = Limits(1000, 10, timers)
        self.restart(TaskMeta())

    def restart(self, meta: TaskMeta) -> None:
        """Restore the task from that row."""
        self.batches = Batches(self._limits, lambda: b"")
        self.task = Task(self.service, 0, 1)
        self.task.run(self.rows, TaskFold(self.service, 0, meta), dict(self.offsets))
        self.task.note_fetch({}, {topic: (at, at, at, 1) for topic, at in self.offsets.items()})

    def feed(self, topic: str, values: Sequence[bytes]) -> None:
        first = self.offsets[topic]
        self.offsets[topic] = end = first + len(values)
        self.task.note_fetch({topic: 1}, {topic: (end, end, end, 1)})
        keys = [None if topic == "clock" else b"default/%d" % offset for offset in range(first, end)]
        records = [ReadRecord(topic, 0, first + at, 0, keys[at], value, ()) for at, value in enumerate(values)]
        self.task.receive(topic, records, Arrival(0))

    def turn(self, micros: int = 0, *, is_aborted: bool = False) -> Step | None:
        """Run one batch that much later."""
        self.now += micros
        steps = self.batches.collect([self.task], self.now)
        if not steps:
            return None
        [step] = steps
        self.task.submitted(step.sealed)
        if is_aborted:
            self.task.roll_back([step])
            return None
        if step.sealed is not None:
            self.rows.apply(step.sealed.changes)
        self.task.committed(step)
        return step

    def instants(self) -> list[int]:
        reported, self.reported = [instant for instant, _ in self.reported], []
        return reported

    def _over(self, instant_ms: int, received_at: int, unit: Unit[Counted]) -> None:
        self.reported.append((instant_ms, received_at))


def test_an_instant_is_over_when_stream_time_has_passed_it_or_a_clock_record_ends_it() -> None:
    run = Run(Clock.EVENT)
    run.feed("in", [event(1, 70)])
    run.turn()
    assert run.instants() == [69]  # a late event, and one of the same instant, takes effect at 70
    run.feed("clock", [event(2, 70)])
    run.turn(OVER_MICROS)
    assert run.instants() == [70]
    assert run.turn(OVER_MICROS) is None
    assert run.instants() == []


def test_a_report_that_comes_too_soon_follows_once_its_time_has_come() -> None:
    run = Run(Clock.EVENT)
    for at_ms in (10, 20, 30):
        run.feed("in", [event(at_ms, at_ms)])
        run.turn(OVER_MICROS // 4)
    assert run.instants() == [9]
    assert run.turn() is None
    step = run.turn(OVER_MICROS // 2)
    assert step is not None
    assert run.instants() == [29]
    assert not step.records
    assert step.offsets, "an offset fences the transaction"


def test_no_instant_is_over_while_timers_up_to_it_are_due() -> None:
    run = Run(Clock.EVENT)
    run.feed("in", [event(number, 5) for number in range(7)])
    run.turn()
    assert run.instants() == [4]
    run.feed("clock", [event(100, 2 * HOUR_MS)])
    fired = []
    for _ in range(3):
        step = run.turn(OVER_MICROS)
        assert step is not None
        assert step.sealed is not None
        fired.append((step.sealed.fired, run.instants()))
    assert fired == [(3, []), (3, []), (1, [2 * HOUR_MS])]


def test_a_clock_record_is_committed_only_when_its_instant_is_reported() -> None:
    """Otherwise a restart in between would forget that the instant is ended, and the clock may stay there."""
    run = Run(Clock.EVENT)
    run.feed("in", [event(1, 70)])
    run.turn()
    run.feed("clock", [event(2, 70)])
    step = run.turn(OVER_MICROS // 2)
    assert step is not None
    assert "clock" not in step.offsets
    assert step.sealed is not None
    assert run.instants() == [69]
    run.offsets["clock"] = 0
    run.restart(step.sealed.meta)
    run.feed("clock", [event(2, 70)])
    step = run.turn()
    assert step is not None
    assert (run.instants(), step.offsets) == ([70], {"clock": 1})


def test_a_report_of_an_aborted_transaction_is_repeated() -> None:
    run = Run(Clock.EVENT)
    run.feed("in", [event(1, 70)])
    run.turn(is_aborted=True)
    run.turn(OVER_MICROS)
    assert run.instants() == [69, 69]


def test_a_report_of_a_failed_unit_is_repeated() -> None:
    def failing(_partition: int, _stream_time_ms: int, _unit: Unit[Counted]) -> None:
        raise ValueError("after the report")

    run = Run(Clock.EVENT)
    object.__setattr__(run.service, "on_stream_time", failing)
    run.feed("in", [event(1, 70)])
    assert run.turn() is None
    object.__setattr__(run.service, "on_stream_time", None)
    run.turn(OVER_MICROS)
    assert run.instants() == [69, 69]


def test_a_restarted_task_continues_after_the_last_report() -> None:
    run = Run(Clock.EVENT)
    run.feed("clock", [event(1_234_567, 70)])
    step = run.turn()
    assert step is not None
    assert step.sealed is not None
    run.restart(step.sealed.meta)
    assert run.turn(OVER_MICROS) is None
    run.feed("in", [event(9, 71)])  # 70 is over already
    run.turn(OVER_MICROS)
    run.feed("in", [event(10, 72)])
    run.turn(OVER_MICROS)
    assert run.reported == [(70, 1_234_567), (71, 1_234_567)]


def test_an_idle_task_under_the_wall_clock_reports_each_second() -> None:
    run = Run(Clock.WALL)
    run.now += 7_000
    found = []
    for _ in range(40):
        run.turn(IDLE_UNIT_MICROS // 10)
        found += run.instants()
    gaps = [later - earlier for earlier, later in pairwise(found)]
    assert len(found) == 4
    assert gaps == [IDLE_UNIT_MICROS // 1000] * 3
    run.feed("in", [event(run.now - 30_000)])
    run.turn(IDLE_UNIT_MICROS // 10)
    run.turn(IDLE_UNIT_MICROS // 10)
    assert len(run.instants()) == 1


class Partial:
    """A view without the users that are due at `missing_ms` or later."""

    def __init__(self, view: StateView, missing_ms: int) -> None:
        self._view = view
        self.missing_ms = missing_ms

    def __getattr__(self, name: str) -> Callable[..., object]:
        found: Callable[..., object] = getattr(self._view, name)
        return found

    def is_loaded(self, keys: Sequence[bytes], until_ms: int) -> bool:
        return True

    def is_loaded_until(self, until_ms: int) -> bool:
        return until_ms < self.missing_ms

    def expedite(self) -> None:
        raise AssertionError("there is no switch")


def test_no_instant_is_over_while_users_who_are_due_by_then_are_not_loaded() -> None:
    run = Run(Clock.EVENT)
    run.task.partial = partial = Partial(run.rows, missing_ms=50)  # type: ignore[assignment]
    for at_ms, expected in ((49, [48]), (50, []), (51, [])):
        run.feed("in", [event(at_ms, at_ms)])
        run.turn(OVER_MICROS)
        assert run.instants() == expected, at_ms
    partial.missing_ms = 1_000
    run.turn(OVER_MICROS)
    assert run.instants() == [50]


@pytest.mark.parametrize("clock", Clock)
@given(data=st.data())
def test_no_output_is_caused_at_or_before_an_instant_that_is_over(clock: Clock, data: st.DataObject) -> None:
    """Records may be late. Only after a clock record has ended an instant, later ones of that instant still take effect at it."""
    log: list[tuple[str, int, int]] = []

    class Noting:
        """The counter, which notes when each output is caused."""

        def process(self, record: Inbound, unit: Unit[Counted]) -> None:
            counter.process(record, unit)
            log.append(("output", unit.stream_time_ms, record.received_at))

        def fire(self, key: bytes, unit: Unit[Counted]) -> None:
            state = unit.get(key)
            assert state is not None
            log.append(("output", state.last_ms + HOUR_MS, 0))
            counter.fire(key, unit)

        def __getattr__(self, name: str) -> object:
            return getattr(counter, name)

    service = counting(clock, on_instant_over=lambda at, received_at, _: log.append(("over", at, received_at)))
    counter = service.processor
    object.__setattr__(service, "processor", Noting())
    task = MemoryTask(service)
    ended = set()
    instants = st.integers(0, 8).map(lambda quarters: quarters * HOUR_MS // 4)
    for _ in range(data.draw(st.integers(1, 12))):
        records = []
        for topic in data.draw(st.lists(st.sampled_from(("in", "in", "clock")), min_size=1, max_size=4)):
            at_ms = data.draw(instants)
            key = None if topic == "clock" else b"default/%d" % data.draw(st.integers(0, 3))
            records.append(Fed(topic, key, event(at_ms * 1000 + 5, at_ms)))
            if topic == "clock" and clock is Clock.EVENT:
                ended.add(at_ms)
        task.feed_all(records)
    over, latest = -1, 0
    for kind, at_ms, received_at in log:
        if kind == "over":
            assert at_ms > over
            assert received_at >= latest
            over = at_ms
        else:
            assert at_ms > over or (at_ms == over and at_ms in ended)
            latest = max(latest, received_at)
    assert over >= task.stream_time_ms - 1
