"""One small local Spark for the tests of transforms, in a time zone that must not matter."""

import gc
import os
from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from starling_common.settings import Http, Kafka, SchemaRegistry
from starling_local.runtime import runtime_jars
from starling_spark.lakehouse.iceberg import iceberg_config
from starling_spark.lakehouse.settings import LakeSettings
from starling_spark.session.settings import SparkSettings
from starling_spark.session.spark import open_session
from tests.conftest import until_the_last_of

_HERE = Path(__file__).parent


def pytest_collection_modifyitems(items: Sequence[pytest.Item]) -> None:
    for item in items:
        if item.path.is_relative_to(_HERE):
            # The library leaves sockets to its Java side to be closed by the collector.
            item.add_marker(pytest.mark.filterwarnings("ignore:unclosed <socket:ResourceWarning"))
            item.add_marker(pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning"))


@pytest.fixture(scope="session")
def spark(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SparkSession]:
    settings = lake_settings(tmp_path_factory.mktemp("spark"))
    session = open_session("tests", settings, iceberg_config(settings))
    session.conf.set("spark.sql.session.timeZone", "Pacific/Chatham")
    assert session.streams.active == []  # asking starts what keeps track of state, which a query without a stream does not
    with until_the_last_of("tests/spark/") as last:
        last.callback(_stop, session)
        yield session


def _stop(session: SparkSession) -> None:
    session.stop()
    gc.collect()  # so that unclosed resources are reported here, not in another test


def lake_settings(directory: Path) -> LakeSettings:
    """Of the shared session: what the lake needs beside what every job needs."""
    jars = (*runtime_jars("spark"), *runtime_jars("iceberg"), *runtime_jars("jdbc"))
    shared = spark_settings(directory).model_dump() | {"spark_jars": os.pathsep.join(map(str, jars))}
    return LakeSettings(**shared, lake_warehouse=str(directory / "warehouse"))


def spark_settings(directory: Path) -> SparkSettings:
    return SparkSettings(
        kafka=Kafka(brokers="127.0.0.1:1"),
        registry=SchemaRegistry(url="http://127.0.0.1:1"),
        http=Http(port=1),
        instance_id="test",
        spark_jars=os.pathsep.join(str(jar) for jar in runtime_jars("spark")),
        spark_state_partitions=1,
        checkpoint_dir=str(directory),
    )
