"""The normalizer's stages in Spark, beside the real normalizer: what both make of the same items is the same. No broker."""

import json
from collections import Counter

import pytest
from pyspark.sql import DataFrame, SparkSession, functions

from starling_common.kafka.topics import INGEST_TOPICS
from starling_common.settings import Clock
from starling_items.enrich import Product
from starling_spark.jobs.lake.transform import columns, read, refused, rows
from starling_spark.jobs.reprocess.fold import raw
from starling_spark.jobs.reprocess.fold.folding import Making
from starling_spark.jobs.reprocess.fold.results import results, with_instants
from starling_spark.kafka.decoding import Reading, decoded
from starling_spark.kafka.sources import RECORDS
from starling_spark.lakehouse.schema.tables import ORIGIN, TABLES, LakeTable
from tests.spark.received import WIRE, Past, lived

TABLE = {one.name: one for one in TABLES}


def given(spark: SparkSession, past: Past) -> DataFrame:
    """All that was received, through the lake's own transforms."""
    items, changes, events = (
        read_table(spark, past, TABLE[name]) for name in ("ingest_items", "profile_changes", "behaviour_events")
    )
    there = {name: columns(TABLE[name], WIRE) for name in TABLE}
    again = refused(items).selectExpr(
        "origin_topic AS topic", "origin_partition AS partition", "origin_offset AS offset",
        "unix_millis(origin_timestamp) AS timestamp_ms", "origin_key AS key", "value", "headers",
    )  # fmt: skip
    found = (
        raw.items(rows(items, there["ingest_items"]), "")
        .unionByName(raw.quarantined(decoded(again, Reading.plain(WIRE, INGEST_TOPICS[0])), ""))
        .unionByName(raw.computed(rows(changes, there["profile_changes"])))
    )
    return raw.with_products(found, rows(events, there["behaviour_events"]))


def read_table(spark: SparkSession, past: Past, table: LakeTable) -> DataFrame:
    records = spark.createDataFrame(past.of(*table.topics), RECORDS)
    return read(records, table, WIRE, columns(table, WIRE))


PLACE = ("order", "previous_order")
"""The place among the live events, which a reprocessing does not compute."""


def as_text(events: DataFrame) -> Counter[str]:
    own = [name for name in events.columns if name not in (*ORIGIN.fieldNames(), *PLACE)]
    return Counter(row[0] for row in events.select(functions.to_json(functions.struct(*own))).collect())


@pytest.mark.parametrize("clock", [Clock.EVENT, Clock.WALL])
def test_the_same_items_come_out_as_the_normalizer_wrote_them(spark: SparkSession, clock: Clock) -> None:
    """Few questions to Spark: each costs more than all that is computed."""
    past = lived(clock, seed=7)
    given_now = Making(clock, {b"default/sku-2": Product("hats", 9.0, None, None)})
    making = lambda: given_now  # noqa: E731 - it goes to the workers as it is
    found = given(spark, past)
    timed = raw.timed(with_instants(found, making) if clock is Clock.EVENT else found, clock)
    made = results(raw.of_users(timed), WIRE, making).select(
        "outcome", *[f"origin_{name}" for name in ("topic", "partition", "offset")], "refused.code", "refused.message",
        *[functions.to_json(functions.col(name).dropFields(*PLACE)).alias(name) for name in ("behaviour", "profile")],
    ).collect()  # fmt: skip
    for column, table in (("behaviour", "behaviour_events"), ("profile", "profile_changes")):
        live = as_text(rows(read_table(spark, past, TABLE[table]), columns(TABLE[table], WIRE)))
        assert Counter(row[column] for row in made if row[column] is not None) == live
        assert live.total() > 20
    hats = [row["behaviour"] for row in made if "sku-2" in (row["behaviour"] or "")]
    assert json.loads(hats[0])["products"] == [{"product_id": "sku-2"}], "it was not in the catalog then"
    why = [tuple(row)[1:6] for row in made if row["outcome"] == "refused"]
    assert sorted(why) == sorted(past.refused)
    assert len({code for *_, code, _ in past.refused}) >= 10, "bad items of many kinds"
    outcomes = Counter(row["outcome"] for row in made)
    assert outcomes["duplicate"] == past.outcomes.count("DUPLICATE") > 5
    items = [row for row in made if row["origin_topic"] in INGEST_TOPICS]
    assert len(items) == past.received_count(), "an item of which nothing became would be lost"
