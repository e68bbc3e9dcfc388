"""The options with which Spark reads topics."""

from pyspark.sql import SparkSession

from starling_spark.kafka.sources import kafka_records


def test_the_broker_answers_at_once_at_the_end_of_a_partition(spark: SparkSession) -> None:
    """With the client's default a micro-batch waits half a second for each of its partitions."""
    records = kafka_records(spark, "127.0.0.1:1", ["events.behaviour"])
    source = records._jdf.queryExecution().logical().collectLeaves().head()
    assert int(source.extraOptions().get("kafka.fetch.max.wait.ms")) <= 5
