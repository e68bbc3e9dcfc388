"""Corrected event tables compared with the lake's own: DataFrame in, DataFrame out."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from pyspark.sql import DataFrame, functions

from starling_spark.lakehouse.in_force import covered
from starling_spark.lakehouse.schema.tables import ORIGIN
from starling_spark.text import aligned

EXAMPLES: Final = 5
_KEYS: Final = ("event_id", "received_at")
_PLACE: Final = ("order", "previous_order")
"""The place among the events of the live normalizer, which a reprocessing does not compute."""
"""A message that is repeated after a day is a second event with the same id."""
_WHAT: Final = ("same", "changed", "only_old", "only_new")


@dataclass(frozen=True, slots=True)
class Difference:
    """One table: the numbers of equal and changed events and of those on one side only, with examples."""

    table: str
    same: int
    changed: int
    only_old: int
    only_new: int
    examples: Sequence[str]

    @property
    def is_none(self) -> bool:
        """Return whether both sides are equal."""
        return not (self.changed or self.only_old or self.only_new)


def difference(table: str, old: DataFrame, new: DataFrame, cut: Mapping[int, int]) -> Difference:
    """Compare the events received up to the cut in the columns that both sides have, but for their place. Runs a Spark job."""
    names = [name for name in new.columns if name in old.columns and name not in (*_KEYS, *_PLACE, *ORIGIN.fieldNames())]
    before = old.where(covered(cut, functions.unix_micros("received_at")))
    left, right = ((rows.select(*_KEYS, functions.struct(*names).alias(side))) for rows, side in ((before, "old"), (new, "new")))
    both = left.join(right, [*_KEYS], "full")
    what = (
        functions.when(functions.col("new").isNull(), "only_old")
        .when(functions.col("old").isNull(), "only_new")
        .when(functions.col("old").eqNullSafe(functions.col("new")), "same")
        .otherwise("changed")
    )
    some = functions.slice(functions.sort_array(functions.collect_set("event_id")), 1, EXAMPLES)
    counted = (
        both.select("event_id", what.alias("what")).groupBy("what").agg(functions.count("*").alias("count"), some.alias("some"))
    )
    found = {row["what"]: row for row in counted.collect()}
    same, changed, only_old, only_new = (found[name]["count"] if name in found else 0 for name in _WHAT)
    examples = [one for name in _WHAT[1:] if name in found for one in found[name]["some"]]
    return Difference(table, same, changed, only_old, only_new, examples[:EXAMPLES])


def table(found: Sequence[Difference]) -> str:
    """Return a text table with a line for each table."""
    heads = ("table", "same", "changed", "only old", "only new", "for example")
    rows = [heads] + [
        (one.table, *map(str, (one.same, one.changed, one.only_old, one.only_new)), " ".join(one.examples)) for one in found
    ]
    return aligned(rows)
