"""Adapter: records of Kafka as DataFrames -> their fields as typed columns, or the reason why they have none.

Nothing is dropped and nothing turns into nulls: a value that cannot be read keeps its row, with `refused` instead of `record`.
"""

import json
import struct
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
from pyspark.sql import DataFrame, types
from pyspark.sql.pandas.types import to_arrow_schema

from starling_common.wire import Codec, writer_id
from starling_common.wire.fields import Fields
from starling_spark.kafka.codec import BatchReader, Refusal, Wire, collect_rarely
from starling_spark.kafka.columns import columns_of, row_of
from starling_spark.kafka.sources import RECORDS

REFUSED = types.StructType(
    [
        types.StructField("code", types.StringType()),
        types.StructField("message", types.StringType()),
        types.StructField("schema_id", types.LongType()),
    ]
)
NOTHING = types.StructType([])


@dataclass(frozen=True, slots=True)
class Reading:
    """How the values of one topic, or of topics that carry the same, become columns.

    `fields` are columns of the record; they may be more than the reader schema has, and nested ones may have more fields:
    these are null. `extra` come after them: `more` gives their values from the decoded record, or why it is to be
    refused after all; it is pure.
    """

    wire: Wire
    topic: str
    fields: types.StructType
    extra: types.StructType = NOTHING
    more: Callable[[Mapping[str, Any]], tuple[Any, ...] | Refusal] = lambda _: ()

    @classmethod
    def plain(cls, wire: Wire, topic: str) -> "Reading":
        """The columns of the reader schema."""
        return cls(wire, topic, columns_of(wire.of(topic).reader_schema))


def decoded(records: DataFrame, reading: Reading) -> DataFrame:
    """Records -> their fields.

    Shape:  in `sources.RECORDS`; out the same and `record` (`fields` and `extra` of the reading), `refused` (`REFUSED`):
            exactly one of the two is null.
    """
    record = types.StructType([*reading.fields.fields, *reading.extra.fields])
    out = types.StructType([*RECORDS.fields, types.StructField("record", record), types.StructField("refused", REFUSED)])
    return records.select(*RECORDS.fieldNames()).mapInArrow(_decoder(reading, out), out)


Row = tuple[Any, ...]
"""The values of a reading's columns, in their order."""


def row_reader(reading: Reading) -> Callable[[bytes | None], Row | Refusal]:
    """Reads the values of one batch, one after another. Raises (when called): RegistryUnavailable."""
    schema = reading.wire.of(reading.topic).reader_schema
    row = row_of(schema, reading.fields.fieldNames())
    reader, walk = BatchReader(reading.wire), _walk(reading.wire.codec(reading.topic))

    def read(value: bytes | None) -> Row | Refusal:
        # Nearly all are of the reader's own schema, and whole; the general way tells what is wrong with one that is not.
        record = walk(value) or reader.read(reading.topic, value)
        if isinstance(record, Refusal):
            return record
        try:
            own = row(record)
        except ValueError as error:
            return Refusal("bad_instant", str(error), writer_id(value or b""))
        further = reading.more(record)
        return further if isinstance(further, Refusal) else (*own, *further)

    return read


def _walk(codec: Codec) -> Callable[[bytes | None], Mapping[str, Any] | None]:
    """A whole record of the codec's own schema in half of the codec's time; None for any other bytes."""
    schema = json.loads(codec.schema)
    names = [field["name"] for field in schema["fields"]]
    header, size = codec.header, len(codec.header)
    try:
        take = Fields(schema, names).take
    except ValueError:
        return lambda _: None

    def walk(value: bytes | None) -> Mapping[str, Any] | None:
        if value is None or value[:size] != header:
            return None
        try:
            return dict(zip(names, take(value, size), strict=True))
        except (IndexError, ValueError, struct.error):
            return None

    return walk


def arrays(rows: Sequence[Row], fields: Sequence[pa.Field]) -> list[pa.Array]:
    """Rows -> an array a field: built column by column in a third of the time of a struct a record."""
    columns: Sequence[Sequence[Any]] = list(zip(*rows, strict=True)) if rows else [()] * len(fields)
    return [pa.array(column, field.type) for column, field in zip(columns, fields, strict=True)]


def _decoder(reading: Reading, out: types.StructType) -> Callable[[Iterable[pa.RecordBatch]], Iterator[pa.RecordBatch]]:
    def decode(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        collect_rarely()
        shape = to_arrow_schema(out)
        read = row_reader(reading)
        for batch in batches:
            found = [read(value) for value in batch.column("value").to_pylist()]
            refused = [one._asdict() if isinstance(one, Refusal) else None for one in found]
            made = [_records(found, shape.field("record").type), pa.array(refused, shape.field("refused").type)]
            yield _batch([*batch.columns, *made], shape)

    return decode


def _records(found: Sequence[Row | Refusal], struct: pa.StructType) -> pa.StructArray:
    missing = (None,) * struct.num_fields
    fields = [struct.field(index) for index in range(struct.num_fields)]
    made = arrays([missing if isinstance(one, Refusal) else one for one in found], fields)
    return pa.StructArray.from_arrays(made, fields=fields, mask=pa.array([isinstance(one, Refusal) for one in found], pa.bool_()))


def _batch(columns: Sequence[pa.Array], shape: pa.Schema) -> pa.RecordBatch:
    cast = [column if column.type == field.type else column.cast(field.type) for column, field in zip(columns, shape, strict=True)]
    return pa.RecordBatch.from_arrays(cast, schema=shape)
