"""The histories of all users for the leaves that a step adds, as DataFrame in, DataFrame out: no session, no broker."""

import base64
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import cache, partial, reduce
from itertools import groupby
from operator import or_
from typing import Any, Final

import msgspec
import pyarrow as pa
from pyspark.sql import Column, DataFrame, functions, types

from starling_spark.failpoints import raising
from starling_spark.jobs.profiles.definitions.entries import Entries
from starling_spark.jobs.profiles.definitions.in_force import selectors
from starling_spark.jobs.profiles.definitions.plans import TraitPlan, compile_entries
from starling_spark.jobs.profiles.fold.chunks import UserHits, workspace_of
from starling_spark.jobs.profiles.fold.histories import History, fold_history, packs
from starling_spark.jobs.profiles.fold.matches import EVENT_FIELDS, ChunkBuilder
from starling_spark.jobs.profiles.query.transform import Job, chunks_of, decoders_of, more_fields, plans_of
from starling_spark.kafka.codec import collect_rarely
from starling_spark.kafka.sources import Raw

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


def topic_hits(records: DataFrame, job: Job) -> DataFrame:
    """Return the matches of records of the events topic with the leaves that the job's step adds, for `seed_lines`.

    An event that cannot be decoded or matched is left out: the query that read it first has written the dead letter.
    """
    names = event_names(plans_of(job))
    if names is not None:
        # The bytes of a name are in the record of its event: most records are not decoded.
        texts = [name.removesuffix("*").encode() for name in names]
        records = records.where(reduce(or_, [functions.contains("value", functions.lit(text)) for text in texts]))
    return records.mapInArrow(_matched(job), _HITS)


def lake_hits(table: DataFrame, job: Job, ends: Mapping[int, int], tasks: int) -> DataFrame:
    """As `topic_hits`, of the lake's events before these offsets by partition.

    `tasks`: how many match the events. One that reads a row group of Parquet has millions of them, and would keep a core for long.
    """
    plans = plans_of(job)
    names, workspaces = event_names(plans), [workspace for workspace, plan in plans.items() if plan.fresh_leaves()]
    partition, offset = functions.col("origin_partition"), functions.col("origin_offset")
    wanted = reduce(or_, [(partition == number) & (offset < end) for number, end in ends.items()])
    wanted &= (functions.col("origin_topic") == job.topics.events) & functions.col("workspace").isin(workspaces)
    if names is not None:
        wanted &= reduce(or_, [_is_named(name) for name in names])
    fields = (*EVENT_FIELDS, *more_fields(plans))
    time_ms = functions.unix_millis("origin_timestamp")
    rows = table.where(wanted).select(partition, offset, time_ms, *[_field(name, table) for name in fields])
    return rows.repartition(tasks, "origin_offset").mapInArrow(_matched_rows(job), _HITS)


def _is_named(name: str) -> Column:
    found = functions.col("name")
    return found.startswith(name.removesuffix("*")) if name.endswith("*") else found == name


def _field(name: str, table: DataFrame) -> Column:
    if name == "event_time":
        return functions.unix_millis(name)
    # A table that is older than the field has none, and rows from before have null.
    return functions.coalesce(name, functions.lit("{}")) if name in table.columns else functions.lit("{}")


def seed_lines(hits: DataFrame, job: Job) -> DataFrame:
    """Return lines for `sources.visits`: the states of all users of the leaves that the job's step adds.

    `hits`: of all events before the cut. Spark joins small tasks, so that few users have few files.
    """
    by_user = hits.repartition("partition", "user").sortWithinPartitions("partition", "user", "first")
    return by_user.mapInArrow(_folded(job), _LINES)


def event_names(plans: Mapping[str, TraitPlan]) -> tuple[str, ...] | None:
    """Return the names of the events of new traits, of which one may end with `*`; None if any event can be one."""
    found: set[str] = set()
    for plan in plans.values():
        for trait, span in zip(plan.traits, plan.spans, strict=True):
            if span.since == plan.step:
                found.update(selector.name for selector in selectors(trait.measure))
    return None if "*" in found else tuple(sorted(found))


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
            yield _hits_batch(rows)

    return matched


def _matched_rows(job: Job) -> Callable[[Iterable[pa.RecordBatch]], Iterator[pa.RecordBatch]]:
    """As `_matched`, of rows of a table: one row for each event, because those of a user are in any order there."""

    def matched(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        collect_rarely()
        plans, fresh, topic = _history_plans(job.entries, job.step), _fresh_numbers(job), job.topics.events
        decoders = replace(decoders_of(job, plans), read_event=_as_it_is, refuse=lambda *_: None)
        for batch in batches:
            rows = []
            for partition, offset, timestamp_ms, *event in zip(*(column.to_pylist() for column in batch.columns), strict=True):
                builder = ChunkBuilder(decoders, plans, raising())
                builder.add(topic, partition, timestamp_ms, event, partial(Raw, topic, partition, offset, timestamp_ms, None, None))
                for name, hits in builder.chunks()[partition].users.items():
                    if (own := _only(hits, fresh[workspace_of(name)])).hits:
                        rows.append((partition, name, offset, msgspec.msgpack.encode(own)))
            yield _hits_batch(rows)

    return matched


def _as_it_is(event: Any) -> Any:
    return event


def _hits_batch(rows: Sequence[tuple[int, str, int, bytes]]) -> pa.RecordBatch:
    columns = dict(zip(_HITS_IN_ARROW.names, zip(*rows, strict=True), strict=True)) if rows else {}
    return pa.RecordBatch.from_pydict(columns or dict.fromkeys(_HITS_IN_ARROW.names, ()), _HITS_IN_ARROW)


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


def _histories(batches: Iterable[pa.RecordBatch], plans: Mapping[str, TraitPlan]) -> Iterator[tuple[int, str, History]]:
    for (partition, user), rows in groupby(_rows(batches), key=lambda row: row[:2]):
        runs = (_HITS_DECODER.decode(row[3]) for row in rows)
        yield partition, user, fold_history(plans[workspace_of(user)].measures, user, runs)


def _rows(batches: Iterable[pa.RecordBatch]) -> Iterator[tuple[Any, ...]]:
    for batch in batches:
        yield from zip(*(column.to_pylist() for column in batch.columns), strict=True)
