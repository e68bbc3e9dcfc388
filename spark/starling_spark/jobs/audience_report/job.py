"""Edge: one report, from the feed to Parquet and to the rows that the API answers with."""

import time
from collections.abc import Mapping
from dataclasses import dataclass

from pyspark.sql import DataFrame, functions

from starling_common.database import Database
from starling_common.instants import wall_clock_micros
from starling_common.logs import log
from starling_common.timezones import Timezones
from starling_common.topics import MEMBERSHIP, MEMBERSHIP_STATE
from starling_spark.history.feed import FeedRead, FeedSource, feed_read
from starling_spark.history.memberships import membership_changes, stays
from starling_spark.jobs.audience_report.settings import AudienceReportSettings
from starling_spark.jobs.audience_report.store import DAYS, OVERLAP, RETENTION, Run, insert, switch
from starling_spark.jobs.audience_report.transform import Calendar, days, overlap, retention


@dataclass(frozen=True, slots=True)
class Asked:
    """One run: the instant up to which it tells (epoch ms), and where to write Parquet, if anywhere."""

    until_ms: int
    out: str | None
    overwrite: bool = False


def report(source: FeedSource, settings: AudienceReportSettings, asked: Asked) -> Mapping[str, int]:
    """Compute and write everything; the number of rows of each part.

    Raises: whatever a task failed with, DatabaseUnavailable among them; AnalysisException when `out` is there already.
    """
    topics = [settings.report_topic_prefix + topic for topic in (MEMBERSHIP, MEMBERSHIP_STATE)]
    with feed_read(source, topics) as feed:
        turned = membership_changes(feed.changes, asked.until_ms).cache()
        try:
            return _written(turned, feed, settings, asked)
        finally:
            turned.unpersist()


def _written(turned: DataFrame, feed: FeedRead, settings: AudienceReportSettings, asked: Asked) -> Mapping[str, int]:
    zones = Timezones(settings.timezones)
    calendar, stayed, run = Calendar(asked.until_ms, zones.named()), stays(turned), wall_clock_micros()
    parts = {
        DAYS: days(turned, calendar),
        RETENTION: retention(stayed, calendar, settings.report_days_later),
        OVERLAP: overlap(stayed),
    }
    counts = {part: _write(rows, part, run, settings, asked) for part, rows in parts.items()}
    database = Database(settings.cassandra)
    try:
        for entry in _runs(turned, feed, zones, asked.until_ms):
            switch(database, run, entry)
    finally:
        database.close()
    return counts


def _write(rows: DataFrame, part: str, run: int, settings: AudienceReportSettings, asked: Asked) -> int:
    began = time.monotonic()
    kept = rows.cache()
    try:
        if asked.out is not None:
            # One file: a report is small beside what it is made of.
            mode = "overwrite" if asked.overwrite else "errorifexists"
            kept.coalesce(1).write.mode(mode).parquet(f"{asked.out.rstrip('/')}/{part}")
        count = insert(kept, part, run, settings.cassandra)
    finally:
        kept.unpersist()
    log(__name__).info("report_part_written", part=part, rows=count, seconds=round(time.monotonic() - began, 1))
    return count


def _runs(turned: DataFrame, feed: FeedRead, zones: Timezones, until_ms: int) -> list[Run]:
    found = turned.groupBy("workspace").agg(
        functions.sort_array(functions.collect_set("segment_key")).alias("segments"), functions.sum("missing").alias("missing")
    )
    return [
        Run(row["workspace"], until_ms, zones.of(row["workspace"]), tuple(row["segments"]), row["missing"], feed.unreadable)
        for row in found.collect()
    ]
