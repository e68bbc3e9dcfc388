"""All inputs of the normalizer, from the lake, in their processing order: DataFrame in, DataFrame out.

Items are in `ingest_items` and in the quarantine, because the lake refuses some items that the normalizer accepts. Computed traits
are in `profile_changes`, as far as they changed a profile.
"""

from collections.abc import Mapping, Sequence
from functools import cache
from typing import Final

from pyspark.sql import Column, DataFrame, Window, functions, types

from starling_common.kafka.topics import INGEST_TOPICS
from starling_common.records.dead_letters import clock_ahead
from starling_common.settings import Clock
from starling_common.time.instants import LATEST_MS, MAX_EDGE_AHEAD_MS
from starling_common.wire import schema_text
from starling_spark.kafka.columns import columns_of
from starling_spark.kafka.decoding import REFUSED
from starling_spark.lakehouse.in_force import covered

_TEXT: Final = types.StringType()
PRODUCTS: Final = types.ArrayType(
    types.StructType(
        [
            types.StructField("product_id", _TEXT),
            types.StructField("category", _TEXT),
            types.StructField("price", types.DoubleType()),
            types.StructField("brand", _TEXT),
            types.StructField("name", _TEXT),
        ]
    )
)
"""The catalog's entries of an event's products at normalisation."""

COMPUTED: Final = types.StructType(
    [
        *[types.StructField(name, _TEXT) for name in ("workspace", "user_id", "changed", "traits", "event_id", "correlation_id")],
        types.StructField("as_of", types.LongType()),
    ]
)
"""A computed trait that changed a profile: `changed` is `computed.<key>`; `traits` has its value."""

PLACE: Final = types.StructType(
    [
        types.StructField("origin_topic", _TEXT),
        types.StructField("origin_partition", types.IntegerType()),
        types.StructField("origin_offset", types.LongType()),
        types.StructField("origin_micros", types.LongType()),
        types.StructField("origin_key", types.BinaryType()),
    ]
)
"""The columns `lake.tables.ORIGIN`, the time as epoch microseconds."""

COMPUTED_RANK: Final = len(INGEST_TOPICS)
ORDER: Final = ("received_at", "rank", "origin_offset")
"""The merge order of the stream layer: records of the same instant are ordered by topic."""


@cache
def raw_columns() -> types.StructType:
    """Return `PLACE` and the content: one of `item`, `computed` and `refused` is not null.

    `rank`: index of the topic among the normalizer's; `received_at` (epoch microseconds) orders the rows; `products`: null without
    an event; `value`: the bytes of an unreadable record.
    """
    return types.StructType(
        [
            *PLACE.fields,
            types.StructField("rank", types.IntegerType()),
            types.StructField("received_at", types.LongType()),
            types.StructField("item", item_columns()),
            types.StructField("computed", COMPUTED),
            types.StructField("products", PRODUCTS),
            types.StructField("value", types.BinaryType()),
            types.StructField("refused", REFUSED),
        ]
    )


@cache
def item_columns() -> types.StructType:
    """Return the columns of `IngestReceived`, its instant as epoch microseconds."""
    fields = columns_of(schema_text("IngestReceived")).fields
    return types.StructType([types.StructField(one.name, _plain(one.dataType)) for one in fields])


def items(table: DataFrame, prefix: str) -> DataFrame:
    """Return the rows of `ingest_items`. Out: `raw_columns`; a column that the table lacks is null."""
    return _shaped(table, {"rank": _rank(prefix), **_item({name: functions.col(name) for name in table.columns})})


def quarantined(found: DataFrame, prefix: str) -> DataFrame:
    """Return items that the lake refused, decoded again or refused permanently, in the columns of raw items."""
    record = functions.col("record")
    own = _item({name: record[name] for name in item_columns().fieldNames()})
    there = record.isNotNull()
    made: dict[str, Column] = {
        "origin_topic": functions.col("topic"),
        "origin_partition": functions.col("partition"),
        "origin_offset": functions.col("offset"),
        "origin_micros": functions.col("timestamp_ms") * 1000,
        "origin_key": functions.col("key"),
        "item": functions.when(there, own["item"]),
        "received_at": functions.when(there, own["received_at"]).otherwise(functions.col("timestamp_ms") * 1000),
        "value": functions.when(~there, functions.col("value")),
        "refused": functions.coalesce(own["refused"], functions.col("refused")),
    }
    ranked = found.withColumn("origin_topic", functions.col("topic"))
    return _shaped(ranked, {"rank": _rank(prefix), **made})


def computed(table: DataFrame) -> DataFrame:
    """Return the computed traits of `profile_changes`. Out: `raw_columns`."""
    changes = table.where("change = 'COMPUTED'")
    made = {
        "changed": functions.get("changed", functions.lit(0)),
        "as_of": functions.unix_millis("event_time"),
        **{name: functions.col(name) for name in ("workspace", "user_id", "traits", "event_id", "correlation_id")},
    }
    own = functions.struct(*[made[field.name].alias(field.name) for field in COMPUTED.fields])
    received_at = functions.unix_micros("received_at")
    return _shaped(changes, {"rank": functions.lit(COMPUTED_RANK), "received_at": received_at, "computed": own})


def with_products(raw: DataFrame, events: DataFrame) -> DataFrame:
    """Return the rows with the products on the item's event, if it exists. In and out: `raw_columns`.

    `events`: rows of `behaviour_events`.
    """
    keys = ["origin_partition", "received_at", "message_id", "kind"]
    known = (
        events.where(functions.size("products") > 0)
        .withColumn("received_at", functions.unix_micros("received_at"))
        .select(*keys, functions.col("products").cast(PRODUCTS).alias("event_products"))
        .dropDuplicates(keys)
    )
    apart = raw.withColumn("message_id", functions.col("item.message_id")).withColumn("kind", functions.col("item.kind"))
    return apart.join(known, keys, "left").withColumn("products", functions.col("event_products")).select(*raw.columns)


def up_to(raw: DataFrame, cut: Mapping[int, int]) -> DataFrame:
    """Return the rows of the partitions of `cut` received up to and at its instant (epoch microseconds)."""
    return raw.where(covered(cut, functions.col("received_at")))


def timed(raw: DataFrame, clock: Clock) -> DataFrame:
    """Return the rows with `stream_ms`: the stream time at which the row was processed. One task sorts a partition.

    With the event clock the rows have `instant_ms`, the event's own time, null for a row that does not advance it.
    """
    in_order = Window.partitionBy("origin_partition").orderBy(*ORDER).rowsBetween(Window.unboundedPreceding, Window.currentRow)
    instant = functions.floor(functions.col("received_at") / 1000) if clock is Clock.WALL else functions.col("instant_ms")
    return raw.withColumn("stream_ms", functions.coalesce(functions.max(instant).over(in_order), functions.lit(0)))


def of_users(raw: DataFrame) -> DataFrame:
    """Return the rows user by user, in order. In and out: as `timed`."""
    return raw.repartition("origin_partition", "origin_key").sortWithinPartitions("origin_partition", "origin_key", *ORDER)


def _item(found: Mapping[str, Column]) -> dict[str, Column]:
    micros = functions.unix_micros(found["received_at"])
    of = {**found, "received_at": micros}
    fields = item_columns().fields
    own = functions.struct(*[of.get(one.name, functions.lit(None)).cast(one.dataType).alias(one.name) for one in fields])
    # An item with an impossible time of receipt, or one of an edge whose clock is ahead, is refused and ordered by the broker's
    # timestamp.
    origin = found.get("origin_timestamp")
    broker_micros = functions.col("timestamp_ms") * 1000 if origin is None else functions.unix_micros(origin)
    possible = micros.between(0, LATEST_MS * 1000 + 999)
    is_ahead = possible & (broker_micros > 0) & (micros > broker_micros + MAX_EDGE_AHEAD_MS * 1000)
    why = clock_ahead(0)
    refused = functions.struct(
        functions.lit(why.code).alias("code"),
        functions.lit("received_at: is after the append at the broker").alias("message"),
        functions.lit(None).cast("bigint").alias("schema_id"),
    )
    received_at = functions.when(possible & ~is_ahead, micros).otherwise(broker_micros)
    return {"item": own, "received_at": received_at, "refused": functions.when(is_ahead, refused)}


def _rank(prefix: str) -> Column:
    names = functions.array(*[functions.lit(prefix + topic) for topic in INGEST_TOPICS])
    return functions.array_position(names, functions.col("origin_topic")).cast("int") - 1


def _shaped(rows: DataFrame, made: Mapping[str, Column]) -> DataFrame:
    there: Sequence[str] = rows.columns
    named = {
        **{name: functions.col(name) for name in PLACE.fieldNames() if name in there},
        **({"origin_micros": functions.unix_micros("origin_timestamp")} if "origin_timestamp" in there else {}),
        **made,
    }
    fields = raw_columns().fields
    return rows.select(*[named.get(one.name, functions.lit(None)).cast(one.dataType).alias(one.name) for one in fields])


def _plain(data_type: types.DataType) -> types.DataType:
    return types.LongType() if isinstance(data_type, types.TimestampType) else data_type
