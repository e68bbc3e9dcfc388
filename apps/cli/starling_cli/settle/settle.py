"""Adapter: polls the pipeline until it is settled, or until the time-out."""

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from starling_cli.settle.broker import Offsetter
from starling_cli.settle.progress import PipelineState, behind, describe, is_settled, lag, positions
from starling_common.kafka.clients import BrokerUnavailable
from starling_common.kafka.topics import Stage
from starling_local.errors import UserError

_PAUSE_SECONDS = 0.2

ListUnfinished = Callable[[], Sequence[str]]
"""Returns descriptions of work that is unfinished although no stage lags."""


class NotSettled(UserError):
    """The pipeline was not settled at the time-out. The text names the stages that lag, and their lag."""


@dataclass(frozen=True)
class Pipeline:
    """The stages in order, the broker's offsets, and a source of other unfinished work."""

    stages: Sequence[Stage]
    offsets: Offsetter
    list_unfinished: ListUnfinished

    def state(self) -> PipelineState:
        """Read the state of all stages, in order. Raises BrokerUnavailable."""
        partitions = self.offsets.partitions(name for stage in self.stages for name in stage.inputs)
        stable = self.offsets.ends(partitions)
        lags = {stage.name: stage_lag(self.offsets, stage) for stage in self.stages}
        unfinished = self.list_unfinished()
        return PipelineState(
            stable, self.offsets.high_watermarks(partitions), {name: count for name, count in lags.items() if count}, unfinished
        )


def stage_lag(offsets: Offsetter, stage: Stage) -> int:
    """Return the lag of the stage's consumer group over all its inputs. Raises BrokerUnavailable."""
    return _lag_in(offsets, stage.group, stage.inputs)


def topic_lag(offsets: Offsetter, stage: Stage, topic: str) -> int:
    """Return the lag of the stage's consumer group in one input topic. Raises BrokerUnavailable."""
    return _lag_in(offsets, stage.group, (topic,))


def _lag_in(offsets: Offsetter, group: str, topics: Sequence[str]) -> int:
    partitions = offsets.partitions(topics)
    ends = offsets.ends(partitions)
    current = positions(offsets.committed(group, partitions), offsets.starts(partitions), ends)
    return lag(current, ends, offsets.holding_records(behind(current, ends)))


def stage_lags(offsets: Offsetter, stages: Sequence[Stage]) -> Mapping[str, int]:
    """Return the lag of every stage by its name. Raises BrokerUnavailable."""
    return {stage.name: stage_lag(offsets, stage) for stage in stages}


def settle(pipeline: Pipeline, timeout_seconds: float) -> None:
    """Return once every stage has processed all events accepted before the call. Raises NotSettled at the time-out."""
    deadline = time.monotonic() + timeout_seconds
    reason = "no offsets were read"
    while True:
        try:
            state = pipeline.state()
        except BrokerUnavailable as error:
            reason = str(error)
        else:
            if is_settled(state):
                return
            reason = describe(state)
        if time.monotonic() >= deadline:
            raise NotSettled(f"not settled after {timeout_seconds:g} s: {reason}")
        time.sleep(_PAUSE_SECONDS)
