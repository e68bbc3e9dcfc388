"""Pure core: a capacity plan as a JSON document and as tables of text."""

from collections.abc import Iterator, Mapping
from dataclasses import asdict
from typing import Any

from rich.table import Table

from starling_cli.capacity.inputs import number
from starling_cli.capacity.plan import Part, Plan

_UNITS = (("PB", 1e15), ("TB", 1e12), ("GB", 1e9), ("MB", 1e6), ("kB", 1e3))


def plan_document(plan: Plan) -> dict[str, Any]:
    """Return the plan as JSON. Units are in the names; sizes are of all copies, and memory is of one replica."""
    return {
        "inputs": asdict(plan.inputs),
        "cpu_micros_an_event": round(plan.cpu_micros, 1),
        "idle_micros_an_event": round(plan.idle_micros, 1),
        "measured_events_per_second": plan.measured_rps,
        "cores": round(plan.cores, 2),
        "cores_without_idle_cost": round(plan.marginal_cores, 2),
        "memory_gb": round(plan.memory_gb, 1),
        "disk_bytes": round(plan.disk_bytes),
        "partitions": plan.partitions,
        "brokers": plan.brokers.count,
        "cassandra_nodes": plan.cassandra_nodes.count,
        "parts": [_part(part) for part in plan.parts],
        "stores": [
            {
                "store": one.store,
                "name": one.name,
                "unit_bytes": round(one.unit_bytes, 1),
                "kept": one.kept,
                "disk_bytes": round(one.disk_bytes),
            }
            for one in plan.stored
        ],
        "network": [{"name": flow.name, "bytes_per_second": round(flow.bytes_per_second)} for flow in plan.flows],
        "drivers": [{**asdict(driver), "share": round(driver.share, 3)} for driver in plan.drivers],
        "assumptions": [asdict(one) for one in plan.assumptions],
        "formulas": dict(formulas(plan)),
    }


def tables(plan: Plan) -> Iterator[tuple[str, Table]]:
    """Yield (heading, table) in the order in which they are printed."""
    yield "Whole installation", _whole(plan)
    yield "Parts", _parts(plan)
    yield "Disk, all copies", _stores(plan)
    yield "Network at the peak", _network(plan)
    yield "Largest shares", _drivers(plan)
    yield "Assumed", _assumptions(plan)


def formulas(plan: Plan) -> Iterator[tuple[str, str]]:
    """Yield (figure, formula with its numbers and sources)."""
    for part in plan.parts:
        yield f"cores of {part.name}", f"{part.formula} = {number(part.cores)}; {', '.join(dict.fromkeys(part.cpu.sources))}"
    yield "cores", f"the sum of the parts = {number(plan.cores)}"
    yield "partitions", f"{plan.partitions_formula} = {plan.partitions}"
    for part in plan.parts:
        yield f"memory of a replica of {part.name}", f"{part.memory_formula} = {number(part.memory_gb)} GB"
    for one in plan.stored:
        yield f"disk of {one.store} {one.name}", f"{one.formula} = {size(one.disk_bytes)}"
    for flow in plan.flows:
        yield flow.name, f"{flow.formula} = {size(flow.bytes_per_second)}/s"
    yield "brokers", f"{plan.brokers.formula} = {plan.brokers.count}"
    yield "Cassandra nodes", f"{plan.cassandra_nodes.formula} = {plan.cassandra_nodes.count}"


def size(count: float) -> str:
    """Return a number of bytes with a decimal unit and three digits."""
    for unit, factor in _UNITS:
        if count >= factor:
            scaled = count / factor
            return f"{scaled:,.{0 if scaled >= 100 else 1 if scaled >= 10 else 2}f} {unit}"
    return f"{count:.0f} B"


def _part(part: Part) -> Mapping[str, Any]:
    return {
        "part": part.name,
        "cpu_micros_an_event": round(part.cpu.micros, 1),
        "idle_micros_an_event": round(part.cpu.idle, 1),
        "basis": _basis(part),
        "cores": round(part.cores, 2),
        "replicas": part.replicas,
        "memory_gb": round(part.memory_gb, 2),
        "memory_basis": "assumed" if part.memory_is_assumed else "measured",
    }


def _basis(part: Part) -> str:
    return "measured" if part.cpu.is_measured else "extrapolated"


def _table(*columns: str, right: int = 0) -> Table:
    """Return an empty table; the columns from number `right` on are aligned to the right."""
    table = Table(box=None, pad_edge=False)
    for index, column in enumerate(columns):
        table.add_column(column, justify="right" if right and index >= right else "left")
    return table


def _whole(plan: Plan) -> Table:
    table = Table(box=None, pad_edge=False, show_header=False)
    table.add_row(
        "CPU time of an event",
        f"{plan.cpu_micros:,.1f} µs from {plan.measured_rps:,.0f} events/s on, {plan.idle_micros:,.1f} µs of it idle cost",
    )
    table.add_row("cores", f"{plan.cores:,.1f} (without idle cost {plan.marginal_cores:,.1f})")
    table.add_row("memory", f"{plan.memory_gb:,.0f} GB")
    table.add_row("disk", size(plan.disk_bytes))
    table.add_row("partitions", f"{plan.partitions:,}")
    table.add_row("brokers", f"{plan.brokers.count:,}")
    table.add_row("Cassandra nodes", f"{plan.cassandra_nodes.count:,}")
    return table


def _parts(plan: Plan) -> Table:
    table = _table("part", "basis", "CPU-µs an event", "cores", "replicas", "GB a replica", "", right=2)
    for part in plan.parts:
        figures = (
            f"{part.cpu.micros:,.1f}",
            f"{part.cores:,.2f}",
            f"{part.replicas:,}",
            f"{part.memory_gb:.2f}",
            "assumed" if part.memory_is_assumed else "",
        )
        table.add_row(part.name, _basis(part), *figures)
    return table


def _stores(plan: Plan) -> Table:
    table = _table("store", "topic, table or stage", "kept", "disk")
    for one in plan.stored:
        table.add_row(one.store, one.name, one.kept, size(one.disk_bytes))
    return table


def _network(plan: Plan) -> Table:
    table = _table("from → to", "a second")
    for flow in plan.flows:
        table.add_row(flow.name, size(flow.bytes_per_second))
    return table


def _drivers(plan: Plan) -> Table:
    table = _table("resource", "item", "share")
    for driver in plan.drivers:
        table.add_row(driver.resource, driver.item, f"{driver.share:.0%}")
    return table


def _assumptions(plan: Plan) -> Table:
    table = _table("what", "value", "why")
    for one in plan.assumptions:
        table.add_row(one.what, one.value, one.why)
    return table
