"""The policy of the scaler: when it adds a worker, when it removes one, and when it does neither."""

from collections.abc import Sequence
from dataclasses import replace
from itertools import pairwise

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from starling_scaler.policy.decision import Action, Decision, Memory, Reason, Rules, cpu_needs, decide
from starling_scaler.policy.samples import Load, Sample, WorkerLoad
from tests.unit.scaler.stages import INTERVAL, RULES, Simulation, Stage


def followed(stage: Stage, turns: int, cpu: float, records: float, growth: float = 0.0, memory: Memory | None = None) -> Decision:
    """Return the last decision about a stage under the same load on each worker. `growth`: of a worker's lag, records a second."""
    decision, _ = remembered(stage, turns, cpu, records, growth, memory)
    return decision


def remembered(
    stage: Stage, turns: int, cpu: float, records: float, growth: float = 0.0, memory: Memory | None = None
) -> tuple[Decision, Memory]:
    memory = Memory() if memory is None else memory
    for _ in range(turns):
        lag = [max(0.0, worker.lag + growth * INTERVAL) for worker in stage.workers]
        count = stage.replicas
        decision, memory = decide(stage.rules, memory, stage.passes([cpu] * count, [records] * count, lag))
    return decision, memory


def first_step(stage: Stage, most: int, cpu: float, records: float, growth: float = 0.0) -> tuple[int, Decision]:
    """Return the number of the turn with the first step, from 1, and the step."""
    memory = Memory()
    for turn in range(1, most + 1):
        decision, memory = remembered(stage, 1, cpu, records, growth, memory)
        if decision.action is not Action.HOLD:
            return turn, decision
    raise AssertionError(f"no step in {most} turns: {decision}")


def test_a_growing_lag_adds_one_worker() -> None:
    turn, decision = first_step(Stage(), 20, cpu=0.3, records=100, growth=50)
    assert (decision.action, decision.reason, decision.replicas) == (Action.OUT, Reason.LAG, 3)
    assert turn * INTERVAL >= RULES.cool_down_seconds
    assert "the lag grows" in decision.text


def test_a_lag_within_the_tolerance_adds_none() -> None:
    stage = Stage()
    stage.workers = [replace(worker, lag=RULES.tolerated_lag) for worker in stage.workers]
    assert followed(stage, 20, cpu=0.6, records=100).reason is Reason.STEADY


def test_a_lag_that_is_processed_in_time_adds_none_and_a_slower_one_adds_a_worker() -> None:
    # 60,000 records of lag on each worker, which shrinks by 400 a second (150 s), or by 100 (600 s).
    quick, slow = Stage(), Stage()
    for stage in (quick, slow):
        stage.workers = [replace(worker, lag=60_000.0) for worker in stage.workers]
    assert followed(quick, 8, cpu=0.95, records=1_000, growth=-400).reason is Reason.STEADY
    _, decision = first_step(slow, 12, cpu=0.95, records=1_000, growth=-100)
    assert (decision.action, decision.reason) == (Action.OUT, Reason.LAG)


def test_much_cpu_adds_a_worker_without_any_lag() -> None:
    _, decision = first_step(Stage(), 20, cpu=0.8, records=100)
    assert (decision.action, decision.reason, decision.replicas) == (Action.OUT, Reason.CPU, 3)


def test_cpu_that_an_old_lag_causes_adds_none() -> None:
    # All cores are busy with the lag; what arrives needs half of them.
    stage = Stage()
    stage.workers = [replace(worker, lag=100_000.0) for worker in stage.workers]
    decision = followed(stage, 12, cpu=1.0, records=1_000, growth=-500)
    assert decision.reason is Reason.STEADY


def test_a_calm_stage_loses_one_worker_after_the_calm() -> None:
    stage = Stage(replicas=4)
    turn, decision = first_step(stage, 60, cpu=0.2, records=100)
    assert (decision.action, decision.reason, decision.replicas) == (Action.IN, Reason.CALM, 3)
    assert turn * INTERVAL >= RULES.calm_seconds


def test_a_stage_without_records_keeps_the_least() -> None:
    stage = Stage(replicas=RULES.least)
    assert followed(stage, 100, cpu=0.01, records=0).reason is Reason.STEADY


def test_a_worker_is_kept_if_the_others_would_have_too_much_cpu() -> None:
    # 3 workers with 0.35 cores each: two would have 0.525, above 0.5.
    assert followed(Stage(replicas=3), 100, cpu=0.35, records=100).reason is Reason.STEADY
    _, decision = first_step(Stage(replicas=3), 100, cpu=0.33, records=100)
    assert decision.action is Action.IN


@pytest.mark.parametrize(
    ("changes", "text"),
    [
        ({"restoring": frozenset({0})}, "segmenter-0 restores partition 0"),
        ({"loading": frozenset({0})}, "segmenter-0 still loads the users of partition 0"),
        ({"running": frozenset({0})}, "no worker processes partitions 2, 4, 6"),
    ],
)
def test_no_step_while_a_restore_runs_and_rates_are_measured_again_after_it(changes: dict[str, frozenset[int]], text: str) -> None:
    stage = Stage()
    _, memory = remembered(stage, 7, cpu=0.9, records=100)
    stage.workers[0] = replace(stage.workers[0], **changes)  # type: ignore[arg-type]  # each is a set of partitions
    for _ in range(20):
        decision, memory = decide(RULES, memory, stage.passes([0.9] * 2, [100] * 2, [0] * 2))
        assert (decision.action, decision.reason) == (Action.HOLD, Reason.RESTORE)
        assert decision.text.startswith(text)
    stage.assign()
    stage.workers = [replace(worker, restoring=frozenset(), loading=frozenset()) for worker in stage.workers]
    decision, memory = remembered(stage, 1, cpu=0.9, records=100, memory=memory)
    assert decision.reason is Reason.MEASURING
    decision, memory = remembered(stage, 4, cpu=0.9, records=100, memory=memory)
    assert decision.action is Action.OUT


def test_a_worker_without_metrics_stops_every_step_but_its_counters_go_on() -> None:
    stage = Stage()
    _, memory = remembered(stage, 7, cpu=0.9, records=100)
    stage.passes([0.9] * 2, [100] * 2, [0] * 2)
    decision, memory = decide(RULES, memory, replace(stage.sample(), workers=tuple(stage.workers[:1]), silent=("segmenter-1",)))
    assert (decision.reason, decision.text) == (Reason.INCOMPLETE, "no metrics of segmenter-1")
    assert remembered(stage, 1, cpu=0.9, records=100, memory=memory)[0].action is Action.OUT


def test_a_pod_that_does_not_exist_yet_stops_every_step() -> None:
    stage = Stage()
    decision, _ = decide(RULES, Memory(), replace(stage.sample(), replicas=3))
    assert (decision.reason, decision.text) == (Reason.INCOMPLETE, "2 of 3 workers exist")


def test_more_partitions_than_configured_are_named() -> None:
    rules = replace(RULES, partitions=8)
    decision, _ = decide(rules, Memory(), Stage().sample())
    assert decision.reason is Reason.INCOMPLETE
    assert "STARLING_PROFILE_PARTITIONS is 8" in decision.text


def test_restarted_workers_are_measured_from_their_start() -> None:
    stage = Stage()
    _, memory = remembered(stage, 6, cpu=0.9, records=100)
    stage.restart()
    decision, memory = remembered(stage, 1, cpu=0.9, records=100, memory=memory)
    assert decision.reason is Reason.MEASURING


def test_a_change_by_an_operator_begins_a_cool_down() -> None:
    stage = Stage()
    _, memory = remembered(stage, 8, cpu=0.1, records=100)
    stage.replicas = 3
    stage.assign()
    turns = int(RULES.cool_down_seconds / INTERVAL)
    for _ in range(turns):
        decision, memory = remembered(stage, 1, cpu=0.9, records=100, memory=memory)
        assert decision.action is Action.HOLD
    assert decision.reason is Reason.COOL_DOWN
    assert remembered(stage, 1, cpu=0.9, records=100, memory=memory)[0].action is Action.OUT


@pytest.mark.parametrize(
    ("rules", "reason"),
    [(replace(RULES, most=2), Reason.AT_MAXIMUM), (replace(RULES, partitions=2), Reason.AT_PARTITIONS)],
)
def test_a_wanted_step_beyond_a_bound_is_named(rules: Rules, reason: Reason) -> None:
    decision = followed(Stage(rules), 20, cpu=0.3, records=100, growth=50)
    assert (decision.action, decision.reason) == (Action.HOLD, reason)
    assert decision.wanted is not None
    assert decision.wanted > 2


@pytest.mark.parametrize(("replicas", "expected"), [(1, (Action.OUT, 2)), (9, (Action.IN, 8))])
def test_replicas_outside_of_the_bounds_move_towards_them_in_single_steps(replicas: int, expected: tuple[Action, int]) -> None:
    _, decision = first_step(Stage(replicas=replicas), 20, cpu=0.6, records=100)
    assert (decision.action, decision.replicas) == expected


def test_a_stage_that_is_stopped_stays_stopped() -> None:
    decision, _ = decide(RULES, Memory(), Sample(0.0, 0, ()))
    assert (decision.action, decision.reason) == (Action.HOLD, Reason.PAUSED)


def test_workers_that_process_nothing_are_not_joined_by_others() -> None:
    decision = followed(Stage(), 20, cpu=0.1, records=0, growth=500)
    assert (decision.action, decision.reason) == (Action.HOLD, Reason.STALLED)


def test_a_lag_in_a_single_partition_adds_no_worker() -> None:
    rules = replace(RULES, partitions=3)
    stage = Stage(rules)
    memory = Memory()
    for turn in range(20):  # partitions 0 and 2 on the first worker, 1 on the second, which has the lag
        decision, memory = decide(rules, memory, stage.passes([0.2, 0.9], [100, 100], [0, 2_000 + 500 * turn]))
    assert (decision.action, decision.reason) == (Action.HOLD, Reason.SKEWED)
    for turn in range(20):
        decision, memory = decide(rules, memory, stage.passes([0.2, 0.9], [100, 100], [2_000 + 500 * turn, 0]))
        if decision.action is Action.OUT:
            break
    assert decision.reason is Reason.LAG


def test_the_busiest_worker_decides() -> None:
    stage, memory = Stage(replicas=4), Memory()
    for _ in range(20):
        decision, memory = decide(RULES, memory, stage.passes([0.9, 0.1, 0.1, 0.1], [100] * 4, [0] * 4))
        if decision.action is Action.OUT:
            break
    assert (decision.action, decision.reason) == (Action.OUT, Reason.CPU)


def test_a_scale_in_that_was_wrong_is_not_repeated_at_the_same_load_but_at_a_smaller_one() -> None:
    # Workers wait for something else than CPU: 100 records a second each is all that they process.
    simulation = Simulation(capacity=100, cpu_of_record=0.001, restore_seconds=30, replicas=3)
    steps = [one for one in simulation.run([250.0] * 800) if one.action is not Action.HOLD]
    assert [one.action for one in steps] == [Action.IN, Action.OUT]
    assert simulation.stage.replicas == 3
    steps = [one for one in simulation.run([150.0] * 200) if one.action is not Action.HOLD]
    assert [one.action for one in steps] == [Action.IN]


def test_a_release_may_need_fewer_workers() -> None:
    simulation = Simulation(capacity=100, cpu_of_record=0.001, restore_seconds=30, replicas=3)
    simulation.run([250.0] * 400)
    assert simulation.memory.shortages.keys() == {2}
    simulation.stage.restart()
    simulation.run([250.0])
    assert simulation.memory.shortages == {}


LOADS = st.fixed_dictionaries(
    {
        "capacity": st.floats(50, 2_000),
        "busy": st.floats(0.05, 1.0),
        "restore_seconds": st.sampled_from([0.0, 15.0, 60.0]),
        "replicas": st.integers(1, 10),
        "lag": st.sampled_from([0.0, 5_000.0, 500_000.0]),
        "demand": st.floats(0.0, 9.0),
    }
)


def simulation_of(load: dict[str, float]) -> tuple[Simulation, float]:
    """Return a stage and its constant arrivals. `demand`: workers at full speed; `busy`: their cores then."""
    simulation = Simulation(
        capacity=load["capacity"],
        cpu_of_record=load["busy"] / load["capacity"],
        restore_seconds=load["restore_seconds"],
        replicas=int(load["replicas"]),
        lag=load["lag"],
    )
    return simulation, load["capacity"] * load["demand"]


@settings(max_examples=30, deadline=None)
@given(LOADS)
def test_a_constant_load_never_flaps(load: dict[str, float]) -> None:
    simulation, rate = simulation_of(load)
    decisions = simulation.run([rate] * 700)
    if simulation.lag > 0:  # still processed: a worker may go afterwards
        decisions += simulation.run([rate] * 2_000)
    decisions += simulation.run([rate] * 300)
    directions = [one.action for one in decisions if one.action is not Action.HOLD]
    turns = [now for before, now in pairwise(directions) if before is not now]
    # Out for a lag, in when it is processed, and at most once back out.
    assert len(turns) <= 3, directions
    assert all(one.action is Action.HOLD for one in decisions[-300:]), directions


@settings(max_examples=25, deadline=None)
@given(LOADS, st.lists(st.floats(0, 10), min_size=1, max_size=8))
def test_every_step_is_single_bounded_cooled_down_and_never_during_a_restore(
    load: dict[str, float], demands: Sequence[float]
) -> None:
    simulation, _ = simulation_of(load)
    least, most = RULES.bounded_least, RULES.bounded_most
    before, last = simulation.replicas, None
    for demand in demands:
        for _ in range(60):
            [decision] = simulation.run([demand * simulation.capacity])
            if decision.action is Action.HOLD:
                assert decision.replicas == before
                continue
            assert abs(decision.replicas - before) == 1
            assert least <= decision.replicas <= most or abs(decision.replicas - least) < abs(before - least)
            assert last is None or simulation.stage.at - last >= RULES.cool_down_seconds
            # `restoring_until` was set by this step: until then the earlier one had ended.
            assert decision.reason is not Reason.RESTORE
            before, last = decision.replicas, simulation.stage.at


WORKERS = st.lists(
    st.builds(
        WorkerLoad,
        partitions=st.integers(0, 4),
        cpu_cores=st.floats(0, 2),
        processed=st.one_of(st.just(0.0), st.floats(1, 1_000)),
        arrived=st.floats(0, 1_000),
        lag=st.floats(0, 100_000),
        lags=st.booleans(),
    ),
    min_size=1,
    max_size=8,
)


@given(WORKERS)
def test_the_cpu_of_what_arrives_fits_into_the_needed_workers(workers: list[WorkerLoad]) -> None:
    load = Load(tuple(workers))
    needed = cpu_needs(RULES, load)
    assert load.cpu_of_arrivals <= (needed + 0.1) * RULES.cpu_cores * RULES.cpu_target + 1e-9


@settings(max_examples=50, deadline=None)
@given(st.lists(st.floats(0, 1.2), min_size=3, max_size=8))
def test_a_scale_in_leaves_what_the_cpu_needs(cpu: list[float]) -> None:
    stage, memory = Stage(replicas=len(cpu)), Memory()
    for _ in range(40):
        decision, memory = decide(RULES, memory, stage.passes(cpu, [100] * len(cpu), [0] * len(cpu)))
        if decision.action is not Action.HOLD:
            break
    if decision.action is Action.IN:
        assert sum(cpu) <= decision.replicas * RULES.cpu_cores * RULES.cpu_target
    if sum(cpu) > (len(cpu) + 0.1) * RULES.cpu_cores * RULES.cpu_target:
        assert decision.action is Action.OUT or decision.reason is Reason.AT_MAXIMUM
