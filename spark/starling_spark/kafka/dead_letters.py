"""Adapter: an unreadable record -> its dead letter."""

from collections.abc import Callable, Iterable, Iterator
from typing import Any, NamedTuple

import pyarrow as pa
from pyspark.sql import DataFrame

from starling_common.failures import is_of_installation
from starling_common.outcome import Refused
from starling_common.records.dead_letters import SourceRecord, arrival, dead_letter, letter_correlation_id
from starling_common.time.instants import record_timestamp_ms, wall_clock_ms
from starling_common.wire import DecodeError, writer_id
from starling_spark.kafka.codec import Wire
from starling_spark.kafka.refused_headers import HeaderReader
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
        ("refused", pa.string()),
    ]
)


def dead_letters(found: DataFrame, stage: str, topic: str, wire: Wire, brokers: str = "") -> DataFrame:
    """Return the dead letters of a stage, for `topic`. Shape: in: decoded records; out: records to publish.

    `brokers`: for reading the headers of the records, "" if the rows have them.
    """
    return found.where("refused IS NOT NULL").mapInArrow(_letters(stage, topic, wire, brokers), OUTPUT)


def _letters(stage: str, topic: str, wire: Wire, brokers: str) -> Callable[[Iterable[pa.RecordBatch]], Iterator[pa.RecordBatch]]:
    def make(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        header_reader = HeaderReader(brokers)
        for batch in batches:
            rows = batch.to_pylist()
            if brokers:
                for row in rows:
                    row["headers"] = header_reader.of(row["topic"], row["partition"], row["offset"])
            yield pa.RecordBatch.from_pylist([_output(row, stage, topic, wire) for row in rows], _SHAPE)

    return make


class Letter(NamedTuple):
    """An encoded dead letter with the time and the correlation id of its record in Kafka."""

    key: bytes | None
    value: bytes
    timestamp_ms: int
    correlation_id: str


def letter(raw: Raw, stage: str, refused: Refused, wire: Wire, topic: str) -> Letter:
    """Return the dead letter, for `topic`, of a record that `stage` refuses."""
    headers = [(entry["key"], entry["value"]) for entry in raw.headers or ()]
    fields = _fields(wire, raw)
    received_at = arrival(raw.timestamp_ms, fields)
    place = (raw.topic or "", raw.partition, raw.offset)
    source = SourceRecord(*place, raw.key, raw.value or b"", headers, received_at, fields)
    now_ms = wall_clock_ms()
    value = wire.codec(topic).encode(dead_letter(stage, source, refused, now_ms))
    return Letter(raw.key, value, record_timestamp_ms(received_at, now_ms), letter_correlation_id(source))


def _fields(wire: Wire, raw: Raw) -> dict[str, Any] | None:
    """Return the decoded record; None if it cannot be decoded, or only with a schema that must be requested from the registry."""
    codec = wire.codec(raw.topic or "")
    try:
        return codec.decode(raw.value or b"") if writer_id(raw.value or b"") == codec.schema_id else None
    except DecodeError:
        return None
    except Exception as cause:
        if is_of_installation(cause):
            raise
        return None  # it is refused because it makes the code raise


def _output(row: dict[str, Any], stage: str, topic: str, wire: Wire) -> dict[str, Any]:
    raw = Raw(*(row[name] for name in RECORDS.fieldNames()))
    code = row["refused"]["code"]
    made = letter(raw, stage, Refused(code, row["refused"]["message"]), wire, topic)
    return {"topic": topic, "partition": -1, **made._asdict(), "refused": code}
