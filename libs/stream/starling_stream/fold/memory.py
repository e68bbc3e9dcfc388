"""Pure core: a task's rows in memory, for `MemoryTask`."""

from collections.abc import Iterable, Mapping, Sequence

from starling_stream.model.ports import Changed
from starling_stream.model.rows import due_ms, row_due


class MemoryRows:
    """A `StateView` over a dictionary, with the behaviour of the local store."""

    def __init__(self, rows: Mapping[bytes, bytes] | None = None) -> None:
        self.stored: dict[bytes, bytes] = dict(rows or {})

    def apply(self, changes: Mapping[bytes, Changed]) -> None:
        """Apply the changes of a unit of work."""
        self.stored.update({key: changed.after for key, changed in changes.items()})

    def rows(self, keys: Sequence[bytes]) -> list[bytes | None]:
        """As `StateView.rows`."""
        return [self.stored.get(key) for key in keys]

    def due(self, until_ms: int, limit: int) -> list[tuple[int, bytes]]:
        """As `StateView.due`."""
        waiting = ((due, key) for key, due in self._timers() if due <= until_ms)
        return sorted(waiting)[:limit]

    def keys(self, after: bytes, limit: int) -> list[bytes]:
        """As `StateView.keys`."""
        return sorted(key for key, row in self.stored.items() if key > after and len(row) >= 16)[:limit]

    def _timers(self) -> Iterable[tuple[bytes, int]]:
        for key, row in self.stored.items():
            due = row_due(row)
            instant = None if due is None else due_ms(due)
            if instant is not None:
                yield key, instant
