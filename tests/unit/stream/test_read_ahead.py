"""Reading ahead of a lagging task, from a fake broker: it knows the earliest unread record, and stops when it has caught up."""

from collections.abc import Iterator, Sequence
from itertools import islice
from typing import Any, Final

import pytest
from confluent_kafka import TopicPartition

from starling_common.kafka.clients import PARTITION_EOF
from starling_common.time.instants import LONGEST_APPEND_MS
from starling_common.wire import Codec
from starling_normalizer.testing import received
from starling_stream.fold.arrivals import ArrivalMerge
from starling_stream.model.processor import Inbound
from starling_stream.worker import read_ahead
from starling_stream.worker.read_ahead import ReadAhead

TOPICS: Final = ("a", "b")
CODEC: Final = Codec("IngestReceived", 1, lambda _id: "")
BASE_MS: Final = 1_700_000_000_000


class Written:
    """A record, or the end of a partition, as the client returns it."""

    def __init__(self, topic: str, offset: int, received_ms: int | None, appended_ms: int = 0) -> None:
        self._topic, self._offset, self._appended_ms = topic, offset, appended_ms
        fields = {**received("track", "{}"), "received_at": (received_ms or 0) * 1000}
        self._value = None if received_ms is None else CODEC.encode(fields)
        self.received_at = (received_ms or 0) * 1000

    def topic(self) -> str:
        return self._topic

    def partition(self) -> int:
        return 0

    def offset(self) -> int:
        return self._offset

    def timestamp(self) -> tuple[int, int]:
        return 2, self._appended_ms

    def value(self) -> bytes | None:
        return self._value

    def error(self) -> Any:
        return self if self._value is None else None

    def code(self) -> int:
        return PARTITION_EOF


class Broker:
    """A consumer of two logs. `assigned`: the offsets of each assignment."""

    def __init__(self, logs: dict[str, list[Written]]) -> None:
        self.logs = logs
        self.assigned: list[dict[str, int]] = []
        self.paused: set[str] = set()
        self._left: dict[str, Iterator[Written]] = {}

    def assign(self, places: Sequence[TopicPartition]) -> None:
        self.assigned.append({place.topic: place.offset for place in places})
        ends = {topic: Written(topic, len(log), None) for topic, log in self.logs.items()}
        self._left = {place.topic: iter([*self.logs[place.topic][place.offset :], ends[place.topic]]) for place in places}

    def consume(self, count: int, _seconds: float) -> list[Written]:
        found: list[Written] = []
        for topic, left in self._left.items():
            if topic not in self.paused:
                found += islice(left, count // 2)
        return found

    def pause(self, places: Sequence[TopicPartition]) -> None:
        self.paused |= {place.topic for place in places}

    def resume(self, places: Sequence[TopicPartition]) -> None:
        self.paused -= {place.topic for place in places}


def _log(topic: str, times_ms: Sequence[int]) -> list[Written]:
    last, log = 0, []
    for offset, at in enumerate(times_ms):
        last = max(last, at + 5)
        log.append(Written(topic, offset, at, last))
    return log


def _receive(merge: ArrivalMerge, log: Sequence[Written]) -> None:
    topic, reached = log[0].topic(), log[-1].offset() + 1
    records = [Inbound(topic, 0, one.offset(), b"k", None, one.received_at, None, (), b"") for one in log]
    merge.add_appended(topic, records, [one.timestamp()[1] for one in log])
    merge.set_reached(topic, reached)


@pytest.fixture
def ahead(monkeypatch: pytest.MonkeyPatch) -> tuple[ReadAhead, Broker]:
    # A record of the second source lies 8 s behind its place, beyond what the task has received.
    times = [BASE_MS + number * 4 for number in range(6_000)]
    late = [*times[:3_000], *times[3_001:5_000], times[3_000], *times[5_000:]]
    broker = Broker({"a": _log("a", late), "b": _log("b", [BASE_MS + 1])})
    monkeypatch.setattr(read_ahead, "Consumer", lambda _config: broker)
    monkeypatch.setattr(read_ahead, "_PASS_SECONDS", 0.0)
    return ReadAhead("", TOPICS), broker


def _pass(ahead: ReadAhead, merge: ArrivalMerge, ends: dict[str, int], turns: int) -> None:
    for _ in range(turns):
        ahead.note({0: merge}, {0: (10**18, ends)})
        for of, horizons in ahead.read():
            of.set_horizons(horizons)


def test_a_backlog_is_released_up_to_the_earliest_unread_record(ahead: tuple[ReadAhead, Broker]) -> None:
    reader, broker = ahead
    merge, ends = ArrivalMerge(TOPICS), {"a": 6_000, "b": 1}
    merge.note_bound(10**18, ends)
    _receive(merge, broker.logs["a"][:4_000])
    _receive(merge, broker.logs["b"])
    assert merge.take(10_000, 0) == []
    _pass(reader, merge, ends, 1)
    assert broker.assigned == [{"a": 4_000, "b": 1}]
    early = merge.take(10_000, 0)
    last_read = broker.logs["a"][4_499].timestamp()[1]
    assert early[-1].received_at < (last_read - LONGEST_APPEND_MS) * 1_000 <= merge.first_key()
    _pass(reader, merge, ends, 10)
    first = early + merge.take(10_000, 0)
    assert len(first) == 3_001
    assert merge.is_needed("a")
    _receive(merge, broker.logs["a"][4_000:5_500])
    _pass(reader, merge, ends, 1)
    assert not merge.is_needed("a")
    second = merge.take(10_000, 0)
    assert second[0].offset == 4_999
    released = [record.received_at for record in (*first, *second)]
    assert released == sorted(released)
    assert len(released) == 5_501
    _receive(merge, broker.logs["a"][5_500:])
    _pass(reader, merge, ends, 1)
    assert not reader.is_active
    assert len(merge.take(10_000, 0)) == 500


def test_a_task_of_another_assignment_is_read_ahead_from_its_own_position(ahead: tuple[ReadAhead, Broker]) -> None:
    reader, broker = ahead
    ends = {"a": 6_000, "b": 1}
    for reached in (4_000, 2_000):
        merge = ArrivalMerge(TOPICS)
        _receive(merge, broker.logs["a"][:reached])
        _pass(reader, merge, ends, 2)
    assert [places["a"] for places in broker.assigned] == [4_000, 2_000]


def test_reading_ahead_pauses_far_before_its_task(ahead: tuple[ReadAhead, Broker]) -> None:
    reader, broker = ahead
    broker.logs["a"] = _log("a", [BASE_MS + number * 40 for number in range(6_000)])
    merge, ends = ArrivalMerge(TOPICS), {"a": 6_000, "b": 1}
    _receive(merge, broker.logs["a"][:2_000])
    _pass(reader, merge, ends, 12)
    assert broker.paused == {"a"}
    _receive(merge, broker.logs["a"][2_000:3_500])
    _pass(reader, merge, ends, 1)
    assert broker.paused == set()
