"""Flushes against a tier that can go away at any write."""

import time
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path

import pytest
from prometheus_client import CollectorRegistry

from starling_common.metrics import Metrics
from starling_stream.model.backing_store import Facts, Place, Standing
from starling_stream.model.failpoints import Failpoints
from starling_stream.model.meta import TaskMeta, decode_meta
from starling_stream.model.ports import Changed, Tail
from starling_stream.model.rows import due_bytes, row_of
from starling_stream.state.flusher import FactsDiffer, Surroundings, Tier, TierSettings, rest_seconds
from starling_stream.state.local_store import StoreMemory, TaskStore, store_memory
from starling_stream.state.metrics import TierGauges
from starling_stream.state.tracked import RebuildAsked
from tests.contract.stream.memory_backing import MemoryBacking

LOG = "log-id"
HERE = Place(LOG, 0, 0)
FACTS = Facts("counter", 1, 4, {"counter-state-changelog": LOG})


def _row(version: int, due: int | None = None, payload: bytes = b"p") -> bytes:
    return row_of(version, due_bytes(due) + payload)


def _until(condition: Callable[[], bool]) -> None:
    deadline = time.monotonic() + 120
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.005)


class Kept:
    """A store and the tier behind it, as a worker has them: `commit` is what the commit thread does."""

    def __init__(self, path: Path, memory: StoreMemory, backing: MemoryBacking) -> None:
        self.backing = backing
        self.store = TaskStore(path, memory)
        self.crashes: list[BaseException] = []
        around = Surroundings(TierGauges(Metrics(CollectorRegistry())), Failpoints(None), self.crashes.append)
        self.tier = Tier(backing, FACTS, LOG, TierSettings(0.01, 10_000, share=1.0), around)
        self.position = 0

    def begin(self, *, whole: bool = True, rows: Mapping[bytes, bytes] | None = None, known: int | None = None) -> None:
        self.tier.start(0)
        self.tier.track(0, self.store, Tail(known, rows or {}, self.position, TaskMeta(), whole), self.store.earliest_ms)

    def commit(self, rows: Mapping[bytes, bytes]) -> None:
        changes = {key: Changed(before, rows[key]) for key, before in zip(rows, self.store.rows(list(rows)), strict=True)}
        self.position += len(rows) + 2
        meta = TaskMeta(self.position, 0, b"")
        self.store.apply(changes, meta, self.position)
        self.tier.committed(0, changes, meta, self.position)

    def floor(self) -> int | None:
        with_floor = self.backing.away, self.backing.writes_left
        self.backing.away, self.backing.writes_left = False, None
        try:
            standing = self.backing.standing(LOG, 0)
        finally:
            self.backing.away, self.backing.writes_left = with_floor
        return None if standing is None else standing.floor

    def caught_up(self) -> bool:
        return self.floor() == self.position


@pytest.fixture(scope="module")
def memory() -> StoreMemory:
    return store_memory(8 * 1024 * 1024, 8 * 1024 * 1024)


@pytest.fixture
def kept(tmp_path: Path, memory: StoreMemory) -> Iterator[Kept]:
    made = Kept(tmp_path / "0", memory, MemoryBacking())
    yield made
    made.tier.close(10)
    made.store.close()


def test_the_floor_follows_the_commits_and_takes_the_tasks_own_row_along(kept: Kept) -> None:
    kept.begin()
    kept.commit({b"a": _row(1), b"b": _row(1, 90_000)})
    kept.commit({b"a": _row(2), b"b": row_of(2, b"")})
    _until(kept.caught_up)
    assert kept.backing.rows(HERE, [b"a", b"b"]) == {b"a": _row(2), b"b": row_of(2, b"")}
    standing = kept.backing.standing(LOG, 0)
    assert standing is not None
    assert decode_meta(standing.meta).units == kept.position


def test_the_floor_never_moves_before_all_states_up_to_it_are_written(kept: Kept) -> None:
    kept.backing.writes_left = 3
    kept.begin()
    kept.commit({b"%d" % number: _row(1) for number in range(10)})
    _until(lambda: (kept.backing.writes_left or 0) < 0)
    time.sleep(0.05)
    assert kept.floor() in (None, 0)
    kept.backing.writes_left = None
    _until(kept.caught_up)
    assert len(kept.backing.rows(HERE, [b"%d" % number for number in range(10)])) == 10


def test_commits_go_on_while_the_tier_is_away_and_it_catches_up(kept: Kept) -> None:
    kept.backing.away = True
    kept.begin()
    for version in range(1, 20):
        kept.commit({b"a": _row(version)})
    kept.backing.away = False
    _until(kept.caught_up)
    assert kept.backing.rows(HERE, [b"a"]) == {b"a": _row(19)}
    assert not kept.crashes


def test_a_slow_tier_holds_up_no_commit(kept: Kept) -> None:
    kept.backing.write_seconds = 0.3
    kept.begin()
    began, commits = time.monotonic(), 0
    while kept.floor() is None or not kept.floor():
        commits += 1
        kept.commit({b"a": _row(commits)})
        assert time.monotonic() - began < 20
        time.sleep(0.001)
    assert commits > 20  # more than one for each of its writes
    kept.backing.write_seconds = 0.0
    _until(kept.caught_up)
    assert kept.backing.rows(HERE, [b"a"]) == {b"a": _row(commits)}


@pytest.mark.parametrize(
    ("filled", "rest"), [(0.0, 3.0), (0.25, 3.0), (0.5, 1.5), (0.625, 0.75), (0.75, 0.0), (1.0, 0.0), (2.0, 0.0)]
)
def test_the_more_waits_the_less_the_flushing_thread_rests(filled: float, rest: float) -> None:
    assert rest_seconds(1.0, 0.25, filled) == pytest.approx(rest)


def test_beyond_the_bound_the_worker_is_slowed_and_beyond_twice_it_changes_are_let_go_and_filled_in_later(kept: Kept) -> None:
    kept.backing.away = True
    kept.begin()
    kept.commit({b"%03d" % number: _row(1, 60_000 * number, b"x" * 100) for number in range(40)})
    assert 0 < kept.tier.pressure() <= 1
    kept.commit({b"%03d" % number: _row(1, None, b"x" * 100) for number in range(40, 80)})
    assert kept.tier.pressure() == 0
    kept.commit({b"000": _row(2)})
    time.sleep(0.05)
    kept.backing.away = False
    _until(kept.caught_up)
    found = kept.backing.rows(HERE, [b"%03d" % number for number in range(80)])
    assert len(found) == 80
    assert found[b"000"] == _row(2)
    due = {key for bucket in range(4) for page in kept.backing.due(HERE, bucket, (1, 39)) for key in page}
    assert due == {b"%03d" % number for number in range(1, 40)}


def test_the_floor_stands_still_while_changes_are_let_go(kept: Kept) -> None:
    kept.tier.track(0, kept.store, Tail(0, {}, 0, TaskMeta(), whole=True), kept.store.earliest_ms)
    tracked = kept.tier._tracked[0]
    tracked.unflushed.lose()  # as the commit thread does, at any moment
    kept.commit({b"a": _row(1)})
    kept.tier._flush(tracked)
    assert kept.floor() is None


def test_a_tier_that_lacks_more_than_the_tail_is_filled_from_the_store_before_the_floor_moves(kept: Kept) -> None:
    before = {b"%04d" % number: _row(3) for number in range(2_500)}
    kept.store.apply({key: Changed(None, row) for key, row in before.items()}, TaskMeta(), 5_000)
    kept.position = 5_000
    kept.begin(whole=False)
    kept.commit({b"0000": _row(4)})
    _until(kept.caught_up)
    assert kept.backing.rows(HERE, list(before)) == before | {b"0000": _row(4)}


def test_a_store_with_cold_users_is_not_taken_for_all_there_is(kept: Kept) -> None:
    kept.store.begin_cold(10, TaskMeta(), 4, 0)
    kept.position = 10
    kept.begin(whole=False)
    _until(lambda: not kept.tier._tracked[0].unflushed.lost)
    kept.commit({b"a": _row(1)})
    _until(lambda: b"a" in kept.backing.rows(HERE, [b"a"]))
    assert kept.floor() is None
    kept.store.keep_cold(())
    _until(kept.caught_up)


def test_the_tail_of_a_restore_is_flushed_too(kept: Kept) -> None:
    kept.position = 50
    kept.begin(rows={b"t": _row(7, 60_000)})
    _until(kept.caught_up)
    assert kept.backing.rows(HERE, [b"t"]) == {b"t": _row(7, 60_000)}


def test_what_is_not_flushed_when_the_partition_leaves_is_flushed_once_more_and_the_store_left_alone(kept: Kept) -> None:
    kept.begin(known=0)
    kept.commit({b"a": _row(1)})
    kept.tier.release(0)
    kept.store.close()
    _until(kept.caught_up)
    kept.tier.committed(0, {b"a": Changed(_row(1), _row(2))}, TaskMeta(), 99)
    kept.tier.close(10)
    assert kept.backing.rows(HERE, [b"a"]) == {b"a": _row(1)}
    assert not kept.crashes


def test_other_facts_than_the_frozen_ones_are_refused(kept: Kept) -> None:
    kept.backing.freeze(FACTS._replace(topics={"counter-state-changelog": "another"}))
    with pytest.raises(FactsDiffer, match="was deleted and created anew"):
        kept.tier.start(0)


def test_facts_that_could_not_be_asked_for_at_the_start_are_compared_later(kept: Kept) -> None:
    kept.backing.freeze(FACTS._replace(partitions=9))
    kept.backing.away = True
    kept.begin()
    kept.backing.away = False
    _until(lambda: bool(kept.crashes))
    assert isinstance(kept.crashes[0], FactsDiffer)


def test_a_floor_beyond_what_the_log_says_begins_a_new_incarnation_also_when_it_is_found_late(kept: Kept) -> None:
    kept.backing.move_floor(HERE, Standing(0, 10_000, b"", 0))
    kept.backing.away = True
    kept.begin()
    kept.backing.away = False
    kept.commit({b"a": _row(1)})
    _until(kept.caught_up)
    assert kept.backing.rows(HERE._replace(incarnation=1), [b"a"]) == {b"a": _row(1)}
    assert kept.store.incarnation() == 1


def test_a_store_of_an_older_incarnation_is_rebuilt(kept: Kept) -> None:
    kept.store.set_incarnation(0)
    kept.backing.begin(HERE._replace(incarnation=1))
    kept.begin()
    _until(lambda: bool(kept.crashes))
    assert isinstance(kept.crashes[0], RebuildAsked)
