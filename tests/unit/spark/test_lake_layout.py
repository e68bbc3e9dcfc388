"""The layout of an Iceberg table and of its files."""

import json

import pyarrow as pa
import pytest

from starling_spark.lakehouse.schema.layout import PartitionBy, UnknownLayout, layout_of

SCHEMA = json.dumps({
    "type": "struct",
    "fields": [
        {"id": 1, "name": "at", "required": False, "type": "timestamptz"},
        {"id": 2, "name": "kind", "required": False, "type": "string"},
        {"id": 3, "name": "lines", "required": False, "type": {
            "type": "list", "element-id": 4, "element-required": False, "element": {
                "type": "struct", "fields": [{"id": 5, "name": "price", "required": False, "type": "double"}]}}},
    ],
})  # fmt: skip


def spec(transform: str) -> str:
    fields = [
        {"name": "at_hour", "transform": transform, "source-id": 1, "field-id": 1000},
        {"name": "kind", "transform": "identity", "source-id": 2, "field-id": 1001},
    ]
    return json.dumps({"spec-id": 0, "fields": fields})


def test_every_column_has_its_id_at_every_depth() -> None:
    layout = layout_of("file:/lake/t", SCHEMA, spec("hour"))
    assert layout.partitioning == (PartitionBy("at_hour", "at", "hour"), PartitionBy("kind", "kind", "identity"))
    line = layout.schema.field("lines").type.value_field
    found = [layout.schema.field("at"), layout.schema.field("kind"), layout.schema.field("lines"), line, line.type.field("price")]
    assert [one.metadata[b"PARQUET:field_id"] for one in found] == [b"1", b"2", b"3", b"4", b"5"]
    assert found[0].type == pa.timestamp("us", tz="UTC")


def test_hours_are_counted_from_1970_and_rounded_down_before_it_too() -> None:
    layout = layout_of("file:/lake/t", SCHEMA, spec("hour"))
    micros = [0, 3_599_999_999, 3_600_000_000, -1, -3_600_000_000, -3_600_000_001, 253_402_300_799_999_999, None]
    rows = pa.table({"at": pa.array(micros, pa.timestamp("us", tz="UTC")), "kind": pa.array([*"abcdefg", None])})
    hours, kinds = layout.partition_columns(rows)
    assert hours.to_pylist() == [0, 0, 1, -1, -1, -2, 253_402_300_799_999_999 // 3_600_000_000, None]
    assert kinds.to_pylist() == [*"abcdefg", None]


def test_what_this_job_does_not_make_is_refused() -> None:
    with pytest.raises(UnknownLayout, match=r"day\(at\)"):
        layout_of("file:/lake/t", SCHEMA, spec("day"))
    with pytest.raises(UnknownLayout, match="uuid"):
        layout_of("file:/lake/t", SCHEMA.replace('"double"', '"uuid"'), spec("hour"))
