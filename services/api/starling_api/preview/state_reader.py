"""Adapter: the segmenter's states from the state query. Raises DatabaseUnavailable and BrokerUnavailable."""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Final

from starling_api.ports import Slice, Standing
from starling_common.cassandra import DatabaseUnavailable
from starling_common.database import Database
from starling_common.partitioning import partition_of
from starling_common.values import record_key
from starling_common.wire import Registry
from starling_stream.inspect.state_query import Cell, StateQuery, StateSnapshot
from starling_stream.model.backing_store import BackingStoreUnavailable

_STAGE: Final = "segmenter"


class SegmenterStates:
    """A `StateReader`."""

    def __init__(self, database: Database, brokers: str, registry: Registry) -> None:
        """Opens nothing."""
        self._states = StateQuery(_STAGE, database, brokers, registry)

    def everybody(self) -> "SegmenterSnapshot | None":
        """As `StateReader.everybody`."""
        return self._look(None)

    def partition_of(self, workspace: str, user_id: str) -> "SegmenterSnapshot | None":
        """As `StateReader.partition_of`."""
        return self._look(record_key(workspace, user_id))

    def close(self) -> None:
        """Close what is kept at hand."""
        self._states.close()

    def _look(self, key: bytes | None) -> "SegmenterSnapshot | None":
        with _translated():
            look = self._states.snapshot(key)
        return None if look is None else SegmenterSnapshot(look)


class SegmenterSnapshot:
    """A `Snapshot`."""

    def __init__(self, look: StateSnapshot) -> None:
        self._look = look
        self.partitions: Mapping[int, Standing] = {
            number: Standing(found.meta.stream_time_ms, found.meta.plan, found.whole) for number, found in look.partitions.items()
        }

    def slices(self) -> list[Slice]:
        """As `Snapshot.slices`."""
        return [Slice(*cell) for cell in self._look.cells()]

    def users(self, slices: Sequence[Slice], workspace: str) -> list[list[tuple[str, bytes]]]:
        """As `Snapshot.users`."""
        prefix = record_key(workspace, "")
        with _translated():
            found = self._look.users([Cell(*place) for place in slices], prefix)
        return [[(key[len(prefix) :].decode(), state) for key, state in users] for users in found]

    def some(self, workspace: str, users: Sequence[str]) -> Mapping[str, tuple[int, bytes]]:
        """As `Snapshot.some`."""
        keys = {record_key(workspace, user): user for user in users}
        with _translated():
            states = self._look.states_of(list(keys))
        return {keys[key]: (partition_of(key, self._look.partition_count), state) for key, state in states.items()}


@contextmanager
def _translated() -> Iterator[None]:
    try:
        yield
    except BackingStoreUnavailable as cause:
        raise DatabaseUnavailable(str(cause)) from cause
