"""Pure core: the manifest of a replay, for later comparisons."""

from collections.abc import Mapping, Sequence
from typing import Any

import msgspec

from starling_spark.history.past import Reached
from starling_spark.jobs.replay.fold.folding import InForce
from starling_spark.jobs.replay.fold.setting import Setting


class SegmentReplayed(msgspec.Struct, frozen=True, kw_only=True):
    """One segment in force. `not_compared`: why history does not determine its members; None: it does."""

    workspace: str
    key: str
    version: int
    not_compared: str | None = None


class Manifest(msgspec.Struct, frozen=True, kw_only=True):
    """One replay. `unreadable`: the number of unreadable records; `refused`: of those that make the code raise; `made_at_ms`: wall
    clock.
    """

    name: str
    until_ms: int
    made_at_ms: int
    people: int
    unreadable: int
    segments: tuple[SegmentReplayed, ...]
    refused: int = 0


def setting(records: Sequence[Mapping[str, Any]], found: Mapping[int, Reached], until_ms: int) -> Setting:
    """Return the definitions in force by partition: those recorded before the first record beyond the end of the replay.

    `records`: of `segments.definitions`, in their order, with `recorded_at` in µs of the wall clock.
    """
    partitions = {number: (_recorded_before(records, one), one.now_ms(until_ms)) for number, one in found.items()}
    return Setting(tuple(records), partitions)


def segments(setting_: Setting) -> tuple[SegmentReplayed, ...]:
    """Return the segments in force. A segment with different versions in the partitions at the end is not compared."""
    counts = sorted({count for count, _ in setting_.partitions.values()}) or [len(setting_.records)]
    sets = [InForce(setting_.records[:count]) for count in counts]
    newest = sets[-1]
    reasons, versions = newest.not_compared(), newest.versions()
    for other in sets[:-1]:
        old = other.versions()
        unequal = [one for one in versions | old if versions.get(one) != old.get(one)]
        reasons |= dict.fromkeys(unequal, "it was changed while the partitions passed this instant")
        versions = old | versions
    return tuple(
        SegmentReplayed(workspace=segment[0], key=segment[1], version=version, not_compared=reasons.get(segment))
        for segment, version in sorted(versions.items())
    )


def _recorded_before(records: Sequence[Mapping[str, Any]], one: Reached) -> int:
    if one.next_micros is None:
        return len(records)
    return next((number for number, record in enumerate(records) if record["recorded_at"] >= one.next_micros), len(records))
