"""The settings of the job `trait_verify`. Other names are needed only for several installations on one broker."""

from typing import Annotated

from pydantic import Field

from starling_spark.lakehouse.settings import LakeSettings


class TraitVerifySettings(LakeSettings):
    """Settings of `python -m starling_spark.jobs.trait_verify`; the options of a run are on its command line."""

    lake_warehouse: Annotated[
        str, Field(description="location of the lake, from which events are read up to its position; empty: no lake")
    ] = ""
    trait_verify_topic_prefix: Annotated[
        str, Field(description="prefix of the topic names, for installations that share a broker")
    ] = ""
    trait_verify_profiles_group: Annotated[
        str, Field(description="consumer group of the job profiles, whose offsets are the cut")
    ] = "starling-profiles"
    trait_verify_late_seconds: Annotated[
        float, Field(ge=0, le=86_400, description="with the wall clock: how far the job profiles may be behind it")
    ] = 60.0
