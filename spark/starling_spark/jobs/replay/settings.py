"""What an operator may turn of the job `replay`."""

from typing import Annotated

from pydantic import Field

from starling_spark.lakehouse.settings import LakeSettings


class ReplaySettings(LakeSettings):
    """Settings of `python -m starling_spark.jobs.replay`; what a single run is about is on its command line."""

    replay_dir: Annotated[str, Field(min_length=1, description="where replays are kept: a directory, or a URI such as s3a://…")]
    lake_warehouse: Annotated[str, Field(description="of a lake, from which events are read as far as it goes; empty: none")] = ""
    replay_topic_prefix: Annotated[str, Field(description="of the topics' names, where installations share a broker")] = ""
