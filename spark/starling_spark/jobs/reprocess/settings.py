"""What an operator may turn of the job `reprocess`."""

from typing import Annotated

from pydantic import Field

from starling_spark.lakehouse.settings import LakeSettings


class ReprocessSettings(LakeSettings):
    """Settings of `python -m starling_spark.jobs.reprocess`; what a single run is about is on its command line."""

    reprocess_settle_seconds: Annotated[
        float, Field(ge=0, le=86_400, description="what was received or committed later than so long ago is left to the next run")
    ] = 60.0
    reprocess_partitions_at_once: Annotated[
        int, Field(ge=1, le=10_000, description="partitions that are folded and committed together; a killed run repeats so many")
    ] = 4
    reprocess_normalizer_group: str = "starling-normalizer"
