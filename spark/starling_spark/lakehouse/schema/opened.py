"""Pure core: schemas and columns of the lake's tables during one micro-batch."""

from collections.abc import Mapping
from dataclasses import dataclass

from pyspark.sql import types

from starling_spark.kafka.codec import Wire


@dataclass(frozen=True, slots=True)
class Opened:
    """The current schema of each topic and the columns of each table. `workers_write`: they write its files."""

    wire: Wire
    columns: Mapping[str, types.StructType]
    workers_write: bool
