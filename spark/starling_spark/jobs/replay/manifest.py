"""Pure core: what a replay says about itself, so that it can be understood and compared later."""

from collections.abc import Mapping, Sequence
from typing import Any

import msgspec

from starling_spark.history.past import Reached
from starling_spark.jobs.replay.folding import InForce
from starling_spark.jobs.replay.setting import Setting


class SegmentReplayed(msgspec.Struct, frozen=True, kw_only=True):
    """One segment in force. `not_compared`: why the past does not say who is in it; None: it does."""

    workspace: str
    key: str
    version: int
    not_compared: str | None = None


class About(msgspec.Struct, frozen=True, kw_only=True):
    """One replay. `unreadable`: records that were left out, for they cannot be read; `made_at` is wall clock, ms."""

    name: str
    until_ms: int
    made_at_ms: int
    people: int
    unreadable: int
    segments: tuple[SegmentReplayed, ...]


def setting(records: Sequence[Mapping[str, Any]], found: Mapping[int, Reached], until_ms: int) -> Setting:
    """What is in force in each partition: the definitions recorded before the first record that moved its time beyond the end.

    `records`: of `segments.definitions`, in their order, with `recorded_at` in µs of the wall clock.
    """
    partitions = {number: (_recorded_before(records, one), one.now_ms(until_ms)) for number, one in found.items()}
    return Setting(tuple(records), partitions)


def segments(setting_: Setting) -> tuple[SegmentReplayed, ...]:
    """Those in force. Where partitions differ, their time having passed the end while a definition was made: not compared."""
    counts = sorted({count for count, _ in setting_.partitions.values()}) or [len(setting_.records)]
    sets = [InForce(setting_.records[:count]) for count in counts]
    newest = sets[-1]
    reasons, versions = newest.not_compared(), newest.versions()
    for other in sets[:-1]:
        old = other.versions()
        unequal = [place for place in versions | old if versions.get(place) != old.get(place)]
        reasons |= dict.fromkeys(unequal, "it was changed while the partitions passed this instant")
        versions = old | versions
    return tuple(
        SegmentReplayed(workspace=place[0], key=place[1], version=version, not_compared=reasons.get(place))
        for place, version in sorted(versions.items())
    )


def _recorded_before(records: Sequence[Mapping[str, Any]], one: Reached) -> int:
    if one.next_micros is None:
        return len(records)
    return next((number for number, record in enumerate(records) if record["recorded_at"] >= one.next_micros), len(records))
