"""Edge: the streaming queries of the job: one for each view, and one for the dead letters of each topic."""

import json
import shutil
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from pyspark.sql import DataFrame, SparkSession, functions
from pyspark.sql.streaming.query import StreamingQuery

from starling_common.settings import Clock
from starling_common.telemetry.metrics import Metrics
from starling_common.time.instants import wall_clock_micros
from starling_spark.jobs.views.settings import ViewsSettings
from starling_spark.jobs.views.store import ViewStore, upsert
from starling_spark.jobs.views.transform import TIMES, events, read, timed, totals
from starling_spark.jobs.views.view import View
from starling_spark.kafka.codec import Wire
from starling_spark.kafka.dead_letters import dead_letters
from starling_spark.kafka.decoding import Reading
from starling_spark.kafka.groups import Ends, end_offsets
from starling_spark.kafka.sinks import publish
from starling_spark.kafka.sources import kafka_records
from starling_spark.session.query_metrics import QueryMetrics
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


def start_view(context: ViewsContext, view: View, store: ViewStore) -> Running:
    """Start a view's query from its checkpoint, or from the earliest offset without one."""
    settings, topic = context.settings, context.settings.views_topic_prefix + view.topic
    reading = Reading.plain(context.wire, topic)
    found = read(_records(context, topic), reading)
    time_ms = functions.col("timestamp_ms") if settings.clock is Clock.WALL else functions.unix_millis("record.event_time")
    days = settings.views_lateness_days
    rows = totals(view, events(timed(found, time_ms, context.partitions), reading), None if days is None else f"{days} days")
    last_micros = 0

    def write(changed: DataFrame, _batch: int) -> None:
        nonlocal last_micros
        last_micros = max(wall_clock_micros(), last_micros + 1)
        count = upsert(changed, view, settings.cassandra, last_micros)
        context.metrics.counter("starling_views_rows_total").labels(view.name).inc(count)

    directory = _checkpoints(settings) / f"{view.name}-v{view.version}-f{_FORMAT}-s{settings.spark_state_partitions}-l{days or 0}"
    query = _start(rows, context, view.name, directory, write)
    history = {partition: end for partition, end in context.history.items() if partition[0] == topic}
    return Running(query, QueryMetrics(context.metrics, view.name), partial(batch_completed, history, store, directory))


def start_refusals(context: ViewsContext, topic: str) -> Running:
    """Start the query that writes a dead letter for each unreadable record of `topic`."""
    settings = context.settings
    refused = dead_letters(
        read(_records(context, topic), Reading.plain(context.wire, topic)), STAGE, settings.views_dead_letters_topic, context.wire
    )

    def write(rows: DataFrame, _batch: int) -> None:
        publish(rows, settings.kafka.brokers, _PRODUCED_BY)

    name = f"refusals-{topic}"
    query = _start(refused, context, name, _checkpoints(settings) / name, write)
    return Running(query, QueryMetrics(context.metrics, "views-refusals"))


def observed_times(progress: str) -> Mapping[int, int]:
    """Return by partition the highest time of its records in the micro-batch, epoch ms; without records it is absent."""
    observed = json.loads(progress).get("observedMetrics", {}).get(TIMES, {})
    return {int(name[1:]): time for name, time in observed.items() if time is not None}


def batch_completed(history: Ends, store: ViewStore, directory: Path, progress: str) -> None:
    """Write the stream time of a completed micro-batch, and publish a new version when all history is computed.

    `history`: the ends of the view's topic when the job started; `directory`: the view's own checkpoint.
    """
    store.write_times(observed_times(progress))
    ends = end_offsets(progress)
    if all(ends.get(partition, 0) >= end for partition, end in history.items()):
        store.publish_version()
        _delete_other_checkpoints(directory)


def _delete_other_checkpoints(directory: Path) -> None:
    name = directory.name.split("-v")[0]
    for other in directory.parent.glob(f"{name}-v*"):
        if other != directory:
            shutil.rmtree(other)


def _records(context: ViewsContext, topic: str) -> DataFrame:
    return kafka_records(context.spark, context.settings.kafka.brokers, [topic], context.settings.views_batch_records)


def _checkpoints(settings: ViewsSettings) -> Path:
    return settings.checkpoint_dir.absolute() / "views"


def _start(
    rows: DataFrame, context: ViewsContext, name: str, directory: Path, write: Callable[[DataFrame, int], None]
) -> StreamingQuery:
    return (
        rows.writeStream.queryName(name)
        .outputMode("update")
        .option("checkpointLocation", directory.as_uri())
        .trigger(processingTime=f"{round(context.settings.views_trigger_seconds * 1000)} milliseconds")
        .foreachBatch(write)
        .start()
    )
