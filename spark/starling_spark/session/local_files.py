"""Adapter: Hadoop's file system of this machine, without a process for each file.

PySpark lacks the native library of Hadoop, which then starts `chmod` for each new file and `readlink` for each renamed one: ten
processes for a file of a checkpoint and its checksum. Each task with state writes such files in each micro-batch.
"""

from collections.abc import Iterable
from pathlib import Path
from typing import Final

from pyspark.sql import SparkSession

JAR: Final = "hadoop-bare-naked-local-fs"
"""The beginning of the name of the jar whose file system sets permissions in Java."""
CHECKPOINTS: Final = {
    # Spark's other manager starts `readlink` eight times for a file and its checksum.
    "spark.sql.streaming.checkpointFileManagerClass": "org.apache.spark.sql.execution.streaming.checkpointing"
    ".FileSystemBasedCheckpointFileManager"
}
"""The settings of a session whose checkpoints are in a directory."""
_CLASS: Final = "com.globalmentor.apache.hadoop.fs.BareLocalFileSystem"


def use_jar(spark: SparkSession, jars: Iterable[Path]) -> None:
    """Replace the file system of this machine in the session's JVM by that of the jar, if it is one of `jars`.

    Hadoop keeps one instance in a JVM. Spark uses it before it loads jars, so a setting of the session would have no effect.
    """
    jvm, context = spark._jvm, spark._jsc  # noqa: SLF001 - PySpark has no public access to the JVM
    if jvm is None or not any(jar.name.startswith(JAR) for jar in jars):
        return
    systems = jvm.org.apache.hadoop.fs.FileSystem
    configuration = jvm.org.apache.hadoop.conf.Configuration(context.hadoopConfiguration())
    configuration.setClassLoader(jvm.java.lang.Thread.currentThread().getContextClassLoader())
    configuration.set("fs.file.impl", _CLASS)
    present = systems.getLocal(configuration)
    if present.getClass().getName() != _CLASS:
        present.close()  # Hadoop forgets it; its present users can continue with it
        systems.getLocal(configuration)
