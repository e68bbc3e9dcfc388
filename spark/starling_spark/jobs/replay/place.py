"""What a run works with, and where its tables are."""

from dataclasses import dataclass
from typing import Final

from pyspark.sql import SparkSession

from starling_common.topics import MEMBERSHIP, MEMBERSHIP_STATE, SEGMENT_DEFINITIONS
from starling_spark.history.past import FIELDS
from starling_spark.jobs.replay.settings import ReplaySettings
from starling_spark.kafka.codec import Wire
from starling_spark.lakehouse.iceberg import Lake

TOPICS: Final = (*FIELDS, SEGMENT_DEFINITIONS, MEMBERSHIP, MEMBERSHIP_STATE)
"""All that this job reads."""


@dataclass(frozen=True, slots=True)
class Place:
    """`lake`: None where there is none."""

    spark: SparkSession
    wire: Wire
    settings: ReplaySettings
    lake: Lake | None = None

    def topic(self, name: str) -> str:
        """As it is called here."""
        return self.settings.replay_topic_prefix + name

    def table(self, replay: str, table: str) -> str:
        """Where one of a replay's tables is: `people`, `members` or `about`."""
        return f"{self.settings.replay_dir.rstrip('/')}/{replay}/{table}"
