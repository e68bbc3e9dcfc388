"""Wiring: settings to the job."""

import pickle
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from functools import partial

from pyspark.sql import SparkSession

from starling_common.logs import log
from starling_common.topics import BACKFILLS, PROGRESS, SEGMENT_DEFINITIONS
from starling_common.wire import Codec, Registry
from starling_rules.following import Known
from starling_rules.history import PAST
from starling_rules.ledger import Share
from starling_spark.jobs.backfill.folding import SHARE, Place, fold_all, fold_kept, folded
from starling_spark.jobs.backfill.history import KeptPast
from starling_spark.jobs.backfill.job import BackfillJob, Means
from starling_spark.jobs.backfill.planning import Assignment, lost, with_lake
from starling_spark.jobs.backfill.positions import Cut, cuts, first_left
from starling_spark.jobs.backfill.records import Reporter
from starling_spark.jobs.backfill.settings import BackfillSettings
from starling_spark.lakehouse.iceberg import Lake, iceberg_config
from starling_spark.session.spark import open_session


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
    spark = open_session("backfill", settings, iceberg_config(settings) if settings.lake_warehouse else {})
    try:
        reporter.start()  # before anything is read: what another job said by then is all that it ever says
        known.start()
        yield BackfillJob(
            Means(
                known=known,
                reporter=reporter,
                cuts=partial(_cuts, settings, progress),
                fold=in_a_worker(spark, place, _kept_past(spark, settings), takes_all=settings.backfill_from_lake == "all"),
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


def _kept_past(spark: SparkSession, settings: BackfillSettings) -> KeptPast | None:
    return KeptPast(spark, Lake(spark, settings.lake_namespace)) if settings.lake_warehouse else None


def _cuts(settings: BackfillSettings, progress: Codec) -> list[Cut]:
    found = cuts(settings.kafka.brokers, settings.backfill_segmenter_group, PAST, progress)
    # What the topics no longer have is read, too: how much that is, the lake tells only when it is read.
    return [replace(cut, first=dict.fromkeys(cut.first, 0)) for cut in found] if settings.lake_warehouse else found


def in_a_worker(
    spark: SparkSession, place: Place, kept: KeptPast | None, *, takes_all: bool = False
) -> Callable[[Assignment], Share]:
    """What folds an assignment by a job of its own, so that it can be told when it is done, and the next not be begun."""

    def fold(assignment: Assignment) -> Share:
        if kept is not None:
            assignment = _with_lake(assignment, kept, place, takes_all=takes_all)
        if kept is not None and assignment.kept:
            return _folded_with_lake(assignment, kept, place)
        tasks = spark.sparkContext.parallelize([assignment], 1)
        (share,) = tasks.mapPartitions(partial(fold_all, place=place)).collect()
        return share

    return fold


def _folded_with_lake(assignment: Assignment, kept: KeptPast, place: Place) -> Share:
    rows = kept.rows(assignment.share.number, assignment.kept)
    found = rows.mapInArrow(partial(fold_kept, assignment=assignment, place=place), SHARE).collect()
    if not found:  # Spark calls nobody for a table that it finds to have nothing of this
        return folded(assignment, place)
    share: Share = pickle.loads(found[0]["share"])  # noqa: S301 - our own bytes
    return share


def _with_lake(assignment: Assignment, kept: KeptPast, place: Place, *, takes_all: bool) -> Assignment:
    number = assignment.share.number
    ends = kept.ends(number)  # first: what the topics let go of afterwards, the lake had then
    left = first_left(place.brokers, {topic: place.topic_prefix + topic for topic in ends}, number)
    assignment = with_lake(assignment, ends, left, takes_all=takes_all)
    for topic, gap in lost(assignment).items():
        log(__name__).warning("past_lost", topic=topic, partition=number, first=gap.first, end=gap.end)
    log(__name__).info("lake_read", partition=number, kept={topic: tuple(one) for topic, one in assignment.kept.items()})
    return assignment
