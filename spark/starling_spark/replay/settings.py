"""What an operator may turn of the job `replay`."""

from typing import Annotated

from pydantic import Field

from starling_spark.settings import SparkSettings


class ReplaySettings(SparkSettings):
    """Settings of `python -m starling_spark.replay`; what a single run is about is on its command line."""

    replay_dir: Annotated[str, Field(min_length=1, description="where replays are kept: a directory, or a URI such as s3a://…")]
    replay_topic_prefix: Annotated[str, Field(description="of the topics' names, where installations share a broker")] = ""
