"""Pure core: idempotent counts of the steps of messages, for the reports of campaigns."""

import math
import re
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, Final, NamedTuple, TypeAlias

from starling_common.cassandra.read_models import (
    ARM_CONVERTED,
    ARM_PEOPLE,
    HELD_OUT_CONVERTED,
    OTHER_REASON,
    SUPPRESSED_PREFIX,
)
from starling_common.outcome import Done, Refused

_HELD_OUT: Final = "HELD_OUT"
_CONVERTED: Final = "CONVERTED"
_EXPOSURES: Final = frozenset({"REQUESTED", _HELD_OUT})
_UNSENT: Final = frozenset({"DROPPED", "SUPPRESSED"})
_STEP: Final = re.compile(r"[A-Z_]{1,32}")
_REASON: Final = re.compile(r"[a-z_]{1,40}")
_FIRST_DAY: Final = -719_162
_LAST_DAY: Final = 2_932_896
"""0001-01-01 and 9999-12-31, in days since 1970-01-01."""


class DayKey(NamedTuple):
    """One row of a funnel in one source partition. `day`: days since 1970-01-01; `variant`: empty if none was determined."""

    workspace: str
    campaign: str
    day: int
    version: int
    variant: str
    source_partition: int


class ArmKey(NamedTuple):
    """One arm of a variant in one source partition, over all days and versions."""

    workspace: str
    campaign: str
    variant: str
    held_out: bool
    source_partition: int


StepKey: TypeAlias = DayKey | ArmKey


class StepTally(NamedTuple):
    """The steps of all records up to and including `counted_offset`, by name, and the value of their conversions."""

    counts: Mapping[str, int] = {}
    value: float = 0.0
    counted_offset: int = -1


class Step(NamedTuple):
    """The fields of a `MessageProgressed` that counting needs. `offset` is an ordinal over the incarnations of the topic."""

    workspace: str
    campaign: str
    source_partition: int
    offset: int
    day: int
    version: int
    variant: str
    name: str
    reason: str | None
    value: float
    held_out: bool
    is_first: bool


def step_of(record: Mapping[str, Any], source_partition: int, offset: int) -> Done[Step] | Refused:
    """Return the step of a record. Records of earlier versions have no `day`: theirs is that of the decision in UTC.

    Refused: `unknown_step`, `bad_time`.
    """
    name, day, variant = record["step"], record["day"], record["variant"]
    if not _STEP.fullmatch(name):
        return Refused("unknown_step", f"step must be 1 to 32 capital letters, not {name[:100]!r}")
    if day is None:
        day = record["decided_at"] // 86_400_000
    if not _FIRST_DAY <= day <= _LAST_DAY:
        return Refused("bad_time", f"the day must be from the year 1 to 9999, not {day}")
    value = record["value"]
    return Done(
        Step(
            record["workspace"],
            record["campaign"],
            source_partition,
            offset,
            day,
            record["version"],
            variant or "",
            name,
            record["reason"],
            value if value is not None and math.isfinite(value) else 0.0,
            record["held_out"] or name == _HELD_OUT,
            record["is_first"],
        )
    )


def keys_of_step(step: Step) -> list[StepKey]:
    """Return the counters of a step."""
    return [key for key, _ in _counters_of(step)]


def _counters_of(step: Step) -> Iterator[tuple[StepKey, str]]:
    """Yield the counters of a step, each with the name that is counted there."""
    workspace, campaign, partition = step.workspace, step.campaign, step.source_partition
    yield DayKey(workspace, campaign, step.day, step.version, step.variant, partition), _counted_name(step)
    if step.is_first and (step.name in _EXPOSURES or step.name == _CONVERTED):
        name = ARM_CONVERTED if step.name == _CONVERTED else ARM_PEOPLE
        yield ArmKey(workspace, campaign, step.variant, step.held_out, partition), name


def _counted_name(step: Step) -> str:
    if step.name in _UNSENT:
        reason = step.reason or OTHER_REASON
        # A reason is a code. Anything else would give a row any number of names.
        return SUPPRESSED_PREFIX + (reason if _REASON.fullmatch(reason) else OTHER_REASON)
    return HELD_OUT_CONVERTED if step.name == _CONVERTED and step.held_out else step.name


def count_steps(tallies: Mapping[StepKey, StepTally], steps: Iterable[Step]) -> dict[StepKey, StepTally]:
    """Return the altered tallies. `tallies` has every key of `keys_of_step`; `steps` are in order of offset within a partition.

    A step at or before the offset of a tally is already counted. The value of a day is that of requested messages alone.
    """
    altered: dict[StepKey, StepTally] = {}
    for step in steps:
        for key, name in _counters_of(step):
            tally = altered.get(key) or tallies[key]
            if step.offset <= tally.counted_offset:
                continue
            counts = {**tally.counts, name: tally.counts.get(name, 0) + 1}
            added = 0.0 if name == HELD_OUT_CONVERTED else step.value
            value = tally.value + added
            altered[key] = StepTally(counts, value if math.isfinite(value) else tally.value, step.offset)
    return altered
