"""Pure core: what a sequence is made of when it is folded."""

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
"""`step:path` -> the value that the event of that step had there."""
Slot = tuple[str, int]
"""`step:path`, and where the event at hand keeps that value; -1: it is of an earlier step."""


@dataclass(frozen=True, slots=True)
class StepTest:
    """What an event has to be to match a step: its name, its `where`, and what is left of it to be asked in a chain.

    `now`: asked when the event comes. `later`: asked of what is kept of it and what earlier steps left.
    """

    name: str
    now: Test | None
    later: Test | None

    def named(self, name: str) -> bool:
        """Whether an event of that name can match."""
        return name.startswith(self.name[:-1]) if self.name.endswith("*") else name == self.name


@dataclass(frozen=True, slots=True)
class Stage:
    """A step that is met at an instant: `step` by an event, or `pause_ms` long without one.

    `after_ms`: how long after its event a pause is met. `within_ms`: the longest gap. `forbidden`: steps of which no
    event may lie between the stage before and this one.
    """

    step: int
    pause_ms: int | None
    after_ms: int
    within_ms: int | None
    forbidden: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Capture:
    """One value to keep of an event for later comparisons. `source`: `properties`, `context` or `traits`."""

    name: str
    source: str
    read: Reader


class Recorded:
    """What is left of an event, and of the events before it in its chain."""

    __slots__ = ("bound", "kept")

    def __init__(self, kept: Any, bound: Bound) -> None:
        self.kept = kept
        self.bound = bound


def in_order(kept: Any) -> Any:
    """What an event keeps in the order of its names; a match that waits has it by name, and up to format 6 every event had."""
    return [kept[name] for name in sorted(kept)] if kept.__class__ is dict else kept


def by_time(link: Link) -> int:
    """The order of links."""
    return link.time


def unpacked(left: str) -> Bound:
    """What earlier steps left to compare with."""
    return msgspec.json.decode(left) if left else {}


def thin(links: list[Link]) -> None:
    """One link less: of those that have one of their own kind before and after them the closest to both, else the oldest."""
    best, span = 0, -1
    last: dict[Any, tuple[int, int]] = {}
    for i, link in enumerate(links):
        kind = (link.matches, *link.reached.items()) if link.kept is None else repr((link.matches, link.reached, link.kept))
        before, middle = last.get(kind, (-1, -1))
        if before >= 0 and (span < 0 or link.time - links[before].time < span):
            best, span = middle, link.time - links[before].time
        last[kind] = (middle, i)
    del links[best]
