"""Pure core: the simulated situations, and what is reported of each."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any, Final

import simpy

from tools.simulation.keys import partition_shares, top_share
from tools.simulation.measures import Freshness, drained_at
from tools.simulation.model import Broker, Chunk, Context, Service, Stage, Steps, Topic, assignment
from tools.simulation.parameters import Faults
from tools.simulation.pipeline import Layout, Load, Pipeline

RATE: Final = 100_000.0
USERS: Final = 200_000_000
EXPONENT: Final = 0.8
EXPONENTS: Final = (0.0, 0.7, 0.8, 0.9, 1.0)
FAULT_AT: Final = 20.0
WARM_UP: Final = 10.0
_SHARES: Final = (0.5, 0.99)
_STEP: Final = 0.5
"""Seconds between two samples of a backlog."""

Fault = Callable[[Pipeline], Steps]


def steady(layout: Layout, partitions: int, seconds: float = 60.0) -> dict[str, Any]:
    """Return a minute without a fault."""
    run = _run(layout, partitions, seconds, 0.01)
    return {**_summary(run, WARM_UP, seconds - 5), "utilisation": _rounded(run.utilisation(WARM_UP, seconds))}


def worker_lost(layout: Layout, partitions: int, faults: Faults, seconds: float = 180.0) -> dict[str, Any]:
    """Return the death of one segmenter, whose partitions wait for the end of its session."""

    def fault(run: Pipeline) -> Steps:
        stage = run.stages["segmenter"]
        return stage.lose(stage.workers[0], faults.session, faults.rebalance, faults.restore)

    repaired = FAULT_AT + faults.session + faults.rebalance + faults.restore
    return _faulty(layout, partitions, seconds, 0.1, fault, repaired)


def rolling_upgrade(layout: Layout, partitions: int, faults: Faults) -> dict[str, Any]:
    """Return the restart of every segmenter, one after the other, each under its id and within its session."""
    away, workers = faults.pod_start + faults.restore, layout.workers["segmenter"]

    def fault(run: Pipeline) -> Steps:
        stage = run.stages["segmenter"]
        for worker in stage.workers:
            yield from stage.restart_worker(worker, away)

    repaired = FAULT_AT + workers * away
    return _faulty(layout, partitions, repaired + 60, 0.25, fault, repaired)


def broker_pause(layout: Layout, partitions: int, pause: float = 10.0, seconds: float = 90.0) -> dict[str, Any]:
    """Return a time in which no broker acknowledges anything."""

    def fault(run: Pipeline) -> Steps:
        run.broker.pause(pause)
        yield run.env.timeout(0)

    return {"pause_seconds": pause, **_faulty(layout, partitions, seconds, 0.1, fault, FAULT_AT + pause)}


def skew(layout: Layout, partitions: int, seconds: float = 40.0) -> list[dict[str, Any]]:
    """Return one entry for each exponent of Zipf's law."""
    found = []
    for exponent in EXPONENTS:
        run = _run(layout, partitions, seconds, 0.1, exponent)
        shares = partition_shares(USERS, exponent, partitions)
        hottest, capacity = max(_loads(shares, layout.workers["segmenter"])), 1 / layout.services["segmenter"].record_seconds
        found.append(
            {
                "exponent": exponent,
                "most_active_user_events_per_second": round(RATE * top_share(USERS, exponent), 1),
                "hottest_partition_events_per_second": round(RATE * max(shares)),
                "hottest_worker_events_per_second": round(RATE * hottest),
                "worker_capacity_events_per_second": round(capacity),
                **_summary(run, WARM_UP, seconds - 5),
            }
        )
    return found


def _loads(shares: Sequence[float], workers: int) -> list[float]:
    """Return the share of each worker, by the assignment of the model."""
    bounds = assignment(len(shares), workers)
    return [sum(shares[first:end]) for first, end in bounds]


def measured_rate(layout: Layout, events: int, edge_rate: float, partitions: int = 8) -> float:
    """Return the events/s of a run of `make bench-platform`: from the first request until the last event is readable."""
    run = Pipeline(layout, Load(edge_rate, [1 / partitions] * partitions, events / edge_rate, tick=0.02))
    run.run()
    return run.sent / run.done_at


def light_latency(layout: Layout, rate: float, seconds: float, partitions: int = 8) -> Sequence[float]:
    """Return p50 and p99 in s from the receipt of an event to a reader of the feed, as `make bench-latency` measures."""
    run = Pipeline(layout, Load(rate, [1 / partitions] * partitions, seconds, tick=0.005))
    run.run()
    return run.feed.percentiles(_SHARES)


def stage_latency(service: Service, rate: float, seconds: float, reader_seconds: float, partitions: int = 8) -> Sequence[float]:
    """Return p50 and p99 in s of one worker of one stage, as the part `latency` of `make bench-stream` measures."""
    env = simpy.Environment()
    source, found = Topic(partitions), Freshness()
    stage = Stage(
        "segmenter",
        Context(env, Broker(env)),
        service,
        source,
        lambda _, chunks: found.add(env.now + reader_seconds, chunks),
    )
    stage.start(1)

    def arrive() -> Steps:
        tick = 0.005
        for number in range(int(seconds / tick)):
            yield env.timeout(tick)
            source.append(number % partitions, Chunk(env.now - tick / 2, round(rate * tick), number // partitions))

    env.process(arrive())
    env.run(seconds)
    return found.percentiles(_SHARES, WARM_UP)


def _run(
    layout: Layout, partitions: int, seconds: float, tick: float, exponent: float = EXPONENT, fault: Fault | None = None
) -> Pipeline:
    load = Load(RATE, partition_shares(USERS, exponent, partitions), seconds, tick)
    run = Pipeline(replace(layout, services=dict(layout.services)), load)
    if fault is not None:
        happens = fault

        def later() -> Steps:
            yield run.env.timeout(FAULT_AT)
            yield from happens(run)

        run.env.process(later())
    run.run(seconds)
    return run


def _faulty(layout: Layout, partitions: int, seconds: float, tick: float, fault: Fault, repaired: float) -> dict[str, Any]:
    run = _run(layout, partitions, seconds, tick, fault=fault)
    backlog = run.total_backlog()
    drained = drained_at(run.times, backlog, FAULT_AT, repaired)
    step = max(1, round(seconds / 180))
    whole = int(seconds)
    series = run.feed.by_second(_SHARES, whole - 2, step)
    return {
        "fault_at_seconds": FAULT_AT,
        "repaired_at_seconds": round(repaired, 2),
        "drained_at_seconds": drained,
        "drain_seconds": None if drained is None else round(drained - repaired, 1),
        "most_backlog_records": round(max(backlog)),
        "before": _summary(run, WARM_UP, FAULT_AT - 1),
        "during": _summary(run, FAULT_AT, drained or repaired),
        "utilisation_before": _rounded(run.utilisation(WARM_UP, FAULT_AT)),
        "utilisation_after_repair": _rounded(run.utilisation(int(repaired), min(whole, int(repaired) + 10))),
        "series": {
            "step_seconds": step,
            "p50_ms": [round(1000 * values[0]) for values in series],
            "p99_ms": [round(1000 * values[1]) for values in series],
            "backlog_records": [round(size) for size in backlog[:: max(1, round(step / _STEP))]],
        },
    }


def _summary(run: Pipeline, first: float, end: float) -> dict[str, Any]:
    feed, rows = (found.percentiles(_SHARES, first, end) for found in (run.feed, run.read_model))
    return {
        "feed_p50_ms": round(1000 * feed[0]),
        "feed_p99_ms": round(1000 * feed[1]),
        "read_model_p50_ms": round(1000 * rows[0]),
        "read_model_p99_ms": round(1000 * rows[1]),
    }


def _rounded(values: Mapping[str, float]) -> dict[str, float]:
    return {name: round(value, 2) for name, value in values.items()}
