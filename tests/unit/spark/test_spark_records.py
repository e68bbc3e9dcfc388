"""Raw records to chunks, and computed values to records."""

from collections.abc import Mapping
from functools import partial
from typing import Any

import pyarrow as pa
import pytest

from starling_common.settings import Clock
from starling_common.wire import DecodeError
from starling_spark.jobs.profiles.definitions.plans import compile_traits
from starling_spark.jobs.profiles.fold.bucket import Computed
from starling_spark.jobs.profiles.fold.chunks import Refusal
from starling_spark.jobs.profiles.fold.matches import ChunkBuilder, RecordDecoders
from starling_spark.jobs.profiles.fold.outputs import RECORDS_PER_PACK, OutputBatches, computed_encoder, unpack
from starling_spark.kafka.codec import TopicSchema, Wire
from starling_spark.kafka.sources import Raw
from tests.unit.spark.keeping import ORDERS, START_MS, defined, traits

EVENTS: Mapping[bytes, tuple[Any, ...]] = {
    b"order": ("w", "ä/1", "Order Completed", START_MS, "c-order", "{}"),
    b"view": ("w", "ann", "Page Viewed", START_MS + 9, "c-view", "{}"),
}


def chunks(clock: Clock, *raws: Raw, not_before_ms: int = 0) -> dict[int, tuple[int, str, list[tuple[str, int, int]]]]:
    """Partition -> (stream time, what moved it, hits as (user, event time, stream time))."""

    def read_event(value: bytes) -> tuple[Any, ...]:
        if value not in EVENTS:
            raise DecodeError("broken_avro", "junk")
        return EVENTS[value]

    def read_clock(_value: bytes) -> tuple[int, str]:
        return START_MS + 50, "c-tick"

    def refuse(raw: Raw, code: str, message: str) -> Refusal:
        return Refusal(raw.key, f"{code}: {message}".encode(), raw.timestamp_ms, "")

    reading = RecordDecoders("events", clock, not_before_ms, read_event, read_clock, refuse)
    builder = ChunkBuilder(reading, compile_traits(traits(defined("n", ORDERS))))
    for raw in raws:
        builder.add(raw.topic, raw.partition, raw.timestamp_ms, raw.value, partial(_same, raw))
    return {
        number: (
            chunk.now_ms,
            chunk.moved_by,
            [(name, time_ms, now_ms) for name, user in chunk.users.items() for time_ms, now_ms, _ in user.hits],
        )
        for number, chunk in builder.chunks().items()
    }


def _same(raw: Raw) -> Raw:
    return raw


def raw(topic: str | None, partition: int, value: bytes, timestamp_ms: int = 7) -> Raw:
    return Raw(topic, partition, 0, timestamp_ms, b"k", value, None)


def test_each_partition_has_its_own_stream_time() -> None:
    found = chunks(
        Clock.EVENT, raw("events", 0, b"view"), raw("events", 1, b"order"), raw("clock", 1, b"tick"), raw("events", 2, b"junk")
    )
    assert found == {
        0: (START_MS + 9, "c-view", []),
        1: (START_MS + 50, "c-tick", [("w/ä/1", START_MS, START_MS)]),
        2: (0, "", []),
    }


def test_a_late_event_meets_the_stream_time_that_was_reached() -> None:
    found = chunks(Clock.EVENT, raw("events", 0, b"view"), raw("events", 0, b"order"))
    assert found[0] == (START_MS + 9, "c-view", [("w/ä/1", START_MS, START_MS + 9)])


def test_the_wall_clock_is_the_time_of_receipt_or_a_heartbeat_and_never_before_the_start() -> None:
    records = [raw("events", 0, b"order", START_MS + 3), raw("clock", 0, b"tick"), raw(None, 1, b"", START_MS + 4)]
    assert chunks(Clock.WALL, *records) == {
        0: (START_MS + 3, "c-order", [("w/ä/1", START_MS, START_MS + 3)]),
        1: (START_MS + 4, "", []),
    }
    late_start = chunks(Clock.WALL, *records, not_before_ms=START_MS + 60)
    assert late_start == {0: (START_MS + 60, "", [("w/ä/1", START_MS, START_MS + 60)]), 1: (START_MS + 60, "", [])}


def computed(**changed: Any) -> Computed:
    (trait,) = traits(defined("n", ORDERS))
    return Computed("w/ä/1", trait, "3", START_MS, 17, "c", 9)._replace(**changed)


CODEC = Wire("http://127.0.0.1:1", (TopicSchema("t", "AggregateComputed", 7),)).codec("t")
ENCODE = computed_encoder(CODEC, 1_767_225_600)


def published(**changed: Any) -> dict[str, Any]:
    return CODEC.decode(ENCODE(computed(**changed)))


def test_a_record_names_its_user_and_trait() -> None:
    found = published()
    assert (found["workspace"], found["user_id"], found["trait_key"], found["trait_version"]) == ("w", "ä/1", "n", 1)
    assert (found["value"], found["as_of"], found["received_at"], found["correlation_id"]) == ("3", START_MS, 17, "c")
    assert (found["epoch"], found["sequence"]) == (1_767_225_600, 9)
    assert published(value=None)["value"] is None
    assert published(value="0.5")["value"] == "0.5"
    assert CODEC.encode(found) == ENCODE(computed())


def test_a_repeated_record_has_the_same_id() -> None:
    assert published()["event_id"] == published(received_at=99, correlation_id="d")["event_id"]


@pytest.mark.parametrize("changed", [{"user": "w/2"}, {"value": "4"}, {"value": None}, {"as_of": 1}])
def test_a_different_record_has_another_id(changed: dict[str, Any]) -> None:
    assert published()["event_id"] != published(**changed)["event_id"]


@pytest.mark.parametrize("count", [0, 1, RECORDS_PER_PACK, 2 * RECORDS_PER_PACK + 1])
def test_records_are_unpacked_as_they_were_packed(count: int) -> None:
    rows = [("t", number % 3, None if number % 2 else b"k", b"v%d" % number, number, f"c{number}", None) for number in range(count)]
    outputs = OutputBatches()
    for row in rows:
        outputs.add(row)
    packed = outputs.packed()
    assert len(packed) == -(-count // RECORDS_PER_PACK)
    batches = unpack(pa.RecordBatch.from_pydict({"packed": pa.array([one], pa.binary())}) for one in packed)
    assert [tuple(row.values()) for batch in batches for row in batch.to_pylist()] == rows
