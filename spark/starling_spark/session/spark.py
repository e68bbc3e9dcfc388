"""Adapter: the Spark session of every job: explicit jars, UTC, few logs, little memory, state in RocksDB."""

import logging
import os
import shutil
import sys
from collections.abc import Mapping
from pathlib import Path
from types import MappingProxyType

from pyspark import SparkConf, SparkContext
from pyspark.sql import SparkSession

from starling_spark.directories import local_path
from starling_spark.failpoints import worker_config
from starling_spark.session import local_files
from starling_spark.session.class_archive import java_options
from starling_spark.session.kubernetes import driver_config
from starling_spark.session.settings import SparkSettings

_CONNECTIONS = ("STARLING_KAFKA__", "STARLING_REGISTRY__", "STARLING_CASSANDRA__")
"""The prefixes of the variables by which a process connects to other ones."""
_STATE = "spark.sql.streaming.stateStore"
_ROCKSDB = "org.apache.spark.sql.execution.streaming.state.RocksDBStateStoreProvider"
_LOCAL = {"spark.driver.host": "127.0.0.1", "spark.driver.bindAddress": "127.0.0.1"}
_STREAMS = {
    "spark.sql.streaming.minBatchesToRetain": "10",
    # Two attempts of a task write files of the same names. The checksum of one beside the state of the other would end each later
    # start of the query (SPARK-56461). Hadoop and object stores have checksums of their own.
    "spark.sql.streaming.checkpoint.fileChecksum.enabled": "false",
    # An idle query reports its offsets too, so a query that was killed between its two commits repeats the second.
    "spark.sql.streaming.noDataProgressEventInterval": "1000",
}
_SMALL_JVM = " -XX:+UseSerialGC"
_SHORT_JVM = " -XX:TieredStopAtLevel=1"
"""The optimising compiler costs more than it saves in a job of a few minutes: it doubles the duration of the first batches. A query
that runs for long needs it: at 17,000 events/s half the latency of a computed trait.
"""


class PythonMissing(Exception):
    """The driver cannot run the Python of the executors, although the job needs it there too."""


class JarMissing(Exception):
    """A connector jar of the settings does not exist."""


def open_session(
    name: str, settings: SparkSettings, more: Mapping[str, str] = MappingProxyType({}), *, is_streaming: bool = False
) -> SparkSession:
    """Start and return a session for the job `name`; `more` holds the Spark settings of this job.

    `is_streaming`: as in `session_config`. Raises: JarMissing.
    """
    missing = [str(jar) for jar in settings.jars() if not jar.is_file()]
    if missing:
        raise JarMissing(f"STARLING_SPARK_JARS: no such file: {', '.join(missing)}; set it to the paths of the connector jars")
    logging.getLogger("py4j").setLevel(logging.WARNING)
    # `python3` on the PATH may lack the packages of this interpreter. On a cluster an operator names another one.
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    builder = SparkSession.Builder().appName(f"starling-{name}")
    if settings.spark_master:
        builder = builder.master(settings.spark_master)
    for key, value in (
        *session_config(settings, is_streaming=is_streaming).items(),
        *executor_config(_master(settings), os.environ).items(),
        *worker_config(settings.failpoint).items(),
        *more.items(),
        *driver_config(_master(settings), settings.instance_id, os.environ).items(),
        *settings.spark_properties.items(),
    ):
        builder = builder.config(key, value)
    session = builder.getOrCreate()
    if settings.spark_master.startswith("local"):
        local_files.use_jar(session, settings.jars())
    return session


def check_python() -> None:
    """Check that the driver can run the Python of the executors, by which Spark learns the schema of a state.

    Raises: PythonMissing.
    """
    python = os.environ.get("PYSPARK_PYTHON", sys.executable)
    if shutil.which(python) is None:
        raise PythonMissing(
            f"PYSPARK_PYTHON: the driver of this job runs {python} too, which is missing in {Path.cwd()}: unpack the archive "
            "of the executors' Python there"
        )


def _master(settings: SparkSettings) -> str:
    """Return the master: of the settings, else of spark-submit, whose JVM runs already."""
    if settings.spark_master or "PYSPARK_GATEWAY_PORT" not in os.environ:
        return settings.spark_master
    SparkContext._ensure_initialized()  # noqa: SLF001 - the public way also starts a context
    return SparkConf().get("spark.master", "")


def executor_config(master: str, environment: Mapping[str, str]) -> Mapping[str, str]:
    """Return the Spark settings with which Python on other machines connects as the driver does.

    Kubernetes would show passwords in the specification of a pod: there they come from Secrets that the operator mounts.
    """
    found = {name: value for name, value in environment.items() if name.upper().startswith(_CONNECTIONS)}
    if master.startswith("local"):
        return {}  # they inherit the environment of the driver
    hidden = "PASSWORD" if master.startswith("k8s") else None
    return {f"spark.executorEnv.{name}": value for name, value in found.items() if hidden is None or hidden not in name.upper()}


def _at(host: str | None) -> dict[str, str]:
    return {} if host is None else {"spark.driver.host": host, "spark.driver.bindAddress": host}


def _before(class_path: str) -> dict[str, str]:
    return {f"spark.{process}.extraClassPath": class_path for process in ("driver", "executor") if class_path}


def session_config(settings: SparkSettings, *, is_streaming: bool = False) -> Mapping[str, str]:
    """Return the settings of Spark; those that an operator should not change are constants here.

    `is_streaming`: the job runs until it is stopped, so its JVM optimises what it does often.
    """
    here = Path(__file__).parent
    local = settings.spark_master.startswith("local")
    jvm = (_SMALL_JVM if is_streaming else _SMALL_JVM + _SHORT_JVM) if local else ""
    own = (_LOCAL if local else _at(settings.spark_driver_host)) | _before(settings.spark_class_path) | _STREAMS
    if local_path(settings.checkpoint_dir) is not None:
        own |= local_files.CHECKPOINTS
    return own | {
        "spark.jars": ",".join(str(jar) for jar in settings.jars()),
        "spark.driver.memory": settings.spark_driver_memory,
        "spark.driver.extraJavaOptions": f"-Dlog4j2.configurationFile={(here / 'log4j2.properties').as_uri()}"
        + f"{jvm} {java_options()}".rstrip(),
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
        # Indexes and filters must stay in memory: each read of a row would read hundreds of KB of them again. With the default
        # blocks of 4 KB, and rows of 2 KB, the index has an entry for two rows.
        f"{_STATE}.rocksdb.highPriorityPoolRatio": "0.4",
        f"{_STATE}.rocksdb.blockSizeKB": "16",
        # Rows of a job may have hundreds of KB. A task has several such batches at once, and memory for twice their size.
        "spark.sql.execution.arrow.maxBytesPerBatch": "4m",
        # A task builds as many rows at once when a frame is stored; with Spark's 10,000 that needs more than a heap of 1 GB.
        "spark.sql.inMemoryColumnarStorage.batchSize": "200",
    }
