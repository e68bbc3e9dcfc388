"""The loop that drives the rounds shares itself with what brings the records."""

import asyncio
from typing import Any

from starling_stream.runner import Runner


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
