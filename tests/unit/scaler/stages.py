"""Samples of a stage for the tests of the policy, and a stage that is simulated."""

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Final

from starling_scaler.policy.decision import Action, Decision, Memory, Rules, decide
from starling_scaler.policy.samples import Sample, Worker

RULES: Final = Rules(
    partitions=16,
    least=2,
    most=8,
    cpu_cores=1.0,
    cpu_target=0.7,
    cpu_scale_in=0.5,
    tolerated_lag=1_000.0,
    catch_up_seconds=300.0,
    window_seconds=60.0,
    cool_down_seconds=120.0,
    calm_seconds=300.0,
)
INTERVAL: Final = 15.0


def partitions_of(partitions: int, workers: int, number: int) -> frozenset[int]:
    """Return the partitions of one of several workers, assigned in turn."""
    return frozenset(range(number, partitions, workers))


@dataclass
class Stage:
    """Workers whose counters a test moves on. `at`: seconds."""

    rules: Rules = RULES
    replicas: int = 2
    at: float = 0.0
    started: int = 0
    workers: list[Worker] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.assign()

    def assign(self) -> None:
        """Give every worker its partitions; new workers start, removed ones end."""
        before = {worker.name: worker for worker in self.workers}
        self.workers = []
        for number in range(self.replicas):
            running = partitions_of(self.rules.partitions, self.replicas, number)
            name = f"segmenter-{number}"
            found = before.get(name)
            if found is None:
                self.started += 1
                found = Worker(name, float(self.started), 0.0, 0.0, 0.0)
            self.workers.append(replace(found, running=running))

    def restart(self) -> None:
        """Restart every worker, as a release does."""
        for number, worker in enumerate(self.workers):
            self.started += 1
            self.workers[number] = replace(worker, started_at=float(self.started), cpu_seconds=0.0, records=0.0)

    def passes(self, cpu: Sequence[float], records: Sequence[float], lag: Sequence[float], seconds: float = INTERVAL) -> Sample:
        """Let time pass. Each of `cpu` (cores), `records` (a second) and `lag` (records, then) is by worker."""
        self.at += seconds
        self.workers = [
            replace(
                worker,
                cpu_seconds=worker.cpu_seconds + cpu[number] * seconds,
                records=worker.records + records[number] * seconds,
                lag=lag[number],
            )
            for number, worker in enumerate(self.workers)
        ]
        return self.sample()

    def sample(self) -> Sample:
        """Return what the workers report now."""
        return Sample(self.at, self.replicas, tuple(self.workers))


@dataclass
class Simulation:
    """A stage under load, followed by the policy, which takes each step.

    A worker processes at most `capacity` records a second, for `cpu_of_record` cores-seconds each. After a step no record is
    processed for `restore_seconds`.
    """

    capacity: float
    cpu_of_record: float
    restore_seconds: float
    rules: Rules = RULES
    replicas: int = 2
    lag: float = 0.0
    stage: Stage = field(init=False)
    memory: Memory = field(default_factory=Memory)
    restoring_until: float = 0.0

    def __post_init__(self) -> None:
        self.stage = Stage(self.rules, self.replicas)

    def run(self, arrivals: Sequence[float]) -> list[Decision]:
        """Return the decisions; one interval passes before each. `arrivals`: records a second, by interval."""
        return [self._turn(rate) for rate in arrivals]

    def _turn(self, rate: float) -> Decision:
        stage, workers = self.stage, self.stage.replicas
        restores = stage.at < self.restoring_until
        offered = self.lag + rate * INTERVAL
        processed = 0.0 if restores else min(offered, workers * self.capacity * INTERVAL)
        self.lag = offered - processed
        share = [processed / INTERVAL / workers] * workers
        stage.passes([one * self.cpu_of_record for one in share], share, [self.lag / workers] * workers)
        sample = stage.sample()
        if stage.at < self.restoring_until:
            restoring = [replace(worker, restoring=worker.running, running=frozenset()) for worker in sample.workers]
            sample = replace(sample, workers=tuple(restoring))
        decision, self.memory = decide(self.rules, self.memory, sample)
        if decision.action is not Action.HOLD:
            stage.replicas = decision.replicas
            stage.assign()
            self.restoring_until = stage.at + self.restore_seconds
        return decision
