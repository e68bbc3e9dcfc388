"""The Spark session, settings, codecs and lake of one run."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from pyspark.sql import SparkSession

from starling_common.kafka.topics import AGGREGATES, BEHAVIOUR, CLOCK, PROFILE, TRAIT_DEFINITIONS
from starling_common.time.instants import wall_clock_ms
from starling_spark.jobs.trait_verify.settings import TraitVerifySettings
from starling_spark.kafka.codec import Wire
from starling_spark.lakehouse.iceberg import Lake
from starling_spark.lineage.runs import OFF, Lineage

TOPICS: Final = (BEHAVIOUR, CLOCK, AGGREGATES, PROFILE, TRAIT_DEFINITIONS)
"""The topics that this job reads."""


@dataclass(frozen=True, slots=True)
class VerifyContext:
    """The context of a run. `lake`: None without a lake; `now_ms`: the wall clock."""

    spark: SparkSession
    wire: Wire
    settings: TraitVerifySettings
    lake: Lake | None = None
    now_ms: Callable[[], int] = wall_clock_ms
    lineage: Lineage = OFF

    def topic(self, name: str) -> str:
        """Return the name of a topic in this installation."""
        return self.settings.trait_verify_topic_prefix + name
