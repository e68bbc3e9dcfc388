"""The settings of the job `reprocess`."""

from typing import Annotated

from pydantic import Field

from starling_common.settings import DuplicateWindowHours
from starling_spark.lakehouse.settings import LakeSettings


class ReprocessSettings(LakeSettings):
    """Settings of `python -m starling_spark.jobs.reprocess`; the options of a run are on its command line."""

    reprocess_settle_seconds: Annotated[
        float, Field(ge=0, le=86_400, description="minimum age of the items and commits that a run includes")
    ] = 60.0
    reprocess_partitions_at_once: Annotated[
        int, Field(ge=1, le=10_000, description="partitions that are folded and committed together, and repeated after a kill")
    ] = 4
    reprocess_normalizer_group: Annotated[str, Field(description="consumer group of the normalizer")] = "starling-normalizer"
    duplicate_window_hours: DuplicateWindowHours = 168
