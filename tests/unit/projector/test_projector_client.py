"""A client that the broker does not answer any more, beside a broker that is away: only the first ends the process."""

from __future__ import annotations

import time
from typing import Any, cast

import httpx
import pytest
from confluent_kafka import KafkaError, KafkaException, Message, TopicPartition

from starling_common.kafka.clients import BrokerUnavailable
from starling_common.settings import Cassandra, Http, Kafka, SchemaRegistry
from starling_common.testing import free_port
from starling_projector import source
from starling_projector.settings import ProjectorSettings
from starling_projector.source import ClientFailed, Source, TopicCreatedAgain
from starling_projector.wiring import build_worker

LIMIT_SECONDS = 60.0


class Client:
    """Stands for a consumer that is or is not answered."""

    def __init__(self, answered: bool) -> None:
        self.answered = answered
        self.closed = False
        self.messages: list[Message] = []
        self.commits: list[dict[int, int]] = []
        self.sought: list[tuple[int, int]] = []

    def subscribe(self, *_: Any, **__: Any) -> None:
        pass

    def committed(self, wanted: list[TopicPartition], timeout: float) -> list[TopicPartition]:
        return self._answer(wanted, 5)

    def offsets_for_times(self, wanted: list[TopicPartition], timeout: float) -> list[TopicPartition]:
        return self._answer(wanted, 9)

    def poll(self, _wait_seconds: float) -> Message | None:
        return self.messages.pop(0) if self.messages else None

    def consume(self, _most: int, _wait_seconds: float) -> list[Message]:
        return []

    def commit(self, offsets: list[TopicPartition], **_: Any) -> None:
        self.commits.append({place.partition: place.offset for place in offsets})

    def assignment(self) -> list[TopicPartition]:
        return [TopicPartition("segments.membership", number) for number in range(2)]

    def seek(self, place: TopicPartition) -> None:
        self.sought.append((place.partition, place.offset))

    def close(self) -> None:
        self.closed = True

    def _answer(self, wanted: list[TopicPartition], offset: int) -> list[TopicPartition]:
        if not self.answered:
            raise KafkaException(KafkaError(KafkaError._TRANSPORT))
        return [TopicPartition(place.topic, place.partition, offset) for place in wanted]


class World:
    """The clients that were opened, the first two by `start`; and the time."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.now = 0.0
        self.opened: list[Client] = []
        self.answers_new = True
        monkeypatch.setattr(source, "Consumer", self._open)
        monkeypatch.setattr(time, "monotonic", lambda: self.now)
        monkeypatch.setattr(time, "sleep", self._sleep)
        self.source = Source("broker:1", "group", ["segments.membership"], LIMIT_SECONDS)
        self.source.start()

    def fail(self) -> None:
        for client in self.opened[:2]:
            client.answered = False

    def _sleep(self, seconds: float) -> None:
        self.now += seconds

    def _open(self, _config: dict[str, Any]) -> Client:
        self.opened.append(Client(self.answers_new))
        return self.opened[-1]


@pytest.fixture
def world(monkeypatch: pytest.MonkeyPatch) -> World:
    return World(monkeypatch)


def test_answers_are_those_of_the_broker(world: World) -> None:
    assert world.source.ends("segments.membership", [0, 3]) == {0: 9, 3: 9}
    assert world.source.committed("segments.membership", [1]) == {1: 5}


@pytest.mark.parametrize("request_of", ["ends", "committed"])
def test_a_client_without_answers_beside_one_with_answers_has_failed(world: World, request_of: str) -> None:
    send = getattr(world.source, request_of)
    world.fail()
    with pytest.raises(BrokerUnavailable):
        send("segments.membership", [0])
    assert (len(world.opened), world.source.client_failure) == (2, None)
    world.now = LIMIT_SECONDS
    with pytest.raises(ClientFailed, match="no answer for 60 s, but a new client has one"):
        send("segments.membership", [0])
    assert world.opened[2].closed
    assert "restart this process" in (world.source.client_failure or "")


def test_a_silent_broker_is_unavailable(world: World) -> None:
    world.fail()
    world.answers_new = False
    for world.now in (0.0, LIMIT_SECONDS, 100 * LIMIT_SECONDS):
        with pytest.raises(BrokerUnavailable):
            world.source.ends("segments.membership", [0])
    assert world.source.client_failure is None


def test_an_answer_begins_the_time_again(world: World) -> None:
    world.fail()
    with pytest.raises(BrokerUnavailable):
        world.source.ends("segments.membership", [0])
    world.opened[1].answered = True
    world.source.ends("segments.membership", [0])
    world.opened[1].answered, world.now = False, LIMIT_SECONDS
    with pytest.raises(BrokerUnavailable):
        world.source.ends("segments.membership", [0])


def test_a_failed_client_fails_the_liveness() -> None:
    settings = ProjectorSettings(
        kafka=Kafka(brokers="127.0.0.1:9"),
        registry=SchemaRegistry(url="http://127.0.0.1:9"),
        cassandra=Cassandra(contact_points="127.0.0.1"),
        http=Http(port=free_port()),
        instance_id="projector-0",
    )
    worker = build_worker(settings)
    worker.health.start()
    try:
        url = f"http://127.0.0.1:{worker.health.port}/healthz"
        assert httpx.get(url, trust_env=False).status_code == 200
        worker.events._source.client_failure = "no answer"
        answer = httpx.get(url, trust_env=False)
        assert (answer.status_code, answer.json()["checks"]["events broker client"]) == (503, "no answer")
    finally:
        worker.health.stop()
        worker.database.close()


class _At:
    """A record of one partition at an offset, as far as the source reads it."""

    def __init__(self, offset: int) -> None:
        self._offset = offset

    def topic(self) -> str:
        return "segments.membership"

    def partition(self) -> int:
        return 0

    def offset(self) -> int:
        return self._offset

    def error(self) -> None:
        return None


def test_an_offset_that_goes_back_ends_the_process_because_the_topic_is_another_one() -> None:
    source = Source("broker:1", "group", ["segments.membership"], LIMIT_SECONDS)
    assert source._is_record(cast("Message", _At(7)))
    assert source._is_record(cast("Message", _At(9)))
    with pytest.raises(TopicCreatedAgain, match=r"segments.membership 0: offset 2 follows 10"):
        source._is_record(cast("Message", _At(2)))


def test_positions_are_committed_once_the_database_has_had_the_time_to_keep_the_rows(world: World) -> None:
    client = world.opened[0]
    client.messages = [cast("Message", _At(7))]
    world.source.poll(0.0, 1)
    world.source.commit({})
    world.now += source.DURABLE_SECONDS / 2
    world.source.commit({})
    assert client.commits == []
    world.now += source.DURABLE_SECONDS / 2
    world.source.commit({})
    assert client.commits == [{0: 8}]


def test_a_source_that_was_not_started_can_be_closed() -> None:
    Source("broker:1", "group", ["segments.membership"], LIMIT_SECONDS).close()


def test_a_closed_source_has_committed_what_was_written_and_nothing_else(world: World) -> None:
    client = world.opened[0]
    client.messages = [cast("Message", _At(7)), cast("Message", _At(8))]
    world.source.poll(0.0, 1)
    world.source.commit({})
    world.source.poll(0.0, 1)
    world.source.close()
    assert (client.commits, world.now) == ([{0: 8}], source.DURABLE_SECONDS)


def test_a_rewound_source_reads_again_from_the_committed_positions(world: World) -> None:
    client = world.opened[0]
    client.messages = [cast("Message", _At(7)), cast("Message", _At(5))]
    world.source.poll(0.0, 1)
    world.source.commit({})
    world.source.rewind()
    assert client.sought == [(0, 5), (1, 5)]
    world.source.poll(0.0, 1)  # no sign of a topic that was created again
    world.now += 2 * source.DURABLE_SECONDS
    world.source.commit({})
    assert client.commits == []
