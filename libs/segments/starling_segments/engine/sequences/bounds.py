"""Pure core: how much a sequence keeps of what its steps compare with, so that no definition and no flood of events makes it large.

A step that compares with several earlier ones can be led to by each combination of their values: with four of them 256 events
have 170 million. To refuse such definitions would be to refuse sane ones, of whose users each has a handful, and to drop those
that run already. So all are accepted, each user is followed exactly up to `MAX_COMBINATIONS` combinations, and beyond that some are
forgotten: what is then announced is still so, only a completion that hung on a forgotten one is missed.
"""

from __future__ import annotations

from typing import Any

from starling_segments.aggregates.accumulators import Link
from starling_segments.aggregates.panes import encoded_size
from starling_segments.aggregates.values import SMALL_BYTES
from starling_segments.engine.sequences.parts import Stage, thin

MAX_COMBINATIONS = 1_024
"""How many combinations are kept, over all events of a sequence."""
MAX_COMBINATION_BYTES = 1 << 17
"""How much room they may take, in bytes of JSON text."""
MAX_COMBINATION_CHARACTERS = 4_096
"""How long one of them may be: what leaves more to compare with leads nobody on."""
MAX_CAPTURED_BYTES = 1 << 17
"""How much room the values may take that events keep to be compared, in bytes."""
FREE = 16
"""How many combinations an event gets without a look at the others."""
_FEW, _SHORT = 4, 512
"""So many combinations, of so many characters together, are never too much: not if each of 256 events has them."""
_SHORT_TEXT = SMALL_BYTES // 4 - 8
"""Characters of up to four bytes, and what is written before them."""


def has_room(links: list[Link], here: Link, left: str) -> bool:
    """Whether a link is to get one more combination. A full one is asked at every `FREE`th: the look takes its time."""
    if len(left) > MAX_COMBINATION_CHARACTERS:
        return False
    return len(here.reached) % FREE != FREE - 1 or sum([len(link.reached) for link in links]) < MAX_COMBINATIONS


def make_room(links: list[Link], start: int, stages: tuple[Stage, ...]) -> None:
    """Forget what is too much, after the links from `start` on may have got more. While each has little it cannot be."""
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
    """Whether it takes at most `SMALL_BYTES` bytes. Of one short text, the usual case, it is told without writing it."""
    if kept is None or (len(kept) == 1 and kept[0].__class__ is str and len(kept[0]) <= _SHORT_TEXT):
        return True
    return encoded_size(kept) <= SMALL_BYTES


def _thin_left(links: list[Link], stages: tuple[Stage, ...]) -> None:
    """Keep less of what is left to compare with, if that is too much.

    First goes what a later event left too: of chains that left the same the last one decides, so the others would only
    count for a match that comes late. Then the oldest. What nothing is compared with (left "") is never too much.
    """
    n, room = 0, 0
    for link in links:
        for left in link.reached:
            n += 1
            room += _bytes(left)
    if n <= MAX_COMBINATIONS and room <= MAX_COMBINATION_BYTES:
        return
    most, largest = MAX_COMBINATIONS * 3 // 4, MAX_COMBINATION_BYTES * 3 // 4  # so that the next events find room
    oldest_first = [(link, left) for link in links for left in link.reached if left]
    for link, left in [*_spent(links, stages), *oldest_first]:
        if n <= most and room <= largest:
            return
        if link.reached.pop(left, None) is not None:
            n -= 1
            room -= _bytes(left)


def _spent(links: list[Link], stages: tuple[Stage, ...]) -> list[tuple[Link, str]]:
    """(link, what it left) where a later link has met the same stages with the same, and no pause is open; oldest first."""
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
    """Whether a pause has begun that is neither met nor broken."""
    return any(
        stage.pause_ms is not None and marks >> (k - 1) & 1 and not marks >> k & 1 and not marks >> (len(stages) + k) & 1
        for k, stage in enumerate(stages)
    )


def _bytes(text: str) -> int:
    return len(text) if text.isascii() else len(text.encode("utf-8", "surrogatepass"))
