"""The histories of all users for the leaves that a step adds, as DataFrame in, DataFrame out: no session, no broker."""

import base64
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import replace
from functools import cache, reduce
from itertools import groupby
from operator import or_
from typing import Any, Final

import msgspec
import pyarrow as pa
from pyspark.sql import DataFrame, functions, types

from starling_spark.failpoints import raising
from starling_spark.jobs.profiles.definitions.entries import Entries
from starling_spark.jobs.profiles.definitions.in_force import selectors
from starling_spark.jobs.profiles.definitions.plans import TraitPlan, compile_entries
from starling_spark.jobs.profiles.fold.chunks import LostHit, UserHits, workspace_of
from starling_spark.jobs.profiles.fold.histories import fold_history, packs
from starling_spark.jobs.profiles.fold.matches import ChunkBuilder
from starling_spark.jobs.profiles.query.transform import Job, chunks_of, decoders_of, plans_of
from starling_spark.kafka.codec import collect_rarely

_HITS: Final = types.StructType(
    [
        types.StructField("partition", types.IntegerType()),
        types.StructField("user", types.StringType()),
        types.StructField("first", types.LongType()),
        types.StructField("hits", types.BinaryType()),
    ]
)
_HITS_IN_ARROW: Final = pa.schema([("partition", pa.int32()), ("user", pa.string()), ("first", pa.int64()), ("hits", pa.binary())])
_LINES: Final = types.StructType([types.StructField("value", types.StringType())])
_HITS_DECODER: Final = msgspec.msgpack.Decoder(UserHits)


def seed_lines(records: DataFrame, job: Job) -> DataFrame:
    """Return lines for `sources.visits`: the states of all users of the leaves that the job's step adds.

    `records`: those of the events topic before the cut. An event that cannot be decoded or matched is left out: the query that read
    it first has written the dead letter.
    """
    names = event_names(plans_of(job))
    if names is not None:
        # The bytes of a name are in the record of its event: most records are not decoded.
        records = records.where(reduce(or_, [functions.contains("value", functions.lit(name)) for name in names]))
    hits = records.mapInArrow(_matched(job), _HITS)
    return hits.repartition("partition", "user").sortWithinPartitions("partition", "user", "first").mapInArrow(_folded(job), _LINES)


def event_names(plans: Mapping[str, TraitPlan]) -> tuple[bytes, ...] | None:
    """Return bytes of which each event of a new trait contains one; None if any event can be one."""
    found: set[str] = set()
    for plan in plans.values():
        for trait, span in zip(plan.traits, plan.spans, strict=True):
            if span.since == plan.step:
                found.update(selector.name.removesuffix("*") for selector in selectors(trait.measure))
    return None if "" in found else tuple(name.encode() for name in sorted(found))


def has_new_leaves(job: Job) -> bool:
    """Return whether the step needs a history."""
    return any(plan.fresh_leaves() for plan in plans_of(job).values())


def _matched(job: Job) -> Callable[[Iterable[pa.RecordBatch]], Iterator[pa.RecordBatch]]:
    def matched(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        collect_rarely()
        plans, fresh = _history_plans(job.entries, job.step), _fresh_numbers(job)
        decoders = replace(decoders_of(job, plans), refuse=lambda *_: None)
        for batch in batches:
            firsts = dict(zip(*(column.to_pylist()[::-1] for column in (batch["partition"], batch["offset"])), strict=True))
            rows = [
                (partition, name, firsts[partition], msgspec.msgpack.encode(own))
                for partition, chunk in chunks_of(batch, ChunkBuilder(decoders, plans, raising())).items()
                for name, hits in chunk.users.items()
                if (own := _only(hits, fresh[workspace_of(name)])).hits
            ]
            columns = dict(zip(_HITS_IN_ARROW.names, zip(*rows, strict=True), strict=True)) if rows else {}
            yield pa.RecordBatch.from_pydict(columns or dict.fromkeys(_HITS_IN_ARROW.names, ()), _HITS_IN_ARROW)

    return matched


@cache
def _history_plans(entries: Entries, step: int) -> Mapping[str, TraitPlan]:
    """Return plans of the new traits alone: most events match fewer leaves than those of all traits."""
    return compile_entries([entry for entry in entries if entry.since == step])


def _fresh_numbers(job: Job) -> Mapping[str, frozenset[int]]:
    """Return the numbers of the fresh leaves in those plans."""
    fresh = {workspace: plan.fresh_leaves() for workspace, plan in plans_of(job).items()}
    return {
        workspace: frozenset(number for number, leaf in enumerate(plan.measures.leaves) if leaf.id in fresh[workspace])
        for workspace, plan in _history_plans(job.entries, job.step).items()
    }


def _only(hits: UserHits, numbers: frozenset[int]) -> UserHits:
    """Return the matches of these leaves."""
    found = [(time_ms, now_ms, [one for one in matches if one[0] in numbers]) for time_ms, now_ms, matches in hits.hits]
    return UserHits(hits.correlation_id, [hit for hit in found if hit[2]])


def _folded(job: Job) -> Callable[[Iterable[pa.RecordBatch]], Iterator[pa.RecordBatch]]:
    def folded(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        collect_rarely()
        for partition, pack in packs(_histories(batches, _history_plans(job.entries, job.step))):
            line = f"seeds {partition} {base64.b64encode(pack).decode()}"
            yield pa.RecordBatch.from_pydict({"value": [line]})

    return folded


def _histories(
    batches: Iterable[pa.RecordBatch], plans: Mapping[str, TraitPlan]
) -> Iterator[tuple[int, str, bytes | None, list[LostHit]]]:
    for (partition, user), rows in groupby(_rows(batches), key=lambda row: row[:2]):
        runs = (_HITS_DECODER.decode(row[3]) for row in rows)
        yield partition, user, *fold_history(plans[workspace_of(user)].measures, user, runs)


def _rows(batches: Iterable[pa.RecordBatch]) -> Iterator[tuple[Any, ...]]:
    for batch in batches:
        yield from zip(*(column.to_pylist() for column in batch.columns), strict=True)
