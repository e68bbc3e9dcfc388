"""Adapter: the parameters of the simulation, from benchmarks/results and `starling plan-capacity`."""

import json
import random
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from starling_cli.capacity.inputs import Inputs
from starling_cli.capacity.plan import Plan, plan
from starling_cli.capacity.rates import load_rates
from starling_common.kafka.topics import load_catalogue
from tools.simulation.model import Service
from tools.simulation.pipeline import Layout

RESULTS: Final = Path(__file__).parents[2] / "benchmarks/results"
TRANSACTION_SECONDS: Final = (0.017, 0.035)
"""Least and greatest time of a transaction: benchmarks/README.md, two busy cores, 5,500 events/s (`2469c9e`)."""
LINGER_SECONDS: Final = 0.25
"""The projector's `STARLING_LINGER_MS`."""
BATCH_RECORDS: Final = 10_000
"""`STARLING_UNIT_MAX_RECORDS` of the stages, and `STARLING_BATCH_RECORDS` of the projector."""
READER_SECONDS: Final = 0.01
"""The mean wait of the readers of the benchmarks, which poll each 20 ms."""
LARGE: Final = Inputs(rps=100_000, average_rps=40_000, users=200e6, segments=500, traits=50, changes=0.3, memberships=20)
"""The large size of docs/how-to/capacity.md. The retention of topics, which decides disks alone, is left out."""


@dataclass(frozen=True, slots=True)
class Faults:
    """Times of a fault in s, and their sources.

    `session`: `STARLING_SESSION_TIMEOUT_SECONDS` in the chart. `rebalance`: the group waits for the next heartbeat of each member,
    at most `STARLING_HEARTBEAT_INTERVAL_SECONDS`. `restore`: `stream.json/state/200000/restore/seconds_to_first_event`.
    `pod_start`: assumed, the time from SIGTERM to the first step of the new process.
    """

    session: float = 60.0
    rebalance: float = 3.0
    restore: float = 0.0
    pod_start: float = 10.0


def result(name: str) -> Any:
    """Return a result file."""
    return json.loads((RESULTS / f"{name}.json").read_text())


def faults() -> Faults:
    """Return the times of faults."""
    return Faults(restore=result("stream")["state"]["200000"]["restore"]["seconds_to_first_event"])


def large_plan() -> Plan:
    """Return the capacity plan of the large size."""
    return plan(LARGE, load_rates(), load_catalogue())


def transactions(seed: int) -> Callable[[], float]:
    """Return the draws of the times of transactions."""
    dice = random.Random(seed)  # noqa: S311 - a simulation
    return lambda: dice.uniform(*TRANSACTION_SECONDS)


def services(micros: Mapping[str, float], shared: Mapping[str, float] | None = None) -> dict[str, Service]:
    """Return the service of each stage. `micros`: CPU-µs of an event; `shared`: those at broker and database for it."""
    more = shared or {}
    return {
        name: Service(
            record_seconds=micros[name] / 1e6,
            transaction=transactions(number),
            batch_records=BATCH_RECORDS,
            linger=LINGER_SECONDS if name == "projector" else 0.0,
            pipelined=name != "projector",
            shared_seconds=more.get(name, 0.0) / 1e6,
        )
        for number, name in enumerate(("normalizer", "segmenter", "projector"))
    }


def planned_layout(made: Plan) -> Layout:
    """Return the workers and the processor times of a plan; each worker has the core that the plan gives it."""
    parts = {part.name: part for part in made.parts}
    names = ("normalizer", "segmenter", "projector")
    return Layout(
        workers={"edge": parts["ingest"].replicas, **{name: parts[name].replicas for name in names}},
        services=services({name: parts[name].cpu.micros for name in names}),
        edge_seconds=parts["ingest"].cpu.micros / 1e6,
        reader_seconds=READER_SECONDS,
    )


def machine_layout(case: Mapping[str, Any]) -> Layout:
    """Return the layout of a run of `make bench-platform`: one process of each part, all on the cores of one machine.

    The broker's time is divided by the records that each stage writes. Cassandra's is the projector's, and so is that of delivery,
    API and registry, which no other stage waits for.
    """
    micros = case["cpu_micros"]
    records = {name: topic["records"] for name, topic in case["topics"].items()}
    written = {
        "edge": records["ingest.track"],
        "normalizer": records["events.behaviour"] + records["normalizer-state-changelog"] + records["ingest.outcomes"],
        "segmenter": records["segments.membership"] + records["segments.membership-state"] + records["segmenter-state-changelog"],
    }
    kafka = {name: micros["kafka"] * count / sum(written.values()) for name, count in written.items()}
    beside = micros["cassandra"] + micros["delivery"] + micros["api"] + micros["registry"]
    return Layout(
        workers={"edge": 1, "normalizer": 1, "segmenter": 1, "projector": 1},
        services=services(micros, {"normalizer": kafka["normalizer"], "segmenter": kafka["segmenter"], "projector": beside}),
        edge_seconds=micros["ingest"] / 1e6,
        edge_shared=kafka["edge"] / 1e6,
        reader_seconds=READER_SECONDS,
        cores=2,
    )
