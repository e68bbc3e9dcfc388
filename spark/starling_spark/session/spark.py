"""Adapter: the Spark session of every job: explicit jars, UTC, few logs, little memory, state in RocksDB."""

import logging
import os
import sys
from collections.abc import Mapping
from pathlib import Path
from types import MappingProxyType

from pyspark.sql import SparkSession

from starling_spark.failpoints import worker_config
from starling_spark.session.settings import SparkSettings

_STATE = "spark.sql.streaming.stateStore"
_ROCKSDB = "org.apache.spark.sql.execution.streaming.state.RocksDBStateStoreProvider"
_LOCAL = {"spark.driver.host": "127.0.0.1", "spark.driver.bindAddress": "127.0.0.1"}
_SMALL_JVM = " -XX:+UseSerialGC -XX:TieredStopAtLevel=1"
"""The optimising compiler costs more than it saves on two cores: it doubles the duration of small batches."""


class JarMissing(Exception):
    """A connector jar of the settings does not exist."""


def open_session(name: str, settings: SparkSettings, more: Mapping[str, str] = MappingProxyType({})) -> SparkSession:
    """Start and return a session for the job `name`; `more` holds the Spark settings of this job.

    Raises: JarMissing.
    """
    missing = [str(jar) for jar in settings.jars() if not jar.is_file()]
    if missing:
        raise JarMissing(f"STARLING_SPARK_JARS: no such file: {', '.join(missing)}; set it to the paths of the connector jars")
    logging.getLogger("py4j").setLevel(logging.WARNING)
    # `python3` on the PATH may lack the packages of this interpreter.
    os.environ["PYSPARK_PYTHON"] = sys.executable
    builder = SparkSession.Builder().appName(f"starling-{name}")
    if settings.spark_master:
        builder = builder.master(settings.spark_master)
    for key, value in (*session_config(settings).items(), *worker_config(settings.failpoint).items(), *more.items()):
        builder = builder.config(key, value)
    return builder.getOrCreate()


def session_config(settings: SparkSettings) -> Mapping[str, str]:
    """Return the settings of Spark; those that an operator should not change are constants here."""
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
        # What Spark shows of its settings hides those with such a name; its own list has no credentials and no JAAS.
        "spark.redaction.regex": "(?i)secret|password|passwd|token|credential|access[.]?key|jaas",
        "spark.sql.session.timeZone": "UTC",
        "spark.sql.shuffle.partitions": str(settings.spark_state_partitions),
        f"{_STATE}.providerClass": _ROCKSDB,
        # A small batch then writes its changes instead of whole files.
        f"{_STATE}.rocksdb.changelogCheckpointing.enabled": "true",
        f"{_STATE}.rocksdb.boundedMemoryUsage": "true",
        f"{_STATE}.rocksdb.maxMemoryUsageMB": str(settings.spark_state_memory_mb),
        "spark.sql.streaming.minBatchesToRetain": "10",
        # An idle query reports its offsets too, so a query that was killed between its two commits repeats the second.
        "spark.sql.streaming.noDataProgressEventInterval": "1000",
    }
