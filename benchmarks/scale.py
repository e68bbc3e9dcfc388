"""Job 2: the segmenter with 100 mixed segments; and what an event costs with 1 to 1,000. See `stream.py`."""

import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import segmenting
import shop
from bench import Rate, Stack, medians, stack, steady_rate

from starling_common.topics import BEHAVIOUR

READ_AHEAD = 250_000
"""As in job 1: more than a worker reads ahead, behind what is measured."""
_WARM_UP = 0.1


def rates(directory: Path, segments: int, users: int, events: int, rounds: int) -> list[Rate]:
    """One worker on one stack; each round is a stretch of events of one hour, written before the worker is started on it."""
    found = []
    with stack(directory / "stack") as made:
        segmenting.define(made, shop.mixed(segments))
        segmenting.make_known(made, directory, users).stop()
        written, at_ms = 0, shop.FIRST_MS
        for number in range(1, rounds + 1):
            at_ms += segmenting.HOUR_MS
            found.append(_round(made, directory, number, (events, at_ms), written))
            written += events + READ_AHEAD
            print(f"  {segments} segments: {found[-1].per_second:,.0f}/s, {found[-1].per_cpu_second:,.0f}/CPU-s", file=sys.stderr)
    return found


def _round(made: Stack, directory: Path, number: int, span: tuple[int, int], written: int) -> Rate:
    events, at_ms = span
    names = (shop.WIDE_NAMES, shop.WIDE_WEIGHTS)
    segmenting.load(made, BEHAVIOUR, shop.behaviour(events + READ_AHEAD, number, at_ms, segmenting.HOUR_MS, names))
    worker, progress = segmenting.start(made, directory), segmenting.events(made)
    try:
        # What was left of the round before is worked off first; it belongs to nobody's measurement.
        progress.wait(written, worker)
        found = steady_rate(worker, progress, written + int(events * _WARM_UP), written + events)
    finally:
        worker.stop()
        progress.close()
    return found


def hundred(directory: Path, users: int, events: int, rounds: int) -> dict[str, Any]:
    """Job 2."""
    return {"segments": 100, "users": users, "events": events, **medians(rates(directory, 100, users, events, rounds))}


def curve(directory: Path, counts: Sequence[int], users: int, events: int) -> dict[str, Any]:
    """CPU microseconds an event for each number of segments, and how many times the least the most costs."""
    costs = {}
    for count in counts:
        (rate,) = rates(directory / f"curve-{count}", count, users, events, 1)
        costs[str(count)] = round(1e6 / rate.per_cpu_second, 2)
    return {
        "users": users,
        "events": events,
        "cpu_micros_an_event": costs,
        "growth": round(max(costs.values()) / min(costs.values()), 2),
    }
