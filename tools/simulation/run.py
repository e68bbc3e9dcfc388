"""Writes benchmarks/results/simulation.json, and the charts and tables of docs/how-to/capacity.md: `make simulate`."""

import json
import re
import sys
from collections.abc import Mapping
from dataclasses import asdict
from typing import Any, Final

from starling_cli.capacity.plan import Plan
from tools.capacity_guide import PAGE
from tools.simulation.charts import Panel, chart
from tools.simulation.guide import filled
from tools.simulation.model import Service
from tools.simulation.parameters import (
    BATCH_RECORDS,
    LARGE,
    LINGER_SECONDS,
    READER_SECONDS,
    RESULTS,
    TRANSACTION_SECONDS,
    faults,
    large_plan,
    machine_layout,
    planned_layout,
    result,
    transactions,
)
from tools.simulation.scenarios import (
    EXPONENT,
    RATE,
    USERS,
    broker_pause,
    light_latency,
    measured_rate,
    rolling_upgrade,
    skew,
    stage_latency,
    steady,
    worker_lost,
)

RESULT: Final = RESULTS / "simulation.json"
IMAGES: Final = PAGE.parent
CHARTS: Final[Mapping[str, str]] = {
    "worker_lost": "A segmenter is lost",
    "rolling_upgrade": "A rolling upgrade of the segmenters",
    "broker_pause": "The brokers pause",
}
"""Scenario -> the title of its chart."""
_NUMBERS: Final = re.compile(r"\[\s+([\d.,\s]+?)\s+\]")


def parameters(made: Plan) -> dict[str, Any]:
    """Return what the results follow from. A test compares them with those of the repository."""
    layout = planned_layout(made)
    return {
        "events_per_second": RATE,
        "users": USERS,
        "zipf_exponent": EXPONENT,
        "partitions": made.partitions,
        "segments": LARGE.segments,
        "workers": dict(layout.workers),
        "micros_an_event": {
            "edge": round(layout.edge_seconds * 1e6, 1),
            **{name: round(service.record_seconds * 1e6, 1) for name, service in layout.services.items()},
        },
        "transaction_seconds": list(TRANSACTION_SECONDS),
        "batch_records": BATCH_RECORDS,
        "projector_linger_seconds": LINGER_SECONDS,
        "reader_seconds": READER_SECONDS,
        "fault_seconds": asdict(faults()),
    }


def validation() -> dict[str, Any]:
    """Return measured and simulated figures side by side. `ratio`: simulated / measured."""
    rates = {}
    for name, case in result("platform").items():
        simulated = measured_rate(machine_layout(case), case["options"]["events"], case["edge_events_per_second"])
        rates[name] = _compared(case["events_per_second"], round(simulated))
    light, busy = result("latency"), result("stream")["latency"]
    whole = light_latency(machine_layout(result("platform")["20-segments-1-switches"]), light["rate_per_second"], 60)
    service = Service(1 / busy["top_events_per_second"], transactions(2), BATCH_RECORDS)
    stage = stage_latency(service, busy["events_per_second"], 60, READER_SECONDS)
    return {
        "events_per_second": rates,
        "latency_of_the_platform_ms": _latencies(light, whole),
        "latency_of_a_segmenter_at_half_of_its_rate_ms": _latencies(busy, stage),
    }


def _latencies(measured: Mapping[str, float], simulated: Any) -> dict[str, Any]:
    return {
        name: _compared(measured[f"{name}_ms"], round(1000 * value, 1))
        for name, value in zip(("p50", "p99"), simulated, strict=True)
    }


def _compared(measured: float, simulated: float) -> dict[str, float]:
    return {"measured": measured, "simulated": simulated, "ratio": round(simulated / measured, 2)}


def document() -> dict[str, Any]:
    """Run everything; return the result."""
    made = large_plan()
    layout, partitions, times = planned_layout(made), made.partitions, faults()
    return {
        "parameters": parameters(made),
        "validation": validation(),
        "steady": steady(layout, partitions),
        "worker_lost": worker_lost(layout, partitions, times),
        "rolling_upgrade": rolling_upgrade(layout, partitions, times),
        "broker_pause": broker_pause(layout, partitions),
        "skew": skew(layout, partitions),
    }


def image(title: str, found: Mapping[str, Any]) -> str:
    """Return the chart of a scenario with a fault."""
    series, step = found["series"], found["series"]["step_seconds"]
    panels = [
        Panel("time from receipt to the feed, ms, by time of receipt", step, {"p99": series["p99_ms"], "p50": series["p50_ms"]}),
        Panel("records that wait, all topics", step, {"backlog": series["backlog_records"]}),
    ]
    return chart(title, panels, {"fault": found["fault_at_seconds"], "repaired": found["repaired_at_seconds"]})


def text(found: Mapping[str, Any]) -> str:
    """Return a result as JSON, each series on one line."""
    return _NUMBERS.sub(lambda numbers: f"[{' '.join(numbers[1].split())}]", json.dumps(found, indent=2)) + "\n"


def main() -> int:
    """Write the result, the charts and the tables of the guide."""
    found = document()
    RESULT.write_text(text(found))
    for name, title in CHARTS.items():
        (IMAGES / f"capacity-{name.replace('_', '-')}.svg").write_text(image(title, found[name]))
    PAGE.write_text(filled(PAGE.read_text(), found))
    short = {name: {key: value for key, value in part.items() if key != "series"} for name, part in found.items() if name in CHARTS}
    shown = {name: found[name] for name in ("validation", "steady", "skew")} | short
    sys.stdout.write(json.dumps(shown, indent=2) + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
