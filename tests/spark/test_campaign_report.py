"""The job `campaign_report` equals the report of the API, whose counts the projector keeps, and reads topic and lake once."""

import math
import random
import uuid
from collections.abc import Iterator, Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.dataset as ds
import pytest
from confluent_kafka import Producer, TopicPartition
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic
from pyspark.errors import AnalysisException
from pyspark.sql import DataFrame, SparkSession

from starling_api.reports.campaign_report import CountedArm, CountedDay, ReportedDays, campaign_report
from starling_campaigns.lift import Arm
from starling_common.cassandra.read_models import ARM_CONVERTED, ARM_PEOPLE
from starling_common.kafka.clients import producer_config
from starling_common.kafka.topics import CAMPAIGN_PROGRESS
from starling_common.outcome import Done
from starling_common.settings import Kafka, SchemaRegistry
from starling_common.values import record_key
from starling_common.wire import Registry
from starling_projector.projection.steps import ArmKey, DayKey, StepTally, count_steps, keys_of_step, step_of
from starling_spark.history.progress import LAKE_TABLE, PROGRESS_RECORD, ProgressSource
from starling_spark.jobs.campaign_report.job import ReportRequest, lifts, report
from starling_spark.jobs.campaign_report.settings import CampaignReportSettings
from starling_spark.jobs.campaign_report.transform import arms, funnel
from starling_spark.jobs.campaign_report.wiring import report_wire
from starling_spark.jobs.lake.batches import LakeWriter, Source
from starling_spark.kafka.sources import kafka_past
from starling_spark.lakehouse.iceberg import Lake
from starling_spark.lakehouse.schema.tables import TABLES, renamed
from tests.conftest import Stack
from tests.lineage_receiver import places, rows_of, sent_lineage
from tests.spark.conftest import spark_settings

DAY_MS = 86_400_000
NOON_MS = 1_767_225_600_000 + DAY_MS // 2
COLUMNS = pa.schema(
    [
        *[(name, pa.string()) for name in ("workspace", "delivery_id", "campaign", "variant", "step", "reason")],
        ("version", pa.int32()),
        ("decided_at", pa.timestamp("ms", tz="UTC")),
        ("value", pa.float64()),
        ("day", pa.int32()),
        ("held_out", pa.bool_()),
        ("is_first", pa.bool_()),
    ]
)


def progress(delivery_id: str, step: str, **more: Any) -> dict[str, Any]:
    fields = {"received_at": NOON_MS * 1000, "workspace": "w", "user_id": "ada", "campaign": "c", "instance": "1", "version": 1}
    instants = {"due_at": NOON_MS, "decided_at": NOON_MS, "at": NOON_MS}
    rest = {"variant": "a", "reason": None, "value": None, "day": None, "held_out": False, "is_first": False, "correlation_id": "x"}
    return {**fields, **instants, **rest, "delivery_id": delivery_id, "step": step, **more}


def story(dice: random.Random) -> list[dict[str, Any]]:
    """Return the steps of many messages of two campaigns, as the messenger publishes them."""
    found = []
    for number in range(600):
        decided_at = NOON_MS + dice.randrange(-3, 3) * DAY_MS + dice.randrange(DAY_MS)
        of_message = {
            "campaign": dice.choice("cd"), "version": dice.randint(1, 2), "variant": dice.choice("ab"), "decided_at": decided_at,
            "day": dice.choice((None, decided_at // DAY_MS - 1)), "is_first": dice.random() < 0.6,
        }  # fmt: skip
        message = f"m{number}"
        fate = dice.random()
        if fate < 0.2:
            reason = dice.choice(("capped", "no_consent", None, "Not a code"))
            rest = {**of_message, "variant": dice.choice((None, "a")), "is_first": False}
            found.append(progress(message, "DROPPED", reason=reason, **rest))
            continue
        held_out = fate < 0.5
        found.append(progress(message, "HELD_OUT" if held_out else "REQUESTED", held_out=held_out, **of_message))
        following = ["CONVERTED"] if held_out else ["SENT", "OPENED", "CLICKED", "SUPPRESSED", "FAILED", "CONVERTED"]
        for step in dice.sample(following, dice.randint(0, len(following))):
            value = dice.choice((None, 2.5, math.inf, math.nan, -1.0)) if step == "CONVERTED" else None
            found.append(progress(message, step, value=value, held_out=held_out, **of_message))
    return found


class Counted:
    """What the projector would have counted, as the API reads it."""

    def __init__(self, records: Sequence[Mapping[str, Any]]) -> None:
        tallies: dict[Any, StepTally] = {}
        for offset, record in enumerate(records):
            step = step_of(record, 0, offset)
            assert isinstance(step, Done)
            known = {key: tallies.get(key, StepTally()) for key in keys_of_step(step.value)}
            tallies |= count_steps(known, [step.value])
        self._tallies = tallies

    def days(self, workspace: str, campaign: str, first: int, last: int) -> list[CountedDay]:
        return [
            CountedDay(key.day, key.version, key.variant, tally.counts, tally.value)
            for key, tally in self._tallies.items()
            if isinstance(key, DayKey) and (key.workspace, key.campaign) == (workspace, campaign) and first <= key.day <= last
        ]

    def arms(self, workspace: str, campaign: str) -> list[CountedArm]:
        return [
            CountedArm(
                key.variant, key.held_out, Arm(tally.counts.get(ARM_PEOPLE, 0), tally.counts.get(ARM_CONVERTED, 0), tally.value)
            )
            for key, tally in self._tallies.items()
            if isinstance(key, ArmKey) and (key.workspace, key.campaign) == (workspace, campaign)
        ]


def frame(spark: SparkSession, records: Sequence[Mapping[str, Any]]) -> DataFrame:
    rows = [{**one, "decided_at": datetime.fromtimestamp(one["decided_at"] / 1000, UTC)} for one in records]
    return spark.createDataFrame(pa.Table.from_pylist(rows, COLUMNS))


@pytest.mark.parametrize("seed", [1, 2])
def test_the_report_equals_that_of_the_api(spark: SparkSession, seed: int) -> None:
    records = story(random.Random(seed))
    steps = frame(spark, records)
    days = [row.asDict() for row in funnel(steps).collect()]
    found = [row.asDict() for row in lifts(spark, arms(steps)).collect()]
    counted = Counted(records)
    for campaign in "cd":
        expected = campaign_report(counted, "w", campaign, ReportedDays())
        shown = [shaped(row) for row in days if row["campaign"] == campaign]
        assert sorted(shown, key=place) == sorted(expected["funnel"], key=place)
        for row in expected["lift"]:
            (same,) = [one for one in found if (one["campaign"], one["variant"]) == (campaign, row["variant"])]
            people = same["people"], same["converted"], same["held_out_people"], same["held_out_converted"]
            assert people == (*row["written_to"].values(), *row["held_out"].values())
            for name in ("difference", "low", "high", "relative", "value", "inconclusive"):
                assert same[name] == pytest.approx(row[name])


def shaped(row: dict[str, Any]) -> dict[str, Any]:
    rest = {name: value for name, value in row.items() if name not in {"workspace", "campaign"}}
    return {**rest, "day": row["day"].isoformat(), "suppressed": dict(row["suppressed"])}


def place(row: Mapping[str, Any]) -> tuple[str, int, str]:
    return row["day"], row["version"], row["variant"] or ""


class ReportInstance:
    """A topic of progress under a unique prefix."""

    def __init__(self, stack: Stack, directory: Path) -> None:
        self.stack = stack
        self.prefix = f"t{uuid.uuid4().hex[:10]}."
        self.topic = self.prefix + CAMPAIGN_PROGRESS
        shared = spark_settings(directory).model_dump() | {
            "kafka": Kafka(brokers=stack.brokers),
            "registry": SchemaRegistry(url=stack.registry_url),
        }
        self.settings = CampaignReportSettings(**shared, report_topic_prefix=self.prefix)
        self.admin, registry = AdminClient({"bootstrap.servers": stack.brokers}), Registry(stack.registry_url)
        for future in self.admin.create_topics([NewTopic(self.topic, 1, 1)], operation_timeout=30).values():
            future.result()
        registry.register(f"{self.topic}-value", PROGRESS_RECORD, "FULL_TRANSITIVE")
        self._codec = registry.codec(self.topic, "MessageProgressed")
        self._producer = Producer(producer_config(stack.brokers))

    def remove(self) -> None:
        for future in self.admin.delete_topics([self.topic], operation_timeout=30).values():
            future.result()

    def send(self, *records: Mapping[str, Any] | bytes) -> None:
        for record in records:
            value = record if isinstance(record, bytes) else self._codec.encode(dict(record))
            self._producer.produce(self.topic, value, record_key("w", "ada"))
        assert self._producer.flush(30) == 0

    def source(self, spark: SparkSession, lake: Lake | None = None) -> ProgressSource:
        return ProgressSource(spark, self.stack.brokers, report_wire(self.settings), lake)

    def into_lake(self, spark: SparkSession) -> Lake:
        """Move what the topic contains into a lake."""
        tables = renamed(tuple(one for one in TABLES if one.name == LAKE_TABLE), self.prefix)
        lake, url = Lake(spark, f"n{uuid.uuid4().hex[:10]}"), self.stack.registry_url
        LakeWriter(lake, tables, Source(Registry(url), url)).write(kafka_past(spark, self.stack.brokers, [self.topic]))
        return lake

    def forget(self, lake: Lake) -> None:
        """Delete from the topic what the lake contains."""
        ends = [TopicPartition(*where, end) for where, end in lake.position(LAKE_TABLE).items()]
        for future in self.admin.delete_records(ends).values():
            future.result()


@pytest.fixture
def instance(stack: Stack, tmp_path: Path) -> Iterator[ReportInstance]:
    made = ReportInstance(stack, tmp_path)
    yield made
    made.remove()


@pytest.mark.long
def test_each_step_counts_once_wherever_it_is(spark: SparkSession, instance: ReportInstance, tmp_path: Path) -> None:
    sent = progress("m1", "REQUESTED", is_first=True), progress("m1", "SENT"), progress("m2", "HELD_OUT", is_first=True)
    instance.send(*sent, b"broken")
    out = tmp_path / "report"
    request = ReportRequest(out.as_uri())
    assert report(instance.source(spark), instance.settings, request) == {"funnel": 1, "lift": 2, "unreadable": 1}
    with pytest.raises(AnalysisException, match="already exists"):
        report(instance.source(spark), instance.settings, request)
    lake = instance.into_lake(spark)
    again = ReportRequest(out.as_uri(), overwrite=True)
    report(instance.source(spark, lake), instance.settings, again)  # each step is in the topic and in the lake
    assert counts(out) == {"requested": 1, "sent": 1, "held_out": 1, "converted": 0}
    instance.forget(lake)
    instance.send(progress("m1", "CONVERTED", is_first=True, value=9.0))
    with sent_lineage(instance.settings) as (lineage, receiver):
        report(instance.source(spark, lake), instance.settings, again, lineage)
        with pytest.raises(AnalysisException):
            report(instance.source(spark), instance.settings, request, lineage)
    assert counts(out) == {"requested": 1, "sent": 1, "held_out": 1, "converted": 1}
    start, end, _, failed = receiver.events()
    assert [one["eventType"] for one in (start, end, failed)] == ["START", "COMPLETE", "FAIL"]
    assert [name.rpartition("/")[2] for _, name in places(end["inputs"])] == [
        instance.settings.report_topic_prefix + CAMPAIGN_PROGRESS,
        "message_progress",
    ]
    assert end["inputs"][1]["facets"]["version"]["datasetVersion"]
    assert rows_of(start) == {str(out / "funnel"): None, str(out / "lift"): None}
    assert rows_of(end) == {str(out / "funnel"): 1, str(out / "lift"): 2}
    assert "AnalysisException: [PATH_ALREADY_EXISTS]" in failed["run"]["facets"]["errorMessage"]["message"]
    lift = ds.dataset(out / "lift", format="parquet").to_table().to_pylist()
    assert [(row["variant"], row["people"], row["converted"], row["held_out_people"]) for row in lift] == [
        (None, 1, 1, 1),
        ("a", 1, 1, 1),
    ]


def counts(out: Path) -> dict[str, int]:
    (row,) = ds.dataset(out / "funnel", format="parquet").to_table().to_pylist()
    return {name: row[name] for name in ("requested", "sent", "held_out", "converted")}
