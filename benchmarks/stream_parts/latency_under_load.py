"""Latency at half of the top rate, and beside a wave of timers: the segmenter under the wall clock. See `stream.py`."""

import sys
import time
from pathlib import Path
from typing import Any, Final

from common import segmenting, shop
from common.bench import Stack, Watched, stack, steady_rate

from starling_common.kafka.topics import BEHAVIOUR
from stream_parts import live

_SEGMENTS: Final = 100
_PROBES_PER_SECOND: Final = 50
_WARM_UP_SECONDS: Final = 30.0
"""A worker that has just begun, and a broker that has just met it, take twice as long at first: reported separately."""
_READ_AHEAD: Final = 250_000
_WAVE_WINDOW_MS: Final = 24 * segmenting.HOUR_MS


def half_rate(directory: Path, users: int, seconds: int, rate: int | None) -> dict[str, Any]:
    """p50 and p99 at `rate` events a second; None: half of what the same worker does with a backlog."""
    with stack(directory / "stack") as made:
        segmenting.define(made, shop.mixed(_SEGMENTS - 1) | {live.PROBE_SEGMENT: live.PROBE})
        worker = segmenting.make_known(made, directory, users, "wall")
        worker.stop()
        top = _top_rate(made, directory)
        live.keep_append_time(made)
        worker = segmenting.start(made, directory, "wall")
        try:
            return {"top_events_per_second": round(top), **_under(made, worker, rate or int(top / 2), seconds)}
        finally:
            worker.stop()


def _top_rate(made: Stack, directory: Path) -> float:
    """What the worker does with a backlog, in events a second."""
    count, names = 3 * _READ_AHEAD, (shop.WIDE_NAMES, shop.WIDE_WEIGHTS)
    begins_ms = int(time.time() * 1000) - segmenting.HOUR_MS
    segmenting.load(made, BEHAVIOUR, shop.behaviour(count, 1, begins_ms, segmenting.HOUR_MS, names))
    worker, progress = segmenting.start(made, directory, "wall"), segmenting.events(made)
    try:
        rate = steady_rate(worker, progress, _READ_AHEAD // 2, count - _READ_AHEAD)
        progress.wait(count, worker)
    finally:
        worker.stop()
        progress.close()
    return rate.per_second


def _under(made: Stack, worker: Watched, per_second: int, seconds: int) -> dict[str, Any]:
    feed, traffic = live.Feed(made), live.Traffic(made, per_second, _PROBES_PER_SECOND, "half")
    traffic.start()
    first_ms = time.time() * 1000
    time.sleep(_WARM_UP_SECONDS)
    since_ms, cpu_before, began = time.time() * 1000, worker.cpu_seconds(), time.monotonic()
    time.sleep(seconds)
    busy = (worker.cpu_seconds() - cpu_before) / (time.monotonic() - began)
    until_ms = time.time() * 1000
    traffic.stop()
    feed.wait_for(lambda: set(traffic.appended), 120)
    feed.stop()
    return {
        "events_per_second": per_second,
        "sender_behind_ms_at_most": round(traffic.behind_seconds * 1000),
        "worker_cpu_share": round(busy, 2),
        "first_half_minute": live.percentiles(live.latencies(traffic, feed, first_ms, since_ms)),
        **live.percentiles(live.latencies(traffic, feed, since_ms, until_ms)),
    }


def timer_wave(directory: Path, timers: int) -> dict[str, Any]:
    """So many users leave a window in one second: how long live probes take before it, and while it is being worked off."""
    with stack(directory / "stack") as made:
        window = {"event": "Wave", "within": "24h"}
        segmenting.define(made, {"wave": window, live.PROBE_SEGMENT: live.PROBE})
        # Far enough ahead for all of them to be in before it: half of what a worker takes, and a minute.
        due_ms = int(time.time() * 1000) + 60_000 + timers // 10
        segmenting.load(made, BEHAVIOUR, live.wave(timers, due_ms - _WAVE_WINDOW_MS))
        live.keep_append_time(made)
        worker, progress = segmenting.start(made, directory, "wall"), segmenting.events(made)
        try:
            progress.wait(timers, worker)
            early_seconds = due_ms / 1000 - time.time()
            if early_seconds < 25:
                raise RuntimeError(f"the wave's users were in {early_seconds:.0f} s before it: too late, take fewer timers")
            print(f"  timers are set {early_seconds:.0f} s before they are due", file=sys.stderr)
            time.sleep(early_seconds - 20)
            return _wave(made, worker, timers, due_ms)
        finally:
            worker.stop()
            progress.close()


def _wave(made: Stack, worker: Watched, timers: int, due_ms: int) -> dict[str, Any]:
    feed, traffic = live.Feed(made), live.Traffic(made, 0, _PROBES_PER_SECOND, "wave")
    traffic.start()
    while feed.others < timers:
        worker.check()
        if time.time() * 1000 > due_ms + 1_800_000:
            raise TimeoutError(f"{feed.others} of {timers} exits within half an hour")
        time.sleep(0.05)
    over_ms = time.time() * 1000
    traffic.stop()
    feed.wait_for(lambda: set(traffic.appended), 60)
    feed.stop()
    before = live.latencies(traffic, feed, due_ms - 15_000, due_ms - 1_000)
    meanwhile = live.latencies(traffic, feed, due_ms, over_ms)
    return {
        "timers": timers,
        "worked_off_in_seconds": round((over_ms - due_ms) / 1000, 1),
        "before": live.percentiles(before),
        "meanwhile": live.percentiles(meanwhile),
        "added_ms_p99": round(live.percentiles(meanwhile)["p99_ms"] - live.percentiles(before)["p50_ms"], 1),
        "added_ms_max": round(meanwhile[-1] - live.percentiles(before)["p50_ms"], 1),
    }
