"""Edge: what each command does: place and words in, text for people and an exit code out."""

import sys
from dataclasses import dataclass

from starling_common.instants import format_instant
from starling_spark.jobs.reprocess.catalog import products_now
from starling_spark.jobs.reprocess.comparing import difference, table
from starling_spark.jobs.reprocess.folding import Making
from starling_spark.jobs.reprocess.job import NotPossible, NotThere, begun, planned, reprocess, switched
from starling_spark.jobs.reprocess.place import Place, Tables
from starling_spark.jobs.reprocess.plan import Catalog, Plan
from starling_spark.jobs.reprocess.plan import table as plan_table
from starling_spark.lakehouse import in_force
from starling_spark.lakehouse.in_force import EVENT_TABLES


@dataclass(frozen=True, slots=True)
class Words:
    """What was said on the command line; not every command asks for all of it."""

    name: str
    catalog: Catalog = "then"
    overwrite: bool = False
    live: bool = False


Said = tuple[str, int]
"""Text for people, and the exit code."""


def run(place: Place, given: Words) -> Said:
    """Make one, or go on with it; each step is told as it is done. Raises: NotThere, NotPossible."""
    plan = begun(place, lambda: planned(place, given.name, given.catalog), given.name, overwrite=given.overwrite)
    _tell_progress(plan)
    made = reprocess(place, plan, Making(place.settings.clock, products_now(place)), _tell_progress)
    counts = ", ".join(f"{count} {outcome}" for outcome, count in made.totals().items())
    return f"{made.name}: {counts}, received up to {format_instant(max(made.cut.values(), default=0) // 1000)}\n", 0


def diff(place: Place, given: Words) -> Said:
    """The event tables of one beside the lake's own. Raises: NotThere."""
    tables, plan = Tables(place, given.name), _plan(place, given.name)
    found = [
        difference(name, place.lake.rows(name), tables.lake.rows(name), plan.cut)
        for name in EVENT_TABLES.values()
        if place.lake.exists(name)
    ]
    return table(found), 0 if all(one.is_none for one in found) else 1


def switch(place: Place, given: Words) -> Said:
    """Put one in force, or the lake's own. Raises: NotThere, NotPossible."""
    before = switched(place, None if given.live else given.name)
    back = "--live" if before is None else before.name
    return f"in force: {'the events as they were made live' if given.live else given.name}; back by `switch {back}`\n", 0


def listed(place: Place, _given: Words) -> Said:
    """All that there are."""
    now = in_force.corrected(place.lake)
    found = [Tables(place, name).plan() for name in place.lake.siblings()]
    text = plan_table([one for one in found if one is not None], None if now is None else now.name)
    return text if any(found) else "none\n", 0


def remove(place: Place, given: Words) -> Said:
    """Delete one that is not in force. Raises: NotThere, NotPossible."""
    now = in_force.corrected(place.lake)
    if now is not None and now.name == given.name:
        raise NotPossible(f"{given.name} is in force: switch to another one first")
    _plan(place, given.name)
    Tables(place, given.name).remove()
    return f"removed: {given.name}\n", 0


def _plan(place: Place, name: str) -> Plan:
    plan = Tables(place, name).plan()
    if plan is None:
        raise NotThere(f"there is no reprocessing {name!r}")
    return plan


def _tell_progress(plan: Plan) -> None:
    rows = sum(plan.totals().values())
    sys.stdout.write(f"{plan.name}: {len(plan.done)} of {len(plan.cut)} partitions, {rows} items\n")
    sys.stdout.flush()
