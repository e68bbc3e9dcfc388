"""Edge: the tallies of one kind, read once and kept, so that a batch counts from them without a query."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Final, Generic, TypeVar

Key = TypeVar("Key")
Counted = TypeVar("Counted")
One = TypeVar("One")

_MOST_TALLIES: Final = 100_000
"""Maximum cached tallies, about 20 MB. Above it the cache is cleared."""


class Counters(Generic[Key, Counted, One]):
    """The tallies of the assigned partitions. `One` is what is counted."""

    def __init__(
        self,
        keys_of: Callable[[One], Iterable[Key]],
        read: Callable[[Sequence[Key]], Mapping[Key, Counted]],
        count: Callable[[Mapping[Key, Counted], Iterable[One]], Mapping[Key, Counted]],
        write: Callable[[Mapping[Key, Counted]], None],
    ) -> None:
        """`read` and `write`: the store's. `count`: tallies and a batch -> the altered tallies."""
        self._keys_of = keys_of
        self._read = read
        self._count = count
        self._write = write
        self._known: dict[Key, Counted] = {}

    def forget(self) -> None:
        """Drop what is kept: another projector may have counted since, or the database may have lost rows."""
        self._known = {}

    def counted(self, batch: Sequence[One]) -> Mapping[Key, Counted]:
        """Return the tallies that a batch alters. Nothing is kept before `write`."""
        keys = {key for one in batch for key in self._keys_of(one)}
        if len(self._known) > _MOST_TALLIES:
            self._known = {}
        self._known |= self._read([key for key in keys if key not in self._known])
        return self._count(self._known, batch)

    def write(self, altered: Mapping[Key, Counted]) -> None:
        """Write altered tallies."""
        self._write(altered)

    def keep(self, altered: Mapping[Key, Counted]) -> None:
        """Count from these tallies on. Called after the write, because a repeated batch must count from the stored ones."""
        self._known |= altered
