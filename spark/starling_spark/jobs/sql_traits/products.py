"""Adapter: the product catalog of all workspaces as a table of the lake, which runs read like the other tables."""

from collections.abc import Mapping
from typing import Final, NamedTuple

from confluent_kafka import KafkaException
from pyspark.sql import DataFrame, SparkSession, functions, types

from starling_common.kafka.clients import BrokerUnavailable
from starling_common.kafka.topic_range import Partition, range_consumer, spans
from starling_common.time.instants import wall_clock_ms
from starling_spark.history.products import listed_products
from starling_spark.kafka.codec import Wire
from starling_spark.lakehouse.iceberg import Lake

TABLE: Final = "sql_products"
COLUMNS: Final = types.StructType(
    [
        types.StructField("workspace", types.StringType()),
        types.StructField("product_id", types.StringType()),
        types.StructField("properties", types.StringType()),
        types.StructField("updated_at", types.TimestampType()),
    ]
)
"""`properties`: the other fields of the record as JSON text, without those that are null."""

_NO_PROPERTIES: Final = frozenset({"workspace", "product_id", "listed_at"})
_TIMEOUT_SECONDS: Final = 30.0
_HOUR_MS: Final = 3_600_000


class Listing(NamedTuple):
    """The topic of the catalog."""

    brokers: str
    topic: str
    wire: Wire


class Products:
    """The table of the products. One process at a time writes it."""

    def __init__(self, spark: SparkSession, lake: Lake, listing: Listing, orphan_hours: float) -> None:
        self._spark = spark
        self._lake = lake
        self._listing = listing
        self._orphan_hours = orphan_hours
        self._read_to: Mapping[Partition, int] | None = None
        self._has_changed = False
        lake.ensure(TABLE, COLUMNS, ("workspace",), ())

    def refresh(self) -> None:
        """Replace the rows by the products that the topic lists now, in one commit, unless it is as at the call before.

        Raises: BrokerUnavailable, errors of Spark.
        """
        ends = self._ends()
        if ends == self._read_to:
            return
        brokers, topic, wire = self._listing
        self._has_changed = True
        self._lake.replace(TABLE, _rows(listed_products(self._spark, brokers, wire, topic)))
        self._read_to = ends  # those before the read: a record that came meanwhile leads to one more

    def maintain(self) -> None:
        """Delete the files of former rows, and those that a killed process left, if rows were replaced since the call before."""
        if not self._has_changed:
            return
        now_ms = wall_clock_ms()
        self._lake.call("expire_snapshots", TABLE, f"older_than => timestamp_millis({now_ms}), retain_last => 1")
        orphans_ms = int(now_ms - self._orphan_hours * _HOUR_MS)
        self._lake.call("remove_orphan_files", TABLE, f"older_than => timestamp_millis({orphans_ms})")
        self._has_changed = False

    def _ends(self) -> Mapping[Partition, int]:
        consumer = range_consumer(self._listing.brokers, "starling-reader", log_level=0)
        try:
            found = spans(consumer, self._listing.topic, _TIMEOUT_SECONDS)
        except KafkaException as cause:
            raise BrokerUnavailable(f"{self._listing.topic}: {cause.args[0].str()}") from cause
        finally:
            consumer.close()
        return {place: end for place, (_, end) in found.items()}


def _rows(products: DataFrame) -> DataFrame:
    """Return the rows of the table. Shape: in those of `listed_products`; out `COLUMNS`."""
    fields = products.select("record.*")
    properties = functions.to_json(functions.struct(*[name for name in fields.columns if name not in _NO_PROPERTIES]))
    return fields.select("workspace", "product_id", properties.alias("properties"), functions.col("listed_at").alias("updated_at"))
