"""Upgrades that keep their checkpoints otherwise: the new version reads all again beside the old one, and nothing is doubled.

In the session that all Spark tests share, on a real broker and registry.
"""

import json
import uuid
from pathlib import Path

import pytest
from prometheus_client import CollectorRegistry
from pyspark.sql import SparkSession

from starling_common.kafka.topics import BEHAVIOUR
from starling_common.settings import Clock, Kafka
from starling_common.telemetry.metrics import Metrics
from starling_common.wire import Registry
from starling_spark.directories import LocalDirectory
from starling_spark.jobs.lake import job as lake_job
from starling_spark.jobs.lake.batches import LakeWriter, Source
from starling_spark.jobs.profiles.definitions.entries import first_entries, in_force
from starling_spark.jobs.profiles.definitions.in_force import Definition
from starling_spark.jobs.profiles.fold import traits
from starling_spark.jobs.profiles.query import queries
from starling_spark.jobs.profiles.query.generations import Generations
from starling_spark.jobs.profiles.query.queries import Observers, QueryOptions, TraitQuery
from starling_spark.jobs.profiles.query.transform import Job, Topics
from starling_spark.kafka.codec import topic_schemas
from starling_spark.lakehouse.iceberg import Lake
from starling_spark.lakehouse.schema.tables import TABLES, renamed
from starling_spark.session.query_metrics import QueryMetrics
from tests.conftest import Stack
from tests.integration.spark.instance import PARTITIONS, RECORDS, Instance, wait_for
from tests.integration.spark.lake_instance import LakeInstance, behaviour
from tests.spark.conftest import lake_settings

START_MS = 1_700_000_000_000
PATIENCE_SECONDS = 300.0


@pytest.mark.long
def test_the_lake_goes_on_under_the_checkpoint_of_a_new_version(
    spark: SparkSession, stack: Stack, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    made = LakeInstance(stack, tmp_path)
    made.deploy()
    tables = renamed(tuple(one for one in TABLES if one.name == "behaviour_events"), made.prefix)
    lake = Lake(spark, f"n{uuid.uuid4().hex[:10]}")
    settings = lake_settings(tmp_path).model_copy(update={"kafka": Kafka(brokers=stack.brokers), "lake_trigger_seconds": 0.1})
    writer = LakeWriter(lake, tables, Source(Registry(stack.registry_url), stack.registry_url))
    batches = lake_job.Batches(writer, lambda: None, Metrics(CollectorRegistry()), 0.0)

    def run(*, headers: bool = True) -> list[str]:
        query = lake_job.start(spark, settings, tables, batches, headers=headers)
        query.processAllAvailable()
        query.stop()
        return sorted(row.name for row in spark.table(lake.name("behaviour_events")).select("name").collect())

    made.send(BEHAVIOUR, *[made.value(BEHAVIOUR, behaviour(name)) for name in "abc"])
    with monkeypatch.context() as older:
        older.setattr(lake_job, "CHECKPOINT", "lake-of-an-older-version")
        assert run() == list("abc")
    made.send(BEHAVIOUR, *[made.value(BEHAVIOUR, behaviour(name)) for name in "de"])
    assert run() == list("abcde")
    # The same checkpoint for micro-batches with headers and without: where a lake moves is no reason to read all again.
    made.send(BEHAVIOUR, made.value(BEHAVIOUR, behaviour("f")))
    assert run(headers=False) == list("abcdef")
    assert {path.name for path in tmp_path.iterdir() if "lake" in path.name} == {"lake-of-an-older-version", lake_job.CHECKPOINT}
    made.remove()


@pytest.mark.long
def test_traits_go_on_under_the_checkpoint_of_a_new_version(
    spark: SparkSession, stack: Stack, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    instance = Instance(stack.brokers, stack.registry_url, tmp_path)
    instance.deploy()
    topics = Topics(*(instance.topics[name] for name in ("events", "clock", "aggregates", "dead_letters")))
    carried = [(instance.topics[name], RECORDS[name]) for name in ("events", "clock", "aggregates", "dead_letters")]
    document = json.dumps({"key": "orders", "event": "Order Completed", "measure": "count"})
    job = Job(
        topics,
        topic_schemas(instance.registry, stack.registry_url, carried),
        Clock.EVENT,
        first_entries((Definition("w", "orders", 1, document, ()),)),
    )
    options = QueryOptions(stack.brokers, PARTITIONS, LocalDirectory(tmp_path / "profiles"), 1, 0.1)
    observers = Observers(lambda _: None, QueryMetrics(Metrics(CollectorRegistry()), "profiles"))

    def run(expected: int) -> str:
        """Until the trait has this value; then the checkpoint is the only one."""
        generations, layout = Generations(options.checkpoints), queries.layout_of(options, job)
        generation = generations.open(layout, layout, in_force(job.entries))
        query = TraitQuery(spark, job, options, generation.directory, observers)
        try:
            wait_for(lambda: query.poll() and instance.values().get(("ann", "orders")) == expected, PATIENCE_SECONDS, lambda: "")
            generations.complete(generation)
        finally:
            query.stop(60)
        return query.name

    for number in range(3):
        instance.event("ann", START_MS + number)
    old = run(3)
    instance.event("ann", START_MS + 10)
    monkeypatch.setattr(queries, "FORMAT", traits.FORMAT + 1)
    new = run(4)
    assert options.checkpoints.names() == [new] != [old]
    instance.remove()
