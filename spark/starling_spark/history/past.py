"""Past records in the order in which the segmenter processed them: DataFrame in, DataFrame out."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final, NamedTuple

from pyspark.sql import Column, DataFrame, Row, Window, functions, types

from starling_common.kafka.topics import BEHAVIOUR, CLOCK, DELIVERY, INGEST_TOPICS, LIST_MEMBERSHIP, PROFILE
from starling_common.records.message_events import PROPERTIES
from starling_common.settings import Clock

FIELDS: Final[Mapping[str, tuple[str, ...]]] = {
    BEHAVIOUR: (
        "received_at",
        "event_time",
        "name",
        "message_id",
        "anonymous_ids",
        "properties",
        "context",
        "correlation_id",
        "order",
    ),
    PROFILE: (
        "received_at",
        "event_time",
        "change",
        "message_id",
        "anonymous_ids",
        "traits",
        "group_id",
        "correlation_id",
        "order",
    ),
    CLOCK: ("received_at", "instant"),
    LIST_MEMBERSHIP: ("received_at", "workspace", "user_id", "list_key", "on_list", "correlation_id"),
    DELIVERY: ("received_at", "event_time", "correlation_id", *PROPERTIES),
}
"""Topic -> the fields that are read. Records of the same instant are ordered by the order of these topics."""

_TEXT: Final = types.StringType()
PAST: Final = types.StructType(
    [
        types.StructField("partition", types.IntegerType()),
        types.StructField("place", types.IntegerType()),
        types.StructField("offset", types.LongType()),
        types.StructField("key", types.BinaryType()),
        types.StructField("received_at", types.LongType()),
        types.StructField("instant_ms", types.LongType()),
        *[types.StructField(name, _TEXT) for name in ("name", "change", "message_id", "correlation_id")],
        types.StructField("anonymous_ids", types.ArrayType(_TEXT)),
        *[types.StructField(name, _TEXT) for name in ("properties", "context", "traits", "group_id", "list_key")],
        types.StructField("on_list", types.BooleanType()),
        types.StructField("refused", types.BooleanType()),
    ]
)
"""A past record. `place`: the index of its topic in `FIELDS`; `received_at`: the normalizer's order, where the record has one;
`instant_ms`: the event's own time, or the clock's instant; `refused`: the record is unreadable, and its other columns are null.
For a delivery report `name` is the outcome, and `timed` sets `instant_ms` to the time at which it counts.
"""

ORDER: Final = ("received_at", "place", "offset")


class Origin(NamedTuple):
    """The columns of a record's origin in Kafka, its key, and whether it is unreadable."""

    partition: Column
    offset: Column
    key: Column
    refused: Column


@dataclass(frozen=True, slots=True)
class Reached:
    """The state of a partition at the end of the replay.

    `last_ms`: its stream time; `is_over`: a clock record has advanced time to this instant; `next_micros`: when the first record
    beyond the replay's end was received, None without one; `unreadable`: the number of unreadable records.
    """

    last_ms: int
    is_over: bool
    next_micros: int | None
    unreadable: int = 0

    def now_ms(self, until_ms: int) -> int:
        """Return the instant up to which timers have fired: one at `last_ms` waits for further records unless `is_over`."""
        if self.next_micros is not None:
            return until_ms
        return self.last_ms if self.is_over else self.last_ms - 1


def past_rows(found: DataFrame, topic: str, fields: Sequence[str]) -> DataFrame:
    """Return the records of one topic. In: decoded records with these fields. Out: `PAST`, one shape for every topic."""
    own = {name: functions.col(f"record.{name}") for name in fields}
    key = _key(own) if topic == LIST_MEMBERSHIP else functions.col("key")
    where = Origin(functions.col("partition"), functions.col("offset"), key, functions.col("refused").isNotNull())
    # A record without a value deletes a key of a compacted topic.
    return found.where("value IS NOT NULL").select(*_columns(own, topic, where))


def lake_rows(table: DataFrame, topic: str, fields: Sequence[str], position: Mapping[int, int]) -> DataFrame:
    """Return the records of a lake table before that position (partition -> offset). Out `PAST`."""
    own = {name: functions.col(name) for name in fields if name in table.columns}
    origin = {name: functions.col(f"origin_{name}") for name in ("partition", "offset", "key")}
    is_in = functions.lit(False)
    for partition, end in position.items():
        is_in |= (origin["partition"] == partition) & (origin["offset"] < end)
    return table.where(is_in).select(*_columns(own, topic, Origin(**origin, refused=functions.lit(False))))


def corrected_rows(table: DataFrame, topic: str, prefix: str) -> DataFrame:
    """Return the records of a corrected table of a reprocessing; a row has the origin of its ingest item. Out `PAST`."""
    own = {name: functions.col(name) for name in FIELDS[topic] if name in table.columns}
    # The normalizer processes items of one instant topic by topic, and computed traits after them.
    order = functions.array(*[functions.lit(prefix + one) for one in INGEST_TOPICS])
    rank = functions.array_position(order, functions.col("origin_topic"))
    behind = functions.when(rank == 0, len(INGEST_TOPICS) + 1).otherwise(rank)
    offset = functions.shiftleft(behind.cast("long"), 56) + functions.col("origin_offset")
    where = Origin(functions.col("origin_partition"), offset, functions.col("origin_key"), functions.lit(False))
    return table.select(*_columns(own, topic, where))


def _columns(own: Mapping[str, Column], topic: str, origin: Origin) -> list[Column]:
    if topic == DELIVERY:
        own = _reported(own)
    moment = own.get("event_time", own.get("instant"))
    received_at = own["received_at"]
    made: dict[str, Column] = {
        **own,
        **origin._asdict(),
        "place": functions.lit(list(FIELDS).index(topic)),
        "received_at": functions.unix_micros(functions.greatest(received_at, own["order"]) if "order" in own else received_at),
        "instant_ms": functions.lit(None) if moment is None else functions.unix_millis(moment),
    }
    return [made.get(one.name, functions.lit(None)).cast(one.dataType).alias(one.name) for one in PAST.fields]


def _reported(own: Mapping[str, Column]) -> Mapping[str, Column]:
    """Return the columns of a delivery report: an event without an own time, in the order of the reports."""
    return {
        "received_at": functions.greatest(own["received_at"], own["event_time"]),
        "name": own["outcome"],
        "properties": functions.to_json(functions.struct(*[own[name].alias(name) for name in PROPERTIES])),
        "correlation_id": own["correlation_id"],
    }


def timed(past: DataFrame, clock: Clock) -> DataFrame:
    """Return the records with `stream_ms`: the stream time at which the record was processed. One task sorts a partition."""
    in_order = Window.partitionBy("partition").orderBy(*ORDER).rowsBetween(Window.unboundedPreceding, Window.currentRow)
    instant = functions.floor(functions.col("received_at") / 1000) if clock is Clock.WALL else functions.col("instant_ms")
    found = past.withColumn("stream_ms", functions.coalesce(functions.max(instant).over(in_order), functions.lit(0)))
    # As `history.reported_ms`.
    reported_ms = instant if clock is Clock.WALL else functions.col("stream_ms")
    is_report = functions.col("place") == list(FIELDS).index(DELIVERY)
    return found.withColumn("instant_ms", functions.when(is_report, reported_ms).otherwise(functions.col("instant_ms")))


def reached(past: DataFrame, until_ms: int, clock: Clock) -> dict[int, Reached]:
    """Return the state of each partition at that instant. Shape: in as `timed`; runs a Spark job."""
    within = functions.col("stream_ms") <= until_ms
    ticks = within & (functions.col("place") == list(FIELDS).index(CLOCK))
    found = past.groupBy("partition").agg(
        functions.max(functions.when(within, functions.col("stream_ms"))).alias("last"),
        functions.max(functions.when(ticks, functions.col("instant_ms"))).alias("clock"),
        functions.min(functions.when(~within, functions.col("received_at"))).alias("beyond"),
        functions.count_if("refused").alias("unreadable"),
    )
    return {row["partition"]: _reached(row, until_ms, clock) for row in found.collect()}


def of_users(past: DataFrame, until_ms: int) -> DataFrame:
    """Return the records of each user up to that instant, user by user, in order. Shape: in and out as `timed`."""
    has_user = ~functions.col("refused") & (functions.col("place") != list(FIELDS).index(CLOCK))
    theirs = past.where(has_user & (functions.col("stream_ms") <= until_ms))
    return theirs.repartition("partition", "key").sortWithinPartitions("partition", "key", *ORDER)


def _reached(row: Row, until_ms: int, clock: Clock) -> Reached:
    if clock is Clock.WALL:  # the wall clock reaches the end without a record
        return Reached(until_ms, True, (until_ms + 1) * 1000, row["unreadable"])
    last_ms = row["last"] or 0
    return Reached(last_ms, (row["clock"] or -1) >= last_ms, row["beyond"], row["unreadable"])


def _key(own: Mapping[str, Column]) -> Column:
    return functions.encode(functions.concat_ws("/", own["workspace"], own["user_id"]), "utf-8")
