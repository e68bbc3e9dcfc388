"""Pure core: decides from offsets whether the pipeline is settled."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TypeAlias

from starling_common.kafka.topics import Stage
from starling_local.ports import FIXED, WORKERS

Partition: TypeAlias = tuple[str, int]
"""Topic and partition number."""

Offsets: TypeAlias = Mapping[Partition, int]

PART_OF_STAGE = {
    "profiles": "spark",
    "webhook": "delivery",
    "webhook-retry": "delivery",
    "feeds": "delivery-feeds",
    "email": "delivery-email",
    "email-retry": "delivery-email",
    "projector-events": "projector",
}
"""Stage → the service that runs it, where the names differ."""


@dataclass(frozen=True, slots=True)
class PipelineState:
    """State of all stages.

    Shape: `stable` are the last stable offsets before the committed offsets were read, `written` the high watermarks
           after; `lags` maps a stage to its lag (only stages that lag); `unfinished` describes other unfinished work.
    """

    stable: Offsets
    written: Offsets
    lags: Mapping[str, int] = field(default_factory=dict)
    unfinished: Sequence[str] = ()


def positions(committed: Offsets, starts: Offsets, ends: Offsets) -> dict[Partition, int]:
    """Return the position of a group in each partition: its committed offset, else the first offset."""
    return {part: max(committed.get(part, 0), starts.get(part, 0)) for part in ends}


def behind(current: Offsets, ends: Offsets) -> dict[Partition, int]:
    """Return the partitions whose end is beyond the position, with that position.

    Some have no records there: transaction markers take offsets too, and a compacted topic has gaps.
    """
    return {part: current[part] for part, end in ends.items() if current[part] < end}


def lag(current: Offsets, ends: Offsets, with_records: set[Partition]) -> int:
    """Return the sum of the offsets between position and end of the partitions `with_records`."""
    return sum(ends[part] - current[part] for part in with_records)


def is_settled(state: PipelineState) -> bool:
    """Return whether no stage lags and no record was written, and no transaction open, during the reading.

    A stage commits its input only together with its output, or after it. The output of every committed input is
    therefore included in `written`; if `written` equals `stable`, each later stage was compared with that output.
    `written` is the high watermark and not the last stable offset: the commit marker of a transaction can appear in
    the group's offsets before it appears in the output topic, and until then the output is not visible as lag.
    """
    return not state.lags and not state.unfinished and state.stable == state.written


def describe(state: PipelineState) -> str:
    """Return the reason why the pipeline is not settled, for an error message."""
    lagging = [f"{stage} lags by {count:,} record{'s' if count != 1 else ''}" for stage, count in state.lags.items()]
    return "; ".join([*lagging, *state.unfinished]) or "records are still being written"


def stages_of(stages: Sequence[Stage], parts: Sequence[str]) -> list[Stage]:
    """Return the stages to wait for, in the given order: those of a running part, and those of services started by hand.

    A stage belongs to a service started by hand if no part of a local stack serves it. A delayed stage is not waited for.
    `parts`: names without worker numbers.
    """
    served = [(stage, PART_OF_STAGE.get(stage.name, stage.name)) for stage in stages if not stage.delayed]
    return [stage for stage, part in served if part in parts or part not in WORKERS.keys() | FIXED.keys()]
