"""What an operator may turn of the job `backfill`."""

from pathlib import Path
from typing import Annotated, Literal

from pydantic import Field

from starling_spark.lakehouse.settings import LakeSettings


class BackfillSettings(LakeSettings):
    """Settings of `python -m starling_spark.jobs.backfill`."""

    spark_jars: Annotated[
        str, Field(description="none are needed but for a lake: the tasks read and write by clients of their own")
    ] = ""
    lake_warehouse: Annotated[str, Field(description="of a lake, which has events that topics no longer have; empty: none")] = ""
    backfill_from_lake: Annotated[
        Literal["gone", "all"], Field(description="what the topics no longer have, or all as far as the lake goes")
    ] = "gone"
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
