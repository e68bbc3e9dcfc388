"""Micro-batches into real Iceberg tables, without a broker and with a fake registry."""

import json
import time
import uuid
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any
from unittest import mock

import psycopg
import pytest
from google.protobuf import json_format
from prometheus_client import CollectorRegistry
from pydantic import SecretStr
from pyspark.errors import AnalysisException
from pyspark.sql import DataFrame, SparkSession

from starling_common.kafka.topics import BEHAVIOUR
from starling_common.telemetry.metrics import Metrics
from starling_common.wire import Item, RegistryUnavailable
from starling_local.postgres import USER, postgres
from starling_spark.jobs.lake import batches
from starling_spark.jobs.lake.batches import LakeWriter, Source
from starling_spark.jobs.lake.by_rows import by_rows
from starling_spark.kafka.sources import RECORDS
from starling_spark.lakehouse.access import upkeep_of
from starling_spark.lakehouse.data_files import RecordsGone
from starling_spark.lakehouse.fence import LakeFenced
from starling_spark.lakehouse.iceberg import COMMITS, Lake, LakePositionLost, iceberg_config
from starling_spark.lakehouse.maintenance import Compaction, Retention, maintain
from starling_spark.lakehouse.pinned import Pinning, pinned
from starling_spark.lakehouse.schema.tables import QUARANTINE
from tests.lineage_receiver import places, sent_lineage
from tests.spark.conftest import lake_settings
from tests.spark.lake_rig import ITEM, PAGE, RECEIVED_AT, TRACK, USED, Registered, Rig, received, writer_of

PASSWORD = "of-the-catalog"
HOUR_MICROS = 3_600_000_000
FIRST_HOUR = RECEIVED_AT // HOUR_MICROS


@pytest.fixture
def rig(spark: SparkSession) -> Iterator[Rig]:
    spark.conf.set("spark.sql.session.timeZone", "UTC")
    lake, registered = Lake(spark, f"t{uuid.uuid4().hex[:12]}"), Registered()
    yield Rig(spark, registered, lake, writer_of(lake, registered))
    spark.conf.set("spark.sql.session.timeZone", "Pacific/Chatham")


def test_records_become_typed_rows_and_broken_ones_go_to_the_quarantine(rig: Rig) -> None:
    good = rig.registered.value(TRACK, received(TRACK, ITEM))
    written = rig.write(
        rig.record(TRACK, good), rig.record(TRACK, good[:-3]), rig.item(PAGE, {"name": "Home", "sentAt": None}, 1),
        rig.item(TRACK, "[]"), rig.item(TRACK, {"event": 5}), rig.item(TRACK, {"timestamp": "yesterday"}),
        rig.item(TRACK, ITEM, received_at=2**62), rig.event("Order Completed"), rig.record(BEHAVIOUR, b""),
    )  # fmt: skip
    assert written == {"ingest_items": 2, "behaviour_events": 1, "quarantine": 6}
    page, track = rig.rows("ingest_items")
    assert (track.kind, track.call.event, track.call.properties, track.item) == (
        "track",
        "Order Completed",
        '{"a":{"b": 1}}',
        json.dumps(ITEM),
    )
    assert rig.rows("ingest_items", "unix_micros(call.timestamp)")[1][0] == 1_699_999_200_500_000
    assert (page.call.name, page.call.event, page.call.sent_at, page.origin_topic, page.origin_partition) == (
        "Home",
        None,
        None,
        PAGE,
        1,
    )
    (event,) = rig.rows("behaviour_events")
    assert (event.name, [one.product_id for one in event.products], bytes(event.origin_key)) == ("Order Completed", ["p"], b"w/ann")
    refused = {(one.origin_topic, one.origin_offset): one for one in rig.rows(QUARANTINE)}
    assert {place: one.code for place, one in refused.items()} == {
        (TRACK, 1): "broken_avro", (TRACK, 2): "bad_item", (TRACK, 3): "bad_item", (TRACK, 4): "bad_timestamp",
        (TRACK, 5): "bad_instant", (BEHAVIOUR, 1): "bad_framing",
    }  # fmt: skip
    assert bytes(refused[TRACK, 1]["value"]) == good[:-3]
    assert refused[TRACK, 1].headers[0]["value"] == b"c"
    assert rig.about("ingest_items", "partitions").count() == 2


def test_the_statistics_of_the_workers_are_those_of_the_files(rig: Rig) -> None:
    """Iceberg reads the footer that the worker has sent, instead of the file."""
    rig.write(
        *(rig.event(name, raw_timestamp=raw) for name, raw in (("A", "x" * 100), ("B", None), ("é" * 40, ""))),
        rig.item(TRACK, ITEM), rig.record(TRACK, b"broken"),
    )  # fmt: skip
    iceberg = rig.spark._jvm.org.apache.iceberg  # type: ignore[union-attr]
    for table in ("behaviour_events", "ingest_items", QUARANTINE):
        loaded = rig.lake._load(table)
        rows = rig.about(table, "files").collect()
        assert rows
        for row in rows:
            real = loaded.io().newInputFile(row.file_path)
            assert (row.file_path, row.file_size_in_bytes) == (real.location(), real.getLength())
            expected = iceberg.parquet.ParquetUtil.fileMetrics(real, iceberg.MetricsConfig.forTable(loaded))
            assert row.record_count == expected.recordCount()
            for name in ("column_sizes", "value_counts", "null_value_counts", "nan_value_counts"):
                method = "".join(part.title() if number else part for number, part in enumerate(name.split("_")))
                assert getattr(row, name) == dict(getattr(expected, method)())
            for found, bounds in ((row.lower_bounds, expected.lowerBounds()), (row.upper_bounds, expected.upperBounds())):
                as_bytes = {key: bytes(iceberg.util.ByteBuffers.toByteArray(value)) for key, value in bounds.items()}
                assert {key: bytes(value) for key, value in found.items()} == as_bytes
                assert as_bytes


def test_items_of_protocol_buffers_have_the_same_columns(rig: Rig) -> None:
    packed = json_format.ParseDict(ITEM, Item()).SerializeToString()
    written = rig.write(
        rig.item(TRACK, ITEM), rig.item(TRACK, "", item_protobuf=packed), rig.item(TRACK, "", item_protobuf=packed[:-1]),
        rig.item(TRACK, "", item_protobuf=b"\xa2\x06\x03new"),
    )  # fmt: skip
    assert written == {"ingest_items": 2, "quarantine": 2}
    as_json, as_message = rig.rows("ingest_items")
    assert (as_message.call.event, as_message.call.timestamp) == (as_json.call.event, as_json.call.timestamp)
    assert json.loads(as_message.call.properties) == json.loads(as_json.call.properties) == ITEM["properties"]
    assert (as_json.item_protobuf, bytes(as_message.item_protobuf), as_message.item) == (None, packed, "")
    refused = rig.rows(QUARANTINE)
    assert [(one.origin_offset, one.code) for one in refused] == [(2, "bad_protobuf"), (3, "bad_protobuf")]
    assert ["corrupt" in refused[0].message, "no field" in refused[1].message] == [True, True]


@pytest.mark.long
def test_where_workers_write_no_files_the_rows_are_the_same(rig: Rig) -> None:
    other = Lake(rig.spark, f"t{uuid.uuid4().hex[:12]}")
    opened = writer_of(other, rig.registered).open()
    hours = [
        rig.event(f"E{hour}", received_at=RECEIVED_AT + hour * HOUR_MICROS, kind=kind) for hour, kind in ((1, "page"), (0, "track"))
    ]
    records = [
        rig.item(TRACK, ITEM),
        rig.item(PAGE, {"name": "Home"}, 1),
        rig.record(TRACK, b"broken"),
        *hours,
        rig.record(BEHAVIOUR, b""),
    ]
    expected = {"ingest_items": 2, "behaviour_events": 2, "quarantine": 2}
    assert rig.write(*records) == by_rows(other, USED, rig.spark.createDataFrame(records, RECORDS), opened) == expected
    for table in expected:
        found, like = (rig.spark.table(lake.name(table)).orderBy("origin_topic", "origin_offset") for lake in (rig.lake, other))
        assert found.schema == like.schema
        assert found.collect() == like.collect()
        listed = [
            rig.spark.table(f"{lake.name(table)}.files")
            .orderBy("partition")
            .select("partition", "record_count", "sort_order_id")
            .collect()
            for lake in (rig.lake, other)
        ]
        assert listed[0] == listed[1]
    assert rig.spark.table(rig.lake.name("behaviour_events")).where(f"received_at > timestamp_micros({RECEIVED_AT})").count() == 1


def test_a_store_that_refuses_the_workers_gets_its_files_from_spark(rig: Rig, monkeypatch: pytest.MonkeyPatch) -> None:
    checked: list[str] = []

    def refuse(table: str) -> None:
        checked.append(table)
        raise OSError("access denied")

    monkeypatch.setattr(rig.lake, "check_store", refuse)
    with mock.patch.object(batches, "log") as log:
        for _ in range(2):
            # A new schema is no reason to decide again: the query has headers or none for as long as it runs.
            assert rig.write(rig.event("A"), rig.record(TRACK, b"broken")) == {
                "behaviour_events": 1,
                "ingest_items": 0,
                QUARANTINE: 1,
            }
            rig.registered.schemas[BEHAVIOUR] = (100, rig.registered.schemas[BEHAVIOUR][1])
    assert checked == [USED[0].name]
    [warning] = log.return_value.warning.call_args_list
    assert (warning.args, warning.kwargs["reason"]) == (("lake_files_by_spark",), "access denied")
    assert [row.headers[0]["value"] for row in rig.rows(QUARANTINE)] == [b"c", b"c"]


@pytest.mark.parametrize("as_rows", [False, pytest.param(True, marks=pytest.mark.long)])
def test_a_repeated_batch_adds_nothing_and_half_a_batch_is_completed(rig: Rig, as_rows: bool) -> None:
    rig.as_rows = as_rows
    records = [rig.item(TRACK, ITEM), rig.event("A"), rig.record(TRACK, b"broken"), rig.event("B")]
    assert rig.write(*records[:2]) == {"ingest_items": 1, "behaviour_events": 1}
    for _ in range(2):
        # Other bounds than the first time, as after the loss of the checkpoint.
        rig.write(*records, writer=rig.restarted())
    assert [row.origin_offset for row in rig.rows("ingest_items")] == [0]
    assert [row.name for row in rig.rows("behaviour_events")] == ["A", "B"]
    assert [row.origin_offset for row in rig.rows(QUARANTINE)] == [1]


@pytest.mark.parametrize(
    ("as_rows", "commits"),
    [(False, 2), *(pytest.param(*case, marks=pytest.mark.long) for case in ((False, 1), (True, 1), (True, 2)))],
)
def test_a_batch_killed_between_two_tables_is_completed(
    rig: Rig, monkeypatch: pytest.MonkeyPatch, as_rows: bool, commits: int
) -> None:
    rig.as_rows, name = as_rows, "append" if as_rows else "append_files"
    records = [rig.item(TRACK, ITEM), rig.record(TRACK, b"broken"), rig.event("A")]
    append, calls = getattr(rig.lake, name), []

    def killed(table: str, *rest: Any) -> int:
        calls.append(table)
        if len(calls) > commits:
            raise KeyboardInterrupt
        count: int = append(table, *rest)
        return count

    with monkeypatch.context() as patch:
        patch.setattr(rig.lake, name, killed)
        with pytest.raises(KeyboardInterrupt):
            rig.write(*records)
    # The quarantine first: what is refused now may be readable when it is repeated, and would else be in neither.
    assert calls == [QUARANTINE, "ingest_items", "behaviour_events"][: commits + 1]
    rig.write(*records, writer=rig.restarted())
    assert [len(rig.rows(table)) for table in ("ingest_items", "behaviour_events", QUARANTINE)] == [1, 1, 1]


@pytest.mark.parametrize("as_rows", [False, pytest.param(True, marks=pytest.mark.long)])
def test_of_two_drivers_one_is_fenced_and_no_row_is_there_twice(rig: Rig, as_rows: bool) -> None:
    """The second driver appends while the first one has written its files and not committed them."""
    records = [rig.item(TRACK, ITEM), rig.event("A"), rig.record(TRACK, b"broken")]
    others: list[dict[str, int]] = []

    def write(lake: Lake) -> dict[str, int]:
        batch, writer = rig.spark.createDataFrame(records, RECORDS), writer_of(lake, rig.registered)
        written: dict[str, int] = by_rows(lake, USED, batch, writer.open()) if as_rows else writer.write(batch)
        return written

    def beside(point: str) -> None:
        if point == COMMITS[0] and not others:
            others.append({})
            others.append(write(rig.lake))

    first = Lake(rig.spark, rig.lake.name("").split(".")[1], passed=beside)
    with pytest.raises(LakeFenced, match=r"quarantine: another process has appended to it \(snapshot \d+\)"):
        write(first)
    assert others[1] == {"ingest_items": 1, "behaviour_events": 1, QUARANTINE: 1}
    assert not any(write(first).values())
    assert [len(rig.rows(table)) for table in ("ingest_items", "behaviour_events", QUARANTINE)] == [1, 1, 1]


def test_a_compaction_beside_a_batch_fences_nobody(rig: Rig) -> None:  # vocabulary: nobody: no driver
    rig.write(rig.event("A"))
    compacted: list[Mapping[str, Any]] = []

    def beside(point: str) -> None:
        if point == COMMITS[0]:
            compacted.append(rig.lake.call("rewrite_data_files", "behaviour_events", "options => map('rewrite-all', 'true')"))

    lake = Lake(rig.spark, rig.lake.name("").split(".")[1], passed=beside)
    assert rig.write(rig.event("B"), writer=writer_of(lake, rig.registered)) == {"behaviour_events": 1}
    assert [one["rewritten_data_files_count"] for one in compacted] == [1]
    assert [row.name for row in rig.rows("behaviour_events")] == ["A", "B"]
    assert rig.lake.position("behaviour_events") == {(BEHAVIOUR, 0): 2}


def test_rows_of_a_streaming_query_are_published_in_one_snapshot(rig: Rig, tmp_path: Path) -> None:
    """A micro-batch has a session of its own. A snapshot of the writer could be published by the catalog."""
    opened = rig.writer.open()
    records = [rig.event("A"), rig.event("B")]

    def write(batch: DataFrame, _batch_id: int) -> None:
        by_rows(rig.lake, USED, batch.sparkSession.createDataFrame(records, RECORDS), opened)

    query = (
        rig.spark.readStream.format("rate-micro-batch").option("rowsPerBatch", 1).load()
        .writeStream.trigger(availableNow=True).option("checkpointLocation", str(tmp_path)).foreachBatch(write).start()
    )  # fmt: skip
    query.awaitTermination()
    assert [row.name for row in rig.rows("behaviour_events")] == ["A", "B"]
    assert rig.about("behaviour_events", "snapshots").count() == 1
    found = rig.about("behaviour_events", "files").select("sort_order_id", "record_count").collect()
    assert [tuple(one) for one in found] == [(1, 1), (1, 1)]


@pytest.mark.long
def test_a_lake_with_its_catalog_in_postgresql(rig: Rig, tmp_path: Path) -> None:
    """Two drivers, and maintenance beside a batch."""
    with postgres(PASSWORD) as server:
        settings = lake_settings(tmp_path).model_copy(update={
            "lake_catalog": {"type": "jdbc", "uri": f"jdbc:postgresql://127.0.0.1:{server.port}/postgres", "jdbc.user": USER},
            "lake_catalog_secrets": {"jdbc.password": SecretStr(PASSWORD)},
        })  # fmt: skip
        session = rig.spark.newSession()
        for name, value in iceberg_config(settings).items():
            if name.startswith("spark.sql.catalog."):
                session.conf.set(name, value)
        passing: list[Callable[[], object]] = []
        done: list[object] = []

        def beside(_point: str) -> None:
            if passing:
                done.append(passing.pop()())

        lake = Lake(session, "starling", passed=beside)
        other = Rig(session, rig.registered, lake, writer_of(lake, rig.registered))
        records = [other.event("A")]
        # As a table of an earlier release, which the next append changes.
        other.writer.open()
        session.sql("ALTER TABLE lake.starling.behaviour_events UNSET TBLPROPERTIES ('write.metadata.compression-codec')")
        passing.append(lambda: other.write(*records))
        with pytest.raises(LakeFenced):
            other.write(*records)
        assert done == [{"behaviour_events": 1}]
        for name in "BCDE":
            other.write(other.event(name))
        assert other.about("behaviour_events", "files").count() == 5
        passing.append(lambda: maintain(lake, ["behaviour_events"], Retention(0.0, 24.0)))
        with pinned(lake, Pinning("job")) as read:
            before = read.rows("behaviour_events")
            other.write(other.event("F"))
            assert sorted(row["name"] for row in before.collect()) == list("ABCDE")
            assert other.about("behaviour_events", "refs").count() == 2
        assert other.about("behaviour_events", "refs").count() == 1
        assert len(done) == 2
        assert lake._load("behaviour_events").properties().get("write.metadata.compression-codec") == "gzip"
        assert other.about("behaviour_events", "files").count() == 2
        assert [row.name for row in other.rows("behaviour_events")] == list("ABCDEF")
        assert lake.position("behaviour_events") == {(BEHAVIOUR, 0): 6}
        with psycopg.connect(server.uri(), password=PASSWORD) as connection:
            found = connection.execute("SELECT table_name FROM iceberg_tables ORDER BY 1").fetchall()
        assert found == [("behaviour_events",), ("ingest_items",), (QUARANTINE,)]


def test_what_is_refused_is_read_again_for_its_headers(rig: Rig) -> None:
    records = rig.spark.createDataFrame(
        [rig.item(TRACK, ITEM), rig.record(TRACK, b"broken"), rig.item(TRACK, ITEM), rig.record(TRACK, b"other"), rig.event("A")],
        RECORDS,
    )
    asked, there = [], [records.where("offset <> 3"), records]

    def again(spans: Mapping[tuple[str, int], tuple[int, int]]) -> DataFrame:
        asked.append(spans)
        return there.pop(0)

    writer = LakeWriter(rig.lake, USED, Source(rig.registered, "http://127.0.0.1:1"), again)  # type: ignore[arg-type]
    with pytest.raises(RecordsGone, match=r"the broker still has 1 of them: ingest.track 0 from offset 1 on"):
        writer.write(records.drop("headers"))
    assert [len(rig.rows(table)) for table in ("ingest_items", "behaviour_events", QUARANTINE)] == [0, 0, 0]
    assert writer.write(records.drop("headers")) == {"ingest_items": 2, "behaviour_events": 1, QUARANTINE: 2}
    assert asked == [{(TRACK, 0): (1, 4)}] * 2
    assert [(row.value, row.headers[0]["value"]) for row in rig.rows(QUARANTINE)] == [(b"broken", b"c"), (b"other", b"c")]


def test_a_newer_schema_grows_the_table(rig: Rig) -> None:
    rig.write(rig.event("A"))
    document = json.loads(rig.registered.schemas[BEHAVIOUR][1])
    document["fields"].insert(0, {"name": "region", "type": ["null", "string"], "default": None})
    product = next(one for one in document["fields"] if one["name"] == "products")["type"]["items"]
    product["fields"].append({"name": "colour", "type": ["null", "string"], "default": None})
    rig.registered.schemas[BEHAVIOUR] = (100, json.dumps(document))
    rig.write(rig.event("B", region="eu", products=[{"product_id": "q", "colour": "red"}]))
    found = rig.rows("behaviour_events", "name", "region", "products[0].colour")
    assert [tuple(row) for row in found] == [("A", None, None), ("B", "eu", "red")]


def test_the_registry_may_be_away_once_it_has_answered(rig: Rig) -> None:
    rig.write(rig.event("A"))
    rig.registered.is_away = True
    assert rig.write(rig.event("B")) == {"behaviour_events": 1}
    with pytest.raises(RegistryUnavailable):
        rig.write(rig.event("C"), writer=rig.restarted())


def test_a_field_that_a_record_loses_stays_in_the_table(rig: Rig) -> None:
    rig.write(rig.event("A", raw_timestamp="then"))
    document = json.loads(rig.registered.schemas[BEHAVIOUR][1])
    document["fields"] = [one for one in document["fields"] if one["name"] != "raw_timestamp"]
    product = next(one for one in document["fields"] if one["name"] == "products")["type"]["items"]
    product["fields"] = [one for one in product["fields"] if one["name"] != "brand"]
    rig.registered.schemas[BEHAVIOUR] = (100, json.dumps(document))
    rig.write(rig.event("B"))
    found = rig.rows("behaviour_events", "name", "raw_timestamp", "products[0].brand", "products[0].product_id")
    assert [tuple(row) for row in found] == [("A", "then", None, "p"), ("B", None, None, "p")]


@pytest.mark.long
def test_upkeep_keeps_every_row_and_the_position(rig: Rig) -> None:
    for hour, name in ((0, "A"), (1, "B"), (0, "C"), (0, "D"), (0, "E"), (0, "F")):
        rig.write(rig.event(name, received_at=RECEIVED_AT + hour * HOUR_MICROS))
    found = rig.about("behaviour_events", "partitions").selectExpr("partition.received_at_hour", "partition.kind")
    assert {tuple(row) for row in found.collect()} == {(FIRST_HOUR, "track"), (FIRST_HOUR + 1, "track")}
    for name in "GHIJK":
        rig.write(rig.event(name, received_at=time.time_ns() // 1000 + HOUR_MICROS))
    maintain(rig.lake, ["behaviour_events"], Retention(0.0, 24.0), Compaction(files=3))
    # Three of the five files of a closed hour; another one has one file, and an open one five.
    assert rig.about("behaviour_events", "files").count() == 3 + 1 + 5
    for name in "LM":
        rig.write(rig.event(name))
    maintain(rig.lake, ["behaviour_events"], Retention(0.0, 24.0))
    assert rig.about("behaviour_events", "files").count() == 1 + 1 + 5
    assert rig.about("behaviour_events", "snapshots").count() < 13
    assert rig.lake.position("behaviour_events") == {(BEHAVIOUR, 0): 13}
    assert [row.name for row in rig.rows("behaviour_events")] == list("ABCDEFGHIJKLM")


@pytest.mark.long
def test_upkeep_reports_its_runs(rig: Rig, tmp_path: Path) -> None:
    rig.write(rig.event("A"))
    settings = lake_settings(tmp_path)
    Path(settings.lake_warehouse).mkdir()  # for the lock of its readers
    before = rig.lake.snapshot("behaviour_events")
    with sent_lineage(settings) as (lineage, receiver):
        upkeep = upkeep_of(rig.lake, USED, settings, Metrics(CollectorRegistry()), lineage)
        upkeep()
        rig.lake.drop(USED[0].name)
        with pytest.raises(AnalysisException):
            upkeep()
    start, end, _, failed = receiver.events()
    assert [one["eventType"] for one in (start, end, failed)] == ["START", "COMPLETE", "FAIL"]
    assert {one["job"]["name"] for one in receiver.events()} == {"lake_upkeep"}
    tables = [*(table.name for table in USED), QUARANTINE]
    assert [name.rpartition("/")[2] for _, name in places(end["inputs"])] == tables
    assert places(end["inputs"]) == places(end["outputs"])
    assert _version(end["inputs"], "behaviour_events") == str(before)
    assert _version(end["outputs"], "behaviour_events") == str(rig.lake.snapshot("behaviour_events"))
    assert "TABLE_OR_VIEW_NOT_FOUND" in failed["run"]["facets"]["errorMessage"]["message"]


def _version(datasets: Sequence[Mapping[str, Any]], table: str) -> str:
    [found] = [one["facets"]["version"]["datasetVersion"] for one in datasets if one["name"].endswith(f"/{table}")]
    return str(found)


def test_a_table_that_lost_its_position_is_not_appended_to(rig: Rig) -> None:
    rig.write(rig.event("A"))
    name = rig.lake.name("behaviour_events")
    rig.spark.table(name).writeTo(name).append()
    rig.lake.call("expire_snapshots", "behaviour_events", "older_than => now(), retain_last => 1")
    with pytest.raises(LakePositionLost, match="was expired"):
        rig.lake.position("behaviour_events")
