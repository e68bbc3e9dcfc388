"""Wiring: builds the job from its settings and runs it once."""

from collections.abc import Mapping

from starling_common.kafka.topics import CAMPAIGN_PROGRESS
from starling_common.wire import Registry
from starling_spark.history.progress import PROGRESS_RECORD, ProgressSource
from starling_spark.jobs.campaign_report.job import ReportRequest, report
from starling_spark.jobs.campaign_report.settings import CampaignReportSettings
from starling_spark.kafka.codec import Wire, topic_schemas
from starling_spark.lakehouse.iceberg import iceberg_config
from starling_spark.lakehouse.pinned import reading
from starling_spark.session.lineage import opened_lineage
from starling_spark.session.spark import open_session


def run_report(settings: CampaignReportSettings, request: ReportRequest) -> Mapping[str, int]:
    """Write one report, and return the number of rows of each part.

    Raises: JarMissing, RegistryUnavailable, SchemaMissing, and what `report` raises.
    """
    wire = report_wire(settings)
    spark = open_session("campaign-report", settings, iceberg_config(settings) if settings.lake_warehouse else {})
    try:
        with opened_lineage(settings) as lineage, reading(spark, settings, "campaign-report") as lake:
            return report(ProgressSource(spark, settings.kafka.brokers, wire, lake), settings, request, lineage)
    finally:
        spark.stop()


def report_wire(settings: CampaignReportSettings) -> Wire:
    """Return the schemas of the topic. Raises: RegistryUnavailable, SchemaMissing."""
    topic = settings.report_topic_prefix + CAMPAIGN_PROGRESS
    return topic_schemas(Registry(settings.registry.url), settings.registry.url, [(topic, PROGRESS_RECORD)])
