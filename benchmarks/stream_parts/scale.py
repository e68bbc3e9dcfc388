"""Job 2: the segmenter with 100 and 1,000 mixed segments; and what an event costs with 1 to 1,000. See `stream.py`."""

import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any, Final, NamedTuple, TypeAlias

from common import segmenting, shop
from common.bench import Rate, Stack, medians, stack, steady_rate

from starling_common.kafka.topics import BEHAVIOUR
from stream_parts import kinds

READ_AHEAD = 250_000
"""As in job 1: more than a worker reads ahead, behind what is measured."""
_WARM_UP = 0.1


Records: TypeAlias = Iterator[tuple[bytes, dict[str, Any]]]


class Load(NamedTuple):
    """Segments and what is sent. `behaviour(count, seed, first_ms, span_ms)`."""

    segments: Callable[[int], Mapping[str, dict[str, Any]]]
    profiles: Callable[[], Records]
    behaviour: Callable[[int, int, int, int], Records]


CROWDED: Final = Load(shop.mixed, shop.profiles, partial(shop.behaviour, names=(shop.WIDE_NAMES, shop.WIDE_WEIGHTS)))
"""Five names for nine events in ten, and four segments in ten look at one of them."""
EVERY_KIND: Final = Load(kinds.segments, kinds.profiles, kinds.behaviour)
"""Every leaf, measure and window in turn, spread evenly over forty names, fifty categories and two hundred brands."""


def rates(directory: Path, segments: int, users: int, events: int, rounds: int, load: Load) -> list[Rate]:
    """One worker on one stack; each round is a stretch of events of one hour, written before the worker is started on it."""
    found = []
    with stack(directory / "stack") as made:
        segmenting.define(made, load.segments(segments))
        segmenting.make_known(made, directory, users, profiles=load.profiles).stop()
        written, at_ms = 0, shop.FIRST_MS
        for number in range(1, rounds + 1):
            at_ms += segmenting.HOUR_MS
            records = load.behaviour(events + READ_AHEAD, number, at_ms, segmenting.HOUR_MS)
            segmenting.load(made, BEHAVIOUR, records)
            found.append(_round(made, directory, events, written))
            written += events + READ_AHEAD
            print(f"  {segments} segments: {found[-1].per_second:,.0f}/s, {found[-1].per_cpu_second:,.0f}/CPU-s", file=sys.stderr)
    return found


def _round(made: Stack, directory: Path, events: int, written: int) -> Rate:
    worker, progress = segmenting.start(made, directory), segmenting.events(made)
    try:
        # Records of the previous round are processed first and belong to no measurement.
        progress.wait(written, worker)
        found = steady_rate(worker, progress, written + int(events * _WARM_UP), written + events)
    finally:
        worker.stop()
        progress.close()
    return found


def at_size(directory: Path, segments: int, users: int, events: int, rounds: int, load: Load) -> dict[str, Any]:
    """Job 2, with 100 segments; and with so many more."""
    found = rates(directory, segments, users, events, rounds, load)
    return {"segments": segments, "users": users, "events": events, **medians(found)}


def curve(directory: Path, counts: Sequence[int], users: int, events: int, load: Load) -> dict[str, Any]:
    """CPU microseconds an event for each number of segments, and how many times the least the most costs."""
    costs = {}
    for count in counts:
        (rate,) = rates(directory / f"curve-{count}", count, users, events, 1, load)
        costs[str(count)] = round(1e6 / rate.per_cpu_second, 2)
    return {
        "users": users,
        "events": events,
        "cpu_micros_an_event": costs,
        "growth": round(max(costs.values()) / min(costs.values()), 2),
    }
