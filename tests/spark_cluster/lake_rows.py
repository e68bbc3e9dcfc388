"""The rows of a lake in the object store of the cluster."""

import json
from collections.abc import Iterable
from pathlib import Path
from typing import Any, Final, TypeAlias

from pydantic import SecretStr
from pyiceberg.catalog import Catalog

from starling_common.settings import Http, Kafka, SchemaRegistry
from starling_spark.lakehouse.iceberg import CATALOG, iceberg_config
from starling_spark.lakehouse.settings import LakeSettings
from starling_spark.session.spark import open_session
from tests.integration.spark.lake_instance import LakeInstance
from tests.spark_cluster.rig import PASSWORD, WAREHOUSE, Rig, jars

Places: TypeAlias = list[tuple[str, int, int]]
"""(topic without prefix, partition, offset) of every row, sorted; twice where a row is there twice."""
_TABLES: Final = ("behaviour_events", "ingest_items", "quarantine")
_COLUMNS: Final = ("origin_topic", "origin_partition", "origin_offset")


def lake_places(cluster: Rig, lake: LakeInstance, directory: Path) -> dict[str, Places]:
    """Return the places of the rows by table, as Spark reads the tables of the catalog in the database."""
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
        rows = {table: spark.table(f"{CATALOG}.starling.{table}").select(*_COLUMNS).collect() for table in _TABLES}
        return {table: _places(lake, found) for table, found in rows.items()}
    finally:
        spark.stop()


def places_by_pyiceberg(catalog: Catalog, lake: LakeInstance) -> dict[str, Places]:
    """Return the same, as PyIceberg reads the tables of another catalog."""
    tables = {table: catalog.load_table(f"starling.{table}").scan(selected_fields=_COLUMNS).to_arrow() for table in _TABLES}
    return {table: _places(lake, map(dict.values, found.select(_COLUMNS).to_pylist())) for table, found in tables.items()}


def _places(lake: LakeInstance, rows: Iterable[Any]) -> Places:
    return sorted((topic.removeprefix(lake.prefix), partition, offset) for topic, partition, offset in rows)
