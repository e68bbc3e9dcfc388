"""A real worker with Cassandra: it restores lost stores from it, and outages or old contents do no harm.

The oracle is the plain fold: a user's outputs are 1, 2, 3 … up to the number of that user's events.
"""

import shutil
import urllib.request
from collections import Counter
from contextlib import closing

import pytest

from starling_common.cassandra.database import Database
from starling_stream.model.failpoints import AFTER_COMMIT, AFTER_FLUSH, AFTER_STORE, MID_FLUSH
from tests.integration.projector.gate import Gate
from tests.integration.stream.checks import (
    USERS,
    audit_of,
    counts_by_key,
    expected_counts,
    inconsistencies,
    is_dead,
    send_events,
    tasks_based_on,
)
from tests.integration.stream.rig import Rig, Worker, wait_until
from tests.unit.stream.counting import event


def _plans(rig: Rig) -> list[bytes]:
    return [value for _, key, value in rig.read(f"{rig.stage}.out") if key == b"plan"]


def _metric(worker: Worker, name: str) -> float:
    """Return the sum over the labels."""
    with urllib.request.urlopen(f"http://127.0.0.1:{worker.port}/metrics", timeout=10) as answer:
        lines = answer.read().decode().splitlines()
    return sum(float(line.rpartition(" ")[2]) for line in lines if line.startswith(name))


def _changelog(rig: Rig) -> dict[bytes, bytes]:
    with closing(audit_of(rig)) as audit:
        return {key: row for number in range(rig.partitions) for key, (_, row) in audit.latest(number)[0].items()}


def _set_flushed_offsets(rig: Rig, flushed_offset: int) -> None:
    """Simulate a database that was restored from a backup, without the log."""
    assert rig.cassandra is not None
    with closing(audit_of(rig)) as audit, closing(Database(rig.cassandra)) as database:
        for number in range(rig.partitions):
            failpoint = (audit.layout.topics[f"{rig.stage}-state-changelog"], number, 0)
            statement = (
                "UPDATE {ks}.state_floor USING TIMESTAMP ? SET floor = ? WHERE log = ? AND source_partition = ? AND incarnation = ?"
            )
            database.write(statement, (flushed_offset, flushed_offset, *failpoint))


def test_a_lost_disk_is_restored_from_cassandra(with_backing_store: Rig) -> None:
    sent = send_events(with_backing_store, 600)
    first = with_backing_store.start()
    with_backing_store.wait_settled([first])
    assert first.terminate() == 0
    shutil.rmtree(with_backing_store.directory / "w0")
    sent += send_events(with_backing_store, 600)
    second = with_backing_store.start()
    with_backing_store.wait_settled([second])
    assert tasks_based_on(second, "backing_store") == with_backing_store.partitions
    assert counts_by_key(with_backing_store) == expected_counts(sent)
    wait_until(lambda: _metric(second, "starling_stream_loaded_ratio") == with_backing_store.partitions, "all users to be local")
    assert _metric(second, "starling_stream_restored_records_total") < 50


@pytest.mark.long
@pytest.mark.parametrize("failpoint", [AFTER_COMMIT, AFTER_STORE, MID_FLUSH, AFTER_FLUSH])
def test_outputs_are_exactly_once_over_a_kill_and_a_lost_disk(with_backing_store: Rig, failpoint: str) -> None:
    sent = send_events(with_backing_store, 600)
    victim = with_backing_store.start(STARLING_FAILPOINT=f"{failpoint}:2", STARLING_UNIT_MAX_RECORDS="200")
    wait_until(lambda: is_dead(victim), "the worker to kill itself")
    shutil.rmtree(with_backing_store.directory / "w0")
    sent += send_events(with_backing_store, 600)
    worker = with_backing_store.start()
    with_backing_store.wait_settled([worker])
    assert counts_by_key(with_backing_store) == expected_counts(sent)
    assert worker.terminate() == 0
    assert inconsistencies(with_backing_store) == []


@pytest.mark.long
def test_another_worker_takes_over_from_cassandra_and_a_third_with_an_old_disk_too(with_backing_store: Rig) -> None:
    sent = send_events(with_backing_store, 400)
    first = with_backing_store.start("w0")
    with_backing_store.wait_settled([first])
    wait_until(lambda: inconsistencies(with_backing_store) == [], "the flushed offsets to be at the end")
    first.kill()
    shutil.copytree(with_backing_store.directory / "w0", with_backing_store.directory / "old")
    sent += send_events(with_backing_store, 400)
    second = with_backing_store.start("w1")
    with_backing_store.wait_settled([second])
    assert tasks_based_on(second, "backing_store") == with_backing_store.partitions
    second.kill()
    sent += send_events(with_backing_store, 400)
    third = with_backing_store.start("w0", disk="old")
    with_backing_store.wait_settled([third])
    assert counts_by_key(with_backing_store) == expected_counts(sent)
    assert third.terminate() == 0
    assert inconsistencies(with_backing_store) == []


@pytest.mark.long
def test_timers_of_users_without_new_events_fire_after_a_lost_disk(with_backing_store: Rig) -> None:
    send_events(with_backing_store, 200)
    first = with_backing_store.start()
    with_backing_store.wait_settled([first])
    assert first.terminate() == 0
    shutil.rmtree(with_backing_store.directory / "w0")
    with_backing_store.send_to_each_partition([(f"{with_backing_store.stage}.clock", None, event(1, 10**9))])
    second = with_backing_store.start()
    with_backing_store.wait_settled([second])
    wait_until(with_backing_store.clock_settled, "the clock to be reached everywhere")
    assert tasks_based_on(second, "backing_store") == with_backing_store.partitions
    quiet = Counter(
        key for _, key, value in with_backing_store.read(f"{with_backing_store.stage}.out") if value.startswith(b"quiet")
    )
    assert quiet == Counter(b"default/u%d" % number for number in range(USERS))


@pytest.mark.long
def test_a_new_plan_waits_for_all_users_and_reaches_every_one(with_backing_store: Rig) -> None:
    send_events(with_backing_store, 300)
    first = with_backing_store.start()
    with_backing_store.wait_settled([first])
    assert first.terminate() == 0
    shutil.rmtree(with_backing_store.directory / "w0")
    second = with_backing_store.start(COUNTER_PLAN="v2", STARLING_SWITCH_KEYS_PER_UNIT="3")
    wait_until(lambda: len(_plans(with_backing_store)) == with_backing_store.partitions, "every task to be switched")
    assert tasks_based_on(second, "backing_store") == with_backing_store.partitions
    assert second.terminate() == 0
    assert inconsistencies(with_backing_store) == []
    switched = {key for key, row in _changelog(with_backing_store).items() if b"v2" in row}
    assert switched == {b"default/u%d" % number for number in range(USERS)}


@pytest.mark.long
def test_processing_continues_without_cassandra_and_the_states_are_flushed_later(with_backing_store: Rig) -> None:
    assert with_backing_store.cassandra is not None
    direct = with_backing_store.cassandra
    with Gate(direct.contact_points, direct.port) as gate:
        with_backing_store.cassandra = direct.model_copy(update={"port": gate.port})
        sent = send_events(with_backing_store, 300)
        worker = with_backing_store.start()
        with_backing_store.wait_settled([worker])
        wait_until(lambda: _metric(worker, "starling_stream_unflushed_bytes") == 0, "the first flush")
        gate.shut()
        wait_until(lambda: _metric(worker, "starling_stream_backing_store_unavailable") == 1, "the worker to notice")
        sent += send_events(with_backing_store, 600)
        with_backing_store.wait_settled([worker])
        assert counts_by_key(with_backing_store) == expected_counts(sent)
        assert _metric(worker, "starling_stream_unflushed_bytes") > 0
        gate.open()
        wait_until(lambda: _metric(worker, "starling_stream_backing_store_unavailable") == 0, "the worker to find it again")
        worker.kill()  # not a graceful stop: the states must be flushed already, or in the tail
        shutil.rmtree(with_backing_store.directory / "w0")
        sent += send_events(with_backing_store, 300)
        with_backing_store.wait_settled([with_backing_store.start()])
        assert counts_by_key(with_backing_store) == expected_counts(sent)


@pytest.mark.long
def test_a_start_without_cassandra_replays_the_changelog_and_fills_cassandra_later(with_backing_store: Rig) -> None:
    assert with_backing_store.cassandra is not None
    direct = with_backing_store.cassandra
    with Gate(direct.contact_points, direct.port) as gate:
        sent = send_events(with_backing_store, 300)
        first = with_backing_store.start()
        with_backing_store.wait_settled([first])
        assert first.terminate() == 0
        shutil.rmtree(with_backing_store.directory / "w0")
        gate.shut()
        with_backing_store.cassandra = direct.model_copy(update={"port": gate.port})
        sent += send_events(with_backing_store, 300)
        second = with_backing_store.start(STARLING_BACKING_STORE_WAIT_SECONDS="0.5")
        with_backing_store.wait_settled([second])
        assert tasks_based_on(second, "log") == with_backing_store.partitions
        gate.open()
        wait_until(lambda: inconsistencies(with_backing_store) == [], "the backing store to be complete")
        assert counts_by_key(with_backing_store) == expected_counts(sent)


@pytest.mark.long
def test_changes_above_the_limit_are_dropped_and_filled_from_the_store(with_backing_store: Rig) -> None:
    assert with_backing_store.cassandra is not None
    direct = with_backing_store.cassandra
    with Gate(direct.contact_points, direct.port) as gate:
        with_backing_store.cassandra = direct.model_copy(update={"port": gate.port})
        worker = with_backing_store.start(STARLING_BACKING_STORE_UNFLUSHED_BYTES=str(1024 * 1024))
        wait_until(worker.ready, "the worker")
        gate.shut()
        big = [(topic, b"%s/%s" % (key, b"x" * 200), value) for topic, key, value in with_backing_store.events(20_000, 20_000)]
        with_backing_store.send(big)
        with_backing_store.wait_settled([worker])
        wait_until(lambda: "unflushed_changes_dropped" in worker.log.read_text(), "changes to be dropped")
        gate.open()
        wait_until(lambda: inconsistencies(with_backing_store) == [], "the backing store to be complete")
        assert worker.alive()
    assert counts_by_key(with_backing_store) == expected_counts(big)


@pytest.mark.long
@pytest.mark.parametrize("beyond", [True, False])
def test_a_flushed_offset_outside_the_log_is_not_trusted(with_backing_store: Rig, beyond: bool) -> None:
    sent = send_events(with_backing_store, 300)
    first = with_backing_store.start()
    with_backing_store.wait_settled([first])
    assert first.terminate() == 0
    shutil.rmtree(with_backing_store.directory / "w0")
    if beyond:
        _set_flushed_offsets(with_backing_store, 10_000_000)
    else:
        with_backing_store.cut_changelog()
    sent += send_events(with_backing_store, 300)
    second = with_backing_store.start()
    with_backing_store.wait_settled([second])
    assert tasks_based_on(second, "backing_store") == 0
    assert second.log.read_text().count("incarnation_created") == with_backing_store.partitions
    if beyond:
        assert counts_by_key(with_backing_store) == expected_counts(sent)
        assert second.terminate() == 0
        assert inconsistencies(with_backing_store) == []


@pytest.mark.long
def test_another_layout_than_the_frozen_one_is_refused_with_the_cure(with_backing_store: Rig) -> None:
    send_events(with_backing_store, 50)
    first = with_backing_store.start()
    with_backing_store.wait_settled([first])
    assert first.terminate() == 0
    second = with_backing_store.start(STARLING_BACKING_STORE_BUCKETS="64")
    wait_until(lambda: is_dead(second), "the worker to refuse")
    assert second.process.returncode == 1
    assert "STARLING_BACKING_STORE_BUCKETS is 64 and the states were written with 32: set it back" in second.log.read_text()


@pytest.mark.long
@pytest.mark.parametrize("failpoint", [MID_FLUSH, AFTER_FLUSH])
def test_late_writes_of_a_replaced_worker_do_no_harm(with_backing_store: Rig, failpoint: str) -> None:
    """Suspended within a flush, or before the checkpoint after it, for longer than its session; resumed afterwards."""
    sent = send_events(with_backing_store, 600)
    older = with_backing_store.start("w0", STARLING_FAILPOINT=f"{failpoint}:2:stop", STARLING_UNIT_MAX_RECORDS="100")
    wait_until(older.asleep, "the older worker to fall asleep")
    newer = with_backing_store.start("w1", STARLING_UNIT_MAX_RECORDS="100")
    sent += send_events(with_backing_store, 600)
    with_backing_store.wait_settled([newer])
    older.resume()
    wait_until(lambda: older.ready() or not older.alive(), "it to have left, or to be back with what it was given")
    sent += send_events(with_backing_store, 200)
    with_backing_store.wait_settled([newer])
    assert newer.terminate(leave=True) == 0
    if older.alive():
        with_backing_store.wait_settled([older])
        assert older.terminate(leave=True) == 0
    # On a busy machine the last flush of a worker may not complete within its time: the next owner continues it.
    last = with_backing_store.start("w2")
    wait_until(lambda: inconsistencies(with_backing_store) == [], "the last flush")
    assert last.terminate(leave=True) == 0
    assert inconsistencies(with_backing_store) == []
    assert counts_by_key(with_backing_store) == expected_counts(sent)
