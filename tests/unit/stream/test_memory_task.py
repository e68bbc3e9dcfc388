"""The fold as services use it: units of work, timers, plans, refusals, restarts."""

import pytest

from starling_common.settings import Clock
from starling_stream.model.errors import ProcessorError
from starling_stream.model.processor import Unit
from starling_stream.testing import Fed, MemoryTask
from tests.unit.stream.counting import HOUR_MS, Counted, Counter, counting, event

U1, U2 = b"default/u1", b"default/u2"


def _values(task: MemoryTask[Counted]) -> list[tuple[bytes, bytes]]:
    return [(output.key, output.value) for output in task.take_outputs("out")]


def _counter(task: MemoryTask[Counted]) -> Counter:
    assert isinstance(task.service.processor, Counter)
    return task.service.processor


def test_records_of_one_unit_see_each_other() -> None:
    task = MemoryTask(counting())
    task.feed_all([Fed("in", U1, event(1, 10)), Fed("in", U2, event(2, 11)), Fed("in", U1, event(3, 12))])
    assert _values(task) == [(U1, b"1"), (U2, b"1"), (U1, b"2")]
    assert task.states()[U1].total == 2
    assert task.due_ms(U1) == 12 + HOUR_MS


def test_stream_time_is_the_highest_event_time_and_never_goes_back() -> None:
    task = MemoryTask(counting())
    task.feed("in", U1, event(1, 500))
    task.feed("in", U1, event(2, 300))
    assert task.stream_time_ms == 500


def test_under_the_wall_clock_stream_time_is_the_time_of_arrival() -> None:
    task = MemoryTask(counting(Clock.WALL))
    task.feed("in", U1, event(7_000_000, 1))
    assert task.stream_time_ms == 7_000


@pytest.mark.parametrize("received_at", [-1, 253_402_300_800_000_000, 2**62 + 1, 2**63 - 1])
@pytest.mark.parametrize("clock", list(Clock))
def test_a_record_received_at_no_possible_time_is_refused_and_moves_nothing(clock: Clock, received_at: int) -> None:
    task = MemoryTask(counting(clock))
    task.feed_all([Fed("in", U1, event(received_at, 10)), Fed("in", U1, event(5, 20))])
    assert [refusal.code for refusal in task.refusals] == ["bad_received_at"]
    assert (_values(task), task.stream_time_ms) == ([(U1, b"1")], 0 if clock is Clock.WALL else 20)


def test_a_timer_fires_when_another_users_event_moves_stream_time() -> None:
    task = MemoryTask(counting())
    task.feed("in", U1, event(1, 10))
    task.feed("in", U2, event(2, 11 + HOUR_MS))
    assert _values(task) == [(U1, b"1"), (U2, b"1"), (U1, b"quiet since 10")]
    assert task.due_ms(U1) is None


def test_a_timer_due_at_stream_time_waits_for_events_of_that_instant() -> None:
    """In whichever batches: at 10 + 1 h, U2's event first, then U1's, is the same as both in one batch."""
    apart, together = MemoryTask(counting()), MemoryTask(counting())
    same_instant = [Fed("in", U2, event(2, 10 + HOUR_MS)), Fed("in", U1, event(3, 10 + HOUR_MS))]
    for task in (apart, together):
        task.feed("in", U1, event(1, 10))
    for record in same_instant:
        apart.feed_all([record])
    together.feed_all(same_instant)
    values = _values(apart)
    assert values == _values(together)
    assert (U1, b"quiet since 10") not in values
    assert apart.due_ms(U1) == together.due_ms(U1) == 10 + 2 * HOUR_MS


def test_timers_of_one_unit_fire_in_the_order_of_their_instants() -> None:
    task = MemoryTask(counting())
    task.feed_all([Fed("in", U2, event(1, 20)), Fed("in", U1, event(2, 10)), Fed("in", b"default/a", event(3, 5 * HOUR_MS))])
    assert _values(task)[3:] == [(U1, b"quiet since 20"), (U2, b"quiet since 20")]


def test_advance_fires_what_is_due_at_the_instant_itself() -> None:
    task = MemoryTask(counting())
    task.feed("in", U1, event(1, 10))
    task.advance(10 + HOUR_MS - 1)
    assert _values(task) == [(U1, b"1")]
    task.advance(10 + HOUR_MS)
    assert _values(task) == [(U1, b"quiet since 10")]


def test_a_clock_record_moves_time_and_is_not_processed() -> None:
    task = MemoryTask(counting())
    task.feed("in", U1, event(1, 10))
    task.feed("clock", None, event(2, 10 + HOUR_MS))
    assert _values(task) == [(U1, b"1"), (U1, b"quiet since 10")]


def test_a_burst_of_timers_fires_completely_in_slices() -> None:
    task = MemoryTask(counting())
    keys = [b"default/%05d" % number for number in range(5000)]
    task.feed_all([Fed("in", key, event(1, 10)) for key in keys])
    task.take_outputs()
    task.advance(2 * HOUR_MS)
    assert [output.key for output in task.take_outputs()] == keys


def test_undecodable_and_refused_records_are_dead_letters_and_the_others_are_processed() -> None:
    task = MemoryTask(counting())
    task.feed_all([Fed("in", U1, b"{"), Fed("in", None, event(1, 5)), Fed("in", U1, event(2, 6, refuse=True))])
    task.feed("in", U1, event(3, 7))
    assert [refusal.code for refusal in task.refusals] == ["not_json", "missing_key", "asked_to"]
    assert task.refusals[0].record.raw == b"{"
    assert _values(task) == [(U1, b"1")]


def test_a_restart_keeps_states_timers_time_and_plan() -> None:
    task = MemoryTask(counting())
    task.feed("in", U1, event(1, 10))
    after = task.restart(counting())
    assert (after.stream_time_ms, after.plan) == (10, b"")
    after.feed("in", U2, event(2, 11 + HOUR_MS))
    assert _values(after) == [(U2, b"1"), (U1, b"quiet since 10")]


def test_a_change_without_a_put_is_not_stored() -> None:
    class Forgetful(Counter):
        def process(self, record: object, unit: Unit[Counted]) -> None:
            state = unit.get(U1)
            if state is None:
                unit.put(U1, Counted(1), None)
            else:
                state.total = 99

    service = counting()
    object.__setattr__(service, "processor", Forgetful())
    task = MemoryTask(service)
    task.feed("in", U1, event(1, 1))
    task.feed("in", U1, event(2, 2))
    assert task.states()[U1].total == 1


def test_a_deleted_state_is_gone_and_its_timer_too() -> None:
    class Deleting(Counter):
        def process(self, record: object, unit: Unit[Counted]) -> None:
            if unit.get(U1) is None:
                unit.put(U1, Counted(1), 5)
            else:
                unit.delete(U1)

    service = counting()
    object.__setattr__(service, "processor", Deleting())
    task = MemoryTask(service)
    task.feed("in", U1, event(1, 1))
    task.feed("in", U1, event(2, 2))
    task.advance(100)
    assert task.states() == {}
    assert task.take_outputs() == []
    task.feed("in", U1, event(3, 3))
    assert task.states()[U1].total == 1


def test_a_new_plan_switches_every_key_before_anything_else_is_processed() -> None:
    task = MemoryTask(counting())
    task.feed_all([Fed("in", b"default/%d" % number, event(number, 10)) for number in range(250)])
    task.take_outputs()
    _counter(task).plan = b"v2"
    task.feed("in", U1, event(300, 11))
    assert _values(task) == [(b"plan", b"v2 after 250"), (U1, b"1")]
    assert task.plan == b"v2"
    assert {state.plan for key, state in task.states().items() if key != U1} == {"v2"}
    assert _counter(task).seen_in_history == list(range(250))


def test_a_plan_is_adopted_even_when_there_are_no_keys_yet() -> None:
    task = MemoryTask(counting())
    _counter(task).plan = b"v1"
    task.settle()
    assert (task.plan, _values(task)) == (b"v1", [(b"plan", b"v1 after 0")])
    task.settle()
    assert _values(task) == []


def test_a_timer_that_stays_due_is_an_error_of_the_processor() -> None:
    class Lazy(Counter):
        def fire(self, key: bytes, unit: Unit[Counted]) -> None:
            unit.put(key, Counted(), unit.stream_time_ms)

    service = counting()
    object.__setattr__(service, "processor", Lazy())
    task = MemoryTask(service)
    task.feed("in", U1, event(1, 10))
    with pytest.raises(ProcessorError, match="not after"):
        task.advance(2 * HOUR_MS)


def test_the_hook_is_called_once_a_unit_with_its_stream_time() -> None:
    calls: list[tuple[int, int]] = []

    def progress(partition: int, stream_time_ms: int, unit: Unit[Counted]) -> None:
        calls.append((partition, stream_time_ms))

    task = MemoryTask(counting(on_stream_time=progress), partition=3)
    task.feed_all([Fed("in", U1, event(1, 10)), Fed("in", U1, event(2, 20))])
    assert calls == [(3, 20)]
