"""Edge: one run: the cut, the trait, its values by Spark, and the comparison with those published."""

from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import partial
from typing import Final

import pyarrow as pa
from pyspark import StorageLevel
from pyspark.sql import DataFrame, functions, types

from starling_common.telemetry.logs import log
from starling_segments.language.tree import Measure
from starling_spark.jobs.trait_verify.comparing import DIFFERENT, finding
from starling_spark.jobs.trait_verify.context import VerifyContext
from starling_spark.jobs.trait_verify.cut import check_in_force, read_cut
from starling_spark.jobs.trait_verify.filters import foreign_operators
from starling_spark.jobs.trait_verify.measures import check_native, facts
from starling_spark.jobs.trait_verify.reading import all_events, flow, published_times, published_values, read_trait, stream_times
from starling_spark.jobs.trait_verify.result import Difference, Verification
from starling_spark.jobs.trait_verify.trait import read_sides
from starling_spark.lineage.runs import JobName

FINDINGS: Final = types.StructType(
    [types.StructField(name, types.StringType()) for name in ("user_id", "published", "computed", "state")]
)
_IN_ARROW: Final = pa.schema([(name, pa.string()) for name in FINDINGS.fieldNames()])


def verify(context: VerifyContext, key: str, workspace: str | None = None, limit: int = 20) -> Verification:
    """Compare the published values of a trait with those of its history. `limit`: of the differences that are returned.

    Raises: NotVerifiable, KafkaException, LakePositionLost.
    """
    with context.lineage.run(JobName("trait_verify"), partial(flow, context, versions=False)) as run:
        found = _verified(context, key, workspace, limit)
        run.knows(partial(flow, context, versions=True))
    return found


def _verified(context: VerifyContext, key: str, workspace: str | None, limit: int) -> Verification:
    trait = read_trait(context, key, workspace)
    for measure in trait.sides:
        check_native(measure)
    cut = read_cut(context)
    check_in_force(cut, trait)
    log(__name__).info("cut", done={f"{topic} {number}": offset for (topic, number), offset in cut.done.items()})
    events = all_events(context, cut)
    times = stream_times(context, cut, events, published_times(context, cut))
    own = events.where(functions.col("workspace") == trait.workspace).drop("workspace")
    computed = facts(context.spark, own, trait.sides, trait.document, times)
    compared = findings(published_values(context, cut, trait), computed, trait.document).persist(StorageLevel.MEMORY_AND_DISK)
    try:
        users = {row["state"]: row["count"] for row in compared.groupBy("state").count().collect()}
        wrong = compared.where(functions.col("state") == DIFFERENT).orderBy("user_id").limit(limit)
        differences = [Difference(row["user_id"], row["published"], row["computed"]) for row in wrong.collect()]
    finally:
        compared.unpersist()
    foreign = sorted({name for measure in trait.sides for name in foreign_operators(measure.event.where)})
    return Verification(trait.key, trait.version, users, differences, foreign)


def findings(published: DataFrame, computed: DataFrame, document: str) -> DataFrame:
    """Return `FINDINGS` of each user with a published or a computed value. In: (user_id, published), (user_id, facts)."""
    users = published.join(computed, "user_id", "full").select("user_id", "published", "facts")
    return users.mapInArrow(_compared(document), FINDINGS)


def _compared(document: str) -> Callable[[Iterable[pa.RecordBatch]], Iterator[pa.RecordBatch]]:
    def compare(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        sides: Sequence[Measure] = read_sides(document)
        for batch in batches:
            rows = batch.to_pylist()
            found = [finding(sides, row["published"], row["facts"] or ()) for row in rows]
            columns = {
                "user_id": batch.column("user_id").to_pylist(),
                "published": batch.column("published").to_pylist(),
                "computed": [one.computed for one in found],
                "state": [one.state for one in found],
            }
            yield pa.RecordBatch.from_pydict(columns, _IN_ARROW)

    return compare
