"""What an operator may turn of every Spark job; a job's own settings build on these."""

import os
from pathlib import Path
from typing import Annotated

from pydantic import Field

from starling_common.settings import ServiceSettings


class SparkSettings(ServiceSettings):
    """`STARLING_SPARK_JARS` is the only way jars come in: no resolver is asked at run time, so an offline site works alike."""

    spark_jars: Annotated[str, Field(min_length=1, description="paths of the connector jars, separated as in PATH or by commas")]
    spark_master: Annotated[str, Field(description="local[n], spark://…, k8s://…; empty: what spark-submit was told")] = "local[2]"
    spark_driver_memory: Annotated[str, Field(pattern="^[1-9][0-9]*[mg]$")] = "1g"
    spark_state_partitions: Annotated[int, Field(ge=1, le=1000, description="tasks that keep state; a change rebuilds it")] = 2
    spark_state_memory_mb: Annotated[int, Field(ge=16, description="of RocksDB, for the whole process")] = 128
    checkpoint_dir: Annotated[Path, Field(description="where the jobs' positions and state are kept")]

    def jars(self) -> list[Path]:
        """The connector jars, in order."""
        return [Path(part) for part in self.spark_jars.replace(",", os.pathsep).split(os.pathsep) if part]
