"""A real worker on a real broker, killed at each failpoint: every output is there exactly once, in order.

The oracle is the plain fold: a user's outputs are 1, 2, 3 … up to the number of that user's events.
"""

import json
import shutil
from collections import Counter, defaultdict
from signal import SIGSTOP

import pytest

from starling_common.wire import Registry
from starling_stream.model.failpoints import AFTER_COMMIT, AFTER_FOLD, AFTER_PRODUCE, AFTER_STORE
from tests.integration.stream.checks import LONG, USERS, counts_by_key, expected_counts, is_dead, is_refused, send_events
from tests.integration.stream.rig import Rig, wait_until
from tests.unit.stream.counting import event


@pytest.mark.parametrize(
    "failpoint", [AFTER_COMMIT, *(pytest.param(one, marks=pytest.mark.long) for one in (AFTER_FOLD, AFTER_PRODUCE, AFTER_STORE))]
)
def test_outputs_are_exactly_once_over_a_kill_at_each_place(rig: Rig, failpoint: str) -> None:
    sent = send_events(rig, 600)
    victim = rig.start(STARLING_FAILPOINT=f"{failpoint}:2", STARLING_UNIT_MAX_RECORDS="200")
    wait_until(lambda: is_dead(victim), "the worker to kill itself")
    sent += send_events(rig, 600)
    rig.wait_settled([rig.start()])
    assert counts_by_key(rig) == expected_counts(sent)


def test_a_worker_joins_its_group_once(rig: Rig) -> None:
    """Each join is a rebalance for all members, and workers that join twice can interrupt one another endlessly."""
    worker = rig.start()
    wait_until(worker.ready, "the worker to be ready")
    (assigned,) = (line for line in worker.log.read_text().splitlines() if '"event": "assigned"' in line)
    assert json.loads(assigned)["generation"] == 1


@pytest.mark.long
def test_a_lost_disk_is_rebuilt_from_the_changelog(rig: Rig) -> None:
    sent = send_events(rig, 600)
    first = rig.start()
    rig.wait_settled([first])
    assert first.terminate() == 0
    shutil.rmtree(rig.directory / "w0")
    sent += send_events(rig, 600)
    rig.wait_settled([rig.start()])
    assert counts_by_key(rig) == expected_counts(sent)


@pytest.mark.long
def test_an_old_disk_is_brought_up_to_date_from_the_changelog(rig: Rig) -> None:
    sent = send_events(rig, 300)
    first = rig.start()
    rig.wait_settled([first])
    assert first.terminate() == 0
    shutil.copytree(rig.directory / "w0", rig.directory / "old")
    sent += send_events(rig, 300)
    second = rig.start()
    rig.wait_settled([second])
    second.kill()
    sent += send_events(rig, 300)
    rig.wait_settled([rig.start(disk="old")])
    assert counts_by_key(rig) == expected_counts(sent)


@pytest.mark.long
def test_a_second_worker_gets_its_share_and_returns_it(rig: Rig) -> None:
    sent = send_events(rig, 400)
    first = rig.start("w0")
    wait_until(first.ready, "the first worker")
    second = rig.start("w1")
    sent += send_events(rig, 400)
    rig.wait_settled([first, second])
    assert b"task_running" in second.log.read_bytes()
    second.kill()
    sent += send_events(rig, 400)
    rig.wait_settled([first])
    assert first.alive()
    assert counts_by_key(rig) == expected_counts(sent)


@pytest.mark.long
def test_a_worker_that_leaves_the_group_hands_its_partitions_over_before_its_session_ends(rig: Rig) -> None:
    sent = send_events(rig, 400)
    stays, goes = rig.start("w0", **LONG), rig.start("w1", **LONG)
    rig.wait_settled([stays, goes])
    wait_until(lambda: b"task_running" in goes.log.read_bytes(), "the second worker to have its share")
    sent += send_events(rig, 400)
    assert goes.terminate(leave=True) == 0
    sent += send_events(rig, 400)
    rig.wait_settled([stays])
    assert counts_by_key(rig) == expected_counts(sent)


@pytest.mark.long
def test_a_worker_that_is_restarted_stays_a_member_and_the_others_do_not_notice(rig: Rig) -> None:
    sent = send_events(rig, 400)
    stays, restarted = rig.start("w0", **LONG), rig.start("w1", **LONG)
    rig.wait_settled([stays, restarted])
    wait_until(lambda: b"task_running" in restarted.log.read_bytes(), "the second worker to have its share")
    before = stays.log.read_bytes().count(b'"assigned"')
    assert restarted.terminate() == 0
    sent += send_events(rig, 400)
    rig.wait_settled([stays, rig.start("w1", **LONG)])
    assert stays.log.read_bytes().count(b'"assigned"') == before
    assert counts_by_key(rig) == expected_counts(sent)


@pytest.mark.long
def test_a_worker_can_be_stopped_before_its_first_assignment(rig: Rig) -> None:
    sleeper = rig.start("w0", **LONG)
    wait_until(sleeper.ready, "the first worker")
    sleeper.process.send_signal(SIGSTOP)
    # The group waits for the suspended worker before it assigns anything.
    newcomer = rig.start("w1", **LONG)
    wait_until(lambda: b"ConsumerThread]: Starting" in newcomer.log.read_bytes(), "the second worker to join")
    assert newcomer.terminate() == 0
    sleeper.resume()


@pytest.mark.long
@pytest.mark.parametrize("failpoint", [AFTER_FOLD, AFTER_PRODUCE])
def test_a_worker_suspended_past_its_session_commits_nothing(rig: Rig, failpoint: str) -> None:
    sent = send_events(rig, 600)
    zombie = rig.start("w0", STARLING_FAILPOINT=f"{failpoint}:2:stop", STARLING_UNIT_MAX_RECORDS="200")
    wait_until(zombie.asleep, "the worker to fall asleep with a folded batch")
    heir = rig.start("w1")
    rig.wait_settled([heir])
    assert counts_by_key(rig) == expected_counts(sent)
    zombie.resume()
    # The broker refuses in several ways, some of which end the process at once; the counts below are the proof.
    wait_until(lambda: is_refused(zombie) or is_dead(zombie), "the zombie to be refused, or to have ended")
    wait_until(lambda: is_dead(zombie) or zombie.ready(), "the zombie to leave or to rejoin clean")
    sent += send_events(rig, 400)
    rig.wait_settled([heir])
    assert counts_by_key(rig) == expected_counts(sent)


def test_an_undecodable_record_is_a_dead_letter_and_the_others_are_processed(rig: Rig) -> None:
    broken = (rig.inputs[0], b"default/u1", b"{not json")
    rig.send([broken])
    sent = send_events(rig, 100)
    worker = rig.start()
    rig.wait_settled([worker])
    assert counts_by_key(rig) == expected_counts(sent)
    rig.send([broken])
    wait_until(lambda: len(rig.read(f"{rig.stage}.dlq")) == 2, "the second one to come there too")
    _, key, value = rig.read(f"{rig.stage}.dlq")[0]
    letter = Registry(rig.registry_url).codec(f"{rig.stage}.dlq", "DeadLetter").decode(value)
    assert (key, letter["value"], letter["code"]) == (b"default/u1", b"{not json", "not_json")
    assert (letter["origin_topic"], letter["stage"], letter["workspace"]) == (rig.inputs[0], rig.stage, "default")


@pytest.mark.long
def test_a_fetch_waits_for_the_registry_and_is_not_skipped(rig: Rig) -> None:
    away = rig.directory / "registry-is-away"
    sent = send_events(rig, 200)
    worker = rig.start(COUNTER_REGISTRY_AWAY=str(away))
    rig.wait_settled([worker])
    away.touch()
    sent += send_events(rig, 200)
    wait_until(lambda: b"unavailable for this test" in worker.log.read_bytes(), "the worker to notice")
    sent += send_events(rig, 200)
    away.unlink()
    rig.wait_settled([worker])
    sent += send_events(rig, 200)
    rig.wait_settled([worker])
    assert counts_by_key(rig) == expected_counts(sent)


@pytest.mark.long
def test_timers_survive_a_lost_disk_and_fire_once_when_the_clock_is_advanced(rig: Rig) -> None:
    send_events(rig, 200)
    first = rig.start()
    rig.wait_settled([first])
    first.kill()
    shutil.rmtree(rig.directory / "w0")
    ticks = [(f"{rig.stage}.clock", None, event(1, 10**9))]
    rig.send_to_each_partition(ticks)
    rig.wait_settled([rig.start()])
    wait_until(rig.clock_settled, "the clock to be reached everywhere")
    quiet = Counter(key for _, key, value in rig.read(f"{rig.stage}.out") if value.startswith(b"quiet"))
    assert quiet == Counter(b"default/u%d" % number for number in range(USERS))


@pytest.mark.long
def test_a_new_plan_reads_the_past_and_switches_every_key_before_new_records(rig: Rig) -> None:
    sent = send_events(rig, 300)
    first = rig.start()
    rig.wait_settled([first])
    assert first.terminate() == 0
    more = send_events(rig, 100)
    second = rig.start(COUNTER_PLAN="v2", STARLING_SWITCH_KEYS_PER_UNIT="3")
    rig.wait_settled([second])
    by_partition: dict[int, list[tuple[bytes, bytes]]] = defaultdict(list)
    for partition, key, value in rig.read(f"{rig.stage}.out"):
        by_partition[partition].append((key, value))
    switched = {number: [value for key, value in out if key == b"plan"] for number, out in by_partition.items()}
    assert [len(values) for values in switched.values()] == [1] * rig.partitions
    in_history = sum(int(values[0].removeprefix(b"v2 after ")) for values in switched.values())
    assert in_history == sum(topic == rig.inputs[0] for topic, _, _ in sent)
    for out in by_partition.values():
        after = len(out) - 1 - [key for key, _ in out].index(b"plan")
        assert after == sum(key in {k for k, _ in out} for _, key, _ in more)


@pytest.mark.long
def test_a_store_of_another_log_is_refused_with_the_cure(rig: Rig) -> None:
    send_events(rig, 100)
    first = rig.start()
    rig.wait_settled([first])
    assert first.terminate() == 0
    rig.recreate_changelog()
    second = rig.start()
    wait_until(lambda: is_dead(second), "the worker to refuse")
    assert second.process.returncode == 1
    assert b"delete the directory" in second.log.read_bytes()
