"""Segments whose past Spark gathers, beside live events and through a kill, against twins that were there from the start.

A twin asks the same of events and traits of other names, which come at the same instants: so it has leaves of its own.
"""

import random
from collections.abc import Callable, Iterator
from pathlib import Path
from threading import Event, Thread
from typing import Any

import pytest

from starling_common.time.instants import wall_clock_ms
from tests.conftest import Stack
from tests.integration.segmenter.world import World, start
from tests.integration.spark.backfill_instance import BackfillInstance
from tests.integration.stream.rig import Worker, wait_until

__all__ = ["start"]  # the fixture

HOUR_MS = 3_600_000
USERS = [f"user-{number}" for number in range(150)]
SIDES = ("past", "live")
NAMES = ["Product Added", "Order Completed", "Page Viewed"]
EVENTS = 900
"""Each comes twice, once for the twins."""


def segments(side: str) -> dict[str, dict[str, Any]]:
    """`side`: past or live."""
    order, added, page = ({"event": f"{name} {side}"} for name in ("Order Completed", "Product Added", "Page Viewed"))
    return {
        "often": {**order, "op": "gte", "value": 4},
        "lately": {**order, "within": "1d"},
        "absent": {"not": {**page, "within": "1h"}},
        "spent": {**order, "measure": {"sum": "revenue"}, "op": "gte", "value": 20, "within": "3d"},
        "regular": {"regularly": page, "every": "1d", "at_least": 2, "of": 4},
        "chain": {"sequence": [added, {**order, "within": "12h"}], "within": "4d"},
        "left": {"sequence": [added, {"not": order, "for": "6h"}], "within": "3d"},
        "held": {"trait": f"plan_{side}", "op": "eq", "value": "pro", "held_for": "2s"},
        "compared": {**order, "where": {"property": "revenue", "op": "gt", "value": {"trait": f"least_{side}"}}},
    }


class Busy:
    """Two worlds of events at once; late ones among them, which is what `at_ms` is for."""

    def __init__(self, world: World, seed: int) -> None:
        self.world = world
        self.sent = 0
        self._draw = random.Random(seed)

    def happen(self, times: int) -> None:
        draw, now = self._draw, wall_clock_ms()
        for _ in range(times):
            name = draw.choice(NAMES)
            user = draw.choice(USERS[20:] if name == "Page Viewed" else USERS)
            at_ms = now - draw.choice([0, HOUR_MS, draw.randrange(100) * HOUR_MS])
            if draw.random() < 0.05:
                plan, least = draw.choice(["pro", "free"]), draw.randrange(6)
                traits = {f"plan_{side}": plan for side in SIDES} | {f"least_{side}": least for side in SIDES}
                # Profiles are another topic, and a slow broker may take them first. Live events meet what came up to 20 ms later
                # (the segmenter's hold), the past goes by `received_at` alone: `compared` would differ permanently.
                self.world.flush()
                self.world.identify(user, traits)
                self.world.flush()
            for side in SIDES:
                self.world.track(user, f"{name} {side}", at_ms)
        self.sent += times
        self.world.flush()

    def go_on(self, stopping: Event) -> None:
        while not stopping.wait(0.05):
            self.happen(5)


@pytest.fixture
def world(stack: Stack, workspace: str) -> Iterator[World]:
    opened = World(stack, workspace)
    yield opened
    opened.close()


@pytest.fixture
def backfill(stack: Stack, tmp_path: Path) -> Iterator[BackfillInstance]:
    opened = BackfillInstance(stack, tmp_path)
    yield opened
    opened.close()


def members(world: World, side: str) -> dict[str, set[str]]:
    """By the feed."""
    found = {}
    for key in segments(side):
        last = {user: status for user, status, _, _ in world.feed(f"{side}-{key}")}
        found[key] = {user for user, status in last.items() if status == "ENTERED"}
    return found


def differences(world: World) -> str:
    """Return the members on one side alone, by segment, with their changes on both sides."""
    past, live, found = members(world, "past"), members(world, "live"), []
    for key in past:
        for user in sorted(past[key] ^ live[key]):
            feeds = {side: [change for change in world.feed(f"{side}-{key}") if change[0] == user] for side in SIDES}
            found.append(f"{key}: {feeds}")
    return "\n".join(found)


@pytest.mark.long
def test_backfilled_beside_live_events_and_through_a_kill_equals_there_from_the_start(
    world: World, start: Callable[[str], Worker], backfill: BackfillInstance, tmp_path: Path
) -> None:
    start("disk")
    for key, where in segments("live").items():
        world.define(f"live-{key}", where)
    wait_until(lambda: all(world.in_force(f"live-{key}", 1) for key in segments("live")), "the twins to be in force")
    busy, stopping = Busy(world, 7), Event()
    busy.happen(EVENTS)
    for key, where in segments("past").items():
        world.define(f"past-{key}", where, awaits_backfill=True)
    live = Thread(target=busy.go_on, args=(stopping,))
    live.start()
    try:
        place = f"{world.workspace}/past-often"
        first = backfill.start()
        wait_until(lambda: backfill.partitions_done(place) > 0 or first.poll() is not None, "a first part", details=backfill.output)
        assert first.poll() is None, backfill.output()
        first.kill()
        first.wait()
        assert not world.in_force("past-often", 1), "it was killed too late for the test"
        done_before = backfill.partitions_done(place)
        # The second time with a lake, in which nothing is yet.
        assert backfill.start(STARLING_LAKE_WAREHOUSE=str(tmp_path / "lake")).wait(timeout=240) == 0, backfill.output()
        wait_until(lambda: all(world.in_force(f"past-{key}", 1) for key in segments("past")), "the segments to be in force")
    finally:
        stopping.set()
        live.join()
    (run,) = [run for run in backfill.runs.values() if place in run.definitions]
    assert (run.state, run.percent) == ("done", 100.0)
    assert 0 < done_before < len(run.shares)
    wait_until(lambda: not differences(world), "the same members", details=lambda: differences(world))
    assert all(members(world, "past").values())
    for key in segments("past"):
        changes_of: dict[str, list[tuple[int, str]]] = {}
        for user, status, sequence, _ in world.feed(f"past-{key}"):
            changes_of.setdefault(user, []).append((sequence, status))
        assert all([number for number, _ in changes] == list(range(1, len(changes) + 1)) for changes in changes_of.values())
        assert all(changes[0][1] == "ENTERED" for changes in changes_of.values())
