"""The rows of a lake in the object store of the cluster."""

import json
from pathlib import Path

from pydantic import SecretStr

from starling_common.settings import Http, Kafka, SchemaRegistry
from starling_spark.lakehouse.iceberg import CATALOG, iceberg_config
from starling_spark.lakehouse.settings import LakeSettings
from starling_spark.session.spark import open_session
from tests.integration.spark.lake_instance import LakeInstance
from tests.spark_cluster.rig import PASSWORD, WAREHOUSE, Rig, jars


def lake_places(cluster: Rig, lake: LakeInstance, directory: Path) -> dict[str, list[tuple[str, int, int]]]:
    """Return by table (topic without prefix, partition, offset) of every row, sorted; twice where a row is there twice."""
    given = cluster.lake_settings()
    settings = LakeSettings(
        kafka=Kafka(brokers="127.0.0.1:1"),
        registry=SchemaRegistry(url="http://127.0.0.1:1"),
        http=Http(port=1),
        instance_id="reader",
        spark_master="local[1]",
        spark_jars=jars("iceberg", "jdbc", "s3"),
        checkpoint_dir=str(directory),
        lake_warehouse=WAREHOUSE,
        lake_catalog=json.loads(given["STARLING_LAKE_CATALOG"]),
        lake_catalog_secrets={"jdbc.password": SecretStr(PASSWORD)},
    )
    spark = open_session("reader", settings, {**iceberg_config(settings), **cluster.s3.hadoop()})
    try:
        return {
            table: sorted(
                (row.origin_topic.removeprefix(lake.prefix), row.origin_partition, row.origin_offset)
                for row in spark.table(f"{CATALOG}.starling.{table}").collect()
            )
            for table in ("behaviour_events", "ingest_items", "quarantine")
        }
    finally:
        spark.stop()
