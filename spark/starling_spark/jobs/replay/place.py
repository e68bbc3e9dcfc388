"""The Spark session, settings and codecs of one replay, and the names of its tables."""

from dataclasses import dataclass
from typing import Final

from pyspark.sql import SparkSession

from starling_common.kafka.topics import MEMBERSHIP, MEMBERSHIP_STATE, SEGMENT_DEFINITIONS
from starling_spark.history.past import FIELDS
from starling_spark.jobs.replay.settings import ReplaySettings
from starling_spark.kafka.codec import Wire
from starling_spark.lakehouse.iceberg import Lake
from starling_spark.lineage.runs import OFF, Lineage

TOPICS: Final = (*FIELDS, SEGMENT_DEFINITIONS, MEMBERSHIP, MEMBERSHIP_STATE)
"""The topics that this job reads."""


@dataclass(frozen=True, slots=True)
class ReplayContext:
    """The context of a run. `lake`: None without a lake."""

    spark: SparkSession
    wire: Wire
    settings: ReplaySettings
    lake: Lake | None = None
    lineage: Lineage = OFF

    def topic(self, name: str) -> str:
        """Return the name of a topic in this installation."""
        return self.settings.replay_topic_prefix + name

    def table(self, replay: str, table: str) -> str:
        """Return the location of a replay's table: `people`, `members` or `about`."""
        return f"{self.settings.replay_dir.rstrip('/')}/{replay}/{table}"
