"""Raw records to chunks, and computed values to records."""

from collections.abc import Mapping
from typing import Any

import pytest

from starling_common.settings import Clock
from starling_common.wire import DecodeError
from starling_spark.profiles.folding import Computed, Refusal
from starling_spark.profiles.matches import ChunkBuilder, Raw, Reading
from starling_spark.profiles.matching import Matcher
from starling_spark.profiles.transform import aggregate_record
from tests.unit.spark.keeping import ORDERS, START_MS, defined, record, traits

VALUES: Mapping[bytes, Mapping[str, Any]] = {
    b"order": {**record("Order Completed", START_MS, {}), "workspace": "w", "user_id": "ä/1", "correlation_id": "c-order"},
    b"view": {**record("Page Viewed", START_MS + 9, {}), "workspace": "w", "user_id": "ann", "correlation_id": "c-view"},
    b"tick": {"instant": START_MS + 50, "correlation_id": "c-tick"},
}


def chunks(clock: Clock, *raws: Raw, not_before_ms: int = 0) -> dict[int, tuple[int, str, list[tuple[str, int, int]]]]:
    """Partition -> (stream time, what moved it, hits as (user, event time, stream time))."""

    def decode(_topic: str, value: bytes) -> Mapping[str, Any]:
        if value not in VALUES:
            raise DecodeError("broken_avro", "junk")
        return VALUES[value]

    def refuse(raw: Raw, code: str, message: str) -> Refusal:
        return Refusal(raw.key, f"{code}: {message}".encode(), raw.timestamp_ms, "")

    builder = ChunkBuilder(Reading("events", clock, not_before_ms, decode, refuse), Matcher(traits(defined("n", ORDERS))))
    for raw in raws:
        builder.add(raw)
    return {
        number: (chunk.now_ms, chunk.moved_by, [(hit.user, hit.event_ms, hit.now_ms) for hit in chunk.hits])
        for number, chunk in builder.chunks().items()
    }


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
    return Computed("w/ä/1", trait, 3, START_MS, 17, "c")._replace(**changed)


def test_a_record_says_whose_value_it_is() -> None:
    found = aggregate_record(computed())
    assert (found["workspace"], found["user_id"], found["trait_key"], found["trait_version"]) == ("w", "ä/1", "n", 1)
    assert (found["value"], found["as_of"], found["received_at"]) == ("3", START_MS, 17)
    assert aggregate_record(computed(value=None))["value"] is None
    assert aggregate_record(computed(value=0.5))["value"] == "0.5"


def test_told_again_it_has_the_same_id() -> None:
    assert aggregate_record(computed())["event_id"] == aggregate_record(computed(received_at=99, correlation_id="d"))["event_id"]


@pytest.mark.parametrize("changed", [{"user": "w/2"}, {"value": 4}, {"value": None}, {"as_of": 1}])
def test_what_says_something_else_has_another_id(changed: dict[str, Any]) -> None:
    assert aggregate_record(computed())["event_id"] != aggregate_record(computed(**changed))["event_id"]
