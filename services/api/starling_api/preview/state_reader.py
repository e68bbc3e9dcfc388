"""Adapter: the segmenter's states, by the state query of the stream layer. Raises DatabaseUnavailable and BrokerUnavailable."""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Final

from starling_api.ports import PartitionProgress, Slice
from starling_common.cassandra.database import Database
from starling_common.cassandra.sessions import DatabaseUnavailable
from starling_common.partitioning import partition_of
from starling_common.values import record_key
from starling_common.wire import Registry
from starling_stream.inspect.state_query import TAIL_RECORDS, Cell, StateQuery, StateSnapshot
from starling_stream.model.backing_store import BackingStoreUnavailable

_STAGE: Final = "segmenter"


class SegmenterStates:
    """Reads the states of the segmenter from Cassandra and from its changelog."""

    def __init__(self, database: Database, brokers: str, registry: Registry, tail_records: int = TAIL_RECORDS) -> None:
        """Connect at the first query. `tail_records`: the most records of the changelog that one query reads."""
        self._states = StateQuery(_STAGE, database, brokers, registry, tail_records)

    def all_partitions(self) -> "SegmenterSnapshot | None":
        """Return a snapshot of every partition; None if no segmenter has written a state yet."""
        return self._look(None)

    def partition_of(self, workspace: str, user_id: str) -> "SegmenterSnapshot | None":
        """Return a snapshot of the partition of one user; None if no segmenter has written a state yet."""
        return self._look(record_key(workspace, user_id))

    def partition(self, number: int) -> "SegmenterSnapshot | None":
        """Return a snapshot of one partition; None if no segmenter has written a state yet."""
        return self._look(None, number)

    def close(self) -> None:
        """Close the connections."""
        self._states.close()

    def _look(self, key: bytes | None, partition: int | None = None) -> "SegmenterSnapshot | None":
        with _translated():
            look = self._states.snapshot(key, partition)
        return None if look is None else SegmenterSnapshot(look)


class SegmenterSnapshot:
    """The states of some partitions at one instant."""

    def __init__(self, look: StateSnapshot) -> None:
        self._look = look
        self.partitions: Mapping[int, PartitionProgress] = {
            number: PartitionProgress(found.meta.stream_time_ms, found.meta.plan, found.whole)
            for number, found in look.partitions.items()
        }

    def slices(self) -> list[Slice]:
        """Return every slice of the partitions."""
        return [Slice(*cell) for cell in self._look.cells()]

    def users(self, slices: Sequence[Slice], workspace: str) -> list[list[tuple[str, bytes]]]:
        """Return for each slice the (user id, state) pairs of the workspace."""
        prefix = record_key(workspace, "")
        with _translated():
            found = self._look.users([Cell(*place) for place in slices], prefix)
        return [[(key[len(prefix) :].decode(), state) for key, state in users] for users in found]

    def some(self, workspace: str, users: Sequence[str]) -> Mapping[str, tuple[int, bytes]]:
        """Return user id -> (partition, state) for the users that have a state."""
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
