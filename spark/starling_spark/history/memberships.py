"""Records of `segments.membership` -> memberships with entry and exit times: DataFrame in, DataFrame out."""

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
"""The columns of a feed record that the jobs use; a record may be present more than once."""

PAIR: Final = ("workspace", "segment_key", "user_id")
"""The columns that identify one user in one segment."""


def membership_changes(changes: DataFrame, until_ms: int) -> DataFrame:
    """Return each membership change up to and at that instant, in the order of its sequence, also across missing records.

    Shape: in `CHANGES`; out `PAIR`, `sequence`, `at_ms` (never decreases), `entered`, `cause`, `first` (the first known record of
           the pair: an exit means that the user was a member before), `missing` (number of missing records before this one).

    Of two adjacent records with the same status the second is dropped: the change between them is missing.
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


def stays(changed: DataFrame) -> DataFrame:
    """Return the entry and exit time of each membership.

    Shape: in: changes of memberships; out: workspace, segment_key, user_id, `since_ms` (null: before the first record),
           `left_ms` (null: member).
    """
    following = functions.lead("at_ms").over(Window.partitionBy(*PAIR).orderBy("sequence"))
    entered = functions.col("entered")
    return (
        changed.withColumn("next_ms", following)
        .where(entered | functions.col("first"))
        .select(
            *PAIR,
            functions.when(entered, functions.col("at_ms")).alias("since_ms"),
            functions.when(entered, functions.col("next_ms")).otherwise(functions.col("at_ms")).alias("left_ms"),
        )
    )


def members(stayed: DataFrame) -> DataFrame:
    """Return the members, `PAIR`, at the instant of `membership_changes`."""
    return stayed.where("left_ms IS NULL").select(*PAIR)
