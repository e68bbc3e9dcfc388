"""Wiring: settings to the job."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial

from pyspark.sql import SparkSession

from starling_common.topics import BACKFILLS, PROGRESS, SEGMENT_DEFINITIONS
from starling_common.wire import Registry
from starling_rules.following import Known
from starling_rules.history import PAST
from starling_rules.ledger import Share
from starling_spark.backfill.folding import Place, fold_all
from starling_spark.backfill.job import BackfillJob, Means
from starling_spark.backfill.planning import Assignment
from starling_spark.backfill.positions import cuts
from starling_spark.backfill.records import Reporter
from starling_spark.backfill.settings import BackfillSettings
from starling_spark.session import open_session


@contextmanager
def backfill_job(settings: BackfillSettings) -> Iterator[BackfillJob]:
    """The job, with what it follows read; all is closed at the end.

    Raises: BrokerUnavailable, RegistryUnavailable, SchemaMissing, KafkaException, JarMissing.
    """
    registry, brokers = Registry(settings.registry.url), settings.kafka.brokers
    definitions = registry.codec(SEGMENT_DEFINITIONS, "DefinitionChanged")
    backfills = registry.codec(BACKFILLS, "BackfillReported")
    known, reporter = Known(brokers, definitions, backfills), Reporter(brokers, definitions, backfills)
    progress = registry.codec(PROGRESS, "SegmenterProgress")
    place = Place(brokers, settings.registry.url, settings.backfill_report_seconds)
    spark = open_session("backfill", settings)
    try:
        reporter.start()  # before anything is read: what another job said by then is all that it ever says
        known.start()
        yield BackfillJob(
            Means(
                known=known,
                reporter=reporter,
                cuts=partial(cuts, brokers, settings.backfill_segmenter_group, PAST, progress),
                fold=_in_a_worker(spark, place),
                give_up=spark.sparkContext.cancelAllJobs,
                at_once=spark.sparkContext.defaultParallelism,
                clock=settings.clock,
                slices=settings.backfill_slices,
                tail_records=settings.backfill_tail_records,
            )
        )
    finally:
        known.stop()
        spark.stop()


def _in_a_worker(spark: SparkSession, place: Place) -> Callable[[Assignment], Share]:
    def fold(assignment: Assignment) -> Share:
        # A job of its own for each partition, so that it can be told when it is done, and the next not be begun.
        tasks = spark.sparkContext.parallelize([assignment], 1)
        (share,) = tasks.mapPartitions(partial(fold_all, place=place)).collect()
        return share

    return fold
