"""Pure core: the parts of a compiled sequence."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import msgspec

from starling_segments.aggregates.accumulators import Link
from starling_segments.language.operators.table import Test
from starling_segments.language.paths import Reader

CACHED_NAMES = 1_024
Named = tuple[tuple[int, Test | None], ...]
Bound = dict[str, Any]
"""`step:path` -> the value in the event of that step."""
Slot = tuple[str, int]
"""`step:path` and its index among the captured values of the event; -1: captured by an earlier step."""


@dataclass(frozen=True, slots=True)
class StepTest:
    """The test of a step: the event's name, and the parts of its `where`.

    `now`: evaluated when the event arrives. `later`: evaluated for a chain, on captured values of this and earlier events.
    """

    name: str
    now: Test | None
    later: Test | None

    def named(self, name: str) -> bool:
        """Return whether an event of that name can match."""
        return name.startswith(self.name[:-1]) if self.name.endswith("*") else name == self.name


@dataclass(frozen=True, slots=True)
class Stage:
    """A step that is completed at an instant: by an event (`step`), or by `pause_ms` without one.

    `after_ms`: time from the event to the end of the pause. `within_ms`: the longest gap. `forbidden`: steps without a match
    between the previous stage and this one.
    """

    step: int
    pause_ms: int | None
    after_ms: int
    within_ms: int | None
    forbidden: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Capture:
    """A value to capture of each event for later comparisons. `source`: `properties`, `context` or `traits`."""

    name: str
    source: str
    read: Reader


class Recorded:
    """The captured values of an event, and those of earlier events in its chain."""

    __slots__ = ("bound", "kept")

    def __init__(self, kept: Any, bound: Bound) -> None:
        self.kept = kept
        self.bound = bound


def in_order(kept: Any) -> Any:
    """Return captured values in order; future matches, and all events up to format 6, have them by name."""
    return [kept[name] for name in sorted(kept)] if kept.__class__ is dict else kept


def by_time(link: Link) -> int:
    """Sort key of links."""
    return link.time


def unpacked(left: str) -> Bound:
    """Return the values of a combination."""
    return msgspec.json.decode(left) if left else {}


def thin(links: list[Link]) -> None:
    """Drop one link: of those between two of their kind the one with the smallest gap, else the oldest."""
    best, span = 0, -1
    last: dict[Any, tuple[int, int]] = {}
    for i, link in enumerate(links):
        kind = (link.matches, *link.reached.items()) if link.kept is None else repr((link.matches, link.reached, link.kept))
        before, middle = last.get(kind, (-1, -1))
        if before >= 0 and (span < 0 or link.time - links[before].time < span):
            best, span = middle, link.time - links[before].time
        last[kind] = (middle, i)
    del links[best]
