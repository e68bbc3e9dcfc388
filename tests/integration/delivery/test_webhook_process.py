"""The webhook process against the real broker: delivered, retried, given up, switched off; killed and started again."""

import json
import signal
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

import pytest
from confluent_kafka import Consumer, TopicPartition
from confluent_kafka.admin import AdminClient

from starling_common.kafka.clients import consumer_config, produce_and_wait
from starling_common.testing import free_port
from starling_common.time.instants import wall_clock_ms
from starling_common.values import record_key
from starling_demo.receiver import Receiver
from tests.contract.delivery.guide import source_of_the_guide
from tests.integration.delivery.world import WAIT_SECONDS, World, readiness, wait_for
from tests.unit.delivery.making import change, request

GUIDE_PROCESS = """
import sys
from pathlib import Path
from file_channel import FileChannel
from starling_delivery.channels import CHANNELS
CHANNELS["file"] = lambda settings, targets: FileChannel(Path(sys.argv[1]))
from starling_delivery.__main__ import main
sys.exit(main())
"""
"""The channel of the guide, registered as the guide describes."""


def test_changes_are_delivered_once_each_and_reported(world: World, receiver: Receiver) -> None:
    world.define(receiver.url, segments=["vip"])
    for user in ("ada", "bob", "cyd"):
        world.change(user)
    world.change("dan", segment="other")
    with world.process():
        wait_for(lambda: world.outcomes() == ["DELIVERED"] * 3)
    assert sorted(call["data"]["user_id"] for call in receiver.calls) == ["ada", "bob", "cyd"]
    assert receiver.forged == 0
    assert {record["status_code"] for record in world.records("outcome")} == {204}
    assert all(record["timestamp_ms"] == record["received_at"] // 1000 for record in world.records("outcome"))


@pytest.mark.long
def test_changes_that_expired_are_not_skipped_in_silence(world: World, receiver: Receiver) -> None:
    world.define(receiver.url)
    world.change("ada")
    place = TopicPartition(world.topic("membership"), 0, 0)
    group = Consumer(consumer_config(world.stack.brokers, world.prefix))
    group.commit(offsets=[place], asynchronous=False)
    admin = AdminClient({"bootstrap.servers": world.stack.brokers})
    admin.delete_records([TopicPartition(place.topic, 0, 1)])[place].result()
    world.change("bob")
    port = free_port()
    process = subprocess.Popen([sys.executable, "-m", "starling_delivery"], env=world.environment(port))
    try:
        wait_for(lambda: "expired before they were processed" in readiness(port))
        assert "starling stage accept-loss webhook" in readiness(port)
        place.offset = 1
        group.commit(offsets=[place], asynchronous=False)  # as the command does, while the process waits
        wait_for(lambda: world.outcomes() == ["DELIVERED"])
    finally:
        process.send_signal(signal.SIGTERM)
        assert process.wait(60) == 0
        group.close()
    assert [call["data"]["user_id"] for call in receiver.calls] == ["bob"]


def test_a_failing_endpoint_is_tried_again_until_it_takes_it(world: World, receiver: Receiver) -> None:
    receiver.failures = 3
    world.define(receiver.url)
    world.change("ada")
    with world.process():
        wait_for(lambda: len(receiver.calls) == 1)
        wait_for(lambda: world.outcomes() == ["RETRYING"] * 3 + ["DELIVERED"])
    assert [record["attempt"] for record in world.records("outcome")] == [1, 2, 3, 4]


def test_what_cannot_be_delivered_goes_to_the_dead_letters_whole(world: World, receiver: Receiver) -> None:
    receiver.failures = 1_000
    world.define(receiver.url)
    world.change("ada")
    with world.process(STARLING_GIVE_UP_AFTER_SECONDS="1"):
        wait_for(lambda: "FAILED" in world.outcomes())
    [letter] = world.records("dead_letter")
    assert (letter["stage"], letter["code"]) == ("delivery", "not_delivered")
    kept = world.registry.codec(world.topic("retry"), "DeliveryRequested").decode(letter["value"])
    assert kept["user_id"] == "ada"
    assert receiver.calls == []


@pytest.mark.long
def test_a_410_disables_the_webhook_permanently(world: World, receiver: Receiver) -> None:
    receiver.failures, receiver.failure_status = 1, 410
    world.define(receiver.url)
    world.change("ada")
    with world.process():
        wait_for(lambda: world.outcomes() == ["FAILED"])
        world.change("bob")
        world.change("cyd")
        wait_for(world.has_read_all)
    last = world.records("definitions")[-1]
    assert (last["action"], json.loads(last["document"])["disabled"]) == ("DISABLED", True)
    with world.process():
        world.change("dan")
        wait_for(world.has_read_all)
    assert receiver.calls == []


def test_a_record_that_cannot_be_read_does_not_stop_the_others(world: World, receiver: Receiver) -> None:
    world.define(receiver.url)
    produce_and_wait(world.producer, world.topic("membership"), key=b"default/x", value=b"\x00garbage", headers=[])
    world.change("ada")
    with world.process():
        wait_for(lambda: len(receiver.calls) == 1)
    [letter] = world.records("dead_letter")
    assert letter["value"] == b"\x00garbage"
    assert letter["code"] in {"unknown_schema", "bad_framing", "broken_avro"}


def test_a_killed_process_loses_nothing_and_a_waiting_retry_survives(world: World, receiver: Receiver) -> None:
    receiver.failures = 1
    world.define(receiver.url)
    world.change("ada")
    with world.process(STARLING_RETRY_DELAYS_SECONDS="[4]") as process:
        wait_for(lambda: world.outcomes() == ["RETRYING"])
        process.kill()
    world.change("bob")
    with world.process():
        wait_for(lambda: {call["data"]["user_id"] for call in receiver.calls} == {"ada", "bob"})
    assert len(receiver.calls) == 2


def test_a_stored_webhook_with_an_impossible_host_ends_in_dead_letters_alone(world: World, receiver: Receiver) -> None:
    hosts = {"empty": "https://a..b/", "long": f"https://{'x' * 64}.example/", "idna": "https://☃.example/", "open": "http://[::1"}
    for key, url in hosts.items():
        world.define(url, key)
    world.define(receiver.url)
    for user in ("ada", "bob"):
        world.change(user)
    with world.process() as process:
        wait_for(lambda: len(world.outcomes()) == 2 * (len(hosts) + 1))
        world.change("cyd")
        wait_for(lambda: len(receiver.calls) == 3)
        assert process.poll() is None
    assert sorted({call["data"]["user_id"] for call in receiver.calls}) == ["ada", "bob", "cyd"]
    failed = [record["target_key"] for record in world.records("outcome") if record["outcome"] == "FAILED"]
    assert sorted(set(failed)) == sorted(hosts)
    letters = [letter["message"] for letter in world.records("dead_letter")]
    assert sorted(set(letters)) == sorted(
        f"{url}: the address is invalid: {reason}"
        for url, reason in {
            hosts["empty"]: "its host 'a..b' is no host name: Empty Label",
            hosts["long"]: f"its host '{'x' * 64}.example' is no host name: Label too long",
            hosts["idna"]: "its host '☃.example' is no host name: Codepoint U+2603 at position 1 of '☃' not allowed",
            hosts["open"]: "it is no URL: Invalid IPv6 URL",
        }.items()
    )


def test_the_circuit_of_a_failing_endpoint_opens_and_closes_and_nothing_is_lost(world: World, receiver: Receiver) -> None:
    receiver.failures = 7
    world.define(receiver.url)
    users = [f"u{number}" for number in range(40)]
    world.changes(users)
    with world.process(STARLING_PROBE_SECONDS="0.5", STARLING_MAX_IN_FLIGHT="4"):  # one attempt at a time for one target
        wait_for(lambda: world.outcomes().count("DELIVERED") == len(users))
        assert "starling_delivery_open_circuits{" in world.metrics()
    assert sorted(call["data"]["user_id"] for call in receiver.calls) == sorted(users)
    details = [record["detail"] or "" for record in world.records("outcome")]
    assert any(detail.startswith("postponed: the circuit of the target is open: 5 attempts in a row failed") for detail in details)


@pytest.mark.long
def test_retries_in_the_tier_of_a_former_setting_are_sent(world: World, receiver: Receiver) -> None:
    receiver.failures = 1
    world.define(receiver.url)
    world.change("ada")
    with world.process(STARLING_RETRY_DELAYS_SECONDS="[20]"):
        wait_for(lambda: world.outcomes() == ["RETRYING"])
    [retry] = world.records("retry.20s")
    world.write("retry.4s", b"default/ada", retry | {"not_before": 0})
    with world.process():
        wait_for(lambda: len(receiver.calls) == 1)


@pytest.mark.long
def test_a_retry_of_a_far_year_does_not_hold_up_the_others(world: World, receiver: Receiver) -> None:
    receiver.failures = 1
    world.define(receiver.url)
    world.change("ada")
    with world.process(STARLING_RETRY_DELAYS_SECONDS="[4]"):
        wait_for(lambda: world.outcomes() == ["RETRYING"])
    [retry] = world.records("retry.4s")
    far = retry | {"not_before": 253_402_300_799_999}
    world.write("retry", b"default/eve", far | {"user_id": "eve", "delivery_id": "eve"})
    with world.process(STARLING_RETRY_DELAYS_SECONDS="[0.2, 4]"):
        wait_for(lambda: len(world.records("retry.4s")) == 2)
        world.write("retry.4s", b"default/bob", retry | {"user_id": "bob", "delivery_id": "bob", "not_before": 0})
        wait_for(lambda: len(receiver.calls) >= 1 and world.outcomes().count("DELIVERED") == 3)


@pytest.mark.long
def test_retries_that_expired_are_not_skipped_in_silence(world: World, receiver: Receiver) -> None:
    world.define(receiver.url)
    place = TopicPartition(world.topic("retry.4s"), 0, 0)
    for user in ("ada", "bob"):
        world.write(
            "retry.4s", record_key("default", user), request(user=user, address=receiver.url, first_attempt_at=wall_clock_ms())
        )
    group = Consumer(consumer_config(world.stack.brokers, f"{world.prefix}-retry"))
    group.commit(offsets=[place], asynchronous=False)
    admin = AdminClient({"bootstrap.servers": world.stack.brokers})
    admin.delete_records([TopicPartition(place.topic, 0, 1)])[place].result()
    port = free_port()
    process = subprocess.Popen([sys.executable, "-m", "starling_delivery"], env=world.environment(port))
    try:
        wait_for(lambda: "expired before they were processed" in readiness(port))
        assert "starling stage accept-loss webhook-retry" in readiness(port)
        place.offset = 1
        group.commit(offsets=[place], asynchronous=False)  # as the command does, while the process waits
        wait_for(lambda: len(receiver.calls) == 1)
    finally:
        process.send_signal(signal.SIGTERM)
        assert process.wait(60) == 0
        group.close()
    assert [call["data"]["user_id"] for call in receiver.calls] == ["bob"]


@pytest.mark.parametrize(
    ("point", "code", "sent"), [("decode", "poison", False), ("send", "not_delivered", False), ("outcome", "poison", True)]
)
def test_a_record_that_makes_a_point_raise_is_a_dead_letter_and_all_others_are_delivered(
    world: World, receiver: Receiver, point: str, code: str, sent: bool
) -> None:
    world.define(receiver.url)
    users = ["ada", "poison-pill", *(f"u{number}" for number in range(20))]
    world.changes(users)
    for user in ("retried", "retried-poison-pill"):
        world.write(
            "retry", record_key("default", user), request(user=user, address=receiver.url, first_attempt_at=wall_clock_ms())
        )
    good = {*users, "retried"} - {"poison-pill"}
    with world.process(STARLING_FAILPOINT=f"raise_in_{point}:poison-pill") as process:
        wait_for(lambda: len(world.records("dead_letter")) == 2)
        wait_for(lambda: world.outcomes().count("DELIVERED") == len(good))
        wait_for(world.has_read_all)
        assert process.poll() is None
    letters = world.records("dead_letter")
    assert {letter["code"] for letter in letters} == {code}
    assert all(b"poison-pill" in letter["value"] and f"ValueError: failpoint {point}" in letter["message"] for letter in letters)
    poisoned = {"poison-pill", "retried-poison-pill"} if sent else set()
    assert sorted(call["data"]["user_id"] for call in receiver.calls) == sorted(good | poisoned)


@pytest.fixture
def file_process(tmp_path: Path) -> Sequence[str]:
    """The command of a process that has the guide's channel too. Its messages go to `tmp_path`."""
    (tmp_path / "file_channel.py").write_text(source_of_the_guide())
    (tmp_path / "main.py").write_text(GUIDE_PROCESS)
    return sys.executable, str(tmp_path / "main.py"), str(tmp_path)


@pytest.mark.long
@pytest.mark.parametrize(
    ("settings", "cure"),
    [
        ({"STARLING_GROUP": "starling-file"}, b"set STARLING_TAKES_ALL_TARGETS=true"),
        ({"STARLING_GROUP": "starling-file", "STARLING_TAKES_ALL_TARGETS": "true"}, b"Unset STARLING_GROUP"),
    ],
)
def test_a_second_channel_does_not_answer_for_webhooks(
    world: World, receiver: Receiver, file_process: Sequence[str], settings: dict[str, str], cure: bytes
) -> None:
    world.define(receiver.url)
    world.change("ada")
    environment = world.environment(free_port(), STARLING_CHANNEL="file", **settings)
    refused = subprocess.run(file_process, env=environment, capture_output=True, timeout=WAIT_SECONDS, check=False)
    assert refused.returncode == 2
    assert cure in refused.stdout + refused.stderr
    with world.process():
        wait_for(lambda: len(receiver.calls) == 1)
    assert world.outcomes() == ["DELIVERED"]


@pytest.mark.long
def test_the_channel_of_the_guide_takes_the_place_of_the_webhook_process(
    world: World, receiver: Receiver, file_process: Sequence[str], tmp_path: Path
) -> None:
    webhook = {"STARLING_GROUP": "starling-webhook", "STARLING_RETRY_DELAYS_SECONDS": "[20]"}
    world.define(receiver.url)
    receiver.failures = 1
    world.change("ada")
    with world.process(**webhook):
        wait_for(lambda: world.outcomes() == ["RETRYING"])
    world.change("bob")
    with world.process(file_process, **webhook, STARLING_CHANNEL="file", STARLING_TAKES_ALL_TARGETS="true"):
        wait_for(lambda: world.outcomes() == ["RETRYING", "DELIVERED"])
    assert [line.split("\t")[0] for line in (tmp_path / "default.hook").read_text().splitlines()] == [change("bob")["event_id"]]
    assert [record["channel"] for record in world.records("outcome")] == ["webhook", "file"]
    world.change("cyd")
    with world.process(**webhook):
        wait_for(lambda: len(receiver.calls) == 2)
    assert sorted(call["data"]["user_id"] for call in receiver.calls) == ["ada", "cyd"]  # the retry stayed with its channel
