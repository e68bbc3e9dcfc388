"""Records of Kafka -> those that no view of their topic can read. DataFrame in, DataFrame out."""

from collections.abc import Callable, Iterable, Iterator, Sequence

import pyarrow as pa
from pyspark.sql import DataFrame, functions, types
from pyspark.sql.pandas.types import to_arrow_schema

from starling_spark.jobs.views.transform import names_of, reading_of
from starling_spark.jobs.views.view import NAME, TIME, View
from starling_spark.kafka.codec import collect_rarely
from starling_spark.kafka.columns import is_instant, unit_micros
from starling_spark.kafka.decoding import REFUSED, Reading, columns_of_values, peek, refusals, row_reader
from starling_spark.kafka.sources import RECORDS

_READ = ("partition", "offset", "timestamp_ms", "key", "value")
_OUT = types.StructType([*[field for field in RECORDS.fields if field.name in _READ], types.StructField("refused", REFUSED)])


def unreadable(records: DataFrame, views: Sequence[View], reading: Reading) -> DataFrame:
    """Return the records that these views of the topic of `reading` cannot read.

    Shape: in: records of Kafka; out: `RECORDS` without headers, and `refused` (code, message, id of the schema).
    """
    topic = functions.lit(reading.topic).alias("topic")
    headers = functions.lit(None).cast(RECORDS["headers"].dataType).alias("headers")
    return records.select(*_READ).mapInArrow(_chosen(views, reading), _OUT).select(topic, *_READ, headers, "refused")


def _chosen(views: Sequence[View], reading: Reading) -> Callable[[Iterable[pa.RecordBatch]], Iterator[pa.RecordBatch]]:
    names = names_of(views)
    own = reading_of(views, reading)

    def chosen(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        collect_rarely()
        shape = to_arrow_schema(_OUT)
        struct = pa.struct(list(to_arrow_schema(own.fields)))
        read, codec = row_reader(own), reading.wire.codec(reading.topic)
        look = peek(codec, (TIME, NAME)) if names else None
        unit = unit_micros(codec.schema, TIME) if names else 0
        for batch in batches:
            values = batch.column("value").to_pylist()
            wanted = []
            for index, value in enumerate(values):
                # Hot: most events of a view of some names have another one, and are not decoded.
                found = None if look is None else look(value)
                if found is None or found[1] in names or not is_instant(found[0] * unit):
                    wanted.append(index)
            rows, _ = columns_of_values(read, [values[index] for index in wanted], struct)
            why = refusals(rows, shape.field("refused").type)
            taken = batch.take(pa.array(wanted, pa.int64())).append_column(shape.field("refused"), why)
            yield taken.filter(why.is_valid()).cast(shape)

    return chosen
