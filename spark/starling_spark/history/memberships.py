"""Records of `segments.membership` -> who was in which segment from when until when: DataFrame in, DataFrame out."""

from typing import Final

from pyspark.sql import DataFrame, Window, functions, types

CHANGES: Final = types.StructType(
    [
        types.StructField("event_id", types.StringType()),
        types.StructField("workspace", types.StringType()),
        types.StructField("segment_key", types.StringType()),
        types.StructField("user_id", types.StringType()),
        types.StructField("status", types.StringType()),
        types.StructField("sequence", types.LongType()),
        types.StructField("effective_ms", types.LongType()),
        types.StructField("cause", types.StringType()),
    ]
)
"""A record of the feed, as far as it is looked at here; any of them may be there more than once."""

PAIR: Final = ("workspace", "segment_key", "user_id")
"""One person and one segment."""


def turns(changes: DataFrame, until_ms: int) -> DataFrame:
    """Each change of truth up to and at that instant, in the order of its sequence, whatever is missing between.

    Shape: in `CHANGES`; out `PAIR`, `sequence`, `at_ms` (never goes back), `entered`, `cause`, `first` (nothing is known of the
           time before: who leaves by the first record was in), `missing` (how many records before this one are not there).

    Two records of one status side by side: what lay between is lost, and the second of them changes nothing.
    """
    in_order = Window.partitionBy(*PAIR).orderBy("sequence")
    so_far = in_order.rowsBetween(Window.unboundedPreceding, Window.currentRow)
    entered = functions.col("status") == "ENTERED"
    known = (
        changes.dropDuplicates(["event_id"])
        .select(
            *PAIR,
            "sequence",
            "cause",
            entered.alias("entered"),
            functions.max("effective_ms").over(so_far).alias("at_ms"),
            functions.lag(entered).over(in_order).alias("before"),
            functions.lag("sequence", 1, 0).over(in_order).alias("former"),
        )
        .where(functions.col("at_ms") <= until_ms)
    )
    changing = functions.col("before").isNull() | (functions.col("before") != functions.col("entered"))
    return known.where(changing).select(
        *PAIR,
        "sequence",
        "at_ms",
        "entered",
        "cause",
        functions.col("before").isNull().alias("first"),
        (functions.col("sequence") - functions.col("former") - 1).alias("missing"),
    )


def stays(turned: DataFrame) -> DataFrame:
    """From when until when each person was in each segment.

    Shape: in as `turns` gives it; out `PAIR`, `since_ms` (null: since before the first record), `left_ms` (null: still in).
    """
    following = functions.lead("at_ms").over(Window.partitionBy(*PAIR).orderBy("sequence"))
    entered = functions.col("entered")
    return (
        turned.withColumn("next_ms", following)
        .where(entered | functions.col("first"))
        .select(
            *PAIR,
            functions.when(entered, functions.col("at_ms")).alias("since_ms"),
            functions.when(entered, functions.col("next_ms")).otherwise(functions.col("at_ms")).alias("left_ms"),
        )
    )


def members(stayed: DataFrame) -> DataFrame:
    """Who is in, `PAIR`, at the instant that `turns` was asked for."""
    return stayed.where("left_ms IS NULL").select(*PAIR)
