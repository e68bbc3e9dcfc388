"""The settings of the job `replay`."""

from typing import Annotated

from pydantic import Field

from starling_spark.lakehouse.settings import LakeSettings


class ReplaySettings(LakeSettings):
    """Settings of `python -m starling_spark.jobs.replay`; the options of a run are on its command line."""

    replay_dir: Annotated[str, Field(min_length=1, description="a directory, or a URI such as s3a://…")]
    lake_warehouse: Annotated[
        str, Field(description="location of the lake, from which events are read up to its position; empty: no lake")
    ] = ""
    replay_topic_prefix: Annotated[str, Field(description="prefix of the topic names, for installations that share a broker")] = ""
