"""Profiles of a replay compared with the profiles on events: DataFrame in, DataFrame out.

Every event contains its profile at normalisation; a replay folds profiles from the records that changed them. The two are
computed independently, and their differences also show the effect of a reprocessing.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

import msgspec
import pyarrow as pa
from pyspark.sql import DataFrame, functions, types
from pyspark.sql.pandas.types import to_arrow_schema

from starling_common.kafka.topics import BEHAVIOUR, PROFILE
from starling_spark.history.past import FIELDS, ORDER

EXAMPLES: Final = 5
_PERSON: Final = ("workspace", "user_id")
_PROFILE: Final = ("traits", "anonymous_ids", "group_id")
_TOPICS: Final = list(FIELDS)
_COMPARED: Final = types.StructType(
    [types.StructField("user_id", types.StringType()), types.StructField("what", types.StringType())]
)
_SIDES: Final = ("same", "differ", "only_live", "only_replayed")


@dataclass(frozen=True, slots=True)
class ProfileDifferences:
    """Numbers of equal and different profiles and of those on one side only, with examples."""

    same: int
    differ: int
    only_live: int
    only_replayed: int
    examples: Sequence[str]

    @property
    def is_none(self) -> bool:
        """Return whether both sides are equal."""
        return not (self.differ or self.only_live or self.only_replayed)


def live_profiles(past: DataFrame, until_ms: int) -> DataFrame:
    """Return each user's profile on the last events.

    Shape: in: past records with `stream_ms` and the profile of each event; out: workspace, user_id, traits, anonymous_ids,
           group_id.
    """
    is_profile = functions.col("place") == _TOPICS.index(PROFILE)
    theirs = past.where(~functions.col("refused") & (functions.col("stream_ms") <= until_ms)).where(
        functions.col("place").isin(_TOPICS.index(PROFILE), _TOPICS.index(BEHAVIOUR))
    )
    order, key = functions.struct(*ORDER), functions.decode("key", "utf-8")
    last = theirs.groupBy("partition", key.alias("person")).agg(
        functions.max_by(functions.struct("traits", "anonymous_ids"), order).alias("last"),
        functions.max_by(functions.struct("group_id"), functions.when(is_profile, order)).alias("account"),
    )
    return last.select(
        functions.substring_index("person", "/", 1).alias("workspace"),
        functions.expr("substring(person, instr(person, '/') + 1)").alias("user_id"),
        "last.traits",
        "last.anonymous_ids",
        "account.group_id",
    )


def profile_differences(live: DataFrame, replayed: DataFrame) -> ProfileDifferences:
    """Compare the profiles. A user who is known only from a list has no profile and is skipped. Runs a Spark job."""
    has_profile = "traits != '{}' OR size(anonymous_ids) > 0 OR group_id IS NOT NULL"
    known = functions.expr(has_profile).alias("has_profile")
    folded = replayed.select(*_PERSON, functions.struct(*_PROFILE).alias("replayed"), known)
    both = live.select(*_PERSON, functions.struct(*_PROFILE).alias("live")).join(folded, [*_PERSON], "full")
    compared = both.where("live IS NOT NULL OR has_profile").select("user_id", "live", "replayed").mapInArrow(_compare, _COMPARED)
    some = functions.slice(functions.sort_array(functions.collect_set("user_id")), 1, EXAMPLES)
    counted = compared.groupBy("what").agg(functions.count("*").alias("count"), some.alias("some")).collect()
    found = {row["what"]: row for row in counted}
    same, differ, only_live, only_replayed = (found[side]["count"] if side in found else 0 for side in _SIDES)
    examples = [one for side in _SIDES[1:] if side in found for one in found[side]["some"]][:EXAMPLES]
    return ProfileDifferences(same, differ, only_live, only_replayed, examples)


def line(found: ProfileDifferences) -> str:
    """Return the differences as a line of text."""
    both = f"profiles: {found.same} are the same, {found.differ} differ"
    alone = f", {found.only_live} only live, {found.only_replayed} only replayed"
    return both + alone + (f", for example {' '.join(found.examples)}" if found.examples else "") + "\n"


def _compare(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    shape = to_arrow_schema(_COMPARED)
    for batch in batches:
        rows = [{"user_id": row["user_id"], "what": _side(row["live"], row["replayed"])} for row in batch.to_pylist()]
        yield pa.RecordBatch.from_pylist(rows, shape)


def _side(live: Mapping[str, object] | None, replayed: Mapping[str, object] | None) -> str:
    if live is None or replayed is None:
        return "only_replayed" if live is None else "only_live"
    return "same" if _plain(live) == _plain(replayed) else "differ"


def _plain(profile: Mapping[str, object]) -> tuple[object, ...]:
    """Return a comparable profile: traits in the order of their names, `1` distinct from `1.0`, a missing account as None."""
    traits = msgspec.json.encode(msgspec.json.decode(str(profile["traits"] or "{}")), order="sorted")
    return traits, profile["anonymous_ids"] or [], profile["group_id"] or None
