"""The order of past events is the normalizer's, where they have one."""

from datetime import UTC, datetime, timedelta

from pyspark.sql import SparkSession

from starling_common.kafka.topics import BEHAVIOUR
from starling_spark.history.past import FIELDS, corrected_rows, lake_rows

BASE = datetime(2026, 1, 1, tzinfo=UTC)
SCHEMA = (
    "received_at timestamp, event_time timestamp, name string, message_id string, anonymous_ids array<string>, properties string, "
    "context string, correlation_id string, order timestamp, origin_topic string, origin_partition int, origin_offset bigint, "
    "origin_key binary"
)


def _at(micros: int) -> datetime:
    return BASE + timedelta(microseconds=micros)


def test_events_have_the_place_that_the_normalizer_gave_them(spark: SparkSession) -> None:
    epoch = datetime.fromtimestamp(0, UTC)
    orders = {"late": (1, _at(30)), "older release": (20, None), "older schema": (25, epoch), "usual": (40, _at(40))}
    rows: list[tuple[object, ...]] = [
        (_at(received), BASE, "E", name, [], "{}", "{}", "c", order, "ingest.track", 0, offset, b"default/u")
        for offset, (name, (received, order)) in enumerate(orders.items())
    ]
    table = spark.createDataFrame(rows, SCHEMA)
    expected = {"late": 30, "older release": 20, "older schema": 25, "usual": 40}
    base = int(BASE.timestamp()) * 1_000_000
    for found in (lake_rows(table, BEHAVIOUR, FIELDS[BEHAVIOUR], {0: 10}), corrected_rows(table, BEHAVIOUR, "")):
        assert {row["message_id"]: row["received_at"] - base for row in found.collect()} == expected
    (first, *_) = lake_rows(table.drop("order"), BEHAVIOUR, FIELDS[BEHAVIOUR], {0: 10}).orderBy("offset").collect()
    assert first["received_at"] - base == 1, "the table is of an older release, and was not extended yet"
