"""The settings of every Spark job; the settings of a job extend them."""

import os
from pathlib import Path
from typing import Annotated

from pydantic import Field

from starling_common.settings import ServiceSettings
from starling_spark.lineage.settings import LineageSettings

CheckpointDir = Annotated[
    str,
    Field(
        min_length=1, description="location of the jobs' offsets and state: a directory, or a URI such as s3a://bucket/checkpoints"
    ),
]


class SparkSettings(ServiceSettings):
    """The jars of `STARLING_SPARK_JARS` are the only ones: nothing is resolved at run time, so a job also starts offline."""

    spark_jars: Annotated[str, Field(min_length=1, description="paths of the connector jars, separated as in PATH or by commas")]
    spark_class_path: Annotated[
        str,
        Field(description="jars before those of Spark in driver and executors, such as those of an object store: /opt/jars/s3/*"),
    ] = ""
    spark_master: Annotated[str, Field(description="local[n], spark://…, k8s://…; empty: the master of spark-submit")] = "local[2]"
    spark_driver_host: Annotated[
        str | None, Field(description="address at which executors on other machines connect to the driver; unset: its host name")
    ] = None
    spark_properties: Annotated[
        dict[str, str], Field(description="more properties of Spark, as JSON; they win over those of the job")
    ] = {}
    spark_driver_memory: Annotated[
        str, Field(pattern="^[1-9][0-9]*[mg]$", description="heap of the driver, such as 512m or 2g")
    ] = "1g"
    spark_state_partitions: Annotated[int, Field(ge=1, le=1000, description="tasks with state; a change rebuilds the state")] = 2
    spark_state_memory_mb: Annotated[int, Field(ge=16, description="memory of RocksDB in MB, for the whole process")] = 512
    checkpoint_dir: CheckpointDir
    lineage: LineageSettings = LineageSettings()
    failpoint: Annotated[
        str | None,
        Field(description="for tests: raise at a point of the job for records with a text, such as raise_in_decode:TEXT"),
    ] = None

    def jars(self) -> list[Path]:
        """Return the paths of the connector jars, in order."""
        return [Path(part) for part in self.spark_jars.replace(",", os.pathsep).split(os.pathsep) if part]
