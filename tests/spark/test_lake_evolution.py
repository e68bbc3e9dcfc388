"""How a table grows. Types are written as text, which only a session can read."""

import pytest
from pyspark.sql import SparkSession, types

from starling_spark.lakehouse.schema.evolution import SchemaConflict, changes, merged


def struct(text: str) -> types.StructType:
    found = types.StructType.fromDDL(text)
    assert isinstance(found, types.StructType)
    return found


def test_columns_come_stay_and_grow_wider(spark: SparkSession) -> None:
    actual = struct("a INT, gone STRING, lines ARRAY<STRUCT<x: FLOAT>>, m MAP<STRING, STRUCT<y: INT>>")
    wanted = struct("a BIGINT, lines ARRAY<STRUCT<x: DOUBLE, z: STRING>>, m MAP<STRING, STRUCT<y: INT, w: INT>>, b STRING")
    assert changes(actual, wanted) == [
        "ALTER COLUMN `a` TYPE bigint",
        "ALTER COLUMN `lines`.element.`x` TYPE double",
        "ADD COLUMN `lines`.element.`z` string",
        "ADD COLUMN `m`.value.`w` int",
        "ADD COLUMN `b` string",
    ]
    grown = merged(actual, wanted)
    assert grown == struct(
        "a BIGINT, gone STRING, lines ARRAY<STRUCT<x: DOUBLE, z: STRING>>, m MAP<STRING, STRUCT<y: INT, w: INT>>, b STRING"
    )
    assert changes(grown, wanted) == changes(grown, actual) == []


def test_a_column_never_becomes_something_else(spark: SparkSession) -> None:
    with pytest.raises(SchemaConflict, match=r"`a`\.`b` is string and cannot become int"):
        changes(struct("a STRUCT<b: STRING>"), struct("a STRUCT<b: INT>"))
