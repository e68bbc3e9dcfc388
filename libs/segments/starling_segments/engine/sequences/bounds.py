"""Pure core: limits on the values that a sequence stores for its comparisons, for any definition and any number of events.

A step that compares with several earlier ones can be reached by each combination of their values: with four of them, 256 events
have 170 million combinations. Refusing such definitions would refuse useful ones, whose users have a handful each. Each user is
therefore tracked exactly up to `MAX_COMBINATIONS` combinations; beyond that some are dropped: a reported completion is still
correct, but a completion through a dropped combination is missed.
"""

from __future__ import annotations

from typing import Any

from starling_segments.aggregates.accumulators import Link
from starling_segments.aggregates.panes import encoded_size
from starling_segments.aggregates.values import SMALL_BYTES
from starling_segments.engine.sequences.parts import Stage, thin
from starling_segments.language.bounds import MAX_COMBINATIONS

MAX_COMBINATION_BYTES = 1 << 17
"""Maximum size of the combinations, in bytes of JSON text."""
MAX_COMBINATION_CHARACTERS = 4_096
"""Maximum length of one combination; a longer one is not continued."""
MAX_CAPTURED_BYTES = 1 << 17
"""Maximum size of the values captured for comparisons, in bytes."""
CHECK_EVERY = 16
"""Number of combinations of an event between two checks of the total."""
_FEW, _SHORT = 4, 512
"""This number of combinations, with this many characters, never exceeds the limits, even for each of 256 events."""
_SHORT_TEXT = SMALL_BYTES // 4 - 8
"""Characters of up to four bytes, without the prefix."""


def has_room(links: list[Link], here: Link, left: str) -> bool:
    """Return whether a link may get another combination. The slow check is at each `CHECK_EVERY`th only."""
    if len(left) > MAX_COMBINATION_CHARACTERS:
        return False
    return len(here.reached) % CHECK_EVERY != CHECK_EVERY - 1 or sum([len(link.reached) for link in links]) < MAX_COMBINATIONS


def make_room(links: list[Link], start: int, stages: tuple[Stage, ...]) -> None:
    """Enforce the limits after the links from `start` on may have grown; a cheap check covers small links."""
    many = False
    for i in range(start, len(links)):
        link = links[i]
        if not _is_light(link.kept):
            while len(links) > 1 and sum([encoded_size(other.kept) for other in links]) > MAX_CAPTURED_BYTES:
                thin(links)
            many = True
            break
        reached = link.reached
        if reached and (len(reached) > _FEW or sum([len(left) for left in reached]) > _SHORT):
            many = True
    if many:
        _thin_left(links, stages)


def _is_light(kept: Any) -> bool:
    """Return whether the value has at most `SMALL_BYTES` bytes; a single short text needs no encoding to know."""
    if kept is None or (len(kept) == 1 and kept[0].__class__ is str and len(kept[0]) <= _SHORT_TEXT):
        return True
    return encoded_size(kept) <= SMALL_BYTES


def _thin_left(links: list[Link], stages: tuple[Stage, ...]) -> None:
    """Drop combinations if they exceed the limits.

    First those that a later event has too: of equal combinations the last decides, so the others matter for late matches only.
    Then the oldest. The empty combination "" is never dropped.
    """
    n, room = 0, 0
    for link in links:
        for left in link.reached:
            n += 1
            room += _bytes(left)
    if n <= MAX_COMBINATIONS and room <= MAX_COMBINATION_BYTES:
        return
    most, largest = MAX_COMBINATIONS * 3 // 4, MAX_COMBINATION_BYTES * 3 // 4  # leave space for the next events
    oldest_first = [(link, left) for link in links for left in link.reached if left]
    for link, left in [*_spent(links, stages), *oldest_first]:
        if n <= most and room <= largest:
            return
        if link.reached.pop(left, None) is not None:
            n -= 1
            room -= _bytes(left)


def _spent(links: list[Link], stages: tuple[Stage, ...]) -> list[tuple[Link, str]]:
    """Return (link, combination) pairs that a later link covers and without an open pause; oldest first."""
    later: dict[str, int] = {}
    spent: list[tuple[Link, str]] = []
    for link in reversed(links):
        for left, marks in link.reached.items():
            met = marks & (1 << len(stages)) - 1
            if left and not met & ~later.get(left, 0) and not _is_open(marks, stages):
                spent.append((link, left))
            later[left] = later.get(left, 0) | met
    spent.reverse()
    return spent


def _is_open(marks: int, stages: tuple[Stage, ...]) -> bool:
    """Return whether a pause has started that is neither completed nor broken."""
    return any(
        stage.pause_ms is not None and marks >> (k - 1) & 1 and not marks >> k & 1 and not marks >> (len(stages) + k) & 1
        for k, stage in enumerate(stages)
    )


def _bytes(text: str) -> int:
    return len(text) if text.isascii() else len(text.encode("utf-8", "surrogatepass"))
