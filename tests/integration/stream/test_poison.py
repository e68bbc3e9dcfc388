"""A record that makes a worker's code raise, on a real broker: it becomes a dead letter, and all other results are exact."""

from collections import Counter
from typing import Any

import pytest

from starling_common.wire import Registry
from tests.integration.stream.checks import LONG, USERS, Sent, counts_by_key, expected_counts, is_dead, send_events
from tests.integration.stream.rig import Rig, wait_until
from tests.unit.stream.counting import event

POISON = 300
"""The number of the event that is poison."""
TEXT = f'{POISON * 1000},"refuse"'


def _letters(rig: Rig) -> list[dict[str, Any]]:
    codec = Registry(rig.registry_url).codec(f"{rig.stage}.dlq", "DeadLetter")
    return [codec.decode(value) for _, _, value in rig.read(f"{rig.stage}.dlq")]


def _without_poison(sent: Sent) -> dict[bytes, list[int]]:
    return expected_counts([record for record in sent if TEXT.encode() not in record[2]])


@pytest.mark.parametrize(
    ("point", "name"),
    [
        ("process", "ValueError: failpoint process"),
        ("decode", "ValueError"),
        pytest.param("output", "KafkaException: ", marks=pytest.mark.long),
    ],
)
def test_other_records_of_the_user_and_of_all_others_are_folded_exactly_once(rig: Rig, point: str, name: str) -> None:
    sent = send_events(rig, 600)
    worker = rig.start(STARLING_FAILPOINT=f"raise_in_{point}:{TEXT}")
    rig.wait_settled([worker])
    assert worker.alive()
    assert counts_by_key(rig) == _without_poison(sent)
    [letter] = _letters(rig)
    assert (letter["code"], letter["key"], letter["value"]) == ("poison", sent[POISON][1], sent[POISON][2])
    assert letter["message"].startswith(name)
    assert b'starling_stream_refused_total{code="poison"} 1.0' in worker.metrics()


@pytest.mark.long
def test_a_worker_killed_between_the_failures_ends_the_search_after_its_restart(rig: Rig) -> None:
    sent = send_events(rig, 600)
    raising = f"raise_in_process:{TEXT}"
    for logged in (b'"batch_failed"', b'"batch_failed_again"'):
        victim = rig.start(STARLING_FAILPOINT=f"{raising};after_failure", **LONG)
        wait_until(lambda w=victim: is_dead(w), "the worker to end")  # type: ignore[misc]
        assert logged in victim.log.read_bytes()
    rig.wait_settled([rig.start(STARLING_FAILPOINT=raising, **LONG)])
    assert counts_by_key(rig) == _without_poison(sent)
    assert [letter["value"] for letter in _letters(rig)] == [sent[POISON][2]]


@pytest.mark.long
def test_a_failure_of_the_world_refuses_nothing_and_ends_the_worker(rig: Rig) -> None:
    sent = send_events(rig, 600)
    for _ in range(3):
        failing = rig.start(STARLING_FAILPOINT=f"raise_in_process:{TEXT}:world", **LONG)
        wait_until(lambda w=failing: is_dead(w), "the worker to end")  # type: ignore[misc]
        assert failing.process.wait() == 1
    rig.wait_settled([rig.start(**LONG)])
    assert counts_by_key(rig) == expected_counts(sent)
    assert _letters(rig) == []


@pytest.mark.long
def test_a_timer_that_cannot_fire_does_not_hold_back_those_of_other_users(rig: Rig) -> None:
    send_events(rig, 600)
    worker = rig.start(STARLING_FAILPOINT="raise_in_fire:default/u7")
    rig.wait_settled([worker])
    rig.send_to_each_partition([(f"{rig.stage}.clock", None, event(0, 10_000_000))])
    wait_until(rig.clock_settled, "all timers to fire")
    quiet = Counter(key for _, key, value in rig.read(f"{rig.stage}.out") if value.startswith(b"quiet"))
    assert quiet == {b"default/u%d" % user: 1 for user in range(USERS) if user != 7}
    assert [(letter["origin_topic"], letter["key"]) for letter in _letters(rig)] == [("(timer)", b"default/u7")]
