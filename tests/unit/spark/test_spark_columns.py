"""Avro schemas to columns, and records to their values."""

import json
from typing import Any

import pytest
from pyspark.sql import types

from starling_common.kafka.topics import load_catalogue
from starling_common.wire import schema_text
from starling_spark.kafka.columns import columns_of, row_of


def schema(*fields: dict[str, Any]) -> str:
    return json.dumps({"type": "record", "name": "R", "fields": list(fields)})


MILLIS = {"type": "long", "logicalType": "timestamp-millis"}
NESTED = schema(
    {"name": "at", "type": {"type": "long", "logicalType": "timestamp-micros"}},
    {"name": "maybe", "type": ["null", MILLIS]},
    {
        "name": "lines",
        "type": {"type": "array", "items": {"type": "record", "name": "L", "fields": [{"name": "at", "type": MILLIS}]}},
    },
    {"name": "marks", "type": {"type": "map", "values": MILLIS}},
    {"name": "kind", "type": {"type": "enum", "name": "E", "symbols": ["A"]}},
)


def test_every_record_of_the_catalogue_has_columns() -> None:
    for name in {topic.schema for topic in load_catalogue().topics.values()}:
        fields = [field["name"] for field in json.loads(schema_text(name))["fields"]]
        assert columns_of(schema_text(name)).fieldNames() == fields


def test_types_are_those_of_the_schema() -> None:
    found = {field.name: field.dataType for field in columns_of(NESTED).fields}
    assert found["at"] == found["maybe"] == types.TimestampType()
    assert found["lines"] == types.ArrayType(types.StructType([types.StructField("at", types.TimestampType())]))
    assert found["marks"] == types.MapType(types.StringType(), types.TimestampType())
    assert found["kind"] == types.StringType()


def test_a_type_without_a_column_is_refused() -> None:
    with pytest.raises(ValueError, match="no column"):
        columns_of(schema({"name": "x", "type": ["null", "string", "long"]}))


def test_instants_become_microseconds_wherever_they_stand() -> None:
    record = {"kind": "A", "marks": {"m": 4}, "lines": [{"at": 3}], "maybe": 2, "at": 1}
    assert row_of(NESTED)(record) == (1, 2000, [{"at": 3000}], {"m": 4000}, "A")
    assert row_of(NESTED)({**record, "maybe": None})[1] is None


@pytest.mark.parametrize("field", ["at", "maybe"])
def test_an_invalid_date_is_reported(field: str) -> None:
    record: dict[str, Any] = {"kind": "A", "marks": {}, "lines": [], "maybe": None, "at": 1}
    with pytest.raises(ValueError, match="no instant"):
        row_of(NESTED)({**record, field: 2**61})
