"""Pure core: from offsets to a verdict. No broker, no clock."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TypeAlias

from starling_common.topics import Stage
from starling_local.ports import WORKERS

Partition: TypeAlias = tuple[str, int]
"""Topic and partition number."""

Offsets: TypeAlias = Mapping[Partition, int]

PART_OF_STAGE = {"profiles": "spark", "webhook": "delivery", "projector-events": "projector"}
"""The service that does a stage's work, where it has another name."""


@dataclass(frozen=True, slots=True)
class Pass:
    """One look at all stages.

    Shape: `stable` are the last stable offsets before the stages were asked, `written` the high watermarks after;
           `lags` maps a stage to its records not yet gone through (only stages that have some);
           `waiting` says in words what else is not finished.
    """

    stable: Offsets
    written: Offsets
    lags: Mapping[str, int] = field(default_factory=dict)
    waiting: Sequence[str] = ()


def positions(committed: Offsets, starts: Offsets, ends: Offsets) -> dict[Partition, int]:
    """Where a group stands in each partition: what it committed, else the first record there is."""
    return {part: max(committed.get(part, 0), starts.get(part, 0)) for part in ends}


def behind(standing: Offsets, ends: Offsets) -> dict[Partition, int]:
    """Partitions whose end is beyond the position, with that position. Not all of them hold records there:
    transaction markers take offsets too, and a compacted topic has gaps."""
    return {part: standing[part] for part, end in ends.items() if standing[part] < end}


def lag(standing: Offsets, ends: Offsets, really_behind: set[Partition]) -> int:
    """Offsets still to go in the partitions that really hold records there."""
    return sum(ends[part] - standing[part] for part in really_behind)


def is_settled(look: Pass) -> bool:
    """Everything has gone through: no stage lags, and nothing was written or open while we looked.

    Why this is enough: a stage commits its input only together with, or after, its output. So output of
    what was committed when we asked its group is counted in `written`; if that equals `stable`, every later
    stage was compared with it. The high watermark it must be: of one transaction, the marker in a group's offsets
    may be written before the one in the output, which until then is no record a later stage could lag by.
    """
    return not look.lags and not look.waiting and look.stable == look.written


def describe(look: Pass) -> str:
    """What holds the pipeline up, for a person."""
    lagging = [f"{stage} lags by {count:,} record{'s' if count != 1 else ''}" for stage, count in look.lags.items()]
    return "; ".join([*lagging, *look.waiting]) or "records are still being written"


def stages_of(stages: Sequence[Stage], parts: Sequence[str]) -> list[Stage]:
    """The stages to wait for, in the given order: those of a running part, and those that no part of a local stack serves.

    A service that is started by hand has a stage of the second kind. `parts`: names without worker numbers.
    """
    served = [(stage, PART_OF_STAGE.get(stage.name, stage.name)) for stage in stages]
    return [stage for stage, part in served if part in parts or part not in WORKERS]
