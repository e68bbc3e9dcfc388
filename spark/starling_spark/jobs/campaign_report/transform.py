"""Steps of messages -> the report's rows: DataFrame in, DataFrame out. No session, no broker.

The rows are those of `GET /v1/campaigns/{key}/report`, whose counts the projector keeps. The days that are over are equal.
"""

from collections.abc import Mapping
from typing import Final

from pyspark.sql import Column, DataFrame, functions

CAMPAIGN: Final = ("workspace", "campaign")
FUNNEL_KEY: Final = (*CAMPAIGN, "day", "version", "variant")
COUNTED: Final[Mapping[str, str]] = {
    "requested": "REQUESTED",
    "sent": "SENT",
    "delivered": "DELIVERED",
    "opened": "OPENED",
    "clicked": "CLICKED",
    "bounced": "BOUNCED",
    "complained": "COMPLAINED",
    "unsubscribed": "UNSUBSCRIBED",
    "failed": "FAILED",
    "held_out": "HELD_OUT",
}
"""Column of the funnel -> its step. Conversions are counted apart for the people who were held out."""
_UNSENT: Final = ("DROPPED", "SUPPRESSED")
_REASON: Final = "^[a-z_]{1,40}$"
_OTHER: Final = "other"


def funnel(steps: DataFrame) -> DataFrame:
    """Return what became of the messages, by the day of their decision.

    Shape: in: steps of `history.progress`; out: `FUNNEL_KEY`, the columns of `COUNTED`, `converted`, `held_out_converted`, `value`
           (of the conversions of people who were written to) and `suppressed` (a map from reason to messages).
    """
    step, held_out = functions.col("step"), functions.col("held_out")
    converted = step == "CONVERTED"
    counted = (
        _dated(steps)
        .groupBy(*FUNNEL_KEY)
        .agg(
            *[functions.count_if(step == name).alias(column) for column, name in COUNTED.items()],
            functions.count_if(converted & ~held_out).alias("converted"),
            functions.count_if(converted & held_out).alias("held_out_converted"),
            functions.sum(functions.when(held_out, 0.0).otherwise(_value())).alias("value"),
        )
    )
    unsent = _dated(steps).where(step.isin(*_UNSENT)).groupBy(*FUNNEL_KEY, _reason().alias("why")).count()
    reasons = unsent.groupBy(*FUNNEL_KEY).agg(
        functions.map_from_entries(functions.sort_array(functions.collect_list(functions.struct("why", "count")))).alias(
            "suppressed"
        )
    )
    same = [counted[name].eqNullSafe(reasons[name]) for name in FUNNEL_KEY]
    joined = counted.join(reasons, same, "left").select(counted["*"], reasons["suppressed"])
    return joined.withColumn("suppressed", functions.coalesce("suppressed", functions.create_map().cast("map<string,bigint>")))


def arms(steps: DataFrame) -> DataFrame:
    """Return the people of each variant who were written to, and those who were held out, each by their first message.

    Shape: in: steps of `history.progress`; out: `workspace`, `campaign`, `variant`, `held_out`, `people`, `converted`, `value`.
    """
    is_converted = functions.col("step") == "CONVERTED"
    firsts = steps.where("is_first AND step IN ('REQUESTED', 'HELD_OUT', 'CONVERTED')")
    in_arm = (functions.col("held_out") | (functions.col("step") == "HELD_OUT")).alias("held_out")
    return firsts.groupBy(*CAMPAIGN, "variant", in_arm).agg(
        functions.count_if(~is_converted).alias("people"),
        functions.count_if(is_converted).alias("converted"),
        functions.sum(functions.when(is_converted, _value()).otherwise(0.0)).alias("value"),
    )


def _dated(steps: DataFrame) -> DataFrame:
    """Return the steps with `day` as a date. Records of earlier versions have none: theirs is that of the decision in UTC."""
    day = functions.coalesce(functions.col("day"), functions.floor(functions.unix_millis("decided_at") / 86_400_000).cast("int"))
    held_out = functions.col("held_out") | (functions.col("step") == "HELD_OUT")
    return steps.withColumn("day", functions.date_from_unix_date(day)).withColumn("held_out", held_out)


def _reason() -> Column:
    reason = functions.col("reason")
    return functions.when(reason.rlike(_REASON), reason).otherwise(_OTHER)


def _value() -> Column:
    # A value that is not finite would make every sum useless. NaN is greater than any number in Spark.
    return functions.when(functions.abs("value") < functions.lit(float("inf")), functions.col("value")).otherwise(0.0)
