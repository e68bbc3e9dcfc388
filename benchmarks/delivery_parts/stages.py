"""Pure core: the stages of a broadcast: how fast each is, and which one limits the others."""

import statistics
from collections.abc import Mapping, Sequence
from typing import Any, Final, NamedTuple

STAGES: Final[tuple[str, ...]] = ("broadcaster", "messenger", "channel")
"""In the order in which a member passes them."""

_SPAN: Final = (0.1, 0.9)
"""A stage's rate is that between a tenth and nine tenths of the members."""
_QUEUE_SECONDS: Final = 1.0


class Sample(NamedTuple):
    """One look: monotonic seconds, and the members that each stage has finished."""

    at: float
    done: Mapping[str, float]


def rate(samples: Sequence[Sample], stage: str, members: int) -> float | None:
    """Return the members a second of a stage; None with too few samples between a tenth and nine tenths of the members."""
    first, last = (share * members for share in _SPAN)
    span = [sample for sample in samples if first <= sample.done[stage] <= last]
    if len(span) < 2 or span[-1].at == span[0].at:
        return None
    return (span[-1].done[stage] - span[0].done[stage]) / (span[-1].at - span[0].at)


def queue_before(samples: Sequence[Sample], stage: str) -> float:
    """Return the mean number of members that the stage before has finished, and this one has not."""
    before = STAGES[STAGES.index(stage) - 1]
    return statistics.fmean(max(0.0, sample.done[before] - sample.done[stage]) for sample in samples)


def limiting(samples: Sequence[Sample], rates: Mapping[str, float | None]) -> str:
    """Return the stage that limits: the last one with a queue of more than a second of its rate, else the broadcaster.

    Work waits before a slow stage, and the stages after it have nothing to wait for.
    """
    for stage in reversed(STAGES[1:]):
        if queue_before(samples, stage) > _QUEUE_SECONDS * (rates[stage] or 0.0):
            return stage
    return STAGES[0]


def report(samples: Sequence[Sample], members: int, cpu_seconds: Mapping[str, float]) -> dict[str, Any]:
    """Return the figures of a whole broadcast. The first sample is from its begin, and the last from its end."""
    seconds = samples[-1].at - samples[0].at
    rates = {stage: rate(samples, stage, members) for stage in STAGES}
    stages: dict[str, dict[str, Any]] = {}
    for stage in STAGES:
        found = rates[stage]
        stages[stage] = {
            "members_per_second": None if found is None else round(found),
            "cpu_us_per_member": round(cpu_seconds[stage] / members * 1e6, 1),
            "of_a_core": round(cpu_seconds[stage] / seconds, 2),
        }
        if stage != STAGES[0]:
            stages[stage]["mean_queue_before"] = round(queue_before(samples, stage))
    return {
        "seconds": round(seconds, 1),
        "members_per_second": round(members / seconds),
        "seconds_for_a_million": round(1_000_000 * seconds / members),
        "limiting_stage": limiting(samples, rates),
        "stages": stages,
    }
