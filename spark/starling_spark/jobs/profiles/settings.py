"""The settings of the job `profiles`. Other topic names are needed only for several installations on one broker."""

from typing import Annotated

from pydantic import Field

from starling_common.kafka.topics import AGGREGATES, BEHAVIOUR, CLOCK, TRAIT_DEFINITIONS
from starling_spark.lakehouse.settings import LakeSettings


class ProfilesSettings(LakeSettings):
    """Settings of `python -m starling_spark.jobs.profiles`."""

    lake_warehouse: Annotated[
        str,
        Field(description="location of the lake, which has events of a new trait that the topic no longer has; empty: no lake"),
    ] = ""
    profiles_trigger_seconds: Annotated[
        float, Field(gt=0, le=3600, description="shortest time between micro-batches, each of which has a fixed cost")
    ] = 2.0
    profiles_batch_records: Annotated[int, Field(ge=100, description="maximum of records in one micro-batch")] = 200_000
    profiles_seeded_users: Annotated[
        int, Field(ge=100, description="users whose history a micro-batch takes for a new trait, beside the live events")
    ] = 20_000
    profiles_copy_megabytes: Annotated[
        int,
        Field(
            ge=0,
            le=1_000_000,
            description="disk of an executor for a copy of the users' states of a bucket, from which they are read; 0: no copies",
        ),
    ] = 4_096
    profiles_stop_seconds: Annotated[float, Field(gt=0, description="time at a stop for the current micro-batch to finish")] = 20.0
    profiles_group: Annotated[str, Field(description="consumer group in which the job commits its offsets")] = "starling-profiles"
    profiles_events_topic: Annotated[str, Field(description="topic of the events")] = BEHAVIOUR
    profiles_clock_topic: Annotated[str, Field(description="topic of the stream clock")] = CLOCK
    profiles_definitions_topic: Annotated[str, Field(description="topic of the computed traits' definitions")] = TRAIT_DEFINITIONS
    profiles_aggregates_topic: Annotated[str, Field(description="topic of the computed values")] = AGGREGATES
    profiles_dead_letters_topic: Annotated[str, Field(description="topic of the dead letters")] = "profiles.dlq"
