"""What happened, in the order in which the segmenter folded it: DataFrame in, DataFrame out."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final, NamedTuple

from pyspark.sql import Column, DataFrame, Row, Window, functions, types

from starling_common.message_events import PROPERTIES
from starling_common.settings import Clock
from starling_common.topics import BEHAVIOUR, CLOCK, DELIVERY, INGEST_TOPICS, LIST_MEMBERSHIP, PROFILE

FIELDS: Final[Mapping[str, tuple[str, ...]]] = {
    BEHAVIOUR: ("received_at", "event_time", "name", "message_id", "anonymous_ids", "properties", "context", "correlation_id"),
    PROFILE: ("received_at", "event_time", "change", "message_id", "anonymous_ids", "traits", "group_id", "correlation_id"),
    CLOCK: ("received_at", "instant"),
    LIST_MEMBERSHIP: ("received_at", "workspace", "user_id", "list_key", "on_list", "correlation_id"),
    DELIVERY: ("received_at", "event_time", "correlation_id", *PROPERTIES),
}
"""Topic -> what is taken of its records. Of records of one instant that of an earlier topic goes first."""

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
"""One record of the past. `place`: that of its topic in `FIELDS`; `instant_ms`: the event's own time, or what the clock says;
`refused`: it cannot be read, and nothing else is known of it. Of what became of a message `name` is the outcome, and `instant_ms`
is when it counts, once `timed` has told.
"""

ORDER: Final = ("received_at", "place", "offset")


class Origin(NamedTuple):
    """Columns: where in Kafka a record was, whose it is, and whether it cannot be read."""

    partition: Column
    offset: Column
    key: Column
    refused: Column


@dataclass(frozen=True, slots=True)
class Reached:
    """How far a partition is when the replay ends.

    `last_ms`: its stream time; `is_over`: a clock record said that this instant is over; `next_micros`: when the first record
    came that moved time beyond the replay's end, None if none did; `unreadable`: so many records cannot be read.
    """

    last_ms: int
    is_over: bool
    next_micros: int | None
    unreadable: int = 0

    def now_ms(self, until_ms: int) -> int:
        """Up to when time alone has changed what it had to: a timer due at the very last instant waits for what else may come."""
        if self.next_micros is not None:
            return until_ms
        return self.last_ms if self.is_over else self.last_ms - 1


def past_rows(found: DataFrame, topic: str, fields: Sequence[str]) -> DataFrame:
    """The records of one topic. Shape: in as `decoding.decoded`, with these fields of the topic; out `PAST`."""
    own = {name: functions.col(f"record.{name}") for name in fields}
    key = _key(own) if topic == LIST_MEMBERSHIP else functions.col("key")
    where = Origin(functions.col("partition"), functions.col("offset"), key, functions.col("refused").isNotNull())
    # A compacted topic forgets a key by a record without a value.
    return found.where("value IS NOT NULL").select(*_columns(own, topic, where))


def lake_rows(table: DataFrame, topic: str, fields: Sequence[str], position: Mapping[int, int]) -> DataFrame:
    """The same of a table of the lake, before that position (partition -> offset); what came meanwhile is not in. Out `PAST`."""
    own = {name: functions.col(name) for name in fields}
    place = {name: functions.col(f"origin_{name}") for name in ("partition", "offset", "key")}
    is_in = functions.lit(False)
    for partition, end in position.items():
        is_in |= (place["partition"] == partition) & (place["offset"] < end)
    return table.where(is_in).select(*_columns(own, topic, Origin(**place, refused=functions.lit(False))))


def corrected_rows(table: DataFrame, topic: str, prefix: str) -> DataFrame:
    """The same of a table that a reprocessing wrote: its rows have the places of the items that they are of. Out `PAST`."""
    own = {name: functions.col(name) for name in FIELDS[topic]}
    # Items of one instant were taken topic by topic; what was computed came after them.
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
    made: dict[str, Column] = {
        **own,
        **origin._asdict(),
        "place": functions.lit(list(FIELDS).index(topic)),
        "received_at": functions.unix_micros(own["received_at"]),
        "instant_ms": functions.lit(None) if moment is None else functions.unix_millis(moment),
    }
    return [made.get(one.name, functions.lit(None)).cast(one.dataType).alias(one.name) for one in PAST.fields]


def _reported(own: Mapping[str, Column]) -> Mapping[str, Column]:
    """As `message_events` has it: in its place by when it was reported, and without a time of its own."""
    return {
        "received_at": functions.greatest(own["received_at"], own["event_time"]),
        "name": own["outcome"],
        "properties": functions.to_json(functions.struct(*[own[name].alias(name) for name in PROPERTIES])),
        "correlation_id": own["correlation_id"],
    }


def timed(past: DataFrame, clock: Clock) -> DataFrame:
    """The same with `stream_ms`: what stream time was when the record was folded. A partition is sorted by one task."""
    in_order = Window.partitionBy("partition").orderBy(*ORDER).rowsBetween(Window.unboundedPreceding, Window.currentRow)
    instant = functions.floor(functions.col("received_at") / 1000) if clock is Clock.WALL else functions.col("instant_ms")
    found = past.withColumn("stream_ms", functions.coalesce(functions.max(instant).over(in_order), functions.lit(0)))
    # As `history.reported_ms`.
    reported_ms = instant if clock is Clock.WALL else functions.col("stream_ms")
    is_report = functions.col("place") == list(FIELDS).index(DELIVERY)
    return found.withColumn("instant_ms", functions.when(is_report, reported_ms).otherwise(functions.col("instant_ms")))


def reached(past: DataFrame, until_ms: int, clock: Clock) -> dict[int, Reached]:
    """How far each partition is at that instant. Shape: in as `timed`; reads it."""
    within = functions.col("stream_ms") <= until_ms
    told = within & (functions.col("place") == list(FIELDS).index(CLOCK))
    found = past.groupBy("partition").agg(
        functions.max(functions.when(within, functions.col("stream_ms"))).alias("last"),
        functions.max(functions.when(told, functions.col("instant_ms"))).alias("told"),
        functions.min(functions.when(~within, functions.col("received_at"))).alias("beyond"),
        functions.count_if("refused").alias("unreadable"),
    )
    return {row["partition"]: _reached(row, until_ms, clock) for row in found.collect()}


def of_people(past: DataFrame, until_ms: int) -> DataFrame:
    """What each person did up to that instant, person by person, in order. Shape: in and out as `timed`."""
    is_somebodys = ~functions.col("refused") & (functions.col("place") != list(FIELDS).index(CLOCK))
    theirs = past.where(is_somebodys & (functions.col("stream_ms") <= until_ms))
    return theirs.repartition("partition", "key").sortWithinPartitions("partition", "key", *ORDER)


def _reached(row: Row, until_ms: int, clock: Clock) -> Reached:
    if clock is Clock.WALL:  # time goes on by itself: up to the end, and no further
        return Reached(until_ms, True, (until_ms + 1) * 1000, row["unreadable"])
    last_ms = row["last"] or 0
    return Reached(last_ms, (row["told"] or -1) >= last_ms, row["beyond"], row["unreadable"])


def _key(own: Mapping[str, Column]) -> Column:
    return functions.encode(functions.concat_ws("/", own["workspace"], own["user_id"]), "utf-8")
