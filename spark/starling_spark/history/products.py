"""Adapter: the product catalog as of now, from its topic: DataFrame out."""

from pyspark.sql import DataFrame, SparkSession, functions
from pyspark.sql.window import Window

from starling_spark.kafka.codec import Wire
from starling_spark.kafka.decoding import Reading, decoded
from starling_spark.kafka.sources import kafka_past


def listed_products(spark: SparkSession, brokers: str, wire: Wire, topic: str) -> DataFrame:
    """Return the newest record of each product, without deleted ones. An unreadable record leaves the product unchanged.

    Shape: out `key` (workspace/product_id), `record` (the fields of the topic's reader schema).
    """
    found = decoded(kafka_past(spark, brokers, [topic]), Reading.plain(wire, topic))
    readable = found.where("value IS NULL OR record IS NOT NULL")  # a record without a value deletes the product
    newest = functions.row_number().over(Window.partitionBy("key").orderBy(functions.desc("offset")))
    return readable.withColumn("newest", newest).where("newest = 1 AND value IS NOT NULL").select("key", "record")
