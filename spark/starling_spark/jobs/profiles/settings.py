"""The settings of the job `profiles`. Other topic names are needed only for several installations on one broker."""

from typing import Annotated

from pydantic import Field

from starling_common.topics import AGGREGATES, BEHAVIOUR, CLOCK, TRAIT_DEFINITIONS
from starling_spark.session.settings import SparkSettings


class ProfilesSettings(SparkSettings):
    """Settings of `python -m starling_spark.jobs.profiles`."""

    profiles_trigger_seconds: Annotated[float, Field(gt=0, le=3600, description="shortest time between micro-batches")] = 1.0
    profiles_stop_seconds: Annotated[float, Field(gt=0, description="time at a stop for the current micro-batch to finish")] = 20.0
    profiles_group: str = "starling-profiles"
    profiles_events_topic: str = BEHAVIOUR
    profiles_clock_topic: str = CLOCK
    profiles_definitions_topic: str = TRAIT_DEFINITIONS
    profiles_aggregates_topic: str = AGGREGATES
    profiles_dead_letters_topic: str = "profiles.dlq"
