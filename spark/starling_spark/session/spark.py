"""Adapter: one Spark session as every job wants it: explicit jars, UTC, quiet, small, state in RocksDB."""

import logging
import os
import sys
from collections.abc import Mapping
from pathlib import Path
from types import MappingProxyType

from pyspark.sql import SparkSession

from starling_spark.session.settings import SparkSettings

_STATE = "spark.sql.streaming.stateStore"
_ROCKSDB = "org.apache.spark.sql.execution.streaming.state.RocksDBStateStoreProvider"
_LOCAL = {"spark.driver.host": "127.0.0.1", "spark.driver.bindAddress": "127.0.0.1"}
_SMALL_JVM = " -XX:+UseSerialGC -XX:TieredStopAtLevel=1"
"""On a machine of two cores the optimising compiler takes longer than it saves: small batches took twice as long with it."""


class JarMissing(Exception):
    """A connector jar is not where the settings say."""


def open_session(name: str, settings: SparkSettings, more: Mapping[str, str] = MappingProxyType({})) -> SparkSession:
    """Start a session for the job `name`; `more` of Spark's own settings are that job's alone.

    Raises: JarMissing.
    """
    missing = [str(jar) for jar in settings.jars() if not jar.is_file()]
    if missing:
        raise JarMissing(f"STARLING_SPARK_JARS names files that are not there: {', '.join(missing)}")
    logging.getLogger("py4j").setLevel(logging.WARNING)
    # Workers must run the interpreter that has our packages, whatever `python3` is on the PATH.
    os.environ["PYSPARK_PYTHON"] = sys.executable
    builder = SparkSession.Builder().appName(f"starling-{name}")
    if settings.spark_master:
        builder = builder.master(settings.spark_master)
    for key, value in (*session_config(settings).items(), *more.items()):
        builder = builder.config(key, value)
    return builder.getOrCreate()


def session_config(settings: SparkSettings) -> Mapping[str, str]:
    """Spark's own settings; what nobody should turn is a constant here."""
    here = Path(__file__).parent
    local = settings.spark_master.startswith("local")
    return (_LOCAL if local else {}) | {
        "spark.jars": ",".join(str(jar) for jar in settings.jars()),
        "spark.driver.memory": settings.spark_driver_memory,
        "spark.driver.extraJavaOptions": f"-Dlog4j2.configurationFile={(here / 'log4j2.properties').as_uri()}"
        + (_SMALL_JVM if local else ""),
        "spark.python.daemon.module": "starling_spark.session.worker_daemon",
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
        "spark.sql.session.timeZone": "UTC",
        "spark.sql.shuffle.partitions": str(settings.spark_state_partitions),
        f"{_STATE}.providerClass": _ROCKSDB,
        # Small batches write what changed, not whole files.
        f"{_STATE}.rocksdb.changelogCheckpointing.enabled": "true",
        f"{_STATE}.rocksdb.boundedMemoryUsage": "true",
        f"{_STATE}.rocksdb.maxMemoryUsageMB": str(settings.spark_state_memory_mb),
        "spark.sql.streaming.minBatchesToRetain": "10",
        # An idle query still tells its position, so that one killed between its two commits makes up for the second.
        "spark.sql.streaming.noDataProgressEventInterval": "1000",
    }
