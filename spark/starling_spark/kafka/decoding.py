"""Adapter: records of Kafka as DataFrames -> their fields as typed columns, or the reason for a refusal.

Every record has a row in the result: an unreadable value has `refused` instead of `record`.
"""

import json
import struct
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import pyarrow as pa
from pyspark.sql import DataFrame, types
from pyspark.sql.pandas.types import to_arrow_schema

from starling_common.failures import is_of_installation, poison
from starling_common.wire import Codec, writer_id
from starling_common.wire.fields import Fields
from starling_spark.failpoints import raising
from starling_spark.kafka.codec import BatchReader, Refusal, Wire, collect_rarely, named_id
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
    """The columns of one topic, or of several topics with the same record.

    `fields` are columns of the record; a column or a nested field that the reader schema lacks is null. The columns `extra`
    follow them: the pure function `more` computes their values from the decoded record, or returns why it is refused.
    """

    wire: Wire
    topic: str
    fields: types.StructType
    extra: types.StructType = NOTHING
    more: Callable[[Mapping[str, Any]], tuple[Any, ...] | Refusal] = lambda _: ()

    @classmethod
    def plain(cls, wire: Wire, topic: str) -> "Reading":
        """Return the columns of the reader schema."""
        return cls(wire, topic, columns_of(wire.of(topic).reader_schema))


def decoded(records: DataFrame, reading: Reading) -> DataFrame:
    """Return the records with their decoded fields.

    Shape: in: records of Kafka; out: the same with `record` (the columns of the reading) and `refused` (code, message, id of
           the schema). Exactly one of the two is null.
    """
    record = types.StructType([*reading.fields.fields, *reading.extra.fields])
    out = types.StructType([*RECORDS.fields, types.StructField("record", record), types.StructField("refused", REFUSED)])
    return records.select(*RECORDS.fieldNames()).mapInArrow(_decoder(reading, out), out)


Row = tuple[Any, ...]
"""The values of a reading's columns, in their order."""


def row_reader(reading: Reading) -> Callable[[bytes | None], Row | Refusal]:
    """Return a function that decodes the values of one batch, one by one. The function raises RegistryUnavailable."""
    schema = reading.wire.of(reading.topic).reader_schema
    row = row_of(schema, reading.fields.fieldNames())
    reader, walk = BatchReader(reading.wire), _walk(reading.wire.codec(reading.topic))

    def read(value: bytes | None) -> Row | Refusal:
        # Nearly all values are complete and have the reader schema's id; the general path reports errors.
        record = walk(value) or reader.read(reading.topic, value)
        if isinstance(record, Refusal):
            return record
        try:
            own = row(record)
        except ValueError as error:
            return Refusal("bad_instant", str(error), writer_id(value or b""))
        further = reading.more(record)
        return further if isinstance(further, Refusal) else (*own, *further)

    armed = raising()

    def raising_read(value: bytes | None) -> Row | Refusal:
        if armed is not None:
            armed.passed("decode", value or b"")
        return read(value)

    return read if armed is None else raising_read


def _walk(codec: Codec) -> Callable[[bytes | None], Mapping[str, Any] | None]:
    """Return a decoder for the codec's own schema, which takes half of the codec's time and returns None for other bytes."""
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
    """Return an array for each field. Building by column takes a third of the time of one struct a record."""
    columns: Sequence[Sequence[Any]] = list(zip(*rows, strict=True)) if rows else [()] * len(fields)
    return [pa.array(column, field.type) for column, field in zip(columns, fields, strict=True)]


def _decoder(reading: Reading, out: types.StructType) -> Callable[[Iterable[pa.RecordBatch]], Iterator[pa.RecordBatch]]:
    def decode(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        collect_rarely()
        shape = to_arrow_schema(out)
        read = row_reader(reading)
        struct_type = shape.field("record").type
        for batch in batches:
            values = batch.column("value").to_pylist()
            found = read_each(read, values)
            try:
                records = _records(found, struct_type)
            except Exception as cause:
                if is_of_installation(cause):
                    raise
                found = [_fitting(value, one, struct_type) for value, one in zip(values, found, strict=True)]
                records = _records(found, struct_type)
            refused = [one._asdict() if isinstance(one, Refusal) else None for one in found]
            yield _batch([*batch.columns, records, pa.array(refused, shape.field("refused").type)], shape)

    return decode


Read = Callable[[bytes | None], Row | Refusal]


def read_each(read: Read, values: Sequence[bytes | None]) -> list[Row | Refusal]:
    """Return the rows of many values. When one makes the code raise, each is read again alone; one that raises again is refused.

    Raises: failures of the installation.
    """
    try:
        return [read(value) for value in values]
    except Exception as cause:
        if is_of_installation(cause):
            raise
    return [_alone(value, partial(read, value)) for value in values]


def _alone(value: bytes | None, call: Callable[[], Row | Refusal]) -> Row | Refusal:
    try:
        return call()
    except Exception as cause:
        if is_of_installation(cause):
            raise
        why = poison(cause)
        return Refusal(why.code, why.message, named_id(value or b""))


def _fitting(value: bytes | None, found: Row | Refusal, struct_type: pa.StructType) -> Row | Refusal:
    """Return the row, or its refusal if it does not fit the columns."""

    def fitted() -> Row | Refusal:
        _records([found], struct_type)
        return found

    return _alone(value, fitted)


def _records(found: Sequence[Row | Refusal], struct: pa.StructType) -> pa.StructArray:
    missing = (None,) * struct.num_fields
    fields = [struct.field(index) for index in range(struct.num_fields)]
    made = arrays([missing if isinstance(one, Refusal) else one for one in found], fields)
    return pa.StructArray.from_arrays(made, fields=fields, mask=pa.array([isinstance(one, Refusal) for one in found], pa.bool_()))


def _batch(columns: Sequence[pa.Array], shape: pa.Schema) -> pa.RecordBatch:
    cast = [column if column.type == field.type else column.cast(field.type) for column, field in zip(columns, shape, strict=True)]
    return pa.RecordBatch.from_arrays(cast, schema=shape)
