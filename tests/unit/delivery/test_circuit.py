"""A circuit opens by failures, stays open without a success, and is tried at growing intervals."""

from hypothesis import given
from hypothesis import strategies as st

from starling_delivery.sending.circuit import Circuit, CircuitRule, Circuits
from tests.unit.delivery.making import definition, targets

RULE = CircuitRule(failures_in_a_row=5, probe_seconds=30.0)


def opened(now: float = 0.0) -> Circuit:
    circuit = Circuit(RULE)
    assert [circuit.failed(now, probe=False) for _ in range(5)] == [False] * 4 + [True]
    return circuit


def test_it_opens_after_failures_in_a_row() -> None:
    circuit = opened()
    assert circuit.is_open
    assert circuit.reason == "the circuit of the target is open: 5 attempts in a row failed"


def test_it_opens_if_half_of_the_recent_attempts_failed() -> None:
    circuit, attempts = Circuit(RULE), 0
    while not circuit.is_open:
        attempts += 1
        if attempts % 2:
            circuit.succeeded()
        else:
            circuit.failed(0.0, probe=False)
    assert attempts == 20
    assert circuit.reason.endswith("10 of the last 20 attempts failed")


def test_a_few_failures_among_many_successes_do_not_open_it() -> None:
    circuit = Circuit(RULE)
    for attempt in range(1_000):
        if attempt % 3:
            circuit.succeeded()
        else:
            circuit.failed(0.0, probe=False)
    assert not circuit.is_open


def test_probes_follow_at_doubling_intervals_up_to_ten_minutes() -> None:
    circuit, now, intervals = opened(), 0.0, []
    for _ in range(8):
        begun = now
        while not circuit.admits(now):
            now += 1.0
        intervals.append(now - begun)
        assert circuit.begin_attempt(now)
        assert not circuit.admits(now)
        circuit.failed(now, probe=True)
    assert intervals == [30.0, 60.0, 120.0, 240.0, 480.0, 600.0, 600.0, 600.0]


def test_a_probe_without_a_result_does_not_close_the_way_for_the_next_one() -> None:
    circuit = opened()
    assert circuit.begin_attempt(30.0)
    assert not circuit.admits(59.0)
    assert circuit.begin_attempt(60.0)


def test_attempts_begun_before_it_opened_do_not_delay_the_probe() -> None:
    circuit = opened(now=10.0)
    assert not circuit.failed(35.0, probe=False)
    assert circuit.admits(40.0)


def test_a_success_closes_it_and_it_opens_by_new_failures_only() -> None:
    circuit = opened()
    circuit.begin_attempt(30.0)
    circuit.succeeded()
    assert circuit.admits(30.0)
    assert not circuit.begin_attempt(30.0)
    assert [circuit.failed(31.0, probe=False) for _ in range(5)] == [False] * 4 + [True]
    assert not circuit.admits(60.9)
    assert circuit.admits(61.0)


@given(st.lists(st.booleans(), max_size=200))
def test_a_closed_circuit_has_fewer_failures_than_open_it(results: list[bool]) -> None:
    circuit = Circuit(RULE)
    for success in results:
        if success:
            circuit.succeeded()
        else:
            circuit.failed(0.0, probe=False)
    tail = results[-5:]
    if len(tail) == 5 and not any(tail):
        assert circuit.is_open
    if results and results[-1]:
        assert not circuit.is_open


def test_a_new_version_of_a_target_has_a_closed_circuit() -> None:
    circuits, known = Circuits(RULE), targets()
    [target] = known.of("default")
    for _ in range(5):
        circuits.of(target).failed(0.0, probe=False)
    assert list(circuits.open_keys()) == [("default", "hook")]
    known.apply(definition() | {"version": 2})
    assert not circuits.of(known.of("default")[0]).is_open


def test_only_circuits_with_failures_are_kept() -> None:
    circuits, known = Circuits(RULE), targets(definition("good"), definition("bad"))
    bad, good = known.of("default")
    circuits.of(good).succeeded()
    kept = circuits.of(bad)
    kept.failed(0.0, probe=False)
    circuits.forget_new(0.0)
    assert circuits.of(bad) is kept
    circuits.forget("default", "bad")
    assert circuits.of(bad) is not kept


def test_a_pause_ends_is_no_failure_and_is_not_forgotten() -> None:
    circuits, [target] = Circuits(CircuitRule(5, 30.0)), targets().of("default")
    circuits.of(target).pause(100.0)
    circuits.of(target).pause(60.0)
    assert (circuits.of(target).paused_seconds(40.0), circuits.of(target).is_open) == (60.0, False)
    circuits.forget_new(40.0)
    assert circuits.of(target).paused_seconds(99.0) == 1.0
    assert circuits.of(target).paused_seconds(100.0) == 0.0
    circuits.forget_new(100.0)
    assert circuits._circuits == {}
