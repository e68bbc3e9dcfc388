"""The job `audience_report` on a real broker, registry and Cassandra, in the session that all Spark tests share."""

import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow.dataset as ds
import pytest
from confluent_kafka import Producer, TopicPartition
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic
from pyspark.errors import AnalysisException
from pyspark.sql import SparkSession

from starling_api.http.pagination import PageOf
from starling_api.reports.audience_report import ReportRequest as RowRequest
from starling_api.reports.audience_report import Reports
from starling_api.reports.store import CassandraReports
from starling_common.cassandra.database import Database
from starling_common.kafka.clients import producer_config
from starling_common.kafka.topics import MEMBERSHIP, MEMBERSHIP_STATE
from starling_common.settings import Cassandra, Kafka, SchemaRegistry
from starling_common.testing import own_keyspace
from starling_common.time.instants import parse_instant
from starling_common.values import deterministic_id, record_key
from starling_common.wire import Registry
from starling_spark.history import feed
from starling_spark.jobs.audience_report.job import ReportRequest, report
from starling_spark.jobs.audience_report.settings import AudienceReportSettings
from starling_spark.jobs.audience_report.wiring import report_wire
from starling_spark.jobs.lake.batches import LakeWriter, Source
from starling_spark.kafka.sources import kafka_past
from starling_spark.lakehouse.iceberg import Lake
from starling_spark.lakehouse.schema.tables import TABLES, renamed
from tests.conftest import Stack
from tests.lineage_receiver import places, rows_of, sent_lineage
from tests.spark.conftest import spark_settings

PARTITIONS = 2
UNTIL_MS = parse_instant("2026-03-10T12:00:00Z")


class ReportInstance:
    """A feed under a unique prefix, and a keyspace of its own."""

    def __init__(self, stack: Stack, cassandra: Cassandra, directory: Path) -> None:
        self.stack = stack
        self.prefix = f"t{uuid.uuid4().hex[:10]}."
        self.lake: Lake | None = None
        self.database = Database(cassandra)
        shared = spark_settings(directory).model_dump() | {
            "kafka": Kafka(brokers=stack.brokers),
            "registry": SchemaRegistry(url=stack.registry_url),
        }
        self.settings = AudienceReportSettings(
            **shared, cassandra=cassandra, timezones="w=Europe/Berlin", report_days_later=(1, 7), report_topic_prefix=self.prefix
        )

    def deploy(self) -> None:
        topics = [self.prefix + topic for topic in (MEMBERSHIP, MEMBERSHIP_STATE)]
        admin, registry = AdminClient({"bootstrap.servers": self.stack.brokers}), Registry(self.stack.registry_url)
        for future in admin.create_topics([NewTopic(topic, PARTITIONS, 1) for topic in topics], operation_timeout=30).values():
            future.result()
        for topic in topics:
            registry.register(f"{topic}-value", "SegmentMembershipChanged", "FULL_TRANSITIVE")
        self._codec = registry.codec(topics[0], "SegmentMembershipChanged")
        self._producer = Producer(producer_config(self.stack.brokers))

    def remove(self) -> None:
        self.database.close()
        topics = [self.prefix + topic for topic in (MEMBERSHIP, MEMBERSHIP_STATE)]
        admin = AdminClient({"bootstrap.servers": self.stack.brokers})
        for future in admin.delete_topics(topics, operation_timeout=30).values():
            future.result()

    def changed(self, user: str, segment: str, sequence: int, instant: str, *topics: str, workspace: str = "w") -> None:
        at_ms = parse_instant(instant)
        record = {
            "event_id": deterministic_id(workspace, user, segment, sequence), "workspace": workspace, "user_id": user,
            "anonymous_ids": [], "segment_key": segment, "segment_name": segment, "segment_version": 1,
            "status": "ENTERED" if sequence % 2 else "EXITED", "sequence": sequence, "effective_at": at_ms, "decided_at": at_ms,
            "cause": {"kind": "EVENT", "message_id": None, "event_name": None}, "correlation_id": "c", "traits": "{}",
            "memberships": [], "received_at": at_ms * 1000,
        }  # fmt: skip
        for topic in topics or (MEMBERSHIP,):
            self.send(topic, record_key(workspace, user), self._codec.encode(record))

    def send(self, topic: str, key: bytes, value: bytes) -> None:
        self._producer.produce(self.prefix + topic, value, key)
        assert self._producer.flush(30) == 0

    def queried(self, show: str, workspace: str = "w") -> dict[str, Any]:
        return Reports(CassandraReports(self.database)).page(workspace, RowRequest(show, None, None, None), PageOf(100, None))

    def source(self, spark: SparkSession) -> feed.FeedSource:
        return feed.FeedSource(spark, self.stack.brokers, report_wire(self.settings), self.lake)

    def into_lake(self, spark: SparkSession) -> None:
        """The feed goes into a lake, and out of its topic, as after 30 days."""
        tables = renamed(tuple(one for one in TABLES if one.name == feed.LAKE_TABLE), self.prefix)
        self.lake = Lake(spark, f"n{uuid.uuid4().hex[:10]}")
        source, url = kafka_past(spark, self.stack.brokers, [self.prefix + MEMBERSHIP]), self.stack.registry_url
        LakeWriter(self.lake, tables, Source(Registry(url), url)).write(source)
        position = self.lake.position(feed.LAKE_TABLE)
        admin = AdminClient({"bootstrap.servers": self.stack.brokers})
        for future in admin.delete_records([TopicPartition(*where, end) for where, end in position.items()]).values():
            future.result()

    def rows_kept(self) -> int:
        return len(self.database.read("SELECT run FROM {ks}.report_rows"))


@pytest.fixture
def instance(stack: Stack, tmp_path: Path) -> Iterator[ReportInstance]:
    with own_keyspace(stack.cassandra) as cassandra:
        made = ReportInstance(stack, cassandra, tmp_path)
        made.deploy()
        yield made
        made.remove()


@pytest.mark.long
def test_the_life_of_a_report(
    spark: SparkSession, instance: ReportInstance, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # Ann entered so long ago that the feed has forgotten it; the state topic has not.
    instance.changed("ann", "s", 1, "2026-03-08T22:59:59Z", MEMBERSHIP_STATE)
    instance.changed("bob", "s", 1, "2026-03-08T23:00:00Z", MEMBERSHIP, MEMBERSHIP_STATE)
    instance.changed("bob", "s", 2, "2026-03-10T08:00:00Z", MEMBERSHIP, MEMBERSHIP_STATE)
    instance.changed("ann", "t", 1, "2026-03-10T11:00:00Z", MEMBERSHIP, MEMBERSHIP, MEMBERSHIP_STATE)
    instance.changed("zoe", "s", 1, "2026-03-10T11:00:00Z", workspace="other")
    instance.send(MEMBERSHIP, b"w/ann", b"broken")
    instance.changed("poisoned", "s", 1, "2026-03-08T23:00:00Z", MEMBERSHIP)
    monkeypatch.setitem(spark.sparkContext.environment, "STARLING_FAILPOINT", "raise_in_decode:poisoned")
    out = tmp_path / "report"
    with sent_lineage(instance.settings) as (lineage, receiver):
        counts = report(instance.source(spark), instance.settings, ReportRequest(UNTIL_MS, out.as_uri()), lineage)
    assert counts == {"days": 5, "retention": 1, "overlap": 5, "unreadable": 2}
    end = receiver.events()[-1]
    assert (end["eventType"], end["run"]["facets"]["nominalTime"]["nominalStartTime"]) == (
        "COMPLETE",
        "2026-03-10T12:00:00.000+00:00",
    )
    topics = [instance.prefix + topic for topic in (MEMBERSHIP, MEMBERSHIP_STATE)]
    assert places(end["inputs"]) == [(f"kafka://{instance.stack.brokers}", topic) for topic in topics]
    keyspace = instance.settings.cassandra.keyspace
    parquet = {str(out / part): counts[part] for part in ("days", "retention", "overlap")}
    assert rows_of(end) == {f"{keyspace}.report_rows": 11, f"{keyspace}.report_runs": None} | parquet
    days = instance.queried("days")
    assert [(row["segment"], row["day"], row["size"], row["entries"], row["exits"]) for row in days["items"]] == [
        ("s", "2026-03-08", 1, 1, 0),
        ("s", "2026-03-09", 2, 1, 0),  # in Berlin it is a day later by then
        ("s", "2026-03-10", 1, 0, 1),
        ("t", "2026-03-10", 1, 1, 0),
    ]
    assert (days["as_of"], days["timezone"]) == ("2026-03-10T12:00:00.000Z", "Europe/Berlin")
    assert (days["records_missing"], days["records_unreadable"]) == (0, 2)
    assert instance.queried("retention")["items"] == [
        {"segment": "s", "day": "2026-03-08", "days_later": 1, "entered": 1, "still": 1}
    ]
    shared = {(row["segment"], row["other_key"]): row["users"] for row in instance.queried("overlap")["items"]}
    assert shared == {("s", "s"): 1, ("s", "t"): 1, ("t", "s"): 1, ("t", "t"): 1}
    files = ds.dataset(out / "days", format="parquet").to_table().to_pylist()
    assert {(row["segment_key"], str(row["day"]), row["size"]) for row in files if row["workspace"] == "w"} == {
        (row["segment"], row["day"], row["size"]) for row in days["items"]
    }
    _the_next_one_takes_its_place(spark, instance, out)


def _the_next_one_takes_its_place(spark: SparkSession, instance: ReportInstance, out: Path) -> None:
    kept = instance.rows_kept()
    with pytest.raises(AnalysisException, match="already exists"):
        report(instance.source(spark), instance.settings, ReportRequest(UNTIL_MS, out.as_uri()))
    instance.into_lake(spark)
    instance.changed("ann", "t", 2, "2026-03-10T11:30:00Z")
    report(instance.source(spark), instance.settings, ReportRequest(UNTIL_MS, out.as_uri(), overwrite=True))
    assert [row["size"] for row in instance.queried("days")["items"]] == [1, 2, 1, 0]
    assert instance.rows_kept() == kept - 3  # of the overlap; the former report's rows are gone
