"""Pure core: delays the segmenter's progress until the read models contain the membership changes before it."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple


class Progress(NamedTuple):
    """The progress of one segmenter partition. `offset`: of the progress record; `definitions`: workspace/key -> version."""

    partition: int
    stream_time_ms: int
    definitions: Mapping[str, int]
    recorded_at_micros: int
    offset: int
    incarnation: int = 0
    """That of the topic of the progress record."""


@dataclass(frozen=True, slots=True)
class PendingProgress:
    """A progress record that waits until its partition of membership is projected up to `membership_end`."""

    progress: Progress
    membership_end: int


Pending = Mapping[int, Sequence[PendingProgress]]
"""Partition -> the oldest and the newest pending record. Those between are dropped, which bounds the memory. The oldest is never
replaced by a newer one, else under steady load no progress would ever be written."""


def add_pending(pending: Pending, added: PendingProgress) -> dict[int, tuple[PendingProgress, ...]]:
    """Return the pending progress with one more record."""
    oldest = tuple(pending.get(added.progress.partition, ()))[:1]
    return {**{number: tuple(some) for number, some in pending.items()}, added.progress.partition: (*oldest, added)}


def release(pending: Pending, projected: Mapping[int, int]) -> tuple[list[Progress], dict[int, tuple[PendingProgress, ...]]]:
    """Return (progress to write, still pending progress). `projected`: partition -> next membership offset to project."""
    ready: list[Progress] = []
    still_pending: dict[int, tuple[PendingProgress, ...]] = {}
    for number, some in pending.items():
        reached = [one.progress for one in some if one.membership_end <= projected.get(number, 0)]
        ready.extend(reached[-1:])
        if rest := tuple(some)[len(reached) :]:
            still_pending[number] = rest
    return ready, still_pending


def first_offset(pending: Pending) -> int | None:
    """Return the offset from which progress must be read again after a crash; None without pending progress."""
    return min((one.progress.offset for some in pending.values() for one in some), default=None)
