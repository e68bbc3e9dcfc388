"""Pure core: an unreadable record -> its dead letter."""

from collections.abc import Callable, Iterable, Iterator
from typing import Any

import pyarrow as pa
from pyspark.sql import DataFrame

from starling_common.headers import header
from starling_common.instants import wall_clock_ms
from starling_common.values import split_key
from starling_common.wire import Codec
from starling_spark.kafka.codec import Wire
from starling_spark.kafka.sinks import OUTPUT
from starling_spark.kafka.sources import RECORDS, Raw

_SHAPE = pa.schema(
    [
        ("topic", pa.string()),
        ("partition", pa.int32()),
        ("key", pa.binary()),
        ("value", pa.binary()),
        ("timestamp_ms", pa.int64()),
        ("correlation_id", pa.string()),
    ]
)


def dead_letters(found: DataFrame, stage: str, topic: str, wire: Wire) -> DataFrame:
    """Return the dead letters of a stage, for `topic`. Shape: in as `decoding.decoded` returns, out `sinks.OUTPUT`."""
    return found.where("refused IS NOT NULL").mapInArrow(_letters(stage, topic, wire), OUTPUT)


def _letters(stage: str, topic: str, wire: Wire) -> Callable[[Iterable[pa.RecordBatch]], Iterator[pa.RecordBatch]]:
    def make(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        codec = wire.codec(topic)
        for batch in batches:
            rows = [_output(row, stage, topic, codec) for row in batch.to_pylist()]
            yield pa.RecordBatch.from_pylist(rows, _SHAPE)

    return make


def letter(raw: Raw, stage: str, code: str, message: str) -> dict[str, Any]:
    """Return the `DeadLetter` of a record that `stage` refuses."""
    headers = [(entry["key"], entry["value"]) for entry in raw.headers or ()]
    return {
        "received_at": raw.timestamp_ms * 1000,
        "stage": stage,
        "code": code,
        "message": message,
        "origin_topic": raw.topic,
        "origin_partition": raw.partition,
        "origin_offset": raw.offset,
        "key": raw.key,
        "value": raw.value or b"",
        "headers": {key: value for key, value in headers if value is not None},
        "workspace": _workspace(raw.key),
        "correlation_id": header(headers, "correlation_id") or None,
        "refused_at": wall_clock_ms(),
    }


def _output(row: dict[str, Any], stage: str, topic: str, codec: Codec) -> dict[str, Any]:
    raw = Raw(*(row[name] for name in RECORDS.fieldNames()))
    made = letter(raw, stage, row["refused"]["code"], row["refused"]["message"])
    return {
        "topic": topic,
        "partition": -1,
        "key": raw.key,
        "value": codec.encode(made),
        "timestamp_ms": raw.timestamp_ms,
        "correlation_id": made["correlation_id"] or "",
    }


def _workspace(key: bytes | None) -> str | None:
    try:
        return split_key(key or b"")[0]
    except ValueError:
        return None
