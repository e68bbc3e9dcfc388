"""Pure core: what the workers of a stage report, and the load that follows from it."""

from collections.abc import Sequence
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Worker:
    """The counters of one worker process at one instant. `cpu_seconds` and `records` count from its start."""

    name: str
    started_at: float
    """Seconds since the epoch, by the worker's clock: a restarted worker is another process with counters from zero."""
    cpu_seconds: float
    records: float
    lag: float
    """Committed records of all inputs that are not processed."""
    running: frozenset[int] = frozenset()
    """Partitions that are processed."""
    restoring: frozenset[int] = frozenset()
    """Partitions that are assigned and not processed yet."""
    loading: frozenset[int] = frozenset()
    """Running partitions whose lazy restore is not finished."""


@dataclass(frozen=True, slots=True)
class Sample:
    """A stage at one instant."""

    at: float
    """Seconds on a clock that never goes back."""
    replicas: int
    """What the StatefulSet asks for."""
    workers: tuple[Worker, ...]
    """Those that answered, sorted by name."""
    silent: tuple[str, ...] = ()
    """Pods without metrics, and pods that stop."""

    @property
    def processes(self) -> tuple[tuple[str, float, frozenset[int]], ...]:
        """Return what has to stay the same between two samples for a rate to be meaningful."""
        return tuple((worker.name, worker.started_at, worker.running) for worker in self.workers)

    @property
    def lag(self) -> float:
        """Return the records that wait for all workers."""
        return sum(worker.lag for worker in self.workers)


@dataclass(frozen=True, slots=True)
class WorkerLoad:
    """One worker over a window. Rates are records a second."""

    partitions: int
    cpu_cores: float
    processed: float
    arrived: float
    lag: float
    lags: bool
    """Whether the lag was above the tolerance in every sample of the window."""

    def needed_rate(self, catch_up_seconds: float) -> float:
        """Return the rate at which the worker would keep pace and process its lag within that time."""
        return self.arrived + (self.lag / catch_up_seconds if self.lags else 0.0)

    @property
    def cpu_of_arrivals(self) -> float:
        """Return the cores for what arrives: less than `cpu_cores` while a lag shrinks, more while it grows."""
        return self.cpu_cores * self.arrived / self.processed if self.lags and self.processed > 0 else self.cpu_cores


@dataclass(frozen=True, slots=True)
class Load:
    """A stage over a window."""

    workers: tuple[WorkerLoad, ...]

    @property
    def cpu_cores(self) -> float:
        """Return the cores that all workers use."""
        return sum(worker.cpu_cores for worker in self.workers)

    @property
    def cpu_of_arrivals(self) -> float:
        """Return the cores for what arrives at all workers."""
        return sum(worker.cpu_of_arrivals for worker in self.workers)

    @property
    def processed(self) -> float:
        """Return the records a second that all workers process."""
        return sum(worker.processed for worker in self.workers)

    @property
    def arrived(self) -> float:
        """Return the records a second that arrive for all workers."""
        return sum(worker.arrived for worker in self.workers)

    @property
    def lag(self) -> float:
        """Return the records that wait for all workers."""
        return sum(worker.lag for worker in self.workers)

    @property
    def catch_up_seconds(self) -> float | None:
        """Return the time after which no record waits, at the present rates; None while the lag grows."""
        if self.lag == 0:
            return 0.0
        return self.lag / (self.processed - self.arrived) if self.processed > self.arrived else None


def load_of(window: Sequence[Sample], tolerated_lag: float) -> Load:
    """Return the load between the first and the last sample, which have the same processes and are not simultaneous."""
    first, last = window[0], window[-1]
    seconds = last.at - first.at
    loads = []
    for number, (before, now) in enumerate(zip(first.workers, last.workers, strict=True)):
        processed = max(0.0, now.records - before.records) / seconds
        loads.append(
            WorkerLoad(
                partitions=len(now.running),
                cpu_cores=max(0.0, now.cpu_seconds - before.cpu_seconds) / seconds,
                processed=processed,
                arrived=max(0.0, processed + (now.lag - before.lag) / seconds),
                lag=now.lag,
                lags=all(sample.workers[number].lag > tolerated_lag for sample in window),
            )
        )
    return Load(tuple(loads))
