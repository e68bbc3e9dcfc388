"""A real worker with Cassandra behind its disk: what it loses it finds there, and whatever is away or old does no harm.

The oracle is the plain fold: a user's outputs are 1, 2, 3 … up to the number of that user's events.
"""

import shutil
import urllib.request
from collections import Counter
from contextlib import closing

import pytest

from starling_common.database import Database
from starling_stream.inspect.audit import Audit, Source
from starling_stream.model.failpoints import AFTER_COMMIT, AFTER_FLUSH, AFTER_STORE, MID_FLUSH
from tests.integration.projector.gate import Gate
from tests.integration.stream.rig import Rig, Worker, wait_until
from tests.integration.stream.test_worker_faults import USERS, _counts, _dead, _expected
from tests.unit.stream.counting import event


def _plans(rig: Rig) -> list[bytes]:
    return [value for _, key, value in rig.read(f"{rig.stage}.out") if key == b"plan"]


def _send(rig: Rig, count: int) -> list[tuple[str, bytes, bytes]]:
    made = rig.events(count, USERS)
    rig.send(made)
    return made


def _based_on(worker: Worker, base: str) -> int:
    """How many of its tasks were restored from that."""
    lines = worker.log.read_text().splitlines()
    return sum(f'"base": "{base}"' in line and "task_running" in line for line in lines)


def _metric(worker: Worker, name: str) -> float:
    """Summed over its labels."""
    with urllib.request.urlopen(f"http://127.0.0.1:{worker.port}/metrics", timeout=10) as answer:
        lines = answer.read().decode().splitlines()
    return sum(float(line.rpartition(" ")[2]) for line in lines if line.startswith(name))


def _audit(rig: Rig) -> Audit:
    assert rig.cassandra is not None
    return Audit(rig.stage, Source(rig.brokers, rig.registry_url, rig.cassandra))


def _disagreements(rig: Rig) -> list[str]:
    """Between Cassandra and the changelog, a floor that is not at the end among them: all workers were stopped, or rest."""
    with closing(_audit(rig)) as audit:
        found = [verdict for number in range(rig.partitions) for verdict in audit.verdicts(number)]
    late = [f"{one.partition}: floor {one.position} of {one.log_end}" for one in found if (one.position or 0) < one.log_end - 1]
    return [*late, *(example for one in found for example in one.examples)]


def _changelog(rig: Rig) -> dict[bytes, bytes]:
    with closing(_audit(rig)) as audit:
        return {key: row for number in range(rig.partitions) for key, (_, row) in audit.latest(number)[0].items()}


def _move_floors(rig: Rig, floor: int) -> None:
    """As a database that was restored from a copy, beside a log that was not."""
    assert rig.cassandra is not None
    with closing(_audit(rig)) as audit, closing(Database(rig.cassandra)) as database:
        for number in range(rig.partitions):
            place = (audit.facts.topics[f"{rig.stage}-state-changelog"], number, 0)
            statement = (
                "UPDATE {ks}.state_floor USING TIMESTAMP ? SET floor = ? WHERE log = ? AND source_partition = ? AND incarnation = ?"
            )
            database.write(statement, (floor, floor, *place))


def test_a_lost_disk_is_found_again_in_cassandra(tiered: Rig) -> None:
    sent = _send(tiered, 600)
    first = tiered.start()
    tiered.wait_settled([first])
    assert first.terminate() == 0
    shutil.rmtree(tiered.directory / "w0")
    sent += _send(tiered, 600)
    second = tiered.start()
    tiered.wait_settled([second])
    assert _based_on(second, "tier") == tiered.partitions
    assert _counts(tiered) == _expected(sent)
    wait_until(lambda: _metric(second, "starling_stream_warm_ratio") == tiered.partitions, "all users to be local")
    assert _metric(second, "starling_stream_restored_records_total") < 50


@pytest.mark.parametrize("place", [AFTER_COMMIT, AFTER_STORE, MID_FLUSH, AFTER_FLUSH])
def test_outputs_are_exactly_once_over_a_kill_and_a_lost_disk(tiered: Rig, place: str) -> None:
    sent = _send(tiered, 600)
    victim = tiered.start(STARLING_FAILPOINT=f"{place}:2", STARLING_UNIT_MAX_RECORDS="200")
    wait_until(lambda: _dead(victim), "the worker to kill itself")
    shutil.rmtree(tiered.directory / "w0")
    sent += _send(tiered, 600)
    worker = tiered.start()
    tiered.wait_settled([worker])
    assert _counts(tiered) == _expected(sent)
    assert worker.terminate() == 0
    assert _disagreements(tiered) == []


def test_another_worker_takes_over_from_cassandra_and_a_third_with_an_old_disk_too(tiered: Rig) -> None:
    sent = _send(tiered, 400)
    first = tiered.start("w0")
    tiered.wait_settled([first])
    wait_until(lambda: _disagreements(tiered) == [], "the floors to be at the end")
    first.kill()
    shutil.copytree(tiered.directory / "w0", tiered.directory / "old")
    sent += _send(tiered, 400)
    second = tiered.start("w1")
    tiered.wait_settled([second])
    assert _based_on(second, "tier") == tiered.partitions
    second.kill()
    sent += _send(tiered, 400)
    third = tiered.start("w0", disk="old")
    tiered.wait_settled([third])
    assert _counts(tiered) == _expected(sent)
    assert third.terminate() == 0
    assert _disagreements(tiered) == []


def test_timers_of_users_that_nothing_touched_fire_after_a_lost_disk(tiered: Rig) -> None:
    _send(tiered, 200)
    first = tiered.start()
    tiered.wait_settled([first])
    assert first.terminate() == 0
    shutil.rmtree(tiered.directory / "w0")
    tiered.send_to_each_partition([(f"{tiered.stage}.clock", None, event(1, 10**9))])
    second = tiered.start()
    tiered.wait_settled([second])
    wait_until(tiered.clock_settled, "the clock to be reached everywhere")
    assert _based_on(second, "tier") == tiered.partitions
    quiet = Counter(key for _, key, value in tiered.read(f"{tiered.stage}.out") if value.startswith(b"quiet"))
    assert quiet == Counter(b"default/u%d" % number for number in range(USERS))


def test_a_new_plan_waits_for_all_users_and_reaches_every_one(tiered: Rig) -> None:
    _send(tiered, 300)
    first = tiered.start()
    tiered.wait_settled([first])
    assert first.terminate() == 0
    shutil.rmtree(tiered.directory / "w0")
    second = tiered.start(COUNTER_PLAN="v2", STARLING_SWITCH_KEYS_PER_UNIT="3")
    wait_until(lambda: len(_plans(tiered)) == tiered.partitions, "every task to be switched")
    assert _based_on(second, "tier") == tiered.partitions
    assert second.terminate() == 0
    assert _disagreements(tiered) == []
    switched = {key for key, row in _changelog(tiered).items() if b"v2" in row}
    assert switched == {b"default/u%d" % number for number in range(USERS)}


def test_with_cassandra_away_work_goes_on_and_what_it_missed_is_made_up(tiered: Rig) -> None:
    assert tiered.cassandra is not None
    direct = tiered.cassandra
    with Gate(direct.contact_points, direct.port) as gate:
        tiered.cassandra = direct.model_copy(update={"port": gate.port})
        sent = _send(tiered, 300)
        worker = tiered.start()
        tiered.wait_settled([worker])
        wait_until(lambda: _metric(worker, "starling_stream_dirty_bytes") == 0, "the first flush")
        gate.shut()
        wait_until(lambda: _metric(worker, "starling_stream_tier_away") == 1, "the worker to notice")
        sent += _send(tiered, 600)
        tiered.wait_settled([worker])
        assert _counts(tiered) == _expected(sent)
        assert _metric(worker, "starling_stream_dirty_bytes") > 0
        gate.open()
        wait_until(lambda: _metric(worker, "starling_stream_tier_away") == 0, "the worker to find it again")
        worker.kill()  # not a graceful stop: what was made up must be there already, or in the tail
        shutil.rmtree(tiered.directory / "w0")
        sent += _send(tiered, 300)
        tiered.wait_settled([tiered.start()])
        assert _counts(tiered) == _expected(sent)


def test_with_cassandra_away_at_the_start_the_changelog_is_enough_and_the_tier_is_filled_later(tiered: Rig) -> None:
    assert tiered.cassandra is not None
    direct = tiered.cassandra
    with Gate(direct.contact_points, direct.port) as gate:
        sent = _send(tiered, 300)
        first = tiered.start()
        tiered.wait_settled([first])
        assert first.terminate() == 0
        shutil.rmtree(tiered.directory / "w0")
        gate.shut()
        tiered.cassandra = direct.model_copy(update={"port": gate.port})
        sent += _send(tiered, 300)
        second = tiered.start(STARLING_TIER_WAIT_SECONDS="0.5")
        tiered.wait_settled([second])
        assert _based_on(second, "log") == tiered.partitions
        gate.open()
        wait_until(lambda: _disagreements(tiered) == [], "the tier to hold everything")
        assert _counts(tiered) == _expected(sent)


def test_more_than_the_bound_is_let_go_and_filled_in_from_the_store(tiered: Rig) -> None:
    assert tiered.cassandra is not None
    direct = tiered.cassandra
    with Gate(direct.contact_points, direct.port) as gate:
        tiered.cassandra = direct.model_copy(update={"port": gate.port})
        worker = tiered.start(STARLING_TIER_DIRTY_BYTES=str(1024 * 1024))
        wait_until(worker.ready, "the worker")
        gate.shut()
        big = [(topic, b"%s/%s" % (key, b"x" * 200), value) for topic, key, value in tiered.events(20_000, 20_000)]
        tiered.send(big)
        tiered.wait_settled([worker])
        wait_until(lambda: "tier_changes_let_go" in worker.log.read_text(), "changes to be let go")
        gate.open()
        wait_until(lambda: _disagreements(tiered) == [], "the tier to hold everything")
        assert worker.alive()
    assert _counts(tiered) == _expected(big)


@pytest.mark.parametrize("beyond", [True, False])
def test_a_floor_that_the_log_cannot_confirm_is_not_trusted(tiered: Rig, beyond: bool) -> None:
    sent = _send(tiered, 300)
    first = tiered.start()
    tiered.wait_settled([first])
    assert first.terminate() == 0
    shutil.rmtree(tiered.directory / "w0")
    if beyond:
        _move_floors(tiered, 10_000_000)
    else:
        tiered.cut_changelog()
    sent += _send(tiered, 300)
    second = tiered.start()
    tiered.wait_settled([second])
    assert _based_on(second, "tier") == 0
    assert second.log.read_text().count("tier_incarnation_begun") == tiered.partitions
    if beyond:
        assert _counts(tiered) == _expected(sent)
        assert second.terminate() == 0
        assert _disagreements(tiered) == []


def test_other_facts_than_those_frozen_are_refused_with_what_to_do(tiered: Rig) -> None:
    _send(tiered, 50)
    first = tiered.start()
    tiered.wait_settled([first])
    assert first.terminate() == 0
    second = tiered.start(STARLING_TIER_BUCKETS="64")
    wait_until(lambda: _dead(second), "the worker to refuse")
    assert second.process.returncode == 1
    assert "STARLING_TIER_BUCKETS is 64 and the states were written with 32: set it back" in second.log.read_text()


@pytest.mark.parametrize("place", [MID_FLUSH, AFTER_FLUSH])
def test_what_a_worker_that_was_replaced_still_writes_does_no_harm(tiered: Rig, place: str) -> None:
    """Asleep in the middle of a flush, or between it and the floor, for longer than its session; it goes on when it wakes up."""
    sent = _send(tiered, 600)
    older = tiered.start("w0", STARLING_FAILPOINT=f"{place}:2:stop", STARLING_UNIT_MAX_RECORDS="100")
    wait_until(older.asleep, "the older worker to fall asleep")
    newer = tiered.start("w1", STARLING_UNIT_MAX_RECORDS="100")
    sent += _send(tiered, 600)
    tiered.wait_settled([newer])
    older.resume()
    wait_until(lambda: older.ready() or not older.alive(), "it to have left, or to be back with what it was given")
    sent += _send(tiered, 200)
    tiered.wait_settled([newer])
    assert newer.terminate(for_good=True) == 0
    if older.alive():
        tiered.wait_settled([older])
        assert older.terminate(for_good=True) == 0
    assert _disagreements(tiered) == []
    assert _counts(tiered) == _expected(sent)
