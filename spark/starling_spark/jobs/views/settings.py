"""The settings of the job `views`."""

from typing import Annotated

from pydantic import Field

from starling_common.settings import Cassandra
from starling_spark.session.settings import SparkSettings


class ViewsSettings(SparkSettings):
    """Settings of `python -m starling_spark.jobs.views`."""

    cassandra: Cassandra
    views_trigger_seconds: Annotated[float, Field(gt=0, le=86_400, description="shortest time between micro-batches")] = 5.0
    views_batch_records: Annotated[int, Field(ge=100, description="maximum of records in one micro-batch")] = 200_000
    views_lateness_days: Annotated[
        int | None,
        Field(ge=1, le=36_500, description="maximum lateness of an event, relative to the newest one; unset: unlimited"),
    ] = None
    views_stop_seconds: Annotated[float, Field(gt=0, description="time at a stop for the current micro-batch to finish")] = 25.0
    views_group: Annotated[str, Field(description="consumer group in which the job commits its offsets")] = "starling-views"
    views_dead_letters_topic: Annotated[str, Field(description="topic of the dead letters")] = "views.dlq"
    views_topic_prefix: Annotated[str, Field(description="prefix of the topic names, for installations that share a broker")] = ""
