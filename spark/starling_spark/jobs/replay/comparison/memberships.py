"""Memberships of a replay compared with those of the feed: DataFrame in, DataFrame out."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from pyspark.sql import DataFrame, functions

from starling_spark.history.memberships import PAIR
from starling_spark.jobs.replay.manifest import SegmentReplayed
from starling_spark.text import aligned

EXAMPLES: Final = 5


@dataclass(frozen=True, slots=True)
class Difference:
    """One segment. `only_live`, `only_replayed`: number of members on one side only; `examples` of both."""

    workspace: str
    segment: str
    live: int
    replayed: int
    only_live: int
    only_replayed: int
    examples: Sequence[str]

    @property
    def is_none(self) -> bool:
        """Return whether both sides are equal."""
        return not self.only_live and not self.only_replayed


def differences(live: DataFrame, replayed: DataFrame, segments: Sequence[SegmentReplayed]) -> list[Difference]:
    """Return each comparable segment with a member on either side, in order. Runs a Spark job.

    Shape: `live`, `replayed`: workspace, segment_key, user_id.
    """
    both = live.withColumn("is_live", functions.lit(True)).join(
        replayed.select(*PAIR).withColumn("is_replayed", functions.lit(True)), [*PAIR], "full"
    )
    alone = functions.col("is_live").isNull() | functions.col("is_replayed").isNull()
    counted = both.groupBy("workspace", "segment_key").agg(
        functions.count("is_live").alias("live"),
        functions.count("is_replayed").alias("replayed"),
        functions.count_if(functions.col("is_replayed").isNull()).alias("only_live"),
        functions.count_if(functions.col("is_live").isNull()).alias("only_replayed"),
        functions.slice(functions.sort_array(functions.collect_set(functions.when(alone, functions.col("user_id")))), 1, EXAMPLES),
    )
    left_out = {(one.workspace, one.key) for one in segments if one.not_compared is not None}
    found = [Difference(*row) for row in counted.orderBy("workspace", "segment_key").collect()]
    return [one for one in found if (one.workspace, one.segment) not in left_out]


def table(found: Sequence[Difference], segments: Sequence[SegmentReplayed]) -> str:
    """Return a text table: a line for each segment, then the segments that were not compared, with the reason."""
    heads = ("workspace", "segment", "live", "replayed", "only live", "only replayed", "for example")
    rows = [heads] + [
        (one.workspace, one.segment, *map(str, (one.live, one.replayed, one.only_live, one.only_replayed)), " ".join(one.examples))
        for one in found
    ]
    left_out = (
        f"not compared: {one.workspace}/{one.key}: {one.not_compared}\n" for one in segments if one.not_compared is not None
    )
    return aligned(rows) + "".join(left_out)
