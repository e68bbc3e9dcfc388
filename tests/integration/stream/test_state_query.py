"""State queries on real parts: Cassandra's rows, and the changelog's tail over them, as a restore reads them."""

import uuid
from collections.abc import Iterator

import pytest
from confluent_kafka import Producer

from starling_common.cassandra.database import Database
from starling_common.kafka.clients import producer_config, topic_ids
from starling_common.kafka.topics import load_catalogue
from starling_common.partitioning import partition_of
from starling_common.settings import Cassandra
from starling_common.testing import own_keyspace
from starling_common.wire import Registry
from starling_stream.inspect.state_query import Cell, StateQuery
from starling_stream.model.backing_store import (
    BackingStoreUnavailable,
    Checkpoint,
    PartitionCopy,
    StageLayout,
    StateWrite,
    bucket_of,
)
from starling_stream.model.meta import TaskMeta, encode_meta
from starling_stream.model.rows import META_KEY, NEVER, row_of
from starling_stream.state.cassandra import CassandraBackingStore
from tests.conftest import Stack
from tests.transactions import until_markers_are_written

CHANGELOG = "segmenter-state-changelog"
PARTITIONS = load_catalogue().profile_partitions
BUCKETS = 4
PLAN = b"plan"


class CommittedStates:
    """A backing store in a keyspace of its own, and the shared changelog, written to as a worker does."""

    def __init__(self, stack: Stack, cassandra: Cassandra) -> None:
        self.database = Database(cassandra)
        self.registry = Registry(stack.registry_url)
        self.backing_store = CassandraBackingStore(self.database, BUCKETS)
        self.log = topic_ids(stack.brokers, [CHANGELOG])[CHANGELOG][0]
        self.states = StateQuery("segmenter", self.database, stack.brokers, self.registry)
        self.prefix = f"w{uuid.uuid4().hex[:8]}/".encode()
        self._codec = self.registry.codec(CHANGELOG, "StateChanged")
        self._brokers = stack.brokers
        config = producer_config(stack.brokers) | {"transactional.id": f"test-{uuid.uuid4().hex}"}
        self._producer = Producer(config)
        self._producer.init_transactions(30)
        self._written: dict[bytes, int] = {}

    def key(self, user: str) -> bytes:
        return self.prefix + user.encode()

    def freeze(self) -> None:
        self.backing_store.freeze(StageLayout("segmenter", PARTITIONS, BUCKETS, {CHANGELOG: self.log}))

    def commit(
        self, states: dict[bytes, tuple[int, bytes]], *, meta: TaskMeta | None = None, abort: bool = False
    ) -> dict[int, int]:
        """Commit key -> (version, state; empty for a deletion) and each task's row; return the ends of the partitions."""
        self._written |= {key: version for key, (version, _) in states.items()}
        self._producer.begin_transaction()
        ends: dict[int, int] = {}

        def delivered(_error: object, message: object) -> None:
            ends[message.partition()] = message.offset() + 1  # type: ignore[attr-defined]

        records = [(key, partition_of(key, PARTITIONS), state) for key, state in states.items()]
        if meta is not None:
            records += [(META_KEY, number, (1, encode_meta(meta))) for number in range(PARTITIONS)]
        for key, partition, (version, state) in records:
            value = self._codec.encode({"version": version, "state": NEVER + state if state else None})
            self._producer.produce(CHANGELOG, value, key, partition, on_delivery=delivered)
        self._producer.flush(30)
        (self._producer.abort_transaction if abort else self._producer.commit_transaction)(30)
        until_markers_are_written(self._brokers, [CHANGELOG])
        return ends

    def forget(self) -> None:
        """Delete the keys: a segmenter that restores from the shared log must not read these states."""
        self.commit({key: (version + 1, b"") for key, version in self._written.items()})

    def flush(self, states: dict[bytes, tuple[int, bytes]], flushed_offsets: dict[int, int], meta: TaskMeta) -> None:
        for key, (version, state) in states.items():
            row = row_of(version, NEVER + state if state else b"")
            self.backing_store.write(
                PartitionCopy(self.log, partition_of(key, PARTITIONS), 0), [StateWrite(key, row, version, None, None)]
            )
        for number, flushed_offset in flushed_offsets.items():
            self.backing_store.save_checkpoint(
                PartitionCopy(self.log, number, 0), Checkpoint(0, flushed_offset, encode_meta(meta), 0)
            )

    def all_users(self) -> dict[str, bytes]:
        snapshot = self.states.snapshot()
        assert snapshot is not None
        found = [user for users in snapshot.users(snapshot.cells(), self.prefix) for user in users]
        assert len(dict(found)) == len(found)
        return {key.removeprefix(self.prefix).decode(): state for key, state in found}


@pytest.fixture
def committed(stack: Stack) -> Iterator[CommittedStates]:
    with own_keyspace(stack.cassandra) as cassandra:
        committed = CommittedStates(stack, cassandra)
        yield committed
        committed.forget()
        committed.states.close()
        committed.database.close()


def test_before_the_first_state_there_is_no_snapshot(committed: CommittedStates) -> None:
    assert committed.states.snapshot() is None


def test_committed_rows_replace_flushed_ones(committed: CommittedStates) -> None:
    old = {committed.key(user): (1, f"old {user}".encode()) for user in ("ada", "bob", "cleo", "dan")}
    flushed_offsets = committed.commit(old, meta=TaskMeta(1, 1_000, b"before"))
    committed.freeze()
    committed.flush(old, flushed_offsets, TaskMeta(1, 1_000, b"before"))
    committed.flush({committed.key("dan"): (9, b"flushed meanwhile")}, {}, TaskMeta())
    committed.commit({committed.key("ada"): (2, b"lost")}, abort=True)
    tail = {
        committed.key("bob"): (2, b"new bob"),
        committed.key("cleo"): (2, b""),
        committed.key("dan"): (2, b"x"),
        committed.key("eve"): (1, b"eve"),
    }
    committed.commit(tail, meta=TaskMeta(2, 2_000, PLAN))
    assert committed.all_users() == {"ada": b"old ada", "bob": b"new bob", "dan": b"flushed meanwhile", "eve": b"eve"}
    snapshot = committed.states.snapshot(committed.key("bob"))
    assert snapshot is not None
    ((number, partition),) = snapshot.partitions.items()
    assert number == partition_of(committed.key("bob"), PARTITIONS)
    assert (partition.whole, partition.meta.stream_time_ms, partition.meta.plan) == (True, 2_000, PLAN)
    assert snapshot.states_of([committed.key("bob")]) == {committed.key("bob"): b"new bob"}
    assert snapshot.states_of([committed.key("bob"), committed.key("bob2")[: len(committed.key("bob"))]]) == {
        committed.key("bob"): b"new bob"
    }


def test_cells_contain_each_user_of_the_workspace_once(committed: CommittedStates) -> None:
    states = {committed.key(f"u{number}"): (1, b"s") for number in range(200)}
    other = committed.prefix[:-1] + b"0/other"
    flushed_offsets = committed.commit({**states, other: (1, b"s")}, meta=TaskMeta(1, 1_000, PLAN))
    committed.freeze()
    committed.flush({**states, other: (1, b"s")}, flushed_offsets, TaskMeta(1, 1_000, PLAN))
    snapshot = committed.states.snapshot()
    assert snapshot is not None
    assert len(snapshot.cells()) == PARTITIONS * BUCKETS
    cell = Cell(partition_of(committed.key("u7"), PARTITIONS), bucket_of(committed.key("u7"), BUCKETS))
    assert committed.key("u7") in dict(snapshot.users([cell], committed.prefix)[0])
    assert len(committed.all_users()) == 200


def test_a_tail_that_is_too_long_is_omitted_and_the_snapshot_is_not_whole(
    committed: CommittedStates, monkeypatch: pytest.MonkeyPatch
) -> None:
    old = {committed.key("ada"): (1, b"old")}
    flushed_offsets = committed.commit(old, meta=TaskMeta(1, 1_000, PLAN))
    committed.freeze()
    monkeypatch.setattr(committed.states, "_tail_records", 3)
    with pytest.raises(BackingStoreUnavailable):
        committed.states.snapshot()  # nothing was flushed, and the log is too long for one query
    committed.flush(old, flushed_offsets, TaskMeta(1, 1_000, PLAN))
    committed.commit({committed.key("ada"): (2, b"new")}, meta=TaskMeta(2, 2_000, b"next"))
    assert committed.all_users() == {"ada": b"old"}
    snapshot = committed.states.snapshot()
    assert snapshot is not None
    assert {
        (partition.whole, partition.meta.stream_time_ms, partition.meta.plan) for partition in snapshot.partitions.values()
    } == {(False, 1_000, PLAN)}


def test_another_incarnation_is_another_copy(committed: CommittedStates) -> None:
    old = {committed.key("ada"): (1, b"old")}
    flushed_offsets = committed.commit(old, meta=TaskMeta(1, 1_000, PLAN))
    committed.freeze()
    committed.flush(old, flushed_offsets, TaskMeta(1, 1_000, PLAN))
    number = partition_of(committed.key("ada"), PARTITIONS)
    committed.backing_store.begin(PartitionCopy(committed.log, number, 1))
    committed.backing_store.save_checkpoint(
        PartitionCopy(committed.log, number, 1), Checkpoint(1, flushed_offsets[number], encode_meta(TaskMeta(1, 1_000, PLAN)), 0)
    )
    assert committed.all_users() == {}
