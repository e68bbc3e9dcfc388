"""Edge: one report, from the progress of messages to Parquet."""

import time
from collections import defaultdict
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Final

from pyspark.sql import DataFrame, SparkSession

from starling_campaigns.lift import Arm, lift
from starling_common.kafka.topics import CAMPAIGN_PROGRESS
from starling_common.telemetry.logs import log
from starling_spark.history.progress import LAKE_TABLE, ProgressSource, progress_read
from starling_spark.jobs.campaign_report.settings import CampaignReportSettings
from starling_spark.jobs.campaign_report.transform import FUNNEL_KEY, arms, funnel
from starling_spark.lakehouse.lineage import table_datasets
from starling_spark.lineage.datasets import Dataset, Flow, files, kafka_topics
from starling_spark.lineage.runs import OFF, JobName, Lineage

FUNNEL: Final = "funnel"
LIFT: Final = "lift"
_LIFT_COLUMNS: Final = (
    "workspace string, campaign string, variant string, difference double, low double, high double, relative double, value double, "
    "inconclusive boolean, people long, converted long, held_out_people long, held_out_converted long"
)


@dataclass(frozen=True, slots=True)
class ReportRequest:
    """One run: the directory of its Parquet files."""

    out: str
    overwrite: bool = False


def report(
    source: ProgressSource, settings: CampaignReportSettings, request: ReportRequest, lineage: Lineage = OFF
) -> Mapping[str, int]:
    """Write both parts, and return the number of rows of each, and of records that could not be read (`unreadable`).

    Raises: the error of a failed task; AnalysisException when the directory exists.
    """
    topic = settings.report_topic_prefix + CAMPAIGN_PROGRESS
    inputs = partial(_inputs, source, topic)
    with lineage.run(JobName("campaign_report"), lambda: Flow(inputs(), _outputs(request, {}))) as run:
        with progress_read(source, topic) as progress:
            parts = {
                FUNNEL: funnel(progress.steps).sort(*FUNNEL_KEY),
                LIFT: lifts(source.spark, arms(progress.steps)),
            }
            counts = {part: _write(rows, part, request) for part, rows in parts.items()}
        run.knows(lambda: Flow((), _outputs(request, counts)))
        return {**counts, "unreadable": progress.unreadable}


def _inputs(source: ProgressSource, topic: str) -> tuple[Dataset, ...]:
    lake = () if source.lake is None else table_datasets(source.lake, LAKE_TABLE)
    return (*kafka_topics(source.brokers, topic), *lake)


def _outputs(request: ReportRequest, counts: Mapping[str, int]) -> tuple[Dataset, ...]:
    return tuple(files(f"{request.out.rstrip('/')}/{part}")._replace(rows=counts.get(part)) for part in (FUNNEL, LIFT))


def lifts(spark: SparkSession, found: DataFrame) -> DataFrame:
    """Return the lift of each variant, and of all variants of a campaign together, whose `variant` is null. Runs a Spark job.

    Shape: in: `transform.arms`; out: columns of `GET /v1/campaigns/{key}/report`, and the people of both arms.
    """
    of_campaign: dict[tuple[str, str], dict[tuple[str | None, bool], Arm]] = defaultdict(lambda: defaultdict(Arm))
    # One row a variant and arm: few enough for the driver.
    for row in found.collect():
        sums = of_campaign[row["workspace"], row["campaign"]]
        for variant in {row["variant"], None}:
            key = variant, row["held_out"]
            sums[key] = sums[key].plus(Arm(row["people"], row["converted"], row["value"]))
    rows = [row for (workspace, campaign), sums in sorted(of_campaign.items()) for row in _lift_rows(workspace, campaign, sums)]
    return spark.createDataFrame(rows, _LIFT_COLUMNS)


def _lift_rows(workspace: str, campaign: str, sums: Mapping[tuple[str | None, bool], Arm]) -> Iterator[tuple[object, ...]]:
    for variant in (None, *sorted({name for name, _ in sums if name is not None})):
        written_to, held_out = (sums.get((variant, side), Arm()) for side in (False, True))
        people = (written_to.people, written_to.converted, held_out.people, held_out.converted)
        yield (workspace, campaign, variant, *lift(written_to, held_out), *people)


def _write(rows: DataFrame, part: str, request: ReportRequest) -> int:
    began = time.monotonic()
    cached = rows.cache()
    try:
        # A report is small enough for one file.
        mode = "overwrite" if request.overwrite else "errorifexists"
        cached.coalesce(1).write.mode(mode).parquet(f"{request.out.rstrip('/')}/{part}")
        count = cached.count()
    finally:
        cached.unpersist()
    log(__name__).info("report_part_written", part=part, rows=count, seconds=round(time.monotonic() - began, 1))
    return count
