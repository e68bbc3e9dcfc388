"""All that the normalizer was given, from the lake, in the order in which it folded it: DataFrame in, DataFrame out.

Items come from `ingest_items`, and from the quarantine, for the lake refuses some that the normalizer takes. Computed traits
come from `profile_changes`: of all that were computed, those are there that changed a profile.
"""

from collections.abc import Mapping, Sequence
from functools import cache
from typing import Final

from pyspark.sql import Column, DataFrame, Window, functions, types

from starling_common.instants import LATEST_MS
from starling_common.settings import Clock
from starling_common.topics import INGEST_TOPICS
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
"""What the catalog said of an event's products when the event passed."""

COMPUTED: Final = types.StructType(
    [
        *[types.StructField(name, _TEXT) for name in ("workspace", "user_id", "changed", "traits", "event_id", "correlation_id")],
        types.StructField("as_of", types.LongType()),
    ]
)
"""A computed trait that changed a profile: `changed` is `computed.<key>`, and its value stands in `traits`."""

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
"""As the merge of the stream layer releases records: of one instant those of an earlier topic go first."""


@cache
def raw_columns() -> types.StructType:
    """`PLACE`, and of `item`, `computed` and `refused` the one that the row is.

    `rank`: that of its topic among the normalizer's; `received_at` (epoch microseconds) orders the rows; `products`: None where
    no event is known; `value`: the bytes of what could not be read.
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
    """An `IngestReceived`, its instant as epoch microseconds."""
    fields = columns_of(schema_text("IngestReceived")).fields
    return types.StructType([types.StructField(one.name, _plain(one.dataType)) for one in fields])


def items(table: DataFrame, prefix: str) -> DataFrame:
    """Rows of `ingest_items`. Out: `raw_columns`; a column that the table lacks is null."""
    return _shaped(table, {"rank": _rank(prefix), **_item({name: functions.col(name) for name in table.columns})})


def quarantined(found: DataFrame, prefix: str) -> DataFrame:
    """Items that the lake refused, read again or refused for good. In: as `decoding.decoded`; out: `raw_columns`."""
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
        "refused": functions.col("refused"),
    }
    ranked = found.withColumn("origin_topic", functions.col("topic"))
    return _shaped(ranked, {"rank": _rank(prefix), **made})


def computed(table: DataFrame) -> DataFrame:
    """Rows of `profile_changes`: what was computed. Out: `raw_columns`."""
    told = table.where("change = 'COMPUTED'")
    made = {
        "changed": functions.get("changed", functions.lit(0)),
        "as_of": functions.unix_millis("event_time"),
        **{name: functions.col(name) for name in ("workspace", "user_id", "traits", "event_id", "correlation_id")},
    }
    own = functions.struct(*[made[field.name].alias(field.name) for field in COMPUTED.fields])
    received_at = functions.unix_micros("received_at")
    return _shaped(told, {"rank": functions.lit(COMPUTED_RANK), "received_at": received_at, "computed": own})


def with_products(raw: DataFrame, events: DataFrame) -> DataFrame:
    """With what the catalog said when the item passed, where an event of it is known. In and out: `raw_columns`.

    `events`: rows of `behaviour_events`.
    """
    keys = ["origin_partition", "received_at", "message_id", "kind"]
    known = (
        events.where(functions.size("products") > 0)
        .withColumn("received_at", functions.unix_micros("received_at"))
        .select(*keys, functions.col("products").cast(PRODUCTS).alias("said"))
        .dropDuplicates(keys)
    )
    apart = raw.withColumn("message_id", functions.col("item.message_id")).withColumn("kind", functions.col("item.kind"))
    return apart.join(known, keys, "left").withColumn("products", functions.col("said")).select(*raw.columns)


def up_to(raw: DataFrame, cut: Mapping[int, int]) -> DataFrame:
    """Of the partitions of `cut`, what was received up to and at its instant (epoch microseconds)."""
    return raw.where(covered(cut, functions.col("received_at")))


def timed(raw: DataFrame, clock: Clock) -> DataFrame:
    """The same with `stream_ms`: what stream time was when the row was folded. A partition is sorted by one task.

    With the event clock the rows have `instant_ms`, the event's own time, null where a row does not move it.
    """
    in_order = Window.partitionBy("origin_partition").orderBy(*ORDER).rowsBetween(Window.unboundedPreceding, Window.currentRow)
    instant = functions.floor(functions.col("received_at") / 1000) if clock is Clock.WALL else functions.col("instant_ms")
    return raw.withColumn("stream_ms", functions.coalesce(functions.max(instant).over(in_order), functions.lit(0)))


def of_users(raw: DataFrame) -> DataFrame:
    """Person by person, in order. In and out: as `timed`."""
    return raw.repartition("origin_partition", "origin_key").sortWithinPartitions("origin_partition", "origin_key", *ORDER)


def _item(found: Mapping[str, Column]) -> dict[str, Column]:
    micros = functions.unix_micros(found["received_at"])
    of = {**found, "received_at": micros}
    fields = item_columns().fields
    own = functions.struct(*[of.get(one.name, functions.lit(None)).cast(one.dataType).alias(one.name) for one in fields])
    # One that was received at no possible time is refused; like all such it has the place that the broker gave it.
    possible = micros.between(0, LATEST_MS * 1000 + 999)
    there = found.get("origin_timestamp")
    told = functions.col("timestamp_ms") * 1000 if there is None else functions.unix_micros(there)
    return {"item": own, "received_at": functions.when(possible, micros).otherwise(told)}


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
