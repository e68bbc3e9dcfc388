"""What an operator may turn of the job `backfill`."""

from pathlib import Path
from typing import Annotated

from pydantic import Field

from starling_spark.settings import SparkSettings


class BackfillSettings(SparkSettings):
    """Settings of `python -m starling_spark.backfill`."""

    spark_jars: Annotated[str, Field(description="none are needed: the tasks read and write by clients of their own")] = ""
    checkpoint_dir: Annotated[Path, Field(description="not used: what is done stands in the topic of the runs")] = Path()
    backfill_slices: Annotated[
        int,
        Field(ge=1, le=256, description="so many parts of a partition's users, one in memory at a time; each reads all of it"),
    ] = 1
    backfill_tail_records: Annotated[
        int, Field(ge=1, description="what came in meanwhile is gathered by another pass, if it is more in the largest partition")
    ] = 100_000
    backfill_report_seconds: Annotated[float, Field(gt=0, le=60, description="how often a task says how far it is")] = 2.0
    backfill_segmenter_group: str = "starling-segmenter"
