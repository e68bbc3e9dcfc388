"""Edge: the commands: context and arguments in, output text and exit code out."""

import sys
from dataclasses import dataclass
from functools import partial

from starling_common.time.instants import format_instant
from starling_spark.jobs.reprocess.catalog import products_now
from starling_spark.jobs.reprocess.comparing import difference, table
from starling_spark.jobs.reprocess.context import RunContext, Tables
from starling_spark.jobs.reprocess.fold.folding import REFUSED, Making
from starling_spark.jobs.reprocess.job import NotAllowed, ReprocessingNotFound, begun, planned, reprocess, switched
from starling_spark.jobs.reprocess.plan import Catalog, Plan
from starling_spark.jobs.reprocess.plan import table as plan_table
from starling_spark.lakehouse import in_force
from starling_spark.lakehouse.in_force import EVENT_TABLES
from starling_spark.lakehouse.lineage import table_datasets
from starling_spark.lakehouse.pinned import kept, pinning_of
from starling_spark.lakehouse.schema.tables import QUARANTINE
from starling_spark.lineage.datasets import Dataset, Flow
from starling_spark.lineage.runs import JobName


@dataclass(frozen=True, slots=True)
class Arguments:
    """The arguments of the command line; each command uses some of them."""

    name: str
    catalog: Catalog = "then"
    overwrite: bool = False
    live: bool = False


CommandResult = tuple[str, int]
"""The output text, and the exit code."""


def run(context: RunContext, given: Arguments) -> CommandResult:
    """Make or continue a reprocessing, and print each step. Raises: ReprocessingNotFound, NotAllowed."""
    plan = begun(context, lambda: planned(context, given.name, given.catalog), given.name, overwrite=given.overwrite)
    _print_progress(plan)
    window_ms = context.settings.duplicate_window_hours * 3_600_000
    making = Making(context.settings.clock, products_now(context), duplicate_window_ms=window_ms)
    with context.lineage.run(JobName("reprocess"), partial(_flow, context, plan)) as lineage:
        lineage.computes(plan.begun_at_ms)
        with kept(context.lake, pinning_of(context.settings, "reprocess"), plan.name, plan.snapshots):
            made = reprocess(context, plan, making, _print_progress)
        lineage.knows(partial(_made, context, made))
    counts = ", ".join(f"{count} {outcome}" for outcome, count in made.totals().items())
    return f"{made.name}: {counts}, received up to {format_instant(max(made.cut.values(), default=0) // 1000)}\n", 0


def _flow(context: RunContext, plan: Plan) -> Flow:
    found = table_datasets(context.lake, *plan.snapshots, versions=False)
    inputs = tuple(one._replace(version=str(plan.snapshots[one.short])) for one in found)
    return Flow(inputs, _outputs(context, plan, has_versions=False))


def _made(context: RunContext, plan: Plan) -> Flow:
    # The outcomes of items are known, and not to which table they belong.
    rows = {QUARANTINE: plan.totals()[REFUSED]}
    return Flow((), tuple(one._replace(rows=rows.get(one.short)) for one in _outputs(context, plan, has_versions=True)))


def _outputs(context: RunContext, plan: Plan, *, has_versions: bool) -> tuple[Dataset, ...]:
    return table_datasets(Tables(context, plan.name).lake, *EVENT_TABLES.values(), QUARANTINE, versions=has_versions)


def diff(context: RunContext, given: Arguments) -> CommandResult:
    """Compare the event tables of a reprocessing with the lake's own. Raises: ReprocessingNotFound."""
    tables, plan = Tables(context, given.name), _plan(context, given.name)
    found = [
        difference(name, context.lake.rows(name), tables.lake.rows(name), plan.cut)
        for name in EVENT_TABLES.values()
        if context.lake.exists(name)
    ]
    return table(found), 0 if all(one.is_none for one in found) else 1


def switch(context: RunContext, given: Arguments) -> CommandResult:
    """Put corrected tables in force, or the lake's own. Raises: ReprocessingNotFound, NotAllowed."""
    before = switched(context, None if given.live else given.name)
    back = "--live" if before is None else before.name
    return f"in force: {'the events as they were made live' if given.live else given.name}; back by `switch {back}`\n", 0


def listed(context: RunContext, _given: Arguments) -> CommandResult:
    """List all reprocessings."""
    now = in_force.corrected(context.lake)
    found = [Tables(context, name).plan() for name in context.lake.siblings()]
    text = plan_table([one for one in found if one is not None], None if now is None else now.name)
    return text if any(found) else "none\n", 0


def remove(context: RunContext, given: Arguments) -> CommandResult:
    """Delete a reprocessing that is not in force. Raises: ReprocessingNotFound, NotAllowed."""
    now = in_force.corrected(context.lake)
    if now is not None and now.name == given.name:
        raise NotAllowed(f"{given.name} is in force: switch to another one first")
    _plan(context, given.name)
    Tables(context, given.name).remove()
    return f"removed: {given.name}\n", 0


def _plan(context: RunContext, name: str) -> Plan:
    plan = Tables(context, name).plan()
    if plan is None:
        raise ReprocessingNotFound(f"there is no reprocessing {name!r}; `list` shows all")
    return plan


def _print_progress(plan: Plan) -> None:
    rows = sum(plan.totals().values())
    sys.stdout.write(f"{plan.name}: {len(plan.done)} of {len(plan.cut)} partitions, {rows} items\n")
    sys.stdout.flush()
