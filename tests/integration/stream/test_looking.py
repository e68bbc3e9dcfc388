"""A look at states on real parts: Cassandra's rows, and over them the changelog's tail, as a restore would find them."""

import uuid
from collections.abc import Iterator

import pytest
from confluent_kafka import Producer

from starling_common.database import Database
from starling_common.kafka import producer_config
from starling_common.partitioning import partition_of
from starling_common.settings import Cassandra
from starling_common.testing import own_keyspace
from starling_common.topics import load_catalogue
from starling_common.wire import Registry
from starling_stream.inspect import state_query
from starling_stream.inspect.state_query import Cell, States
from starling_stream.kafka.transactions import topic_ids
from starling_stream.model.backing_store import BackingAway, Facts, Place, Standing, StateWrite, bucket_of
from starling_stream.model.meta import TaskMeta, encode_meta
from starling_stream.model.rows import META_KEY, NEVER, row_of
from starling_stream.state.cassandra import CassandraBacking
from tests.conftest import Stack
from tests.transactions import until_markers_are_written

CHANGELOG = "segmenter-state-changelog"
PARTITIONS = load_catalogue().profile_partitions
BUCKETS = 4
PLAN = b"plan"


class Kept:
    """A tier in a keyspace of its own, and the shared changelog, written to as a worker does."""

    def __init__(self, stack: Stack, cassandra: Cassandra) -> None:
        self.database = Database(cassandra)
        self.registry = Registry(stack.registry_url)
        self.backing = CassandraBacking(self.database, BUCKETS)
        self.log = topic_ids(stack.brokers, [CHANGELOG])[CHANGELOG][0]
        self.states = States("segmenter", self.database, stack.brokers, self.registry)
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
        self.backing.freeze(Facts("segmenter", PARTITIONS, BUCKETS, {CHANGELOG: self.log}))

    def commit(
        self, states: dict[bytes, tuple[int, bytes]], *, meta: TaskMeta | None = None, abort: bool = False
    ) -> dict[int, int]:
        """Key -> (version, state; empty when gone), and the task's row in every partition; the ends of the partitions after it."""
        self._written |= {key: version for key, (version, _) in states.items()}
        self._producer.begin_transaction()
        ends: dict[int, int] = {}

        def delivered(_error: object, message: object) -> None:
            ends[message.partition()] = message.offset() + 1  # type: ignore[attr-defined]

        records = [(key, partition_of(key, PARTITIONS), held) for key, held in states.items()]
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
        """The log is shared: a segmenter that restores from it later must not meet what are no states of its own."""
        self.commit({key: (version + 1, b"") for key, version in self._written.items()})

    def flush(self, states: dict[bytes, tuple[int, bytes]], floors: dict[int, int], meta: TaskMeta) -> None:
        for key, (version, state) in states.items():
            row = row_of(version, NEVER + state if state else b"")
            self.backing.write(Place(self.log, partition_of(key, PARTITIONS), 0), [StateWrite(key, row, version, None, None)])
        for number, floor in floors.items():
            self.backing.move_floor(Place(self.log, number, 0), Standing(0, floor, encode_meta(meta), 0))

    def all_users(self) -> dict[str, bytes]:
        look = self.states.look()
        assert look is not None
        found = [user for users in look.users(look.cells(), self.prefix) for user in users]
        assert len(dict(found)) == len(found)
        return {key.removeprefix(self.prefix).decode(): state for key, state in found}


@pytest.fixture
def kept(stack: Stack) -> Iterator[Kept]:
    with own_keyspace(stack.cassandra) as cassandra:
        tier = Kept(stack, cassandra)
        yield tier
        tier.forget()
        tier.states.close()
        tier.database.close()


def test_before_anything_is_kept_there_is_nothing_to_look_at(kept: Kept) -> None:
    assert kept.states.look() is None


def test_what_was_committed_lies_over_what_was_flushed(kept: Kept) -> None:
    old = {kept.key(user): (1, f"old {user}".encode()) for user in ("ada", "bob", "cleo", "dan")}
    floors = kept.commit(old, meta=TaskMeta(1, 1_000, b"before"))
    kept.freeze()
    kept.flush(old, floors, TaskMeta(1, 1_000, b"before"))
    kept.flush({kept.key("dan"): (9, b"flushed meanwhile")}, {}, TaskMeta())
    kept.commit({kept.key("ada"): (2, b"lost")}, abort=True)
    tail = {kept.key("bob"): (2, b"new bob"), kept.key("cleo"): (2, b""), kept.key("dan"): (2, b"x"), kept.key("eve"): (1, b"eve")}
    kept.commit(tail, meta=TaskMeta(2, 2_000, PLAN))
    assert kept.all_users() == {"ada": b"old ada", "bob": b"new bob", "dan": b"flushed meanwhile", "eve": b"eve"}
    look = kept.states.look(kept.key("bob"))
    assert look is not None
    ((number, seen),) = look.partitions.items()
    assert number == partition_of(kept.key("bob"), PARTITIONS)
    assert (seen.whole, seen.meta.stream_time_ms, seen.meta.plan) == (True, 2_000, PLAN)
    assert look.some([kept.key("bob")]) == {kept.key("bob"): b"new bob"}
    assert look.some([kept.key("bob"), kept.key("bob2")[: len(kept.key("bob"))]]) == {kept.key("bob"): b"new bob"}


def test_cells_hold_each_user_once_and_strangers_not_at_all(kept: Kept) -> None:
    states = {kept.key(f"u{number}"): (1, b"s") for number in range(200)}
    stranger = kept.prefix[:-1] + b"0/other"
    floors = kept.commit({**states, stranger: (1, b"s")}, meta=TaskMeta(1, 1_000, PLAN))
    kept.freeze()
    kept.flush({**states, stranger: (1, b"s")}, floors, TaskMeta(1, 1_000, PLAN))
    look = kept.states.look()
    assert look is not None
    assert len(look.cells()) == PARTITIONS * BUCKETS
    cell = Cell(partition_of(kept.key("u7"), PARTITIONS), bucket_of(kept.key("u7"), BUCKETS))
    assert kept.key("u7") in dict(look.users([cell], kept.prefix)[0])
    assert len(kept.all_users()) == 200


def test_a_tail_too_long_is_left_out_and_said_to_be(kept: Kept, monkeypatch: pytest.MonkeyPatch) -> None:
    old = {kept.key("ada"): (1, b"old")}
    floors = kept.commit(old, meta=TaskMeta(1, 1_000, PLAN))
    kept.freeze()
    monkeypatch.setattr(state_query, "TAIL_RECORDS", 3)
    with pytest.raises(BackingAway):
        kept.states.look()  # nothing was flushed, and the log is too long to be read for one look
    kept.flush(old, floors, TaskMeta(1, 1_000, PLAN))
    kept.commit({kept.key("ada"): (2, b"new")}, meta=TaskMeta(2, 2_000, b"next"))
    assert kept.all_users() == {"ada": b"old"}
    look = kept.states.look()
    assert look is not None
    assert {(seen.whole, seen.meta.stream_time_ms, seen.meta.plan) for seen in look.partitions.values()} == {(False, 1_000, PLAN)}


def test_another_incarnation_is_another_tier(kept: Kept) -> None:
    old = {kept.key("ada"): (1, b"old")}
    floors = kept.commit(old, meta=TaskMeta(1, 1_000, PLAN))
    kept.freeze()
    kept.flush(old, floors, TaskMeta(1, 1_000, PLAN))
    number = partition_of(kept.key("ada"), PARTITIONS)
    kept.backing.begin(Place(kept.log, number, 1))
    kept.backing.move_floor(Place(kept.log, number, 1), Standing(1, floors[number], encode_meta(TaskMeta(1, 1_000, PLAN)), 0))
    assert kept.all_users() == {}
