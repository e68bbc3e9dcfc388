"""The settings of the job `backfill`."""

from typing import Annotated, Literal

from pydantic import Field

from starling_spark.lakehouse.settings import LakeSettings


class BackfillSettings(LakeSettings):
    """Settings of `python -m starling_spark.jobs.backfill`."""

    spark_jars: Annotated[str, Field(description="paths of the connector jars; needed only with a lake")] = ""
    lake_warehouse: Annotated[
        str, Field(description="location of the lake, which has events that topics no longer have; empty: no lake")
    ] = ""
    backfill_from_lake: Annotated[
        Literal["gone", "all"],
        Field(description="events to read from the lake. gone: those that the topics no longer have; all: every event"),
    ] = "gone"
    checkpoint_dir: Annotated[str, Field(description="has no effect: the topic of the runs contains the progress of this job")] = (
        "."
    )
    backfill_slices: Annotated[
        int,
        Field(ge=1, le=256, description="slices of a partition's users, one in memory at a time; each reads the whole partition"),
    ] = 1
    backfill_tail_records: Annotated[
        int, Field(ge=1, description="records since the cut, in the largest partition, above which another pass runs")
    ] = 100_000
    backfill_report_seconds: Annotated[float, Field(gt=0, le=60, description="time between two progress reports of a task")] = 2.0
    backfill_segmenter_group: Annotated[str, Field(description="consumer group of the segmenter")] = "starling-segmenter"
