"""Wiring: builds the job from its settings and runs it once."""

from collections.abc import Mapping

from starling_common.kafka.topics import MEMBERSHIP, MEMBERSHIP_STATE
from starling_common.wire import Registry
from starling_spark.history.feed import FEED_RECORD, FeedSource
from starling_spark.jobs.audience_report.job import ReportRequest, report
from starling_spark.jobs.audience_report.settings import AudienceReportSettings
from starling_spark.kafka.codec import Wire, topic_schemas
from starling_spark.lakehouse.iceberg import iceberg_config
from starling_spark.lakehouse.pinned import reading
from starling_spark.session.lineage import opened_lineage
from starling_spark.session.spark import open_session


def run_report(settings: AudienceReportSettings, request: ReportRequest) -> Mapping[str, int]:
    """Write one report, and return the number of rows of each part.

    Raises: JarMissing, RegistryUnavailable, SchemaMissing, and what `report` raises.
    """
    wire = report_wire(settings)
    spark = open_session("audience-report", settings, iceberg_config(settings) if settings.lake_warehouse else {})
    try:
        with opened_lineage(settings) as lineage, reading(spark, settings, "audience-report") as lake:
            return report(FeedSource(spark, settings.kafka.brokers, wire, lake), settings, request, lineage)
    finally:
        spark.stop()


def report_wire(settings: AudienceReportSettings) -> Wire:
    """Return the schemas of the two topics. Raises: RegistryUnavailable, SchemaMissing."""
    topics = [settings.report_topic_prefix + topic for topic in (MEMBERSHIP, MEMBERSHIP_STATE)]
    return topic_schemas(Registry(settings.registry.url), settings.registry.url, [(topic, FEED_RECORD) for topic in topics])
