"""Pure core: the lake's tables as they are for one micro-batch."""

from collections.abc import Mapping
from dataclasses import dataclass

from pyspark.sql import types

from starling_spark.kafka.codec import Wire


@dataclass(frozen=True, slots=True)
class Opened:
    """What each topic carries by now, the columns that each table has; `is_directory`: not in an object store."""

    wire: Wire
    columns: Mapping[str, types.StructType]
    is_directory: bool
