"""Wiring: builds the job from its settings."""

import pickle
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from functools import partial

from pyspark.sql import SparkSession

from starling_common.kafka.topics import BACKFILL_STATES, BACKFILLS, PROGRESS, SEGMENT_DEFINITIONS
from starling_common.telemetry.logs import log
from starling_common.wire import Codec, Registry
from starling_rules.history import PAST
from starling_rules.ledger import Share
from starling_spark.history.refused import log_refused
from starling_spark.jobs.backfill.folding import SHARE, Folded, WorkerSettings, fold_all, fold_with_lake, folded
from starling_spark.jobs.backfill.history import LakeHistory
from starling_spark.jobs.backfill.job import BackfillDependencies, BackfillJob
from starling_spark.jobs.backfill.planning import Assignment, lost, with_lake
from starling_spark.jobs.backfill.positions import Cut, cuts, first_left
from starling_spark.jobs.backfill.records import Reporter
from starling_spark.jobs.backfill.settings import BackfillSettings
from starling_spark.jobs.backfill.topics import BackfillTopics
from starling_spark.lakehouse.iceberg import Lake, iceberg_config
from starling_spark.lakehouse.in_force import PAST_TABLES
from starling_spark.lakehouse.lineage import table_datasets
from starling_spark.lakehouse.pinned import pinning_of
from starling_spark.lineage.datasets import Flow, kafka_topics
from starling_spark.session.lineage import opened_lineage
from starling_spark.session.spark import open_session


@contextmanager
def backfill_job(settings: BackfillSettings) -> Iterator[BackfillJob]:
    """Yield the job, with its topics read; close everything at the end.

    Raises: BrokerUnavailable, RegistryUnavailable, SchemaMissing, KafkaException, JarMissing.
    """
    registry, brokers = Registry(settings.registry.url), settings.kafka.brokers
    definitions = registry.codec(SEGMENT_DEFINITIONS, "DefinitionChanged")
    backfills = registry.codec(BACKFILLS, "BackfillReported")
    known, reporter = BackfillTopics(brokers, definitions, backfills), Reporter(brokers, definitions, backfills)
    progress = registry.codec(PROGRESS, "SegmenterProgress")
    worker = WorkerSettings(brokers, settings.registry.url, settings.backfill_report_seconds)
    spark = open_session("backfill", settings, iceberg_config(settings) if settings.lake_warehouse else {})
    try:
        reporter.start()  # before any topic is read: another job is fenced and publishes no more
        known.start()
        lake = _lake_history(spark, settings)
        with opened_lineage(settings) as lineage:
            dependencies = BackfillDependencies(
                known=known,
                reporter=reporter,
                cuts=partial(_cuts, settings, progress),
                fold=in_a_worker(spark, worker, lake, takes_all=settings.backfill_from_lake == "all"),
                give_up=spark.sparkContext.cancelAllJobs,
                at_once=spark.sparkContext.defaultParallelism,
                clock=settings.clock,
                slices=settings.backfill_slices,
                tail_records=settings.backfill_tail_records,
                flow=partial(_flow, spark, settings),
                lineage=lineage,
            )
            yield BackfillJob(dependencies)
    finally:
        known.stop()
        spark.stop()


def _flow(spark: SparkSession, settings: BackfillSettings) -> Flow:
    """Return all topics and tables of the history, of which a run reads those that its segments need."""
    brokers = settings.kafka.brokers
    tables = PAST_TABLES.values() if settings.lake_warehouse else ()
    lake = table_datasets(Lake(spark, settings.lake_namespace), *tables, versions=False) if tables else ()
    return Flow((*kafka_topics(brokers, *PAST), *lake), kafka_topics(brokers, BACKFILL_STATES, BACKFILLS, SEGMENT_DEFINITIONS))


def _lake_history(spark: SparkSession, settings: BackfillSettings) -> LakeHistory | None:
    if not settings.lake_warehouse:
        return None
    return LakeHistory(Lake(spark, settings.lake_namespace), pinning=pinning_of(settings, "backfill"))


def _cuts(settings: BackfillSettings, progress: Codec) -> list[Cut]:
    found = cuts(settings.kafka.brokers, settings.backfill_segmenter_group, PAST, progress)
    # Records that the topics lack are read too; their number is unknown before the lake is read.
    return [replace(cut, first=dict.fromkeys(cut.first, 0)) for cut in found] if settings.lake_warehouse else found


def in_a_worker(
    spark: SparkSession, worker: WorkerSettings, lake: LakeHistory | None, *, takes_all: bool = False
) -> Callable[[Assignment], Share]:
    """Return a function that folds an assignment in its own Spark job, so that its end is known and the next can be withheld."""

    def fold(assignment: Assignment) -> Share:
        if lake is not None:
            assignment = _with_lake(assignment, lake, worker, takes_all=takes_all)
        found = in_one_task(assignment)
        while found.failed:
            log(__name__).error("fold_failed", partition=assignment.share.number, users=len(found.failed))
            assignment = replace(assignment, fragile=assignment.fragile | found.failed)
            found = in_one_task(assignment)
        log_refused(found.refused)
        return found.share

    def in_one_task(assignment: Assignment) -> Folded:
        if lake is not None and assignment.from_lake:
            return _folded_with_lake(assignment, lake, worker)
        tasks = spark.sparkContext.parallelize([assignment], 1)
        (found,) = tasks.mapPartitions(partial(fold_all, settings=worker)).collect()
        return found

    return fold


def _folded_with_lake(assignment: Assignment, lake: LakeHistory, worker: WorkerSettings) -> Folded:
    with lake.pinned() as history:
        rows = history.rows(assignment.share.number, assignment.from_lake)
        found = rows.mapInArrow(partial(fold_with_lake, assignment=assignment, settings=worker), SHARE).collect()
    if not found:  # Spark starts no task for an empty selection
        return folded(assignment, worker)
    result: Folded = pickle.loads(found[0]["share"])  # noqa: S301 - pickled by our own worker
    return result


def _with_lake(assignment: Assignment, lake: LakeHistory, worker: WorkerSettings, *, takes_all: bool) -> Assignment:
    number = assignment.share.number
    ends = lake.ends(number)  # read first: the lake has all records that the topics delete afterwards
    left = first_left(worker.brokers, {topic: worker.topic_prefix + topic for topic in ends}, number)
    assignment = with_lake(assignment, ends, left, takes_all=takes_all)
    for topic, gap in lost(assignment).items():
        log(__name__).warning("history_missing", topic=topic, partition=number, first=gap.first, end=gap.end)
    log(__name__).info("lake_read", partition=number, from_lake={topic: tuple(one) for topic, one in assignment.from_lake.items()})
    return assignment
