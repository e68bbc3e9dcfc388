"""A worker whose stream time goes by one clock topic, on a real broker: timers fire once the clock has passed them, over kills."""

import time
import uuid

import pytest
from confluent_kafka import Producer

from starling_common.kafka.clients import producer_config
from tests.integration.stream.rig import Rig, wait_until
from tests.unit.stream.counting import HOUR_MS, event

TIMED = {"COUNTER_TIME_TOPIC": "1", "COUNTER_CLOCK": "wall"}
"""Under the wall clock, so that a task that went by anything else would fire at once: the clock topic is in 1970."""


def received() -> int:
    return int(time.time() * 1e6)


def values(rig: Rig) -> list[bytes]:
    return [value for _, _, value in rig.read(f"{rig.stage}.out")]


@pytest.mark.long
def test_a_timer_fires_only_once_the_clock_has_passed_it_also_after_kills(one_partition: Rig) -> None:
    rig = one_partition
    source, clock = rig.inputs[0], f"{rig.stage}.clock"

    def settled() -> bool:
        return rig.settled() and rig.clock_settled()

    rig.send_to_each_partition([(clock, None, event(received(), 5_000))])
    worker = rig.start(**TIMED)
    wait_until(settled, "the clock to be read")
    rig.send([(source, b"default/ada", event(received(), 9 * HOUR_MS))])  # due an hour after 5,000
    rig.send_to_each_partition([(clock, None, event(received(), HOUR_MS))])
    wait_until(settled, "the event and the clock to be processed")
    assert values(rig) == [b"1"]
    worker.kill()

    rig.send([(source, b"default/bob", event(received(), 9 * HOUR_MS))])  # later than the clock of before the kill
    worker = rig.start(**TIMED)
    wait_until(settled, "the other event to be processed")
    rig.send_to_each_partition([(clock, None, event(received(), HOUR_MS + 4_999))])
    wait_until(settled, "the clock to stop just before the timer")
    assert values(rig) == [b"1", b"1"]
    worker.kill()

    worker = rig.start(**TIMED)
    rig.send_to_each_partition([(clock, None, event(received(), HOUR_MS + 5_000))])
    wait_until(settled, "the clock to reach the timer")
    assert values(rig) == [b"1", b"1", b"quiet since 5000"]
    worker.kill()

    # A restart of a task that has fired everything fires nothing again, and bob's timer goes by the clock of before the kill.
    rig.send_to_each_partition([(clock, None, event(received(), 2 * HOUR_MS))])
    worker = rig.start(**TIMED)
    wait_until(settled, "the clock to reach the last timer")
    assert values(rig) == [b"1", b"1", b"quiet since 5000", b"quiet since 3600000"]
    assert worker.terminate() == 0


def test_a_clock_record_waits_for_records_of_its_transaction_that_become_visible_later(one_partition: Rig) -> None:
    """The broker writes the markers of a transaction topic by topic. Here two transactions take the place of two markers."""
    rig = one_partition
    source, clock = rig.inputs[0], f"{rig.stage}.clock"
    rig.send_to_each_partition([(clock, None, event(received(), 5_000))])
    worker = rig.start(**TIMED)
    wait_until(lambda: rig.clock_settled() and worker.ready(), "the clock to be read")
    late = Producer(producer_config(rig.brokers, **{"transactional.id": f"late-{uuid.uuid4().hex}"}))
    late.init_transactions(30)
    late.begin_transaction()
    late.produce(source, event(received(), 1), b"default/ada", 0)
    assert late.flush(30) == 0
    rig.send_to_each_partition([(clock, None, event(received(), 2 * HOUR_MS))])
    rig.send([(rig.inputs[1], b"default/bob", event(received(), 1))])
    wait_until(lambda: b"1" in values(rig), "bob's record, which passes the clock record")
    assert not rig.clock_settled()
    late.commit_transaction(30)
    wait_until(lambda: rig.settled() and rig.clock_settled(), "the clock to follow")
    # Both were counted while the clock was at 5,000, so both are due before the instant that it reached.
    assert sorted(values(rig)) == [b"1", b"1", b"quiet since 5000", b"quiet since 5000"]
    assert worker.terminate() == 0
