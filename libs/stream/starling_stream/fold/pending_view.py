"""Pure core: a view of a task's rows that includes the changes of an uncommitted transaction."""

from collections.abc import Mapping, Sequence

from starling_stream.model.ports import Changed, StateView
from starling_stream.model.rows import due_bytes, due_ms


class PendingView:
    """A `StateView` of a store with the changes of a pending transaction."""

    def __init__(self, below: StateView, pending: Mapping[bytes, Changed]) -> None:
        self._below = below
        self._pending = pending

    def rows(self, keys: Sequence[bytes]) -> list[bytes | None]:
        """As `StateView.rows`."""
        pending = self._pending
        found = (
            dict(zip(others, self._below.rows(others), strict=True)) if (others := [k for k in keys if k not in pending]) else {}
        )
        return [pending[key].after if key in pending else found[key] for key in keys]

    def due(self, until_ms: int, limit: int) -> list[tuple[int, bytes]]:
        """As `StateView.due`."""
        pending = self._pending
        stored = [entry for entry in self._below.due(until_ms, limit + len(pending)) if entry[1] not in pending]
        # Hot: reads every pending change in every batch. The bytes compare as the instants do. A deleted key has no timer.
        until = due_bytes(until_ms)
        waiting = [(due, key) for key, (_, after) in pending.items() if (due := after[8:16]) and due <= until]
        return sorted(stored + [(int(due_ms(due) or 0), key) for due, key in waiting])[:limit]

    def keys(self, after: bytes, limit: int) -> list[bytes]:
        """As `StateView.keys`."""
        pending = self._pending
        stored = [key for key in self._below.keys(after, limit + len(pending)) if key not in pending]
        return sorted(stored + [key for key, changed in pending.items() if key > after and len(changed.after) >= 16])[:limit]
