"""The loop that drives the rounds shares itself with what brings the records."""

import asyncio
from collections.abc import Sequence
from threading import Event
from types import SimpleNamespace
from typing import Any, cast

import pytest

from starling_stream.fold.task import Step
from starling_stream.kafka.transport import Membership
from starling_stream.worker.runner import Parts, Runner


class _Busy(Runner):
    """There is always a round to fold, and the fold gives nothing away; ends after a thousand."""

    def __init__(self) -> None:
        parts: Any = None
        super().__init__(parts, lambda: None, 1.0)
        self.rounds = 0

    async def _turn(self) -> bool:
        self.rounds += 1
        self._stopping = self.rounds == 1_000
        return True


async def _brought(runner: _Busy) -> int:
    """How many rounds went by while a fetch came its way, which takes twenty turns of the loop."""
    before = runner.rounds
    for _ in range(20):
        await asyncio.sleep(0)
    return runner.rounds - before


def test_a_fetch_comes_its_way_between_two_rounds() -> None:
    async def together() -> int:
        runner = _Busy()
        brought = asyncio.create_task(_brought(runner))
        await asyncio.sleep(0)  # it has begun
        await runner.run()
        return await brought

    assert asyncio.run(together()) <= 2


class _Few:
    """Rounds of one step each, so many of them, of few records or many."""

    def __init__(self, *, are_small: bool, count: int = 3) -> None:
        self.are_small = are_small
        self.count = count
        self.folded = 0
        self.all_folded = asyncio.Event()

    def adopt(self, tasks: Sequence[Any]) -> None:
        """No plan."""

    def to_begin(self, tasks: Sequence[Any]) -> None:
        """Nobody."""

    def is_small(self, tasks: Sequence[Any]) -> bool:
        return self.are_small

    def collect(self, tasks: Sequence[Any], now: int) -> list[Step]:
        if self.folded == self.count:
            self.all_folded.set()
            return []
        self.folded += 1
        return [Step(0, None, (), {})]

    def next_release(self, tasks: Sequence[Any]) -> None:
        """Nothing is held."""


class _Slow:
    """A broker that takes its time over a commit until it is told."""

    def __init__(self) -> None:
        self.begun, self.done = Event(), Event()

    def submit(self, units: Sequence[Any], offsets: Sequence[Any]) -> None:
        """Nothing is sent."""

    def commit(self, submitted: Any, membership: Membership) -> dict[int, int]:
        self.begun.set()
        assert self.done.wait(30)
        return {}


@pytest.mark.parametrize(("are_small", "folded"), [(True, 1), (False, 2)])
def test_a_small_round_is_folded_once_the_one_before_it_is_there(are_small: bool, folded: int) -> None:
    rounds, broker = _Few(are_small=are_small), _Slow()
    task: Any = SimpleNamespace(partition=0, submitted=lambda _: None, landed=lambda _: None)
    holdings = SimpleNamespace(running=lambda: [task], tasks=lambda: [task], assign=lambda *_: None, interrupt=lambda: None)
    tier = SimpleNamespace(pressure=lambda: 0.0)
    told = SimpleNamespace(committed=lambda *_: None, passed=lambda _: None)
    made = Parts(*cast("Any", (holdings, rounds, broker, tier, told, told)))

    async def lived() -> tuple[int, int]:
        runner = Runner(made, lambda: None, 1.0)
        await runner.assigned([0], (), Membership("g", 1, "m", None))
        running = asyncio.create_task(runner.run())
        await asyncio.to_thread(broker.begun.wait, 30)
        for _ in range(20):
            runner.wake()
            await asyncio.sleep(0.005)
        meanwhile = rounds.folded
        broker.done.set()
        await rounds.all_folded.wait()
        await runner.stop()
        await running
        return meanwhile, rounds.folded

    assert asyncio.run(lived()) == (folded, 3)
