"""Edge: the streaming queries of the job: one for each group of views, and one for the dead letters of each topic."""

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial

from pyspark.sql import DataFrame, SparkSession, functions
from pyspark.sql.streaming.query import StreamingQuery

from starling_common.failures import POISON
from starling_common.outcome import Refused
from starling_common.records.dead_letters import FOLD_ORIGIN, SourceRecord, dead_letter, letter_correlation_id
from starling_common.settings import Clock
from starling_common.telemetry.logs import log
from starling_common.telemetry.metrics import Metrics
from starling_common.time.instants import wall_clock_micros
from starling_common.values import record_key
from starling_spark.directories import Directory, directory_at
from starling_spark.failpoints import raising
from starling_spark.jobs.views.groups import Checkpoints, Group
from starling_spark.jobs.views.poison import FailedRecords, Spans, found_by_bisection, unfinished
from starling_spark.jobs.views.settings import ViewsSettings
from starling_spark.jobs.views.store import RefusedRow, ViewStore, upsert
from starling_spark.jobs.views.transform import TIMES, events, lines, reading_of, timed, totals, types_of, without
from starling_spark.jobs.views.unreadable import unreadable
from starling_spark.jobs.views.view import View
from starling_spark.kafka.codec import NO_ID, Wire
from starling_spark.kafka.dead_letters import dead_letters
from starling_spark.kafka.decoding import Reading, decoded
from starling_spark.kafka.groups import Ends, end_offsets
from starling_spark.kafka.sinks import OUTPUT, Letters, publish
from starling_spark.kafka.sources import kafka_records, kafka_spans
from starling_spark.session.query_metrics import QueryMetrics, count_refused
from starling_spark.session.running import Running

STAGE = "views"
_PRODUCED_BY = "starling-views"
_FORMAT = 1
"""Version of the checkpoints. An increment, for a change of every view's query plan, computes all views again."""


@dataclass(frozen=True, slots=True)
class ViewsContext:
    """The context of the queries. `partitions` of the topics; `history`: the topics' ends when the job started."""

    spark: SparkSession
    settings: ViewsSettings
    wire: Wire
    partitions: int
    history: Ends
    metrics: Metrics


def checkpoints_of(context: ViewsContext) -> Checkpoints:
    """Return the checkpoints of the views under the settings of the job."""
    settings = context.settings
    ending = f"f{_FORMAT}-s{settings.spark_state_partitions}-l{settings.views_lateness_days or 0}"
    return Checkpoints(_directory(context), ending)


def groups_of(context: ViewsContext, checkpoints: Checkpoints, views: Sequence[View]) -> list[Group]:
    """Return the groups of views that share a query. Raises: ValueError for a view whose lines lack a column."""

    def types(view: View) -> tuple[str, ...]:
        fields = _reading(context, [view]).fields
        return types_of(view, context.spark.createDataFrame([], fields))

    return checkpoints.groups(views, types)


def start_group(
    context: ViewsContext,
    group: Group,
    checkpoints: Checkpoints,
    stores: Sequence[ViewStore],
    wrote: Callable[[Mapping[str, int]], None] = lambda _: None,
) -> Running:
    """Start the query of views from its checkpoint, or from the earliest offset without one.

    `stores`: of the views; `wrote`: takes the rows of each batch by view.
    """
    settings, topic, views = context.settings, context.settings.views_topic_prefix + group.topic, list(group.views.values())
    reading, days = _reading(context, views), settings.views_lateness_days
    directory = _directory(context) / group.directory
    failed = FailedRecords(directory)
    _refuse_failing(context, group, reading, directory, failed)
    found = events(without(_records(context, topic), failed.places()), views, reading)
    time_ms = functions.col("timestamp_ms") if settings.clock is Clock.WALL else functions.unix_millis("event_time")
    rows = totals(group, _armed(timed(found, time_ms, context.partitions)), None if days is None else f"{days} days")
    last_micros = 0

    def write(changed: DataFrame, _batch: int) -> None:
        nonlocal last_micros
        last_micros = max(wall_clock_micros(), last_micros + 1)
        written = upsert(changed, group.views, settings.cassandra, last_micros)
        for name, count in written.rows.items():
            context.metrics.counter("starling_views_rows_total").labels(name).inc(count)
        wrote(written.rows)
        _bury(context, group, written.refused)

    query = _start(rows, context, group.name, directory, write)
    history = {partition: end for partition, end in context.history.items() if partition[0] == topic}
    completed = partial(batch_completed, history, stores, partial(checkpoints.publish, group))
    return Running(STAGE, query, QueryMetrics(context.metrics, group.name), completed)


def _reading(context: ViewsContext, views: Sequence[View]) -> Reading:
    return reading_of(views, Reading.plain(context.wire, context.settings.views_topic_prefix + views[0].topic))


def _armed(found: DataFrame) -> DataFrame:
    """Return events, which raise if they have the text of the failpoint `rows`, if the process has one."""
    armed = raising()
    if armed is None or armed.point != "rows":
        return found
    text = functions.to_json(functions.struct(*found.columns))
    failure = functions.raise_error(functions.lit("failpoint rows")).cast("string")
    workspace = functions.when(text.contains(armed.text.decode()), failure).otherwise(functions.col("workspace"))
    return found.withColumn("workspace", workspace)


def _refuse_failing(context: ViewsContext, group: Group, reading: Reading, directory: Directory, failed: FailedRecords) -> None:
    """Write dead letters for the records of an unfinished micro-batch at which a view raises again, and leave them out."""
    brokers, dead_letters_topic = context.settings.kafka.brokers, context.settings.views_dead_letters_topic

    def records(spans: Spans, *, headers: bool = False) -> DataFrame:
        return without(kafka_spans(context.spark, brokers, spans, headers=headers), failed.places())

    spans = unfinished(directory, brokers)
    if not spans:
        return
    views = group.views.values()
    found = list(
        found_by_bisection(spans, lambda some: events(records(some), views, reading), lambda some: lines(group, _armed(some)))
    )
    for topic, number, offset, why in found:
        log(__name__).error("poison_found", view=group.name, topic=topic, partition=number, offset=offset, message=why.message)
        columns = {"code": why.code, "message": why.message, "schema_id": NO_ID}
        reason = functions.struct(*[functions.lit(value).alias(name) for name, value in columns.items()])
        letters = decoded(records({(topic, number): (offset, offset + 1)}, headers=True), reading).withColumn("refused", reason)
        published = publish(
            dead_letters(letters, STAGE, dead_letters_topic, context.wire), brokers, _PRODUCED_BY, _letters(context)
        )
        count_refused(context.metrics, group.name, published.refused)
    if found:
        failed.add([(topic, number, offset) for topic, number, offset, _ in found])


def start_refusals(context: ViewsContext, topic: str, views: Sequence[View]) -> Running:
    """Start the query that writes a dead letter for each record of `topic` that these views of it cannot read."""
    settings = context.settings
    found = unreadable(_records(context, topic), views, Reading.plain(context.wire, topic))
    letters = dead_letters(found, STAGE, settings.views_dead_letters_topic, context.wire, settings.kafka.brokers)

    def write(rows: DataFrame, _batch: int) -> None:
        published = publish(rows, settings.kafka.brokers, _PRODUCED_BY, _letters(context))
        count_refused(context.metrics, "views-refusals", published.refused)

    name = f"refusals-{topic}"
    query = _start(letters, context, name, _directory(context) / name, write)
    return Running(STAGE, query, QueryMetrics(context.metrics, "views-refusals"))


def _bury(context: ViewsContext, group: Group, refused: Sequence[RefusedRow]) -> None:
    """Write a dead letter for each row that Cassandra refuses. It has no record: many records are summed in one row."""
    if not refused:
        return
    topic = context.settings.views_dead_letters_topic
    rows = []
    for row in refused:
        log(__name__).error("row_refused", **row._asdict())
        source = SourceRecord(
            FOLD_ORIGIN, -1, -1, record_key(row.workspace, row.place), b"", (), max(0, row.window_start_ms) * 1000
        )
        message = f"the database refuses a row of the view {row.view}: {row.error}: shorten the value of its dimensions"
        now_ms = wall_clock_micros() // 1000
        value = context.wire.codec(topic).encode(dead_letter(STAGE, source, Refused(POISON, message), now_ms))
        rows.append((topic, -1, source.key, value, now_ms, letter_correlation_id(source), POISON))
    published = publish(
        context.spark.createDataFrame(rows, OUTPUT), context.settings.kafka.brokers, _PRODUCED_BY, _letters(context)
    )
    count_refused(context.metrics, group.name, published.refused)


def _letters(context: ViewsContext) -> Letters:
    return Letters(STAGE, context.settings.views_dead_letters_topic, context.wire)


def observed_times(progress: str) -> Mapping[int, int]:
    """Return by partition the highest time of its records in the micro-batch, epoch ms; without records it is absent."""
    observed = json.loads(progress).get("observedMetrics", {}).get(TIMES, {})
    return {int(name[1:]): time for name, time in observed.items() if time is not None}


def batch_completed(history: Ends, stores: Sequence[ViewStore], published: Callable[[], None], progress: str) -> None:
    """Write the stream time of a completed micro-batch, and publish new versions when all history is computed.

    `history`: the ends of the views' topic when the job started; `stores`: of the views; `published`: called afterwards.
    """
    times = observed_times(progress)
    for store in stores:
        store.write_times(times)
    ends = end_offsets(progress)
    if all(ends.get(partition, 0) >= end for partition, end in history.items()):
        for store in stores:
            store.publish_version()
        published()


def _records(context: ViewsContext, topic: str) -> DataFrame:
    limit = context.settings.views_batch_records
    return kafka_records(context.spark, context.settings.kafka.brokers, [topic], limit, headers=False)


def _directory(context: ViewsContext) -> Directory:
    return directory_at(context.settings.checkpoint_dir, lambda: context.spark) / "views"


def _start(
    rows: DataFrame, context: ViewsContext, name: str, directory: Directory, write: Callable[[DataFrame, int], None]
) -> StreamingQuery:
    return (
        rows.writeStream.queryName(name)
        .outputMode("update")
        .option("checkpointLocation", directory.uri)
        .trigger(processingTime=f"{round(context.settings.views_trigger_seconds * 1000)} milliseconds")
        .foreachBatch(write)
        .start()
    )
