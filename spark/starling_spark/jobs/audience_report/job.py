"""Edge: one report, from the feed to Parquet and to the rows that the API serves."""

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial

from pyspark.sql import DataFrame, functions

from starling_common.cassandra.database import Database
from starling_common.kafka.topics import MEMBERSHIP, MEMBERSHIP_STATE
from starling_common.telemetry.logs import log
from starling_common.time.instants import wall_clock_micros
from starling_common.time.timezones import Timezones
from starling_spark.history.feed import LAKE_TABLE, FeedRead, FeedSource, feed_read
from starling_spark.history.memberships import membership_changes, stays
from starling_spark.jobs.audience_report.settings import AudienceReportSettings
from starling_spark.jobs.audience_report.store import DAYS, OVERLAP, RETENTION, Run, insert, switch
from starling_spark.jobs.audience_report.transform import Calendar, days, overlap, retention
from starling_spark.lakehouse.lineage import table_datasets
from starling_spark.lineage.datasets import Dataset, Flow, cassandra_tables, files, kafka_topics
from starling_spark.lineage.runs import OFF, JobName, Lineage


@dataclass(frozen=True, slots=True)
class ReportRequest:
    """One run: the instant at which the report ends (epoch ms), and a directory for Parquet; None: no Parquet."""

    until_ms: int
    out: str | None
    overwrite: bool = False


def report(
    source: FeedSource, settings: AudienceReportSettings, request: ReportRequest, lineage: Lineage = OFF
) -> Mapping[str, int]:
    """Compute and write all parts, and return the number of rows of each, and of records that could not be read (`unreadable`).

    Raises: the error of a failed task, such as DatabaseUnavailable; AnalysisException when `out` exists.
    """
    topics = [settings.report_topic_prefix + topic for topic in (MEMBERSHIP, MEMBERSHIP_STATE)]
    inputs = partial(_inputs, source, topics)
    with lineage.run(JobName("audience_report"), lambda: Flow(inputs(), _outputs(settings, request, {}))) as run:
        run.computes(request.until_ms)
        with feed_read(source, topics) as feed:
            changes = membership_changes(feed.changes, request.until_ms).cache()
            try:
                counts = _written(changes, feed, settings, request)
            finally:
                changes.unpersist()
        run.knows(lambda: Flow((), _outputs(settings, request, counts)))
        return {**counts, "unreadable": feed.unreadable}


def _inputs(source: FeedSource, topics: Sequence[str]) -> tuple[Dataset, ...]:
    lake = () if source.lake is None else table_datasets(source.lake, LAKE_TABLE)
    return (*kafka_topics(source.brokers, *topics), *lake)


def _outputs(settings: AudienceReportSettings, request: ReportRequest, counts: Mapping[str, int]) -> tuple[Dataset, ...]:
    """Return the tables and the directories of a report. `counts`: rows by part."""
    place = settings.cassandra
    rows, runs = cassandra_tables(place.contact_points, place.port, place.keyspace, "report_rows", "report_runs")
    rows = rows._replace(rows=sum(counts.values()) if counts else None)
    if request.out is None:
        return rows, runs
    parquet = (files(f"{request.out.rstrip('/')}/{part}")._replace(rows=counts.get(part)) for part in (DAYS, RETENTION, OVERLAP))
    return rows, runs, *parquet


def _written(changes: DataFrame, feed: FeedRead, settings: AudienceReportSettings, request: ReportRequest) -> Mapping[str, int]:
    zones = Timezones(settings.timezones)
    calendar, memberships, run = Calendar(request.until_ms, zones.named()), stays(changes), wall_clock_micros()
    parts = {
        DAYS: days(changes, calendar),
        RETENTION: retention(memberships, calendar, settings.report_days_later),
        OVERLAP: overlap(memberships),
    }
    counts = {part: _write(rows, part, run, settings, request) for part, rows in parts.items()}
    database = Database(settings.cassandra)
    try:
        for entry in _runs(changes, feed, zones, request.until_ms):
            switch(database, run, entry)
    finally:
        database.close()
    return counts


def _write(rows: DataFrame, part: str, run: int, settings: AudienceReportSettings, request: ReportRequest) -> int:
    began = time.monotonic()
    cached = rows.cache()
    try:
        if request.out is not None:
            # A report is small enough for one file.
            mode = "overwrite" if request.overwrite else "errorifexists"
            cached.coalesce(1).write.mode(mode).parquet(f"{request.out.rstrip('/')}/{part}")
        count = insert(cached, part, run, settings.cassandra)
    finally:
        cached.unpersist()
    log(__name__).info("report_part_written", part=part, rows=count, seconds=round(time.monotonic() - began, 1))
    return count


def _runs(changes: DataFrame, feed: FeedRead, zones: Timezones, until_ms: int) -> list[Run]:
    found = changes.groupBy("workspace").agg(
        functions.sort_array(functions.collect_set("segment_key")).alias("segments"), functions.sum("missing").alias("missing")
    )
    return [
        Run(row["workspace"], until_ms, zones.of(row["workspace"]), tuple(row["segments"]), row["missing"], feed.unreadable)
        for row in found.collect()
    ]
