"""The job `lake` as a process, on a real broker and registry; what it wrote is read without Spark."""

import struct
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest

from starling_common.kafka.topics import BEHAVIOUR
from starling_common.wire import Item
from tests.conftest import Stack
from tests.integration.spark.lake_instance import LakeInstance, behaviour, received
from tests.lineage_receiver import LineageReceiver, places, rows_of

UNKNOWN_SCHEMA_ID = 4_000_000_000
TRACK = "ingest.track"


@pytest.fixture
def lake(stack: Stack, tmp_path: Path) -> Iterator[LakeInstance]:
    made = LakeInstance(stack, tmp_path)
    made.deploy()
    yield made
    made.remove()


@pytest.fixture
def receiver() -> Iterator[LineageReceiver]:
    made = LineageReceiver()
    yield made
    made.close()


@pytest.mark.long
def test_the_life_of_a_lake(lake: LakeInstance, receiver: LineageReceiver) -> None:
    """One process, step by step, and one that ends it: each start of Spark costs more than all that happens here."""
    good = lake.value(TRACK, received("track", {"event": "Order Completed", "properties": {"revenue": 1}}))
    unknown = struct.pack(">bI", 0, UNKNOWN_SCHEMA_ID) + good[5:]
    item = Item(event="Order Completed", properties={"revenue": 1}).SerializeToString()
    packed = lake.value(TRACK, received("track", {}) | {"item": "", "item_protobuf": item})
    broken = lake.value(TRACK, received("track", {}) | {"item": "", "item_protobuf": item[:-1]})
    lake.send(TRACK, good, unknown, good[:-1], packed, broken)
    old = [lake.value(BEHAVIOUR, behaviour(f"old {number}")) for number in range(6)]
    lake.send(BEHAVIOUR, *old[:3])
    lake.send(BEHAVIOUR, *[lake.value(BEHAVIOUR, behaviour(name)) for name in ("poisoned", "beside it")])
    poisoned = lake.value(BEHAVIOUR, behaviour("poisoned too"))
    more = {
        "STARLING_FAILPOINT": "raise_in_write:poisoned",
        "STARLING_LINEAGE__URL": receiver.url,
        "STARLING_LINEAGE__NAMESPACE": "prod",
    }
    with lake.running(ready=True, **more) as service:
        lake.settle(service)
        newer = lake.newer_writer(BEHAVIOUR, "region")
        lake.send(BEHAVIOUR, *[one for value in old[3:] for one in (value, newer.value(value, "eu"))], poisoned)
        lake.settle(service)
        metrics = httpx.get(f"{service.url}/metrics", trust_env=False).text
        assert service.stop() == 0
    events = {(row["name"], row.get("region")) for row in lake.rows("behaviour_events")}
    events.remove(("beside it", None))
    assert events == {(f"old {number}", None) for number in range(6)} | {(f"old {number}", "eu") for number in range(3, 6)}
    assert len(lake.rows("behaviour_events")) == 10
    assert [row["call"]["properties"] for row in lake.rows("ingest_items")] == ['{"revenue":1}', '{"revenue":1}']
    failed = [row for row in lake.rows("quarantine") if row["code"] == "poison"]
    assert sorted(lake.name_of(row["value"]) for row in failed) == ["poisoned", "poisoned too"]
    assert all(row["message"].startswith("ValueError: failpoint write (stack ") for row in failed)
    refused = {row["value"]: (row["code"], row["schema_id"]) for row in lake.rows("quarantine") if row not in failed}
    assert refused == {
        unknown: ("unknown_schema", UNKNOWN_SCHEMA_ID),
        good[:-1]: ("broken_avro", struct.unpack(">I", good[1:5])[0]),
        broken: ("bad_protobuf", -1),
    }
    assert {tuple(row["headers"][0].values()) for row in lake.rows("quarantine")} == {("correlation_id", b"c")}
    assert 'starling_lake_rows_total{table="behaviour_events"} 10.0' in metrics
    assert 'starling_spark_query_refused_total{code="poison",query="lake"} 2.0' in metrics
    assert 'starling_spark_query_processed_rows_per_second{query="lake"}' in metrics
    assert "starling_lineage_dropped_total{" not in metrics
    _its_run_is_reported(lake, receiver)


def _its_run_is_reported(lake: LakeInstance, receiver: LineageReceiver) -> None:
    start, *running, end = receiver.events()
    assert (start["eventType"], end["eventType"], {one["eventType"] for one in running}) == ("START", "COMPLETE", {"RUNNING"})
    assert {(one["job"]["namespace"], one["job"]["name"], one["run"]["runId"]) for one in receiver.events()} == {
        ("prod", "lake", start["run"]["runId"])
    }
    assert (f"kafka://{lake.stack.brokers}", lake.prefix + BEHAVIOUR) in places(start["inputs"])
    tables = {name.rpartition("/")[2]: namespace for namespace, name in places(start["outputs"])}
    assert tables.items() >= {("behaviour_events", "file"), ("ingest_items", "file"), ("quarantine", "file")}
    rows = {name.rpartition("/")[2]: count for name, count in rows_of(end).items()}
    assert (rows["behaviour_events"], rows["ingest_items"]) == (10, 2)
    positions = {one["name"]: one["inputFacets"] for one in end["inputs"]}[lake.prefix + BEHAVIOUR]["starling_positions"][
        "partitions"
    ]
    sent = [place for place in lake.sent if place[0] == BEHAVIOUR]
    assert sum(one["offset"] for one in positions) == len(sent)
