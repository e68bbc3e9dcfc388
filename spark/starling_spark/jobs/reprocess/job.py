"""Edge: one reprocessing, from the raw items of the lake into corrected event tables, in groups of partitions."""

import time
from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import reduce
from pathlib import Path
from typing import Final

from pyspark import StorageLevel
from pyspark.sql import DataFrame, functions

import starling_items
from starling_common.kafka.topics import INGEST_TOPICS
from starling_common.settings import Clock
from starling_common.telemetry.logs import log
from starling_common.time.instants import wall_clock_ms
from starling_spark.jobs.reprocess.context import RunContext, Tables
from starling_spark.jobs.reprocess.fold import raw
from starling_spark.jobs.reprocess.fold.folding import Making
from starling_spark.jobs.reprocess.fold.results import Ask, origin_columns, results, with_instants
from starling_spark.jobs.reprocess.plan import Catalog, Plan, cut_of, groups, rules_hash
from starling_spark.jobs.reprocess.reach import first_missing
from starling_spark.kafka.decoding import Reading, decoded
from starling_spark.lakehouse import in_force
from starling_spark.lakehouse.in_force import Corrected
from starling_spark.lakehouse.schema.tables import QUARANTINE, QUARANTINE_COLUMNS

ITEMS, EVENTS, CHANGES = "ingest_items", "behaviour_events", "profile_changes"

_EVENT_COLUMNS: Final[Mapping[str, str]] = {EVENTS: "behaviour", CHANGES: "profile"}
"""Table -> the column of the results that it stores."""


class ReprocessingNotFound(Exception):
    """The reprocessing does not exist, or the lake has no items."""


class NotAllowed(Exception):
    """The command would damage existing tables; the text names the cure."""


def planned(context: RunContext, name: str, catalog: Catalog) -> Plan:
    """Return a plan: the snapshots to read, and the instant up to which each partition is complete.

    Raises: ReprocessingNotFound, KafkaException.
    """
    now_ms = wall_clock_ms()
    before_ms = now_ms - round(context.settings.reprocess_settle_seconds * 1000)
    found = context.lake.reached(ITEMS, before_ms) if context.lake.exists(ITEMS) else None
    if found is None:
        raise ReprocessingNotFound(f"the lake has no items older than {context.settings.reprocess_settle_seconds:g} s: wait")
    snapshots, taken = {ITEMS: found[0]}, dict(found[1])
    for table in (EVENTS, CHANGES):
        newest = context.lake.reached(table) if context.lake.exists(table) else None
        if newest is not None:
            snapshots[table] = newest[0]
            taken |= newest[1]
    # After the items: a batch is in their table first, and what is refused of it comes then.
    refused = context.lake.snapshot(QUARANTINE) if context.lake.exists(QUARANTINE) else None
    snapshots |= {} if refused is None else {QUARANTINE: refused}
    cut = cut_of(first_missing(context, taken), before_ms)
    return Plan(name=name, rules=rules(context), catalog=catalog, begun_at_ms=now_ms, snapshots=snapshots, cut=cut)


def begun(context: RunContext, wanted: Callable[[], Plan], name: str, *, overwrite: bool) -> Plan:
    """Return the plan of an unfinished run, or a new one with empty tables. Raises: NotAllowed."""
    tables, now = Tables(context, name), in_force.corrected(context.lake)
    existing = tables.plan()
    if existing is not None and not overwrite:
        if existing.is_done:
            raise NotAllowed(f"{name} exists already: use another name, or --overwrite")
        if existing.rules != rules(context):
            raise NotAllowed(f"{name} was begun under other rules: use --overwrite")
        return existing
    if now is not None and now.name == name:
        raise NotAllowed(f"{name} is in force: use another name, or switch to another one first")
    made = wanted()
    tables.make(made)
    return made


def reprocess(context: RunContext, plan: Plan, making: Making, on_progress: Callable[[Plan], None] = lambda _: None) -> Plan:
    """Fold the unfinished partitions; `on_progress` is called after each step. Raises: the error of a failed task."""
    tables, products = Tables(context, plan.name), context.spark.sparkContext.broadcast(dict(making.products))
    bare = replace(making, products={})
    try:
        for some in groups(plan.left(), context.settings.reprocess_partitions_at_once):
            began = time.monotonic()
            counts = _written(
                tables, _made(context, plan, some, making.clock, lambda: replace(bare, products=products.value)), some
            )
            plan = plan.with_done(counts)
            tables.write_plan(plan)
            log(__name__).info(
                "partitions_done", partitions=some, left=len(plan.left()), seconds=round(time.monotonic() - began, 1)
            )
            on_progress(plan)
        return plan
    finally:
        products.destroy()


def switched(context: RunContext, name: str | None) -> Corrected | None:
    """Put corrected tables in force, or the lake's own, and return the former ones. Raises: ReprocessingNotFound, NotAllowed."""
    before = in_force.corrected(context.lake)
    if name is None:
        in_force.switch(context.lake, None)
        return before
    plan = Tables(context, name).plan()
    if plan is None:
        raise ReprocessingNotFound(f"there is no reprocessing {name!r}")
    if not plan.is_done:
        raise NotAllowed(f"{name} is not finished: `starling reprocess --into {name}` goes on with it")
    in_force.switch(context.lake, Corrected(name, dict(plan.cut)))
    return before


def normalizer_inputs(context: RunContext, plan: Plan) -> DataFrame:
    """Return `raw.raw_columns` of all inputs of the normalizer up to the cut."""
    prefix, of = context.settings.lake_topic_prefix, plan.snapshots
    found = [raw.items(context.lake.rows(ITEMS, of[ITEMS]), prefix)]
    if QUARANTINE in of:
        found.append(raw.quarantined(_read_again(context, of[QUARANTINE]), prefix))
    if CHANGES in of:
        found.append(raw.computed(context.lake.rows(CHANGES, of[CHANGES])))
    given = raw.up_to(reduce(DataFrame.unionByName, found), plan.cut)
    return raw.with_products(given, context.lake.rows(EVENTS, of[EVENTS])) if EVENTS in of and plan.catalog == "then" else given


def _read_again(context: RunContext, snapshot: int) -> DataFrame:
    topics = [context.topic(topic) for topic in INGEST_TOPICS]
    refused = context.lake.rows(QUARANTINE, snapshot).where(functions.col("origin_topic").isin(*topics))
    records = refused.selectExpr(
        "origin_topic AS topic", "origin_partition AS partition", "origin_offset AS offset",
        "unix_millis(origin_timestamp) AS timestamp_ms", "origin_key AS key", "value", "headers",
    )  # fmt: skip
    return decoded(records, Reading.plain(context.wire, topics[0]))


def _made(context: RunContext, plan: Plan, partitions: list[int], clock: Clock, making: Ask) -> DataFrame:
    given = normalizer_inputs(context, plan).where(functions.col("origin_partition").isin(*partitions))
    instants = with_instants(given, making) if clock is Clock.EVENT else given
    return results(raw.of_users(raw.timed(instants, clock)), context.wire, making)


def _written(tables: Tables, made: DataFrame, partitions: list[int]) -> dict[int, dict[str, int]]:
    made = made.persist(StorageLevel.MEMORY_AND_DISK)
    try:
        counts: dict[int, dict[str, int]] = {number: {} for number in partitions}
        for row in made.groupBy("origin_partition", "outcome").count().collect():
            counts[row["origin_partition"]][row["outcome"]] = row["count"]
        for table, column in _EVENT_COLUMNS.items():
            rows = made.where(f"{column} IS NOT NULL").select(f"{column}.*", *origin_columns())
            tables.append(table, rows, partitions)
        tables.append(QUARANTINE, _refused(made), partitions)
        return counts
    finally:
        made.unpersist()


def _refused(made: DataFrame) -> DataFrame:
    why = [functions.col(f"refused.{name}") for name in ("code", "message", "schema_id")]
    headers = functions.lit(None).cast(QUARANTINE_COLUMNS["headers"].dataType).alias("headers")
    rows = made.where("refused IS NOT NULL").select(*origin_columns(), "value", headers, *why)
    return rows.select(*QUARANTINE_COLUMNS.fieldNames())


def rules(context: RunContext) -> str:
    """Return the rules that a run must not change: a hash of the installed stages, and the duplicates window in hours."""
    return f"{rules_hash(Path(starling_items.__file__).parent)}-{context.settings.duplicate_window_hours}"
