"""Adapter: the current product catalog, read once."""

from pyspark.sql import functions
from pyspark.sql.window import Window

from starling_common.kafka.topics import PRODUCTS
from starling_items.enrich import Product
from starling_spark.jobs.reprocess.context import RunContext
from starling_spark.kafka.decoding import Reading, decoded
from starling_spark.kafka.sources import kafka_past


def products_now(context: RunContext) -> dict[bytes, Product]:
    """Return the products by record key (`workspace/product_id`). An unreadable record leaves the product unchanged."""
    topic = context.topic(PRODUCTS)
    found = decoded(kafka_past(context.spark, context.settings.kafka.brokers, [topic]), Reading.plain(context.wire, topic))
    readable = found.where("value IS NULL OR record IS NOT NULL")  # a record without a value deletes the product
    newest = functions.row_number().over(Window.partitionBy("key").orderBy(functions.desc("offset")))
    last = readable.withColumn("newest", newest).where("newest = 1 AND value IS NOT NULL")
    columns = ["key", *(f"record.{name}" for name in Product._fields)]
    return {bytes(row["key"]): Product(*row[1:]) for row in last.select(*columns).collect()}
