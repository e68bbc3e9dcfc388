"""The lake's rules without Spark: positions of a table, its growth, and the decoding of items."""

import json
import re
from collections.abc import Mapping
from pathlib import Path
from types import SimpleNamespace

import pytest
from google.protobuf import json_format
from pydantic import SecretStr

from starling_common.settings import Http, Kafka, SchemaRegistry
from starling_common.wire import Item
from starling_spark.directories import as_uri
from starling_spark.kafka.codec import Refusal
from starling_spark.lakehouse.fence import OFFSETS, Fence, PropertyFence
from starling_spark.lakehouse.iceberg import exclusive_warehouse, iceberg_config, local_warehouse
from starling_spark.lakehouse.positions import Span, Tip, after, from_text, is_in, partly_in, to_text
from starling_spark.lakehouse.schema.items import call_of, read_json, read_protobuf
from starling_spark.lakehouse.settings import LakeSettings
from starling_spark.lakehouse.warehouse_lock import WarehouseInUse, locked_warehouse
from starling_spark.session.spark import session_config

SPANS = {("t", 0): Span(5, 9, 4), ("t", 1): Span(0, 2, 2)}


def test_a_position_states_the_written_records() -> None:
    assert not is_in({}, SPANS)
    assert not is_in({("t", 0): 9, ("t", 1): 1}, SPANS)
    assert is_in({("t", 0): 9, ("t", 1): 7}, SPANS)
    assert partly_in({("t", 0): 5, ("t", 1): 1}, SPANS) == {("t", 1): 1}
    assert partly_in({}, SPANS) == {}


def test_a_position_never_goes_back() -> None:
    moved = after({("t", 0): 100, ("u", 3): 1}, SPANS)
    assert moved == {("t", 0): 100, ("t", 1): 2, ("u", 3): 1}
    assert from_text(to_text(moved)) == moved


def test_an_item_is_decoded() -> None:
    found = read_json(
        '{"type": "group", "groupId": 7, "traits": {"a": {"b": 1.50}}, "timestamp": "2026-01-01T00:00:00.001Z", "x": null}'
    )
    assert not isinstance(found, Refusal)
    assert {name: value for name, value in found.items() if value is not None} == {
        "group_id": "7", "traits": '{"a":{"b": 1.50}}', "timestamp": 1_767_225_600_001_000,
    }  # fmt: skip


@pytest.mark.parametrize(
    ("text", "code"),
    [
        ("[]", "bad_item"),
        ("{", "bad_item"),
        ('{"event": 5}', "bad_item"),
        ('{"properties": []}', "bad_item"),
        ('{"context": {"a": }}', "bad_item"),
        ('{"sentAt": "soon"}', "bad_timestamp"),
        ('{"timestamp": "0001-01-01T00:00:00+23:59"}', "bad_timestamp"),
    ],
)
def test_an_empty_item_is_refused_with_the_reason(text: str, code: str) -> None:
    found = read_json(text)
    assert isinstance(found, Refusal)
    assert (found.code, bool(found.message)) == (code, True)


def test_an_item_is_equal_in_both_formats() -> None:
    item = {"type": "group", "groupId": "7", "traits": {"a": {"b": 1.5}}, "timestamp": "2026-01-01T00:00:00.001Z", "event": ""}
    packed = json_format.ParseDict(item, Item()).SerializeToString()
    found = call_of({"item": "", "item_protobuf": packed})
    assert not isinstance(found, Refusal)
    assert found == call_of({"item": json.dumps(item, separators=(",", ":")), "item_protobuf": None})


@pytest.mark.parametrize(
    ("packed", "code", "message"),
    [
        (b"\xff", "bad_protobuf", "no starling.ingest.v1.Item"),
        (b"\xa2\x06\x03new", "bad_protobuf", "no field of an Item"),
        (Item(sent_at={"seconds": 2**60}).SerializeToString(), "bad_timestamp", "sentAt"),
    ],
)
def test_an_empty_message_is_refused_with_the_reason(packed: bytes, code: str, message: str) -> None:
    found = read_protobuf(packed)
    assert isinstance(found, Refusal)
    assert (found.code, message in found.message) == (code, True)


def test_a_warehouse_is_a_directory_or_a_uri(tmp_path: Path) -> None:
    assert as_uri("s3a://bucket/lake") == "s3a://bucket/lake"
    assert as_uri(str(tmp_path / "a b")) == (tmp_path / "a b").as_uri()


def test_a_local_warehouse_is_held_by_one_at_a_time(tmp_path: Path) -> None:
    with locked_warehouse(tmp_path / "lake"), pytest.raises(WarehouseInUse), locked_warehouse(tmp_path / "lake"):
        pass
    with locked_warehouse(tmp_path / "lake"), locked_warehouse(None):
        assert json.dumps("free again")


def settings_of(tmp_path: Path, catalog: Mapping[str, str], secrets: Mapping[str, str]) -> LakeSettings:
    return LakeSettings(
        kafka=Kafka(brokers="127.0.0.1:1"), registry=SchemaRegistry(url="http://127.0.0.1:1"), http=Http(port=1),
        instance_id="test", spark_jars="/a.jar", checkpoint_dir=str(tmp_path), lake_warehouse=str(tmp_path / "lake"),
        lake_catalog=dict(catalog), lake_catalog_secrets={name: SecretStr(value) for name, value in secrets.items()},
    )  # fmt: skip


def test_a_catalog_with_secrets_which_spark_hides(tmp_path: Path) -> None:
    secrets = {"jdbc.password": "hidden-1", "credential": "hidden-2", "token": "hidden-3", "s3.secret-access-key": "hidden-4"}
    settings = settings_of(tmp_path, {"type": "rest", "uri": "https://catalog"}, secrets)
    found, hidden = iceberg_config(settings), re.compile(session_config(settings)["spark.redaction.regex"])
    assert {name: found[f"spark.sql.catalog.lake.{name}"] for name in secrets} == secrets
    assert [name for name, value in found.items() if hidden.search(name)] == [
        name for name, value in found.items() if value.startswith("hidden-")
    ]
    assert "hidden-" not in repr(settings)


def test_a_directory_is_locked_where_its_catalog_knows_one_writer(tmp_path: Path) -> None:
    jdbc = settings_of(tmp_path, {"type": "jdbc", "uri": "jdbc:postgresql://db/lake"}, {})
    assert (exclusive_warehouse(settings_of(tmp_path, {"type": "hadoop"}, {})), exclusive_warehouse(jdbc)) == (
        tmp_path / "lake",
        None,
    )
    assert iceberg_config(jdbc)["spark.sql.catalog.lake.jdbc.schema-version"] == "V1"


class Snapshot:
    """A snapshot as Iceberg shows it. `offsets`: of a position."""

    def __init__(self, number: int, offsets: str | None) -> None:
        self._number, self._offsets = number, offsets

    def snapshotId(self) -> int:  # noqa: N802 - Iceberg's name
        return self._number

    def summary(self) -> Mapping[str, str]:
        return {} if self._offsets is None else {OFFSETS: self._offsets}


def newest_first(*snapshots: Snapshot) -> SimpleNamespace:
    """Return snapshots as Java iterates over them."""
    left = list(snapshots)
    return SimpleNamespace(iterator=lambda: SimpleNamespace(hasNext=lambda: bool(left), next=lambda: left.pop(0)))


@pytest.mark.parametrize(
    ("read", "ancestors", "moved_to"),
    [
        (None, [], None),
        (None, [Snapshot(9, None)], None),
        (None, [Snapshot(9, "{}")], 9),
        (7, [Snapshot(9, None), Snapshot(7, "{}")], None),
        (7, [Snapshot(9, "{}"), Snapshot(7, "{}")], 9),
        (7, [Snapshot(6, "{}")], 6),
    ],
)
def test_a_fence_compares_the_newest_snapshot_with_a_position(
    read: int | None, ancestors: list[Snapshot], moved_to: int | None
) -> None:
    """The last one: the table was rolled back."""
    fence = Fence(read)
    assert fence.validate(newest_first(*ancestors)) == (moved_to is None)
    assert fence.moved_to == moved_to


def test_a_fence_refuses_a_table_without_the_snapshot_that_was_read() -> None:
    fence = Fence(7)
    assert not fence.validate(newest_first())
    assert fence.moved_to is None


def test_a_catalog_service_gets_the_name_of_its_warehouse(tmp_path: Path) -> None:
    service = settings_of(tmp_path, {"type": "rest", "uri": "https://catalog"}, {}).model_copy(update={"lake_warehouse": "shop"})
    assert iceberg_config(service)["spark.sql.catalog.lake.warehouse"] == "shop"
    assert (local_warehouse(service), exclusive_warehouse(service)) == (None, None)


def test_a_table_without_a_history_is_fenced_by_its_position() -> None:
    found = [Tip({("a", 0): 1}, 7), Tip({("a", 0): 2}, 8)]  # a compaction has made the first snapshot
    fence = PropertyFence(Tip({("a", 0): 1}, 6), lambda: found.pop(0))
    assert [fence.validate(None), fence.moved_to, fence.validate(None), fence.moved_to] == [True, None, False, 8]
