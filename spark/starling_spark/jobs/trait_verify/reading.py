"""Adapter: events, stream times and published values, from the lake up to its position and the rest from the topics."""

from collections.abc import Mapping, Sequence
from functools import reduce
from operator import or_
from types import MappingProxyType
from typing import Final

from pyspark.sql import Column, DataFrame, functions, types

from starling_common.kafka.topics import AGGREGATES, BEHAVIOUR, CLOCK, PROFILE, TRAIT_DEFINITIONS
from starling_common.settings import Clock
from starling_rules.sql.runs import PRODUCED_BY
from starling_spark.jobs.trait_verify.context import TOPICS, VerifyContext
from starling_spark.jobs.trait_verify.cut import Cut
from starling_spark.jobs.trait_verify.measures import EVENTS, Times
from starling_spark.jobs.trait_verify.trait import NotVerifiable, Trait, find_trait
from starling_spark.kafka.columns import columns_of
from starling_spark.kafka.decoding import Reading, decoded
from starling_spark.kafka.sources import RECORDS, kafka_past, kafka_spans
from starling_spark.lakehouse.in_force import EVENT_TABLES
from starling_spark.lakehouse.lineage import table_datasets
from starling_spark.lineage.datasets import Flow, kafka_topics

_EVENT: Final = ("workspace", "user_id", "name", "event_time", "properties", "context", "traits")
_CHANGE: Final = ("workspace", "user_id", "change", "changed", "traits", "received_at", "order")
_VALUE: Final = ("workspace", "user_id", "trait_key", "trait_version", "value", "as_of", "epoch", "sequence")


def flow(context: VerifyContext, *, versions: bool) -> Flow:
    """Return what a run reads. It writes nothing. `versions`: with the snapshots of the lake's tables."""
    topics = kafka_topics(context.settings.kafka.brokers, *[context.topic(topic) for topic in TOPICS])
    tables = () if context.lake is None else table_datasets(context.lake, *EVENT_TABLES.values(), versions=versions)
    return Flow((*topics, *tables))


def read_trait(context: VerifyContext, key: str, workspace: str | None) -> Trait:
    """Return the trait with that key. Raises: NotVerifiable."""
    topic = context.topic(TRAIT_DEFINITIONS)
    records = decoded(kafka_past(context.spark, context.settings.kafka.brokers, [topic]), Reading.plain(context.wire, topic))
    names = ("workspace", "key", "version", "action", "document")
    rows = records.where("record IS NOT NULL").select("offset", *[f"record.{name}" for name in names]).orderBy("offset")
    return find_trait(((row["offset"], row.asDict()) for row in rows.collect()), key, workspace)


def all_events(context: VerifyContext, cut: Cut) -> DataFrame:
    """Return the events of every workspace: workspace, and `measures.EVENTS`. Raises: NotVerifiable where some are deleted."""
    rows = _history(context, cut, BEHAVIOUR, _EVENT)
    columns = {"time_ms": functions.unix_millis("event_time"), "is_new": _is_new(cut, BEHAVIOUR)}
    return rows.withColumns(columns).select("workspace", *EVENTS.fieldNames())


def stream_times(context: VerifyContext, cut: Cut, events: DataFrame, published_ms: Mapping[int, int]) -> Mapping[int, Times]:
    """Return the stream times of each partition. `published_ms`: that of its latest value. Runs a Spark job."""
    if context.settings.clock is Clock.WALL:
        began_ms, ended_ms = cut.read_ms
        low_ms = began_ms - round(context.settings.trait_verify_late_seconds * 1000)
        return {number: Times(low_ms, max(ended_ms, published_ms.get(number, 0))) for number in cut.of(BEHAVIOUR)}
    ticks = _records(context, cut, CLOCK, ("instant",)).select(
        "partition", functions.unix_millis("instant").alias("time_ms"), _is_new(cut, CLOCK).alias("is_new")
    )
    moments = events.select("partition", "time_ms", "is_new").unionByName(ticks)
    old = functions.max(functions.when(~functions.col("is_new"), functions.col("time_ms")))
    found = moments.groupBy("partition").agg(old.alias("low"), functions.max("time_ms").alias("high"))
    rows = {row["partition"]: row for row in found.collect()}
    return {number: Times(row["low"] or 0, max(row["high"] or 0, published_ms.get(number, 0))) for number, row in rows.items()}


def published_values(context: VerifyContext, cut: Cut, trait: Trait) -> DataFrame:
    """Return (user_id, published: the last value as JSON) of each user with a published value.

    The topic of the values is compacted by the user, so it may lack an older value beside a newer one of another trait. Such
    a value is in the profile, which the normalizer has changed by it.
    """
    values = _values(context, cut).where(_is_of(trait) & (functions.col("trait_key") == trait.key))
    order = functions.struct("trait_version", "epoch", "sequence", "as_of", "offset")
    newest = values.groupBy("user_id").agg(functions.max_by(functions.struct("value"), order).alias("own"))
    former = _profile_values(context, cut, trait)
    # In a struct, a null value differs from the absence of a record.
    published = functions.coalesce("own", "former").getField("value").alias("published")
    return newest.join(former, "user_id", "full").select("user_id", published)


def published_times(context: VerifyContext, cut: Cut) -> Mapping[int, int]:
    """Return by partition the latest stream time of a published value, epoch ms. Runs a Spark job."""
    found = _values(context, cut).groupBy("partition").agg(functions.max(functions.unix_millis("as_of")).alias("latest"))
    return {row["partition"]: row["latest"] for row in found.collect()}


def _values(context: VerifyContext, cut: Cut) -> DataFrame:
    """Return the records of values, without those of traits in SQL, whose time is no stream time."""
    by_sql = functions.exists(
        "headers", lambda header: (header["key"] == "produced_by") & (header["value"].cast("string") == PRODUCED_BY)
    )
    return _records(context, cut, AGGREGATES, _VALUE, ~functions.coalesce(by_sql, functions.lit(False)))


def _profile_values(context: VerifyContext, cut: Cut, trait: Trait) -> DataFrame:
    """Return (user_id, former: struct of the value) of each user whose profile has changed by a value of the trait."""
    name = f"computed.{trait.key}"
    changes = _history(context, cut, PROFILE, _CHANGE, may_be_deleted=True).where(
        _is_of(trait) & (functions.col("change") == "COMPUTED") & functions.array_contains("changed", name)
    )
    value = functions.try_variant_get(functions.try_parse_json("traits"), f"$.{name}", "variant")
    shown = functions.struct(functions.to_json(value).alias("value"))
    order = functions.struct(functions.greatest("received_at", "order"), "offset")
    return changes.groupBy("user_id").agg(functions.max_by(shown, order).alias("former"))


def _history(context: VerifyContext, cut: Cut, topic: str, fields: Sequence[str], *, may_be_deleted: bool = False) -> DataFrame:
    """Return partition, offset and the fields of the records of a topic. Raises: NotVerifiable where some are deleted."""
    table, parts = EVENT_TABLES[topic], []
    ends: Mapping[int, int] = {}
    if context.lake is not None and context.lake.exists(table):
        tip = context.lake.tip(table)
        ends = {number: end for (name, number), end in tip.position.items() if name == context.topic(topic)}
        parts.append(_lake_rows(context.lake.rows(table, tip.snapshot), fields, ends))
    gone = {number: first for number, (first, _) in cut.of(topic).items() if first > ends.get(number, 0)}
    if gone and not may_be_deleted:
        number, first = min(gone.items())
        raise NotVerifiable(
            f"the records of {topic} before offset {first} of partition {number} are deleted, and no lake has them: "
            "verification needs all history: give the job a lake that was started in time (STARLING_LAKE_WAREHOUSE)"
        )
    parts.append(_records(context, cut, topic, fields, starts=ends))
    return reduce(DataFrame.unionByName, [part.select("partition", "offset", *fields) for part in parts])


def _lake_rows(table: DataFrame, fields: Sequence[str], ends: Mapping[int, int]) -> DataFrame:
    partition, offset = functions.col("origin_partition"), functions.col("origin_offset")
    is_in = reduce(or_, [(partition == number) & (offset < end) for number, end in ends.items()], functions.lit(False))
    own = [functions.col(name) if name in table.columns else functions.lit(None).alias(name) for name in fields]
    return table.where(is_in).select(partition.alias("partition"), offset.alias("offset"), *own)


def _records(
    context: VerifyContext,
    cut: Cut,
    topic: str,
    fields: Sequence[str],
    where: Column | None = None,
    starts: Mapping[int, int] = MappingProxyType({}),
) -> DataFrame:
    """Return partition, offset and the fields of the readable records of a topic. `starts`: by partition, else its first offset."""
    spans = {
        (context.topic(topic), number): (max(first, starts.get(number, 0)), end) for number, (first, end) in cut.of(topic).items()
    }
    wanted = {place: ends for place, ends in spans.items() if ends[0] < ends[1]}
    spark = context.spark
    raw = kafka_spans(spark, context.settings.kafka.brokers, wanted) if wanted else spark.createDataFrame([], RECORDS)
    columns = columns_of(context.wire.of(context.topic(topic)).reader_schema)
    reading = Reading(context.wire, context.topic(topic), types.StructType([columns[name] for name in fields]))
    found = decoded(raw if where is None else raw.where(where), reading).where("record IS NOT NULL")
    return found.select("partition", "offset", *[f"record.{name}" for name in fields])


def _is_new(cut: Cut, topic: str) -> Column:
    ends = {number: cut.done.get((topic, number), 0) for number in cut.of(topic)}
    is_old = [(functions.col("partition") == number) & (functions.col("offset") < end) for number, end in ends.items()]
    return ~reduce(or_, is_old, functions.lit(False))


def _is_of(trait: Trait) -> Column:
    return functions.col("workspace") == trait.workspace
