"""Pure core: the next step of a stage. One replica at a time, from what its workers reported and what was decided before."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from enum import StrEnum
from math import ceil
from typing import Final

from starling_scaler.policy.samples import Load, Sample, WorkerLoad, load_of

_ROUNDING: Final = 0.1
"""A tenth of a worker is not worth a step: measured rates are that imprecise."""

_MOST_WANTED: Final = 10_000.0
"""No stage has more partitions."""

_LESS_LOAD: Final = 0.8
"""A number of workers that did not suffice is tried again below this fraction of the arrivals of that time."""


class Action(StrEnum):
    """What changes."""

    OUT = "out"
    IN = "in"
    HOLD = "hold"


class Reason(StrEnum):
    """Why. A reason belongs to one action."""

    LAG = "lag"
    CPU = "cpu"
    BELOW_MINIMUM = "below_minimum"
    CALM = "calm"
    ABOVE_MAXIMUM = "above_maximum"
    STEADY = "steady"
    MEASURING = "measuring"
    COOL_DOWN = "cool_down"
    PAUSED = "paused"
    RESTORE = "restore"
    INCOMPLETE = "incomplete"
    STALLED = "stalled"
    SKEWED = "skewed"
    AT_MAXIMUM = "at_maximum"
    AT_PARTITIONS = "at_partitions"


BLOCKING: Final = frozenset(
    {Reason.RESTORE, Reason.INCOMPLETE, Reason.STALLED, Reason.SKEWED, Reason.AT_MAXIMUM, Reason.AT_PARTITIONS}
)
"""Reasons to hold that an operator has to remove if they last."""


@dataclass(frozen=True, slots=True)
class Rules:
    """The limits of one stage."""

    partitions: int
    least: int
    most: int
    cpu_cores: float
    """Cores that one worker can use."""
    cpu_target: float
    """Fraction of them above which a worker is added."""
    cpu_scale_in: float
    """Fraction of them that the remaining workers may have after one is removed; below `cpu_target`."""
    tolerated_lag: float
    """Records that may wait for one worker."""
    catch_up_seconds: float
    """Time within which a larger lag is to be processed."""
    window_seconds: float
    """Time over which rates are measured."""
    cool_down_seconds: float
    """Time after any change of the replicas without a step."""
    calm_seconds: float
    """Time for which fewer workers have to suffice before one is removed."""

    @property
    def bounded_most(self) -> int:
        """Return the most replicas that have work."""
        return min(self.most, self.partitions)

    @property
    def bounded_least(self) -> int:
        """Return the fewest replicas; never above the most."""
        return min(self.least, self.bounded_most)


Processes = frozenset[tuple[str, float]]


@dataclass(frozen=True, slots=True)
class Shortage:
    """A number of workers did not suffice for these arrivals (records a second), with these processes."""

    arrived: float
    processes: Processes


@dataclass(frozen=True, slots=True)
class Memory:
    """What one decision has to know of those before. A new leader begins with an empty one, and so waits first."""

    replicas: int | None = None
    changed_at: float = 0.0
    last_action: Action = Action.HOLD
    """The direction of the last change of the replicas, also of one that an operator made."""
    window: tuple[Sample, ...] = ()
    calm_since: float | None = None
    shortages: Mapping[int, Shortage] = field(default_factory=dict)
    """By number of workers. They keep a constant load from being scaled in and out again and again."""


@dataclass(frozen=True, slots=True)
class Decision:
    """`replicas`: the number to set. `wanted`: the number for the measured load, without bounds; None if it is not known."""

    action: Action
    reason: Reason
    replicas: int
    text: str
    wanted: int | None = None
    load: Load | None = None


def decide(rules: Rules, memory: Memory, sample: Sample) -> tuple[Decision, Memory]:
    """Return the decision and the memory for the next one. Samples are in the order of their time."""
    memory = _with_change(memory, sample)
    if sample.replicas == 0:
        return _hold(sample, Reason.PAUSED, "0 replicas: the stage is stopped"), replace(memory, window=(), calm_since=None)
    missing = _missing(rules, sample)
    if missing is not None:
        # The counters go on: the window stays valid if the same processes answer later.
        return _hold(sample, Reason.INCOMPLETE, missing), memory
    restore = _restore(rules, sample)
    if restore is not None:
        return _hold(sample, Reason.RESTORE, restore), replace(memory, window=(), calm_since=None)
    memory = _with_sample(rules, memory, sample)
    outside = _outside(rules, memory, sample)
    if outside is not None:
        return outside, replace(memory, calm_since=None)
    if sample.at - memory.window[0].at < rules.window_seconds:
        return _hold(sample, Reason.MEASURING, f"rates are measured over {rules.window_seconds:g} s"), memory
    return _by_load(rules, memory, sample)


def _by_load(rules: Rules, memory: Memory, sample: Sample) -> tuple[Decision, Memory]:
    load = load_of(memory.window, rules.tolerated_lag)
    decision = _out(rules, memory, sample, load)
    if decision is None:
        return _in(rules, memory, sample, load)
    if decision.action is Action.OUT:
        memory = _with_shortage(rules, memory, sample, load)
    return decision, replace(memory, calm_since=None)


def _hold(sample: Sample, reason: Reason, text: str, wanted: int | None = None, load: Load | None = None) -> Decision:
    return Decision(Action.HOLD, reason, sample.replicas, text, wanted, load)


def _processes(sample: Sample) -> Processes:
    return frozenset((worker.name, worker.started_at) for worker in sample.workers)


def _with_change(memory: Memory, sample: Sample) -> Memory:
    """Note a change of the replicas, also one that an operator made."""
    if memory.replicas == sample.replicas:
        return memory
    before = memory.replicas
    action = Action.HOLD if before is None else Action.OUT if sample.replicas > before else Action.IN
    return replace(memory, replicas=sample.replicas, changed_at=sample.at, last_action=action, window=(), calm_since=None)


def _with_sample(rules: Rules, memory: Memory, sample: Sample) -> Memory:
    window, calm_since = memory.window, memory.calm_since
    if window and (window[-1].processes != sample.processes or window[-1].at >= sample.at):
        window, calm_since = (), None
    window = (*window, sample)
    while len(window) > 2 and sample.at - window[1].at >= rules.window_seconds:
        window = window[1:]
    present = _processes(sample)
    # Other processes may be another release: what did not suffice then may suffice now.
    shortages = {number: shortage for number, shortage in memory.shortages.items() if shortage.processes & present}
    return replace(memory, window=window, calm_since=calm_since, shortages=shortages)


def _missing(rules: Rules, sample: Sample) -> str | None:
    if sample.silent:
        return f"no metrics of {', '.join(sample.silent)}"
    if len(sample.workers) != sample.replicas:
        return f"{len(sample.workers)} of {sample.replicas} workers exist"
    unknown = sorted(set().union(*(worker.running | worker.restoring for worker in sample.workers)) - set(range(rules.partitions)))
    if unknown:
        return f"partition {unknown[0]} is processed, but STARLING_PROFILE_PARTITIONS is {rules.partitions}: set the real number"
    return None


def _restore(rules: Rules, sample: Sample) -> str | None:
    for worker in sample.workers:
        if worker.restoring:
            return f"{worker.name} restores {_partitions(worker.restoring)}"
    for worker in sample.workers:
        if worker.loading:
            return f"{worker.name} still loads the users of {_partitions(worker.loading)}"
    unowned = set(range(rules.partitions)).difference(*(worker.running for worker in sample.workers))
    return f"no worker processes {_partitions(unowned)}" if unowned else None


def _partitions(numbers: Iterable[int]) -> str:
    listed = sorted(numbers)
    shown = ", ".join(map(str, listed[:8]))
    return f"partition{'s' if len(listed) > 1 else ''} {shown}{' …' if len(listed) > 8 else ''}"


def _outside(rules: Rules, memory: Memory, sample: Sample) -> Decision | None:
    """Return a step towards the bounds, or the wait for it; None within them."""
    least, most, now = rules.bounded_least, rules.bounded_most, sample.replicas
    if least <= now <= most:
        return None
    if _cools_down(rules, memory, sample):
        return _hold(sample, Reason.COOL_DOWN, f"{now} replicas are outside of {least} to {most}, and were changed recently")
    if now < least:
        return Decision(Action.OUT, Reason.BELOW_MINIMUM, now + 1, f"{now} replicas are below the minimum of {least}")
    return Decision(Action.IN, Reason.ABOVE_MAXIMUM, now - 1, f"{now} replicas are above the maximum of {most}")


def _cools_down(rules: Rules, memory: Memory, sample: Sample) -> bool:
    return sample.at - memory.changed_at < rules.cool_down_seconds


def _rounded(workers: float) -> int:
    # A worker that processes next to nothing makes the number as large as that; one step is taken in any case.
    return max(1, ceil(min(workers, _MOST_WANTED) - _ROUNDING))


def cpu_needs(rules: Rules, load: Load) -> int:
    """Return the workers among which what arrives leaves each of them below the target.

    Partitions are divided by number, so the load of the busiest worker that has more than one decides, and at least the sum.
    """
    cores = rules.cpu_cores * rules.cpu_target
    busiest = max((worker.cpu_of_arrivals for worker in load.workers if worker.partitions > 1), default=0.0)
    return max(_rounded(load.cpu_of_arrivals / cores), _rounded(len(load.workers) * busiest / cores))


def _lag_needs(rules: Rules, workers: Iterable[WorkerLoad], count: int) -> int:
    """Return the workers with which the given ones would process their lag in time. Workers with lag are at their full speed."""
    factors = [
        worker.needed_rate(rules.catch_up_seconds) / worker.processed for worker in workers if worker.lags and worker.processed > 0
    ]
    return _rounded(count * max(factors)) if factors else 1


def _out(rules: Rules, memory: Memory, sample: Sample, load: Load) -> Decision | None:
    """Return a step out, or why a wanted one is not made; None if the workers suffice."""
    now = sample.replicas
    by_cpu = cpu_needs(rules, load)
    by_lag = _lag_needs(rules, (worker for worker in load.workers if worker.partitions > 1), now)
    wanted = max(by_cpu, by_lag)
    if wanted <= now:
        return _useless(rules, sample, load)
    reason = Reason.LAG if by_lag >= by_cpu else Reason.CPU
    need = f"{wanted} workers are needed: {_described(rules, load)}"
    if now >= rules.bounded_most:
        if rules.most > rules.partitions:
            return _hold(sample, Reason.AT_PARTITIONS, f"{need}; there are {rules.partitions} partitions", wanted, load)
        return _hold(sample, Reason.AT_MAXIMUM, f"{need}; the maximum is {rules.most}", wanted, load)
    if _cools_down(rules, memory, sample):
        return _hold(sample, Reason.COOL_DOWN, f"{need}; the replicas were changed recently", wanted, load)
    return Decision(Action.OUT, reason, now + 1, need, wanted, load)


def _useless(rules: Rules, sample: Sample, load: Load) -> Decision | None:
    """Return why more workers do not help against a lag; None without such a lag."""
    if any(worker.lags and worker.processed == 0 for worker in load.workers):
        text = "a worker with lag processes nothing: more workers would not either"
        return _hold(sample, Reason.STALLED, text, sample.replicas, load)
    if _lag_needs(rules, load.workers, sample.replicas) > sample.replicas:
        if sample.replicas >= rules.partitions:
            text = f"every worker has one of the {rules.partitions} partitions, and lag: {_described(rules, load)}"
            return _hold(sample, Reason.AT_PARTITIONS, text, sample.replicas + 1, load)
        text = f"the lag is in one partition, which more workers do not divide: {_described(rules, load)}"
        return _hold(sample, Reason.SKEWED, text, sample.replicas, load)
    return None


def _in(rules: Rules, memory: Memory, sample: Sample, load: Load) -> tuple[Decision, Memory]:
    fewer = sample.replicas - 1
    described = _described(rules, load)
    if fewer < rules.bounded_least or not _suffices(rules, memory, load, fewer):
        decision = _hold(sample, Reason.STEADY, f"{sample.replicas} workers suffice: {described}", sample.replicas, load)
        return decision, replace(memory, calm_since=None)
    calm_since = sample.at if memory.calm_since is None else memory.calm_since
    memory = replace(memory, calm_since=calm_since)
    if sample.at - calm_since < rules.calm_seconds or _cools_down(rules, memory, sample):
        text = f"{fewer} workers would suffice since {sample.at - calm_since:.0f} s: {described}"
        return _hold(sample, Reason.STEADY, text, fewer, load), memory
    decision = Decision(Action.IN, Reason.CALM, fewer, f"{fewer} workers suffice: {described}", fewer, load)
    return decision, replace(memory, calm_since=None)


def _suffices(rules: Rules, memory: Memory, load: Load, fewer: int) -> bool:
    """Return whether fewer workers would do the same, with a margin."""
    cores = rules.cpu_cores * rules.cpu_scale_in
    if any(worker.lags for worker in load.workers):
        return False
    busiest = max(worker.cpu_cores for worker in load.workers)
    if len(load.workers) * busiest > fewer * cores:
        return False
    shortage = memory.shortages.get(fewer)
    return shortage is None or load.arrived <= _LESS_LOAD * shortage.arrived


def _with_shortage(rules: Rules, memory: Memory, sample: Sample, load: Load) -> Memory:
    """Note that the present workers do not suffice for what arrives.

    Workers that only process an older lag too slowly are no such case, unless the last change was a scale-in: it was wrong then.
    """
    grows = any(worker.lags and worker.arrived > worker.processed for worker in load.workers)
    if not (grows or cpu_needs(rules, load) > sample.replicas or memory.last_action is Action.IN):
        return memory
    shortage = Shortage(load.arrived, _processes(sample))
    return replace(memory, shortages={**memory.shortages, sample.replicas: shortage})


def _described(rules: Rules, load: Load) -> str:
    catch_up = load.catch_up_seconds
    lasting = "the lag grows" if catch_up is None else f"caught up in {catch_up:.0f} s"
    return (
        f"lag {load.lag:.0f} ({lasting}, goal {rules.catch_up_seconds:g} s), {load.arrived:.0f} records/s arrive, "
        f"{load.processed:.0f} are processed with {load.cpu_cores:.1f} cores"
    )
