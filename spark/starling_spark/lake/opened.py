"""Pure core: the lake's tables as they are for one micro-batch."""

from collections.abc import Mapping
from dataclasses import dataclass

from pyspark.sql import types

from starling_spark.codec import Wire


@dataclass(frozen=True, slots=True)
class Opened:
    """What each topic carries by now, and the columns that each table has."""

    wire: Wire
    columns: Mapping[str, types.StructType]
