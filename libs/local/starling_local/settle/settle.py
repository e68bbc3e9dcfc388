"""Adapter: looks at the pipeline until everything has gone through, or the time is up."""

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from starling_common.kafka import BrokerUnavailable
from starling_common.topics import Stage
from starling_local.errors import LocalError
from starling_local.settle.broker import Offsetter
from starling_local.settle.progress import Pass, behind, describe, is_settled, lag, positions

_PAUSE_SECONDS = 0.2

StillWaiting = Callable[[], Sequence[str]]
"""What is not finished although no stage lags, in words; empty when all is."""


class NotSettled(LocalError):
    """The time-out came first; the text names the stage that lags, and by how much."""


@dataclass(frozen=True)
class Pipeline:
    """What `settle` looks at: the stages in order, the broker's offsets, and what else may be unfinished."""

    stages: Sequence[Stage]
    offsets: Offsetter
    still_waiting: StillWaiting

    def look(self) -> Pass:
        """One pass over all stages, in order. Raises BrokerUnavailable."""
        partitions = self.offsets.partitions(name for stage in self.stages for name in stage.inputs)
        stable = self.offsets.ends(partitions)
        lags = {stage.name: stage_lag(self.offsets, stage) for stage in self.stages}
        waiting = self.still_waiting()
        return Pass(
            stable, self.offsets.high_watermarks(partitions), {name: count for name, count in lags.items() if count}, waiting
        )


def stage_lag(offsets: Offsetter, stage: Stage) -> int:
    """Records in the stage's inputs that its group has not committed. Raises BrokerUnavailable."""
    return _lag_in(offsets, stage.group, stage.inputs)


def topic_lag(offsets: Offsetter, stage: Stage, topic: str) -> int:
    """The same for one of its inputs. Raises BrokerUnavailable."""
    return _lag_in(offsets, stage.group, (topic,))


def _lag_in(offsets: Offsetter, group: str, topics: Sequence[str]) -> int:
    partitions = offsets.partitions(topics)
    ends = offsets.ends(partitions)
    standing = positions(offsets.committed(group, partitions), offsets.starts(partitions), ends)
    return lag(standing, ends, offsets.holding_records(behind(standing, ends)))


def stage_lags(offsets: Offsetter, stages: Sequence[Stage]) -> Mapping[str, int]:
    """The lag of every stage, by its name. Raises BrokerUnavailable."""
    return {stage.name: stage_lag(offsets, stage) for stage in stages}


def settle(pipeline: Pipeline, timeout_seconds: float) -> None:
    """Return once everything accepted before the call has gone through. Raises NotSettled at the time-out."""
    deadline = time.monotonic() + timeout_seconds
    reason = "nothing was looked at"
    while True:
        try:
            look = pipeline.look()
        except BrokerUnavailable as error:
            reason = str(error)
        else:
            if is_settled(look):
                return
            reason = describe(look)
        if time.monotonic() >= deadline:
            raise NotSettled(f"not settled after {timeout_seconds:g} s: {reason}")
        time.sleep(_PAUSE_SECONDS)
