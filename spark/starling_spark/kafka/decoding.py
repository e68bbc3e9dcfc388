"""Adapter: records of Kafka as DataFrames -> their fields as typed columns, or the reason for a refusal.

Every record has a row in the result: an unreadable value has `refused` instead of `record`.
"""

import json
import struct
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
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

    def only(self, names: Collection[str]) -> "Reading":
        """Return the columns with these names, in the schema's order."""
        return replace(self, fields=types.StructType([field for field in self.fields.fields if field.name in names]))


def decoded(records: DataFrame, reading: Reading) -> DataFrame:
    """Return the records with their decoded fields.

    Shape: in: records of Kafka; out: the same with `record` (the columns of the reading) and `refused` (code, message, id of
           the schema). Exactly one of the two is null.
    """
    out = _shape(reading)
    return records.select(*RECORDS.fieldNames()).mapInArrow(_decoder(reading, out), out)


def _shape(reading: Reading) -> types.StructType:
    record = types.StructType([*reading.fields.fields, *reading.extra.fields])
    return types.StructType([*RECORDS.fields, types.StructField("record", record), types.StructField("refused", REFUSED)])


Row = tuple[Any, ...]
"""The values of a reading's columns, in their order."""


def row_reader(reading: Reading) -> Callable[[bytes | None], Row | Refusal]:
    """Return a function that decodes the values of one batch, one by one. The function raises RegistryUnavailable.

    Text of fields that the reading does not have is not validated as UTF-8.
    """
    schema = reading.wire.of(reading.topic).reader_schema
    row = row_of(schema, reading.fields.fieldNames())
    # `more` gets the whole record.
    only = None if reading.extra.fields else set(reading.fields.fieldNames())
    reader, walk = BatchReader(reading.wire), _walk(reading.wire.codec(reading.topic), only)

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


def peek(codec: Codec, names: Sequence[str]) -> Callable[[bytes | None], tuple[Any, ...] | None]:
    """Return a reader of fields of the codec's own schema, in half of the codec's time. It returns None for other bytes."""
    header, size = codec.header, len(codec.header)
    try:
        take = Fields(json.loads(codec.schema), names).take
    except ValueError:
        return lambda _: None

    def look(value: bytes | None) -> tuple[Any, ...] | None:
        if value is None or value[:size] != header:
            return None
        try:
            return take(value, size)
        except (IndexError, ValueError, struct.error):
            return None

    return look


def _walk(codec: Codec, only: Collection[str] | None) -> Callable[[bytes | None], Mapping[str, Any] | None]:
    """Return a decoder of records, or of `only` these of their fields, as `peek`."""
    names = [field["name"] for field in json.loads(codec.schema)["fields"] if only is None or field["name"] in only]
    look = peek(codec, names)

    def walk(value: bytes | None) -> Mapping[str, Any] | None:
        found = look(value)
        return None if found is None else dict(zip(names, found, strict=True))

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
            found, records = columns_of_values(read, batch.column("value").to_pylist(), struct_type)
            yield _batch([*batch.columns, records, refusals(found, shape.field("refused").type)], shape)

    return decode


def refusals(found: Sequence[Row | Refusal], column_type: pa.DataType) -> pa.Array:
    """Return the column `refused` of these rows: null for those that are not refused."""
    return pa.array([one._asdict() if isinstance(one, Refusal) else None for one in found], column_type)


def columns_of_values(
    read: "Read", values: Sequence[bytes | None], struct_type: pa.StructType
) -> tuple[list[Row | Refusal], pa.StructArray]:
    """Return the row of each value, or its refusal, and the rows as columns. Raises: failures of the installation."""
    found = read_each(read, values)
    try:
        return found, _records(found, struct_type)
    except Exception as cause:
        if is_of_installation(cause):
            raise
    found = [_fitting(value, one, struct_type) for value, one in zip(values, found, strict=True)]
    return found, _records(found, struct_type)


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
