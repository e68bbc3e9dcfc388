"""Two workers are rolled between the release before and this one, under load, until the newest format is switched on."""

import threading
from collections.abc import Callable, Iterator

import pytest

from starling_segments import FORMAT, FORMAT_BEFORE
from tests.conftest import Stack
from tests.integration.segmenter.world import World, start
from tests.integration.stream.rig import Worker, wait_until

__all__ = ["start"]  # the fixture

BEFORE = "tests.integration.segmenter.release_before"
NOW = "starling_segmenter"
USERS = [f"user-{number}" for number in range(20)]
EVENTS = 600
"""Events of each user: 300 s of load, if the rolls take as long."""


@pytest.fixture
def world(stack: Stack, workspace: str) -> Iterator[World]:
    opened = World(stack, workspace)
    yield opened
    opened.close()


class Load:
    """Sends an event of each user every half a second until `finish`, which sends the rest at once."""

    def __init__(self, world: World) -> None:
        self._world = world
        self._hurry = threading.Event()
        self._thread = threading.Thread(target=self._send, daemon=True)
        self._thread.start()

    def runs(self) -> bool:
        return self._thread.is_alive()

    def finish(self) -> None:
        self._hurry.set()
        self._thread.join(120)
        assert not self._thread.is_alive()

    def _send(self) -> None:
        for _ in range(EVENTS):
            for user in USERS:
                self._world.track(user, "Order Completed")
            self._world.flush()
            self._hurry.wait(0.5)


class Fleet:
    """Two workers, each replaced by another release while the other one works."""

    def __init__(self, start: Callable[..., Worker]) -> None:
        self._start = start
        self.workers: dict[str, Worker] = {}

    def roll(self, module: str, state_format: int | None = None) -> None:
        for name in ("one", "two"):
            self.replace(name, module, state_format)

    def replace(self, name: str, module: str, state_format: int | None = None) -> None:
        if name in self.workers:
            assert self.workers[name].terminate() == 0
        settings = {} if state_format is None else {"STARLING_STATE_FORMAT": str(state_format)}
        self.workers[name] = self._start(name, name, module, **settings)


@pytest.mark.long
def test_no_event_is_lost_or_repeated_while_workers_of_two_releases_are_rolled(world: World, start: Callable[..., Worker]) -> None:
    condition = {"event": "Order Completed", "op": "eq"}
    world.define("first", {**condition, "value": 1})
    world.define("all", {**condition, "value": EVENTS})
    fleet = Fleet(start)
    fleet.roll(BEFORE)
    wait_until(lambda: world.in_force("all", 1), "the definitions to be in force")
    load = Load(world)
    for module, written in [(NOW, FORMAT_BEFORE), (BEFORE, None), (NOW, FORMAT_BEFORE)]:
        fleet.roll(module, written)
    # Switched on in one worker after the other, and off again: this release reads both.
    for written in (FORMAT, FORMAT_BEFORE, FORMAT):
        fleet.roll(NOW, written)
    assert load.runs(), "raise EVENTS: the load must outlast the rolls"
    load.finish()
    once = sorted((user, "ENTERED", 1, "EVENT") for user in USERS)
    wait_until(lambda: sorted(world.feed("all")) == once, "every user to have every event exactly once")
    assert sorted(change[:3] for change in world.feed("first")) == sorted(
        (user, status, number) for user in USERS for number, status in ((1, "ENTERED"), (2, "EXITED"))
    )

    # States of the newest format end a worker of the release before, which names the state; this release continues.
    assert fleet.workers.pop("one").terminate() == 0
    for user in USERS:
        world.track(user, "Order Completed")
    world.flush()
    older = start("one", "one", BEFORE, awaits_ready=False)
    wait_until(lambda: not older.alive(), "the older worker to end")
    assert f"state format {FORMAT:02x}, expected at most {FORMAT_BEFORE:02x}" in older.log.read_text()
    fleet.replace("one", NOW, FORMAT)
    exits = sorted((user, "EXITED", 2, "EVENT") for user in USERS)
    wait_until(lambda: sorted(world.feed("all")) == sorted(once + exits), "every user to leave by one more event")
