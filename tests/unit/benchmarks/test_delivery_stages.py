"""The figures of a broadcast that `make bench-delivery` derives from its samples."""

import importlib.util
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

_FILE = Path(__file__).parents[3] / "benchmarks/delivery_parts/stages.py"
_SPEC = importlib.util.spec_from_file_location("delivery_stages", _FILE)
assert _SPEC is not None
assert _SPEC.loader is not None
stages: Any = importlib.util.module_from_spec(_SPEC)
_SPEC.loader.exec_module(stages)

MEMBERS = 1_000


def samples(rates: Sequence[float]) -> list[Any]:
    """Return a sample a second until the last stage has all members. `rates`: members a second of each stage, if it has work."""
    found, done = [stages.Sample(0.0, dict.fromkeys(stages.STAGES, 0.0))], [0.0] * len(rates)
    while done[-1] < MEMBERS:
        left = float(MEMBERS)
        for number, rate in enumerate(rates):
            done[number] = left = min(left, done[number] + rate)
        found.append(stages.Sample(found[-1].at + 1, dict(zip(stages.STAGES, done, strict=True))))
    return found


@pytest.mark.parametrize(
    ("rates", "limiting"),
    [
        ((50, 200, 200), "broadcaster"),
        ((500, 50, 200), "messenger"),
        ((500, 200, 50), "channel"),
        ((500, 50, 49), "messenger"),
        ((100, 100, 100), "broadcaster"),
    ],
)
def test_the_limiting_stage_is_the_last_one_before_which_members_wait(rates: Sequence[float], limiting: str) -> None:
    found = stages.report(samples(rates), MEMBERS, dict.fromkeys(stages.STAGES, 1.0))
    assert found["limiting_stage"] == limiting


def test_a_report_has_the_whole_time_and_the_rate_of_each_stage() -> None:
    found = stages.report(samples((500, 50, 200)), MEMBERS, {"broadcaster": 0.5, "messenger": 10.0, "channel": 2.0})
    assert (found["seconds"], found["members_per_second"], found["seconds_for_a_million"]) == (20.0, 50, 20_000)
    assert found["stages"]["messenger"] == {
        "members_per_second": 50, "cpu_us_per_member": 10_000.0, "of_a_core": 0.5,
        "mean_queue_before": round(sum([450, 900, *range(850, -1, -50)]) / 21),
    }  # fmt: skip
    assert "mean_queue_before" not in found["stages"]["broadcaster"]


def test_a_stage_that_is_over_between_two_samples_has_no_rate() -> None:
    assert stages.rate(samples((MEMBERS, 100, 100)), "broadcaster", MEMBERS) is None
