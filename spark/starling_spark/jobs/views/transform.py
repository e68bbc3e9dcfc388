"""Records of Kafka -> the rows of a view: DataFrame in, DataFrame out. No session, no broker, no database.

Spark computes windows and sums. The state has one row of sums for each key and window, as many as the view has rows. With a
watermark Spark deletes old rows, and drops and counts later events.
"""

from collections.abc import Sequence

from pyspark.sql import Column, DataFrame, functions

from starling_spark.jobs.views.view import View
from starling_spark.kafka.columns import columns_of
from starling_spark.kafka.decoding import Reading, decoded

TIMES = "times"
"""Name of the observation of each partition's stream time."""


def read(records: DataFrame, reading: Reading) -> DataFrame:
    """Return the records of Kafka with their fields in `record`, or the reason in `refused`."""
    return decoded(records, reading)


def without(records: DataFrame, places: Sequence[tuple[str, int, int]]) -> DataFrame:
    """Return the records except those at these topics, partitions and offsets."""
    for topic, partition, offset in places:
        here = (functions.col("topic") == topic) & (functions.col("partition") == partition) & (functions.col("offset") == offset)
        records = records.where(~here)
    return records


def events(found: DataFrame, reading: Reading) -> DataFrame:
    """Return the fields of the decoded records as columns."""
    names = columns_of(reading.wire.of(reading.topic).reader_schema).fieldNames()
    return found.where("record IS NOT NULL").select(*[functions.col(f"record.`{name}`").alias(name) for name in names])


def timed(found: DataFrame, time_ms: Column, partitions: int) -> DataFrame:
    """Return the records, with the highest time of each partition observed as `TIMES`: `p0`, `p1` … in epoch ms."""
    highest = [
        functions.max(functions.when(functions.col("partition") == number, time_ms)).alias(f"p{number}")
        for number in range(partitions)
    ]
    return found.observe(TIMES, *highest)


def totals(view: View, found: DataFrame, lateness: str | None = None) -> DataFrame:
    """Return the sums of each key and window; in a stream the changed ones. Shape: in the fields of the record, out the rows to
    upsert: `workspace`, `window_start_ms`, `place` (dimensions as a JSON array), `row` (dimensions and sums as a JSON object).

    `lateness`: maximum lateness relative to the newest event, such as `7 days`; None: unlimited. With a limit, one event with a
    date far in the future makes all others too late, so there is no limit by default.
    """
    window = functions.window("event_time", f"{view.window_hours} hours").alias("window")
    marked = found if lateness is None else found.withWatermark("event_time", lateness)
    grouped = view.rows(marked).groupBy(window, "workspace", *view.dimensions)
    summed = grouped.agg(*[functions.sum(measure).alias(measure) for measure in view.measures])
    dimensions = [functions.col(name) for name in view.dimensions]
    # As text, because a float would round an exact sum; the API returns a number.
    sums = [functions.col(name).cast("string").alias(name) for name in view.measures]
    return summed.select(
        "workspace",
        functions.unix_millis("window.start").alias("window_start_ms"),
        functions.to_json(functions.array(*dimensions)).alias("place"),
        functions.to_json(functions.struct(*dimensions, *sums)).alias("row"),
    )
