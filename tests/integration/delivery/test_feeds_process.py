"""The process of the feeds with a real broker and real endpoints."""

import json
import re
import time
import uuid
from collections.abc import Iterator, Sequence
from http.server import BaseHTTPRequestHandler
from typing import Any

import pytest
from confluent_kafka import Consumer, TopicPartition

from starling_common.kafka.clients import consumer_config
from tests.conftest import Stack
from tests.contract.delivery.endpoint import Endpoint, answering
from tests.integration.delivery.feed_world import INTERVAL_SECONDS, FeedWorld
from tests.integration.delivery.world import wait_for

TOLERANCE_SECONDS = 0.5
"""The clock of the process that decides, and that of the test, are read at different times."""


@pytest.fixture
def world(stack: Stack) -> Iterator[FeedWorld]:
    made = FeedWorld(stack, f"test{uuid.uuid4().hex[:10]}")
    made.make_topics()
    yield made
    made.remove()


class TimedEndpoint(Endpoint):
    """Keeps the time of each request."""

    def __init__(self) -> None:
        super().__init__()
        self.times: list[float] = []
        self.answer = answering(200)
        self.respond = self._respond

    def _respond(self, handler: BaseHTTPRequestHandler) -> None:
        self.times.append(time.monotonic())
        self.answer(handler)

    def texts(self) -> list[str]:
        """The lines about segments of each digest of Slack."""
        found = []
        for request in self.requests:
            blocks: Sequence[Any] = json.loads(request.body)["blocks"]
            found.append("\n".join(block["text"]["text"] for block in blocks if block["type"] == "section"))
        return found


@pytest.fixture
def endpoint() -> Iterator[TimedEndpoint]:
    made = TimedEndpoint()
    yield made
    made.close()


@pytest.fixture
def dead() -> Iterator[TimedEndpoint]:
    """An endpoint that takes nothing."""
    made = TimedEndpoint()
    made.answer = answering(500)
    yield made
    made.close()


def committed(world: FeedWorld) -> dict[int, tuple[int, int]]:
    """Partition -> what the group of the process has committed, and the end."""
    consumer = Consumer(consumer_config(world.stack.brokers, world.prefix))
    try:
        places = [TopicPartition(world.topic("membership"), number) for number in range(4)]
        found = consumer.committed(places, timeout=30)
        ends = [consumer.get_watermark_offsets(place, timeout=30)[1] for place in places]
        return {place.partition: (place.offset, end) for place, end in zip(found, ends, strict=True)}
    finally:
        consumer.close()


def test_a_dead_endpoint_delays_no_other_target(world: FeedWorld, endpoint: TimedEndpoint, dead: TimedEndpoint) -> None:
    """The short test of the whole process: digests of Slack and Teams, and records, beside an endpoint that takes nothing."""
    topic = world.create("out")
    world.define({"key": "warehouse", "channel": "kafka", "topic": topic, "segments": ["vip"]})
    world.digests_of("dead", f"{dead.url}/x")
    world.digests_of("sales", f"{endpoint.url}/slack", title="VIPs & <more>")
    world.digests_of("chat", f"{endpoint.url}/teams", channel="teams")
    entered = world.change([f"u{number}" for number in range(7)])
    with world.process() as process:
        exited = world.change(["u0", "u1"], status="EXITED")
        world.change(["u9"], segment="other")
        wait_for(lambda: len(world.event_ids(topic)) == 9)
        wait_for(lambda: len(endpoint.requests) == 2 and len(dead.requests) > 0)
        wait_for(lambda: "dead" in process.checks()["targets"])
        assert process.status() == 200
        wait_for(lambda: all(position == end for position, end in committed(world).values()))
    assert sorted(world.event_ids(topic)) == sorted(entered + exited)
    by_path = {request.path: request for request in endpoint.requests}
    slack = json.loads(by_path["/slack"].body)
    assert slack["blocks"][0]["text"]["text"] == "VIPs & <more>"
    assert slack["text"].startswith("VIPs &amp; &lt;more&gt;: 7 entered and 2 exited 1 segment")
    text = slack["blocks"][1]["text"]["text"]
    assert re.fullmatch(r"`VIP` \*7 entered\*: (`u\d`, ){4}`u\d` and 2 more\n`VIP` \*2 exited\*: `u\d`, `u\d`", text)
    assert "AdaptiveCard" in by_path["/teams"].body.decode()
    assert world.steps("sales") == ["SENDING", "SENT"]
    assert set(world.steps("dead")) == {"SENDING", "RETRYING"}


@pytest.mark.long
def test_there_is_one_digest_an_interval(world: FeedWorld, endpoint: TimedEndpoint) -> None:
    world.digests_of("sales", endpoint.url)
    with world.process(), world.process("feeds-1"):
        users = 0
        while len(endpoint.requests) < 3:
            world.change([f"u{users}"])
            users += 1
            time.sleep(0.2)  # sleep: the pace of the changes
        wait_for(lambda: sum(_entered(text) for text in endpoint.texts()) == users)
    gaps = [later - earlier for earlier, later in zip(endpoint.times, endpoint.times[1:], strict=False)]
    assert min(gaps) > INTERVAL_SECONDS - TOLERANCE_SECONDS


def _entered(text: str) -> int:
    found = re.search(r"\*([\d,]+) entered\*", text)
    return int(found[1].replace(",", "")) if found else 0


@pytest.mark.long
@pytest.mark.parametrize(("point", "requests"), [("after_sending", 0), ("before_outcome", 1)])
def test_a_killed_process_sends_no_digest_twice(world: FeedWorld, endpoint: TimedEndpoint, point: str, requests: int) -> None:
    world.digests_of("sales", endpoint.url)
    with world.process(STARLING_FAILPOINT=point) as process:
        world.change(["ada"])
        assert process.child.wait(60) == -9
    assert len(endpoint.requests) == requests
    assert world.steps("sales") == ["SENDING"]
    with world.process():
        world.change(["grace"])
        wait_for(lambda: world.steps("sales") == ["SENDING", "SENDING", "SENT"])
    assert len(endpoint.requests) == requests + 1
    assert "`grace`" in endpoint.texts()[-1]
    assert "`ada`" not in endpoint.texts()[-1]


@pytest.mark.long
def test_an_open_digest_survives_a_kill(world: FeedWorld, endpoint: TimedEndpoint) -> None:
    world.digests_of("sales", endpoint.url)
    with world.process() as process:
        world.change(["ada"])
        wait_for(lambda: all(position == end for position, end in committed(world).values()))
        process.child.kill()
        process.child.wait(30)
    assert endpoint.requests == []
    with world.process():
        world.change(["grace"])
        wait_for(lambda: len(endpoint.requests) == 1)
    [text] = endpoint.texts()
    assert _entered(text) == 2


@pytest.mark.long
def test_an_endpoint_that_was_away_gets_one_digest_of_everything(world: FeedWorld, endpoint: TimedEndpoint) -> None:
    endpoint.answer = answering(503)
    world.digests_of("sales", endpoint.url)
    with world.process() as process:
        world.change(["ada"])
        wait_for(lambda: "RETRYING" in world.steps("sales"))
        process.child.kill()
        process.child.wait(30)
    with world.process():
        world.change(["grace"])
        wait_for(lambda: world.steps("sales").count("RETRYING") > 1)
        endpoint.answer = answering(200)
        wait_for(lambda: world.steps("sales")[-1] == "SENT")
    assert [_entered(text) for text in endpoint.texts()][-1] == 2
    assert world.steps("sales").count("SENT") == 1


@pytest.mark.long
def test_an_endpoint_that_is_gone_disables_its_target(world: FeedWorld, endpoint: TimedEndpoint) -> None:
    endpoint.answer = answering(410, b"channel_is_archived")
    world.digests_of("sales", endpoint.url)
    with world.process() as process:
        world.change(["ada"])
        wait_for(lambda: world.records("definitions")[-1]["action"] == "DISABLED")
        wait_for(lambda: process.checks()["targets"] == "ok")
        world.change(["grace"])
        wait_for(lambda: all(position == end for position, end in committed(world).values()))
        assert len(endpoint.requests) == 1
        # Enabled again, it gets the changes from then on.
        endpoint.answer = answering(200)
        shown = json.loads(world.records("definitions")[-1]["document"])
        assert shown["disabled_because"] == "the endpoint answered 410: channel_is_archived"
        world.define({name: shown[name] for name in shown.keys() - {"disabled", "disabled_because"}}, "REVISED")
        world.change(["alan"])
        wait_for(lambda: len(endpoint.requests) == 2)
    assert "`alan`" in endpoint.texts()[-1]
    assert "`grace`" not in endpoint.texts()[-1]


@pytest.mark.long
def test_records_in_the_same_cluster_are_there_exactly_once_across_kills(world: FeedWorld) -> None:
    topic = world.create("out")
    world.define({"key": "warehouse", "channel": "kafka", "topic": topic, "segments": ["vip"]})
    expected = world.change([f"u{number}" for number in range(50)])
    for kill in range(2):
        with world.process(STARLING_FAILPOINT="after_send") as process:
            expected += world.change([f"{kill}-{number}" for number in range(50)])
            wait_for(lambda process=process: process.child.poll() is not None)  # type: ignore[misc]
            assert process.child.returncode == -9
    with world.process():
        expected += world.change(["last"])
        wait_for(lambda: len(world.event_ids(topic)) >= len(expected))
    assert sorted(world.event_ids(topic)) == sorted(expected)
    messages = {dict(one.headers() or [])["event_id"]: one for one in world.read(topic)}
    codec = world.registry.codec(world.topic("membership"), "SegmentMembershipChanged")
    for event_id, message in messages.items():
        record = codec.decode(message.value() or b"")
        assert (record["event_id"].encode(), record["user_id"].encode()) == (event_id, message.key())


@pytest.mark.long
def test_another_cluster_gets_every_change_at_least_once_across_a_kill(world: FeedWorld) -> None:
    topic = world.create("out")
    target = {"key": "warehouse", "channel": "kafka", "topic": topic, "segments": ["vip"], "format": "json"}
    world.define({**target, "bootstrap_servers": world.stack.brokers})
    expected = world.change([f"u{number}" for number in range(20)])
    with world.process(STARLING_FAILPOINT="after_send") as process:
        assert process.child.wait(60) == -9
    with world.process():
        expected += world.change(["last"])
        wait_for(lambda: set(world.event_ids(topic)) == set(expected))
    found = world.event_ids(topic)
    assert len(found) > len(set(found))  # the kill came between the records and the position
    assert {json.loads(message.value() or b"")["segment_key"] for message in world.read(topic)} == {"vip"}


@pytest.mark.long
def test_a_missing_topic_is_named_and_its_target_goes_on_once_it_exists(world: FeedWorld) -> None:
    world.define({"key": "warehouse", "channel": "kafka", "topic": world.topic("out"), "segments": ["vip"]})
    expected = world.change(["ada"])
    with world.process() as process:
        wait_for(lambda: "create it" in process.checks()["targets"])
        assert process.status() == 200
        topic = world.create("out")
        wait_for(lambda: world.event_ids(topic) == expected)
        wait_for(lambda: process.checks()["targets"] == "ok")
