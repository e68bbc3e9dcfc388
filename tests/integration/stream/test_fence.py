"""A suspended worker whose partition was reassigned commits nothing, even where no offset advances.

The zombie suspends itself within a unit of work without records, before a transaction begins, and is resumed once the other worker
has the partition. Its producer has a transactional id of its own, so only the group can refuse the commit.
"""

import time
from collections import Counter

import pytest
from confluent_kafka import Consumer, TopicPartition
from confluent_kafka.admin import AdminClient

from starling_common.kafka.clients import consumer_config
from starling_common.wire import Registry
from starling_stream.kafka.membership import Membership
from starling_stream.kafka.transactions import Naming, NotOwner, Offset, Transactions
from starling_stream.model.failpoints import AFTER_STORE, Failpoints
from starling_stream.model.meta import TaskMeta
from starling_stream.model.ports import Sealed
from starling_stream.model.processor import Output
from tests.faults.log import read_all
from tests.integration.stream.checks import (
    COPIES,
    LONG,
    counts_by_key,
    expected_counts,
    is_dead,
    is_refused,
    logged_events,
    send_events,
    wait_for_copies,
)
from tests.integration.stream.rig import Rig, Worker, wait_until
from tests.unit.stream.counting import HOUR_MS, event

USERS = {b"default/u%d" % number for number in range(40)}
SLICED = {"STARLING_TIMERS_PER_UNIT": "4"}
"""A burst of timers needs several transactions; only the last of them advances the clock's offset."""


def _quiet(rig: Rig) -> Counter[bytes]:
    return Counter(key for _, key, value in rig.read(f"{rig.stage}.out") if value.startswith(b"quiet"))


def _send_clock(rig: Rig) -> None:
    rig.send_to_each_partition([(f"{rig.stage}.clock", None, event(1, 10**9))])


def _resume(zombie: Worker) -> None:
    """Resume it until it has rejoined the group or ended: its transactions are committed or refused by then."""
    assignments = len(logged_events(zombie, "assigned"))
    zombie.resume()
    wait_until(lambda: is_dead(zombie) or len(logged_events(zombie, "assigned")) > assignments, "the zombie to end or to rejoin")


def _versions(rig: Rig) -> dict[bytes, list[int]]:
    topic = f"{rig.stage}-state-changelog"
    codec = Registry(rig.registry_url).codec(topic, "StateChanged")
    found: dict[bytes, list[int]] = {key: [] for key in USERS}
    for logged in read_all(rig.brokers, [topic])[topic][0]:
        if logged.key in found:
            found[logged.key].append(codec.decode(logged.value)["version"])
    return found


@pytest.mark.long
def test_timers_that_a_zombie_fires_are_refused(one_partition: Rig) -> None:
    rig = one_partition
    sent = send_events(rig, 80)
    zombie = rig.start("w0", COUNTER_ASLEEP_IN="fire", **SLICED)
    rig.wait_settled([zombie])
    _send_clock(rig)
    wait_until(zombie.asleep, "the zombie to stop while it fires its first timer")
    heir = rig.start("w1", **SLICED)
    wait_until(rig.clock_settled, "the other worker to fire all timers")
    assert _quiet(rig) == Counter(USERS)
    _resume(zombie)
    assert _quiet(rig) == Counter(USERS)
    sent += send_events(rig, 80)
    rig.wait_settled([heir])
    assert counts_by_key(rig) == expected_counts(sent)


@pytest.mark.long
def test_a_plan_switch_of_a_zombie_is_refused(one_partition: Rig) -> None:
    rig = one_partition
    send_events(rig, 80)
    first = rig.start("w0")
    rig.wait_settled([first])
    assert first.terminate() == 0
    zombie = rig.start("w0", COUNTER_PLAN="v2", COUNTER_ASLEEP_IN="switch")
    wait_until(zombie.asleep, "the zombie to stop while it switches its first user")
    rig.start("w1", COUNTER_PLAN="v2")

    def switches() -> int:
        return sum(key == b"plan" for _, key, _ in rig.read(f"{rig.stage}.out"))

    wait_until(lambda: switches() > 0, "the other worker to switch the partition")
    versions = _versions(rig)
    _resume(zombie)
    assert (switches(), _versions(rig)) == (1, versions)


@pytest.mark.long
def test_timers_that_a_zombie_fires_while_a_standby_is_promoted_are_refused(one_partition: Rig) -> None:
    rig = one_partition
    send_events(rig, 80)
    zombie = rig.start("w0", COUNTER_ASLEEP_IN="fire", **SLICED, **COPIES)
    rig.wait_settled([zombie])
    heir = rig.start("w1", COUNTER_ASLEEP_IN="restore", **SLICED, **COPIES, **LONG)
    wait_until(heir.ready, "the other worker to be a member")
    wait_for_copies([heir], 1)
    _send_clock(rig)
    wait_until(zombie.asleep, "the zombie to stop while it fires its first timer")
    wait_until(heir.asleep, "the other worker to have its copy up to the changelog's end")
    zombie.resume()
    wait_until(lambda: is_refused(zombie) or is_dead(zombie) or bool(_quiet(rig)), "the zombie to be refused, or to commit")
    heir.resume()
    wait_until(rig.clock_settled, "all timers to be fired")
    assert _quiet(rig) == Counter(USERS)
    assert logged_events(heir, "task_running")[0]["base"] == "disk"


@pytest.mark.long
def test_timers_that_a_zombie_fires_by_the_wall_clock_are_refused(one_partition: Rig) -> None:
    rig = one_partition
    # A single event: its timer is due as soon as the task is idle, and nothing else moves an offset.
    rig.send([(rig.inputs[0], b"default/u0", event(int(time.time() * 1e6) - 2 * HOUR_MS * 1000))])
    zombie = rig.start("w0", COUNTER_ASLEEP_IN="fire", COUNTER_CLOCK="wall")
    wait_until(zombie.asleep, "the zombie to stop while it fires its timer")
    rig.start("w1", COUNTER_CLOCK="wall")
    wait_until(lambda: bool(_quiet(rig)), "the other worker to fire the timer")
    _resume(zombie)
    assert _quiet(rig) == Counter([b"default/u0"])


def _committed(rig: Rig) -> dict[str, int]:
    consumer = Consumer(consumer_config(rig.brokers, rig.group))
    try:
        found = consumer.committed([TopicPartition(topic, 0) for topic in rig.inputs], timeout=30)
        return {offset.topic: offset.offset for offset in found}
    finally:
        consumer.close()


def test_a_task_that_consumed_nothing_yet_commits_where_its_input_begins(one_partition: Rig) -> None:
    rig = one_partition
    sent = send_events(rig, 80)
    admin = AdminClient({"bootstrap.servers": rig.brokers})
    for deleted in admin.delete_records([TopicPartition(topic, 0, 10) for topic in rig.inputs]).values():
        deleted.result()
    # The first transaction of a new task with a plan switches its users, of which there are none; records follow.
    switched = rig.start("w0", COUNTER_PLAN="v2", STARLING_FAILPOINT=f"{AFTER_STORE}:1")
    wait_until(lambda: is_dead(switched), "the worker to kill itself after its first transaction")
    assert [value for _, _, value in rig.read(f"{rig.stage}.out")] == [b"v2 after 0"]
    assert _committed(rig)[rig.inputs[0]] == 10
    rig.wait_settled([rig.start("w0", COUNTER_PLAN="v2")])
    assert counts_by_key(rig) == expected_counts(sent[20:])


def test_a_worker_that_is_no_member_of_its_group_commits_nothing(one_partition: Rig) -> None:
    """aiokafka has generation -1 and no member id after a removal from the group. A group without members would accept them."""
    rig = one_partition
    naming = Naming(rig.stage, f"{rig.stage}-state-changelog", f"{rig.stage}.dlq", b"\0\0\0\0\1", lambda _: b"")
    transactions = Transactions(rig.brokers, f"{rig.group}-w0", 30, naming, Failpoints(None))
    transactions.begin()
    unit = Sealed(0, TaskMeta(1), {}, [Output(f"{rig.stage}.out", b"default/u0", b"quiet", 0, [])], (), 1, drained=True)
    submitted = transactions.submit([unit], [Offset(rig.inputs[0], 0, 0)])
    with pytest.raises(NotOwner):
        transactions.commit(submitted, Membership(rig.group, -1, "", "w0"))
    transactions.close()
    assert rig.read(f"{rig.stage}.out") == []
