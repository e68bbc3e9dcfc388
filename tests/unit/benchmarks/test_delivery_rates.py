"""The rate of a process is that between its warm-up and the end of its backlog, by its own counter."""

import importlib
from pathlib import Path
from typing import Any

import pytest

BENCHMARKS = Path(__file__).parents[3] / "benchmarks"


class Clock:
    """Replaces the module `time`: a sleep takes no time."""

    def __init__(self) -> None:
        self.now = 100.0

    def monotonic(self) -> float:
        return self.now

    def sleep(self, seconds: float) -> None:
        self.now += seconds


class Process:
    """Uses half of a core."""

    log = Path("process.log")

    def __init__(self, clock: Clock) -> None:
        self._clock = clock

    def check(self) -> None:
        """It runs."""

    def cpu_seconds(self) -> float:
        return self._clock.now / 2


def rate(monkeypatch: pytest.MonkeyPatch, count: int, per_second: float, starts_after: float = 5.0, until: float = 1e9) -> Any:
    monkeypatch.syspath_prepend(str(BENCHMARKS))
    processes = importlib.import_module("delivery_parts.processes")
    clock = Clock()
    monkeypatch.setattr(processes, "time", clock)
    begun = clock.now + starts_after

    def sent() -> float:
        return float(int(max(0.0, min(clock.now, begun + until) - begun) * per_second))

    return processes.sent_rate(Process(clock), sent, count)


def test_a_long_backlog_is_measured_for_ten_seconds_after_the_warm_up(monkeypatch: pytest.MonkeyPatch) -> None:
    found = rate(monkeypatch, 1_000_000, 1_000.0)
    assert found.seconds == pytest.approx(10.0, abs=0.4)
    assert found.per_second == pytest.approx(1_000.0, rel=0.01)
    assert found.per_cpu_second == pytest.approx(2_000.0, rel=0.01)


def test_a_short_backlog_is_measured_without_its_begin_and_its_end(monkeypatch: pytest.MonkeyPatch) -> None:
    found = rate(monkeypatch, 4_000, 1_000.0)
    assert found.per_second == pytest.approx(1_000.0, rel=0.01)
    assert 1_500 < found.events < 0.65 * 4_000


@pytest.mark.parametrize(("count", "until"), [(200, 1e9), (1_000_000, 0.1)])
def test_a_backlog_that_is_over_at_once_and_a_process_that_stops_to_send_have_no_rate(
    monkeypatch: pytest.MonkeyPatch, count: int, until: float
) -> None:
    with pytest.raises(RuntimeError, match="too few to measure, or none was sent"):
        rate(monkeypatch, count, 1_000.0, until=until)


def test_a_process_that_never_sends_is_given_up(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(TimeoutError, match="0 of 1,000 messages within 300 s"):
        rate(monkeypatch, 1_000, 0.0)
