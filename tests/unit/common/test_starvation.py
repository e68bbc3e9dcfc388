"""A consumer that receives nothing, beside a new client that does or does not."""

from typing import Any

import pytest
from confluent_kafka import OFFSET_BEGINNING, KafkaError, KafkaException, TopicPartition

from starling_common.kafka.clients import PARTITION_EOF
from starling_common.kafka.starvation import Starvation

LIMIT_SECONDS = 60.0


class Polled:
    """A message, or an end-of-partition event."""

    def __init__(self, *, end: bool) -> None:
        self._end = end

    def error(self) -> KafkaError | None:
        return KafkaError(PARTITION_EOF) if self._end else None


class Client:
    """Both clients: a broker whose partition ends at `end`, with a record or a control record at the position 5."""

    def __init__(self, end: int = 9, *, has_record: bool = True, answers: bool = True, position: int = 5, stored: int = 0) -> None:
        self._end = end
        self._position = position
        self._stored = stored
        self._has_record = has_record
        self._answers = answers
        self.assigned: list[TopicPartition] = []
        self.closed = False

    def assignment(self) -> list[TopicPartition]:
        return [TopicPartition("t", 0)]

    def position(self, _parts: list[TopicPartition]) -> list[TopicPartition]:
        return [TopicPartition("t", 0, self._position)]

    def committed(self, _parts: list[TopicPartition], timeout: float) -> list[TopicPartition]:
        return [TopicPartition("t", 0, self._stored)]

    def offsets_for_times(self, _parts: list[TopicPartition], timeout: float) -> list[TopicPartition]:
        if not self._answers:
            raise KafkaException(KafkaError(KafkaError._TRANSPORT))
        return [TopicPartition("t", 0, self._end)]

    def assign(self, parts: list[TopicPartition]) -> None:
        self.assigned = parts

    def poll(self, _seconds: float) -> Polled:
        return Polled(end=not self._has_record)

    def close(self) -> None:
        self.closed = True


def after_silence(new: Client, seconds: float = LIMIT_SECONDS, own_position: int = 5) -> Starvation:
    now = 0.0

    def open_client(_config: dict[str, Any]) -> Any:
        return new

    starvation = Starvation({}, LIMIT_SECONDS, clock=lambda: now, new_client=open_client)
    own: Any = Client(position=own_position)
    starvation.polled(own, received=False)
    now = seconds
    starvation.polled(own, received=False)
    return starvation


def test_a_consumer_without_a_record_that_a_new_client_has_is_starved() -> None:
    new = Client()
    assert after_silence(new).problem == "t 0: no record for 60 s, but a new client has one: restart this process"
    assert ([(part.partition, part.offset) for part in new.assigned], new.closed) == ([(0, 5)], True)


@pytest.mark.parametrize(
    "new", [Client(5), Client(has_record=False), Client(answers=False)], ids=["at the end", "a control record", "no broker"]
)
def test_a_consumer_is_not_starved_where_a_new_client_receives_nothing(new: Client) -> None:
    assert after_silence(new).problem is None
    assert new.closed


@pytest.mark.parametrize(("stored", "read_from"), [(3, 3), (-1001, OFFSET_BEGINNING)])
def test_a_consumer_that_never_began_to_fetch_is_starved(stored: int, read_from: int) -> None:
    new = Client(stored=stored)
    assert after_silence(new, own_position=-1001).problem is not None
    assert [part.offset for part in new.assigned] == [read_from]


def test_a_short_silence_is_not_compared() -> None:
    assert after_silence(Client(), LIMIT_SECONDS - 1).problem is None


def test_a_record_ends_the_problem() -> None:
    starvation = after_silence(Client())
    own: Any = Client()
    starvation.polled(own, received=True)
    assert starvation.problem is None
