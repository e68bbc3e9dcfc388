"""The history of computed traits from the lake: events that the topic no longer has.

Real tables in the session that all Spark tests share, and the job as a process on a real broker and registry.
"""

import base64
import json
import os
import shutil
import uuid
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest
from prometheus_client import CollectorRegistry
from pyspark.sql import DataFrame, SparkSession

from starling_common.kafka.topics import BEHAVIOUR
from starling_common.settings import Clock, Kafka
from starling_common.telemetry.metrics import Metrics
from starling_common.wire import schema_text
from starling_local.runtime import runtime_jars
from starling_spark.jobs.lake import job as lake_job
from starling_spark.jobs.lake.batches import LakeWriter, Source
from starling_spark.jobs.profiles.definitions.entries import changed, first_entries
from starling_spark.jobs.profiles.definitions.in_force import Definition
from starling_spark.jobs.profiles.fold.chunks import decode_seeds
from starling_spark.jobs.profiles.query.histories import lake_hits, seed_lines, topic_hits
from starling_spark.jobs.profiles.query.transform import Job, Topics
from starling_spark.kafka.codec import TopicSchema, Wire
from starling_spark.kafka.sources import RECORDS
from starling_spark.lakehouse.iceberg import Lake
from starling_spark.lakehouse.schema.tables import LakeTable
from tests.conftest import Stack
from tests.integration.spark.instance import Instance, wait_for
from tests.spark.conftest import lake_settings
from tests.spark.lake_rig import RECEIVED_AT, Registered, Rig, behaviour, writer_of

DAY_MS = 86_400_000
START_MS = RECEIVED_AT // 1000
TOPICS = Topics(BEHAVIOUR, "clock", "aggregates", "dlq")
DOCUMENTS: Mapping[str, Mapping[str, Any]] = {
    "orders": {"event": "Order Completed"},
    "carts": {"event": "Cart *", "measure": {"last": "sku"}},
    "recent": {"event": "Order Completed", "measure": {"sum": "revenue"}, "within": "30d"},
    "mobile": {"event": "Page Viewed", "where": {"context": "os", "op": "eq", "value": "ios"}},
    "first": {"event": "Order Completed", "measure": {"first": "revenue"}},
}
OTHERS = {"all": {"event": "*", "measure": {"days": True}}}


def definitions(documents: Mapping[str, Mapping[str, Any]]) -> tuple[Definition, ...]:
    return tuple(Definition("w", key, 1, json.dumps(document), ()) for key, document in documents.items())


def step_job(registered: Registered, documents: Mapping[str, Mapping[str, Any]], clock: Clock) -> Job:
    """Return a job whose step adds these traits to one that counts orders."""
    (old,) = first_entries((Definition("w", "old", 1, json.dumps({"event": "Refund"}), ()),))
    schema_id, _ = registered.newest(BEHAVIOUR)
    names = {"clock": "ClockAdvanced", "aggregates": "AggregateComputed", "dlq": "DeadLetter"}
    others = [TopicSchema(topic, name, 90 + number) for number, (topic, name) in enumerate(names.items())]
    wire = Wire("http://127.0.0.1:1", (TopicSchema(BEHAVIOUR, "BehaviourEvent", schema_id, schema_text("BehaviourEvent")), *others))
    entries = changed((old,), (old.definition, *definitions(documents)), 1)
    return Job(TOPICS, wire, clock, entries, step=1, is_complete=False)


def seeds(hits: DataFrame, job: Job) -> dict[tuple[int, str], bytes]:
    """Return (partition, user) -> the encoded history."""
    found: dict[tuple[int, str], bytes] = {}
    for row in seed_lines(hits, job).collect():
        _, partition, pack = row["value"].split(" ")
        found.update({(int(partition), user): state for user, state in decode_seeds(base64.b64decode(pack)).states.items()})
    return found


@pytest.fixture
def rig(spark: SparkSession) -> Rig:
    lake, registered = Lake(spark, f"t{uuid.uuid4().hex[:12]}"), Registered()
    return Rig(spark, registered, lake, writer_of(lake, registered))


def events(rig: Rig) -> list[tuple[Any, ...]]:
    """Several events of one user at one instant, some late, and records that no history has."""
    names = ("Order Completed", "Cart Filled", "Page Viewed", "Refund", "Order Completed")
    made = []
    for number in range(60):
        fields = {
            "user_id": f"u{number % 7}",
            "event_time": START_MS + (number // 3) * DAY_MS - (40 * DAY_MS if number % 11 == 0 else 0),
            "properties": json.dumps({"revenue": number, "sku": f"s{number}"} if number % 13 else [1]),
            "context": json.dumps({"os": "ios" if number % 2 else "android"}),
            "workspace": "w" if number % 17 else "elsewhere",
        }
        value = rig.registered.value(BEHAVIOUR, behaviour(names[number % 5]) | fields)
        made.append(rig.record(BEHAVIOUR, value[:-2] if number == 31 else value, number % 7 % 2))
    return made


@pytest.mark.parametrize("documents", [DOCUMENTS, OTHERS], ids=["by name", "of any name"])
@pytest.mark.parametrize("clock", Clock)
def test_histories_from_lake_and_topic_equal_those_from_the_topic_alone(
    rig: Rig, documents: Mapping[str, Mapping[str, Any]], clock: Clock
) -> None:
    records = events(rig)
    rig.write(*records[:25])
    rig.write(*records[25:50])
    job, frame = step_job(rig.registered, documents, clock), rig.spark.createDataFrame(records, RECORDS)
    expected = seeds(topic_hits(frame, job), job)
    assert len({user for _, user in expected}) == 7
    ends = {0: 16, 1: 14}
    table = rig.lake.rows("behaviour_events")
    later = frame.where("(partition = 0 AND offset >= 16) OR (partition = 1 AND offset >= 14)")
    assert seeds(lake_hits(table, job, ends, 4).unionByName(topic_hits(later, job)), job) == expected
    assert seeds(topic_hits(later, job), job) != expected


@pytest.fixture
def instance(stack: Stack, tmp_path: Path) -> Iterator[Instance]:
    made = Instance(stack.brokers, stack.registry_url, tmp_path)
    made.deploy()
    yield made
    made.remove()


@pytest.mark.long
def test_a_trait_counts_what_the_topic_has_lost_and_a_lost_checkpoint_changes_no_value(
    spark: SparkSession, stack: Stack, instance: Instance, tmp_path: Path
) -> None:
    table = LakeTable("behaviour_events", (instance.topics["events"],), "BehaviourEvent", "kind", ("name", "event_time"))
    lake = Lake(spark, f"n{uuid.uuid4().hex[:10]}")

    def into_the_lake() -> None:
        settings = lake_settings(tmp_path).model_copy(update={"kafka": Kafka(brokers=stack.brokers), "lake_trigger_seconds": 0.1})
        writer = LakeWriter(lake, (table,), Source(instance.registry, stack.registry_url))
        batches = lake_job.Batches(writer, lambda: None, Metrics(CollectorRegistry()), 0.0)
        query = lake_job.start(spark, settings, (table,), batches, headers=True)
        query.processAllAvailable()
        query.stop()

    def start() -> None:
        instance.start(
            STARLING_SPARK_JARS=os.pathsep.join(map(str, (*runtime_jars("spark"), *runtime_jars("iceberg")))),
            STARLING_LAKE_WAREHOUSE=spark.conf.get("spark.sql.catalog.lake.warehouse") or "",
            STARLING_LAKE_NAMESPACE=lake.namespace,
        )

    def in_force() -> int:
        return instance.log.read_text().count("definitions_in_force")

    instance.define("spent", {"event": "Order Completed", "measure": {"sum": "revenue"}, "within": "30d"})
    instance.define("orders", {"event": "Order Completed"})
    users = [f"u{number}" for number in range(30)]
    for user in users:
        instance.event(user, START_MS, revenue=10)
    start()
    instance.settle()
    into_the_lake()
    instance.delete_records()
    for user in users[:20]:
        instance.event(user, START_MS + DAY_MS, revenue=1)
    instance.define("pages", {"event": "*"})
    instance.settle()
    expected = {(user, key): count for user in users[20:] for key, count in (("spent", 10), ("orders", 1), ("pages", 1))}
    expected |= {(user, key): count for user in users[:20] for key, count in (("spent", 11), ("orders", 2), ("pages", 2))}
    assert instance.values() == expected
    assert instance.stop() == 0
    epoch, known = max(one.record["epoch"] for one in instance.read("aggregates")), in_force()
    shutil.rmtree(tmp_path / "checkpoints")
    start()
    instance.event("u0", START_MS + 2 * DAY_MS, revenue=1)
    wait_for(lambda: in_force() > known, 300, instance.log_tail)
    instance.settle()
    expected |= {("u0", "spent"): 12, ("u0", "orders"): 3, ("u0", "pages"): 3}
    assert instance.values() == expected
    again = [one.record for one in instance.read("aggregates") if one.record["epoch"] > epoch]
    assert {(one["user_id"], one["trait_key"]) for one in again} == expected.keys()
    assert None not in {one["value"] for one in again}
    # Windows end as ever, and the next trait has all of the history.
    instance.define("days", {"event": "Order Completed", "measure": {"days": True}})
    instance.advance(START_MS + 31 * DAY_MS - 1)
    instance.settle()
    values = instance.values()
    assert [values[user, "spent"] for user in ("u0", "u1", "u25")] == [2, 1, None]
    assert [values[user, "days"] for user in ("u0", "u1", "u25")] == [3, 2, 1]
    assert instance.read("dead_letters") == []
