"""Pure core: the segmenter's progress is shown only once the membership changes up to there are in the read models."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple


class Progress(NamedTuple):
    """How far one partition of the segmenter is. `offset` is the record's own; `definitions`: workspace/key -> version."""

    partition: int
    stream_time_ms: int
    definitions: Mapping[str, int]
    recorded_at_micros: int
    offset: int


@dataclass(frozen=True, slots=True)
class Held:
    """A progress record that waits until membership is projected up to `membership_end` in its partition."""

    progress: Progress
    membership_end: int


Waiting = Mapping[int, Sequence[Held]]
"""Partition -> the oldest and the newest that wait. Those between are skipped, or a long backlog would hold thousands;
the oldest is never given up for a newer one, or under steady load nothing would ever be shown."""


def hold(waiting: Waiting, held: Held) -> dict[int, tuple[Held, ...]]:
    """One more that waits."""
    oldest = tuple(waiting.get(held.progress.partition, ()))[:1]
    return {**{number: tuple(some) for number, some in waiting.items()}, held.progress.partition: (*oldest, held)}


def release(waiting: Waiting, projected: Mapping[int, int]) -> tuple[list[Progress], dict[int, tuple[Held, ...]]]:
    """Those that can be shown, and those that still wait. `projected`: partition -> next membership offset to project."""
    shown: list[Progress] = []
    still: dict[int, tuple[Held, ...]] = {}
    for number, some in waiting.items():
        ripe = [held.progress for held in some if held.membership_end <= projected.get(number, 0)]
        shown.extend(ripe[-1:])
        if rest := tuple(some)[len(ripe) :]:
            still[number] = rest
    return shown, still


def first_offset(waiting: Waiting) -> int | None:
    """The offset from which progress must be read again after a crash; None when nothing waits."""
    return min((held.progress.offset for some in waiting.values() for held in some), default=None)
