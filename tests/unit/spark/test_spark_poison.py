"""A record that makes the code of a job raise is refused, and all other rows are as in a run without it."""

from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql import types
from pyspark.sql.pandas.types import to_arrow_schema

from starling_common.settings import Clock
from starling_common.wire import RegistryUnavailable
from starling_spark.jobs.profiles.folding import Chunk, Refusal
from starling_spark.jobs.profiles.matches import ChunkBuilder
from starling_spark.jobs.profiles.matches import Reading as EventReading
from starling_spark.jobs.profiles.plans import compile_traits
from starling_spark.kafka.codec import TopicSchema, Wire
from starling_spark.kafka.decoding import REFUSED, Reading, _decoder
from starling_spark.kafka.sources import RECORDS, Raw
from tests.unit.spark.keeping import ORDERS, START_MS, defined, traits


def _chunk(values: list[bytes], error: Exception | None = None) -> tuple[Chunk, list[tuple[bytes | None, str]]]:
    """Return the chunk of events of five users, and the refused (value, code)."""
    refused: list[tuple[bytes | None, str]] = []

    def read_event(value: bytes) -> tuple[Any, ...]:
        if value.startswith(b"poison"):
            raise error or RecursionError("too deep")
        number = int(value)
        return "w", f"u{number % 5}", "Order Completed", START_MS + number, f"c{number}", "{}"

    def refuse(raw: Raw, code: str, _message: str) -> Refusal:
        refused.append((raw.value, code))
        return Refusal(raw.key, raw.value or b"", raw.timestamp_ms, "")

    reading = EventReading("events", Clock.EVENT, 0, read_event, lambda _: (0, ""), refuse)
    builder = ChunkBuilder(reading, compile_traits(traits(defined("n", ORDERS))))
    for offset, value in enumerate(values):
        raw = Raw("events", 0, offset, 7, b"k", value, None)
        builder.add(raw.topic, raw.partition, raw.timestamp_ms, raw.value, partial(_same, raw))
    return builder.chunks()[0], refused


def _same(raw: Raw) -> Raw:
    return raw


def test_an_event_that_makes_the_code_raise_is_refused_and_the_others_are_folded() -> None:
    others = [b"%d" % number for number in range(12)]
    chunk, refused = _chunk([*others[:5], b"poison 1", *others[5:], b"poison 2"])
    expected, _ = _chunk(others)
    assert (chunk.now_ms, chunk.moved_by, chunk.users) == (expected.now_ms, expected.moved_by, expected.users)
    assert refused == [(b"poison 1", "poison"), (b"poison 2", "poison")]


def test_an_event_without_a_registry_is_not_refused() -> None:
    with pytest.raises(RegistryUnavailable):
        _chunk([b"1", b"poison"], RegistryUnavailable("away"))


_RECORD: Mapping[str, Any] = {
    "workspace": "w", "product_id": "p", "category": "c", "price": 1.5, "brand": None, "name": "n", "listed_at": 5,
}  # fmt: skip


def _decoded(more: Callable[[Mapping[str, Any]], Any]) -> list[dict[str, Any]]:
    """Return the decoded rows of the products p0 to p4, with a further column `more` of 32 bits."""
    wire = Wire("http://127.0.0.1:1", (TopicSchema("products", "ProductListed", 7),))
    values = [wire.codec("products").encode({**_RECORD, "product_id": f"p{number}"}) for number in range(5)]
    fields = types.StructType([types.StructField("product_id", types.StringType())])
    extra = types.StructType([types.StructField("more", types.IntegerType())])
    out = types.StructType(
        [
            *RECORDS.fields,
            types.StructField("record", types.StructType([*fields.fields, *extra.fields])),
            types.StructField("refused", REFUSED),
        ]
    )
    rows = [
        {"topic": "products", "partition": 0, "offset": at, "timestamp_ms": 1, "key": b"k", "value": value, "headers": None}
        for at, value in enumerate(values)
    ]
    batch = pa.RecordBatch.from_pylist(rows, to_arrow_schema(RECORDS))
    reading = Reading(wire, "products", fields, extra, lambda record: (more(record),))
    return [row for made in _decoder(reading, out)([batch]) for row in made.to_pylist()]


@pytest.mark.parametrize("fails", ["raises", "does not fit"])
def test_a_record_that_cannot_become_a_row_is_refused_and_the_others_are_decoded(
    fails: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    def more(record: Mapping[str, Any]) -> int:
        number = int(record["product_id"][1:])
        return (1 // 0 if fails == "raises" else 1 << 40) if number == 3 else number

    rows = _decoded(more)
    assert [row["record"] and row["record"]["more"] for row in rows] == [0, 1, 2, None, 4]
    assert [row["refused"] and row["refused"]["code"] for row in rows] == [None, None, None, "poison", None]
    assert rows[3]["refused"]["schema_id"] == 7


def test_a_full_disk_is_no_refusal() -> None:
    def more(_record: Mapping[str, Any]) -> int:
        raise OSError("no space left on device")

    with pytest.raises(OSError, match="no space left"):
        _decoded(more)
