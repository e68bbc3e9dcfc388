"""Computed traits as DataFrame in, DataFrame out: no broker, no registry."""

import json
import tempfile
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import lmdb
import pytest
from pyspark.sql import DataFrame, Row, SparkSession, functions
from pyspark.sql.streaming.query import StreamingQuery

from starling_common.settings import Clock
from starling_spark.jobs.profiles.definitions.entries import changed, first_entries
from starling_spark.jobs.profiles.definitions.in_force import Definition
from starling_spark.jobs.profiles.fold.outputs import unpack
from starling_spark.jobs.profiles.query.buckets import Buckets
from starling_spark.jobs.profiles.query.histories import event_names, has_new_leaves, seed_lines, topic_hits
from starling_spark.jobs.profiles.query.reports import LastCounts, LatestTimes
from starling_spark.jobs.profiles.query.transform import Job, Topics, computed_traits, plans_of
from starling_spark.kafka.codec import TopicSchema, Wire
from starling_spark.kafka.sinks import OUTPUT
from starling_spark.kafka.sources import RECORDS, visits
from starling_spark.session.spark import JarMissing, open_session
from tests.spark.conftest import spark_settings

DAY_MS = 86_400_000
START_MS = 1_700_000_000_000
TOPICS = Topics("events", "clock", "aggregates", "dlq")
NAMES = {"events": "BehaviourEvent", "clock": "ClockAdvanced", "aggregates": "AggregateComputed", "dlq": "DeadLetter"}
WIRE = Wire("http://127.0.0.1:1", tuple(TopicSchema(topic, name, i + 1) for i, (topic, name) in enumerate(NAMES.items())))
SPENT = {"event": "Order Completed", "measure": {"sum": "revenue"}, "within": "30d"}
SPENT_DEFINITION = Definition("w", "spent", 3, json.dumps(SPENT), ())
JOB = Job(TOPICS, WIRE, Clock.EVENT, first_entries((SPENT_DEFINITION,)))


def event(user: str, time_ms: int, properties: str, name: str = "Order Completed") -> bytes:
    record = {
        "received_at": 1,
        "workspace": "w",
        "user_id": user,
        "event_id": "e",
        "message_id": "m",
        "kind": "track",
        "name": name,
        "event_time": time_ms,
        "properties": properties,
        "context": "{}",
        "traits": "{}",
        "correlation_id": f"c-{user}",
    }
    return WIRE.codec("events").encode(record)


def tick(instant_ms: int) -> bytes:
    return WIRE.codec("clock").encode({"received_at": 1, "instant": instant_ms, "correlation_id": "c-clock"})


def raw(topic: str | None, partition: int, offset: int, value: bytes | None, timestamp_ms: int = 5) -> tuple[Any, ...]:
    headers = [("correlation_id", b"c-header"), ("produced_by", b"test")]
    return topic, partition, offset, timestamp_ms, b"w/key", value, headers


def outputs(spark: SparkSession, records: list[tuple[Any, ...]], job: Job) -> list[Row]:
    return unpacked(computed_traits(spark.createDataFrame(records, RECORDS), job))


def unpacked(packs: DataFrame) -> list[Row]:
    return packs.mapInArrow(unpack, OUTPUT).collect()


def published(rows: list[Row]) -> dict[tuple[int, str], Mapping[str, Any]]:
    """(partition, user) -> the record, of the values among the outputs."""
    values = [row for row in rows if row["topic"] == TOPICS.aggregates]
    records = [(row["partition"], WIRE.codec(TOPICS.aggregates).decode(bytes(row["value"]))) for row in values]
    return {(partition, record["user_id"]): record for partition, record in records}


BAD = {
    "broken_avro": event("ann", START_MS, "{}")[:-3],
    "bad_framing": b"\x01" + event("ann", START_MS, "{}")[1:],
    "bad_event": event("ann", START_MS, "[1]"),
}


@pytest.fixture(scope="module")
def rows(spark: SparkSession) -> list[Row]:
    """What two partitions come to: values, an end of a window, and a bad record of every kind between good ones."""
    records = [
        raw("events", 0, 0, event("ann", START_MS, '{"revenue": 10}')),
        raw("events", 0, 1, event("ann", START_MS + DAY_MS, '{"revenue": 2.5}')),
        raw("clock", 0, 0, tick(START_MS + 30 * DAY_MS)),
        *[raw("events", 1, offset, value) for offset, value in enumerate(BAD.values())],
        raw("events", 1, 3, None),
        raw("events", 1, 4, event("bob", START_MS, '{"revenue": 7}')),
        raw("clock", 1, 5, b"junk"),
        *[raw("events", 2, offset, b"junk") for offset in range(3)],
    ]
    return outputs(
        spark, records, Job(TOPICS, WIRE, Clock.EVENT, JOB.entries, refused_before=(("events", 2, 2),), buckets=Buckets(3, 1))
    )


def test_each_partition_publishes_its_values_at_its_own_stream_time(rows: list[Row]) -> None:
    found = published(rows)
    assert found.keys() == {(0, "ann"), (1, "bob")}
    ann, bob = found[0, "ann"], found[1, "bob"]
    assert (ann["value"], ann["as_of"], bob["value"], bob["as_of"]) == ("2.5", START_MS + 30 * DAY_MS, "7.0", START_MS)
    assert (ann["workspace"], ann["trait_key"], ann["trait_version"], ann["correlation_id"]) == ("w", "spent", 3, "c-ann")
    values = [row for row in rows if row["topic"] == TOPICS.aggregates]
    assert {bytes(row["key"]) for row in values} == {b"w/ann", b"w/bob"}
    assert {row["timestamp_ms"] for row in values} == {record["received_at"] // 1000 for record in found.values()}


def test_bad_records_go_to_the_dead_letters_and_the_others_go_on(rows: list[Row]) -> None:
    codec = WIRE.codec(TOPICS.dead_letters)
    letters = [codec.decode(bytes(row["value"])) for row in rows if row["topic"] == TOPICS.dead_letters]
    found = {(one["origin_topic"], one["origin_partition"], one["origin_offset"]): (one["code"], one["value"]) for one in letters}
    expected = {("events", 1, offset): (code, value) for offset, (code, value) in enumerate(BAD.items())}
    expected |= {("events", 1, 3): ("bad_framing", b""), ("clock", 1, 5): ("bad_framing", b"junk")}
    # Of the third partition what lies before offset 2 was refused before.
    assert found == expected | {("events", 2, 2): ("bad_framing", b"junk")}
    for letter in letters:
        assert (letter["stage"], letter["workspace"], letter["key"], letter["correlation_id"]) == (
            "profiles",
            "w",
            b"w/key",
            "c-header",
        )
        assert letter["headers"] == {"correlation_id": b"c-header", "produced_by": b"test"}


def test_with_the_wall_clock_heartbeats_move_stream_time_and_clock_records_do_not(spark: SparkSession) -> None:
    records = [
        raw("events", 0, 0, event("ann", START_MS, '{"revenue": 10}'), START_MS + 20),
        raw("clock", 0, 0, tick(START_MS + 90 * DAY_MS)),
        raw("events", 1, 0, event("bob", START_MS, '{"revenue": 10}'), START_MS + 20),
        raw(None, 1, 0, None, START_MS + 31 * DAY_MS),
    ]
    found = published(outputs(spark, records, Job(TOPICS, WIRE, Clock.WALL, JOB.entries, started_ms=START_MS + 10)))
    # The first micro-batch publishes each matched trait, so that a value of an earlier query is withdrawn.
    assert {who: (record["value"], record["as_of"]) for who, record in found.items()} == {
        (0, "ann"): ("10.0", START_MS + 20),
        (1, "bob"): (None, START_MS + 31 * DAY_MS),
    }


def test_a_stream_keeps_its_state_between_micro_batches(spark: SparkSession, tmp_path: Path) -> None:
    batches: list[dict[tuple[int, str], Any]] = []
    (tmp_path / "in").mkdir()
    stream = spark.readStream.schema(RECORDS).parquet(str(tmp_path / "in"))
    times, counts = spark.sparkContext.accumulator({}, LatestTimes()), spark.sparkContext.accumulator({}, LastCounts())
    query = (
        computed_traits(stream, replace(JOB, buckets=Buckets(4, 1)), times=times, counts=counts)
        .writeStream.outputMode("update")
        .option("checkpointLocation", str(tmp_path / "checkpoint"))
        .foreachBatch(lambda rows, _: batches.append({who: one["value"] for who, one in published(unpacked(rows)).items()}))
        .start()
    )
    purchases = [("ann", START_MS, 10), ("bob", START_MS, 1), ("ann", START_MS + DAY_MS, 5)]
    events = [
        raw("events", 0, at, event(user, time_ms, json.dumps({"revenue": n}))) for at, (user, time_ms, n) in enumerate(purchases)
    ]
    try:
        for records in (events[:2], events[2:], [raw("clock", 0, 0, tick(START_MS + 30 * DAY_MS))]):
            spark.createDataFrame(records, RECORDS).coalesce(1).write.mode("append").parquet(str(tmp_path / "in"))
            query.processAllAvailable()
    finally:
        query.stop()
    assert times.value == {0: START_MS + 30 * DAY_MS}
    assert [count for count in counts.value.values() if any(count)] == [(1, 0)]  # nothing of bob is left
    assert batches == [{(0, "ann"): "10.0", (0, "bob"): "1.0"}, {(0, "ann"): "15.0"}, {(0, "ann"): "5.0", (0, "bob"): None}]


@pytest.mark.parametrize(("is_own", "value"), [(True, "6.0"), (False, "15.0")])
def test_states_are_read_from_the_copy_of_the_same_version_alone(
    spark: SparkSession, tmp_path: Path, *, is_own: bool, value: str
) -> None:
    """The copy gets another state of ann, in the second case with another version too."""
    batches: list[dict[tuple[int, str], Any]] = []
    (tmp_path / "in").mkdir()
    job = replace(JOB, query=f"copies-{is_own}", copy_megabytes=10)
    query = (
        computed_traits(spark.readStream.schema(RECORDS).parquet(str(tmp_path / "in")), job)
        .writeStream.outputMode("update")
        .option("checkpointLocation", str(tmp_path / "checkpoint"))
        .foreachBatch(lambda rows, _: batches.append({who: one["value"] for who, one in published(unpacked(rows)).items()}))
        .start()
    )

    def send(*events: bytes) -> None:
        records = [raw("events", 0, at, value) for at, value in enumerate(events)]
        spark.createDataFrame(records, RECORDS).coalesce(1).write.mode("append").parquet(str(tmp_path / "in"))
        query.processAllAvailable()

    try:
        send(event("ann", START_MS, '{"revenue": 10}'), event("bob", START_MS, '{"revenue": 1}'))
        [directory] = Path(tempfile.gettempdir()).glob(f"blockmgr-*/starling-workers-*/{job.query}-0")
        with lmdb.open(str(directory), map_size=1 << 20) as copy, copy.begin(write=True) as transaction:
            transaction.put(b"w/ann", transaction.get(b"w/bob") or b"")
            if not is_own:
                transaction.put(b"\0version", b"another")
        send(event("ann", START_MS, '{"revenue": 5}'))
    finally:
        query.stop()
    assert batches == [{(0, "ann"): "10.0", (0, "bob"): "1.0"}, {(0, "ann"): value}]


ORDERS_DEFINITION = Definition("w", "orders", 1, json.dumps({"event": "Order Completed"}), ())
STEP = replace(JOB, entries=changed(JOB.entries, (SPENT_DEFINITION, ORDERS_DEFINITION), 1), step=1, is_complete=False)


def test_a_query_keeps_its_state_at_a_step_and_takes_the_history_of_a_new_trait(spark: SparkSession, tmp_path: Path) -> None:
    batches: list[dict[tuple[int, str, str], Any]] = []
    for name in ("in", "visits"):
        (tmp_path / name).mkdir()

    def write(rows: DataFrame, _: int) -> None:
        values = [row for row in unpacked(rows) if row["topic"] == TOPICS.aggregates]
        records = [(row["partition"], WIRE.codec(TOPICS.aggregates).decode(bytes(row["value"]))) for row in values]
        batches.append({(partition, one["user_id"], one["trait_key"]): one["value"] for partition, one in records})

    def started(job: Job) -> StreamingQuery:
        stream = spark.readStream.schema(RECORDS).parquet(str(tmp_path / "in"))
        stream = stream.unionByName(visits(spark, str(tmp_path / "visits"), 2))
        values = computed_traits(stream, replace(job, buckets=Buckets(2, 1))).writeStream.outputMode("update")
        return values.option("checkpointLocation", str(tmp_path / "checkpoint")).foreachBatch(write).start()

    def sent(query: StreamingQuery, *records: tuple[Any, ...]) -> DataFrame:
        made = spark.createDataFrame(records, RECORDS)
        made.coalesce(1).write.mode("append").parquet(str(tmp_path / "in"))
        query.processAllAvailable()
        return made

    purchases = [(0, "ann", 10), (1, "bob", 1), (0, "ann", 5)]
    rows = [raw("events", at, n, event(user, START_MS, json.dumps({"revenue": n}))) for at, user, n in purchases]
    query = started(JOB)
    history = sent(query, *rows)
    query.stop()
    query = started(STEP)
    try:
        sent(
            query, raw("events", 0, 20, event("ann", START_MS, '{"revenue": 1}')), raw("events", 1, 9, event("eve", START_MS, "{}"))
        )
        for _ in range(2):  # the second time as after a kill
            seed_lines(topic_hits(history, STEP), STEP).coalesce(1).write.mode("append").text(str(tmp_path / "visits"))
            query.processAllAvailable()
        (tmp_path / "visits" / "step-1").write_text("visit 1\n")
        query.processAllAvailable()
    finally:
        query.stop()
    assert [batch for batch in batches if batch] == [
        {(0, "ann", "spent"): "15.0", (1, "bob", "spent"): "1.0"},
        {(0, "ann", "spent"): "16.0"},
        {(0, "ann", "orders"): "3", (1, "bob", "orders"): "1"},
        {(1, "eve", "orders"): "1"},
    ]


def test_only_records_with_the_name_of_an_event_of_a_new_trait_are_decoded(spark: SparkSession) -> None:
    """A record without the name is dropped by its bytes, also if it is broken; a broken one with the name gives no history."""
    assert has_new_leaves(STEP)
    assert event_names(plans_of(STEP)) == ("Order Completed",)
    good, other = event("ann", START_MS, "{}"), event("ann", START_MS, "{}", "Page Viewed")
    records = spark.createDataFrame(
        [raw("events", 0, at, value) for at, value in enumerate((good, other, b"junk", good[:-3]))], RECORDS
    )
    (line,) = seed_lines(topic_hits(records, STEP), STEP).collect()
    assert line["value"].startswith("seeds 0 ")
    any_event = Definition("w", "events", 1, json.dumps({"event": "*"}), ())
    prefix = Definition("w", "carts", 1, json.dumps({"event": "Cart *"}), ())
    assert event_names(plans_of(replace(STEP, entries=changed(JOB.entries, (SPENT_DEFINITION, any_event), 1)))) is None
    assert event_names(plans_of(replace(STEP, entries=changed(JOB.entries, (SPENT_DEFINITION, prefix), 1)))) == ("Cart *",)


def test_few_users_have_few_files(spark: SparkSession, tmp_path: Path) -> None:
    """Each file is a micro-batch of the query."""
    spark.conf.set("spark.sql.adaptive.coalescePartitions.initialPartitionNum", 50)
    records = [raw("events", number % 4, number, event(f"user-{number}", START_MS, "{}")) for number in range(40)]
    try:
        seed_lines(topic_hits(spark.createDataFrame(records, RECORDS), STEP), STEP).write.text(str(tmp_path / "visits"))
    finally:
        spark.conf.unset("spark.sql.adaptive.coalescePartitions.initialPartitionNum")
    assert len([path for path in (tmp_path / "visits").iterdir() if path.name[0] not in "._"]) == 1


def test_a_history_without_a_match_leaves_no_file_that_the_query_would_not_read(spark: SparkSession, tmp_path: Path) -> None:
    """The step counts the files that the query has to read."""
    records = spark.createDataFrame([raw("events", 0, 0, event("ann", START_MS, "{}", "Page Viewed"))], RECORDS)
    seed_lines(topic_hits(records, STEP), STEP).write.text(str(tmp_path / "visits"))
    (tmp_path / "visits" / "step-1").write_text("visit 1\n")
    written = [path for path in (tmp_path / "visits").iterdir() if path.name[0] not in "._"]
    query = visits(spark, str(tmp_path / "visits"), 1).writeStream.format("noop").start()
    try:
        query.processAllAvailable()
        assert query.lastProgress is not None
        [source] = json.loads(query.lastProgress.json)["sources"]
        assert source["endOffset"]["logOffset"] + 1 == len(written)
    finally:
        query.stop()


def test_a_new_trait_with_the_leaf_of_another_one_needs_no_history() -> None:
    twin = Definition("w", "revenue", 1, json.dumps(SPENT), ())
    assert not has_new_leaves(replace(STEP, entries=changed(JOB.entries, (SPENT_DEFINITION, twin), 1)))


@pytest.mark.parametrize("tasks", [2, 5])
def test_spark_assigns_each_bucket_to_its_task(spark: SparkSession, tasks: int) -> None:
    buckets = Buckets.of(partitions=4, tasks=tasks)
    keys = [buckets.key(partition, slot) for partition in range(4) for slot in range(buckets.slots)]
    rows = spark.createDataFrame([(key,) for key in keys], "bucket int").repartition(tasks, "bucket")
    found = {row["bucket"]: row["task"] for row in rows.withColumn("task", functions.spark_partition_id()).collect()}
    assert [found[key] for key in keys] == [bucket % tasks for bucket in range(len(keys))]


def test_a_missing_jar_is_named(tmp_path: Path) -> None:
    settings = spark_settings(tmp_path).model_copy(update={"spark_jars": str(tmp_path / "absent.jar")})
    with pytest.raises(JarMissing, match=r"absent\.jar"):
        open_session("tests", settings)
