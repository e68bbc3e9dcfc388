"""Core of the sending: many messages at once, in order a user and target, and one Step for each."""

import asyncio
import random
from collections import defaultdict
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from starling_common.instants import wall_clock_ms
from starling_common.logs import log
from starling_delivery.channel import Again, Answer, Channel, Impossible
from starling_delivery.policy import Request, Schedule, Step, after, message_of
from starling_delivery.targets import Targets

Record = Callable[[Request, Step], None]
"""Writes down what became of a request; must not wait."""


@dataclass(frozen=True)
class Dispatcher:
    """Sends requests through one channel.

    `max_in_flight` attempts are under way at once. A target that failed `failures_before_pause` times in a row is not
    asked again in the same batch: its other messages are put off as if they had failed, so that one dead endpoint
    does not hold up everybody else's messages for the length of its time-outs.
    """

    channel: Channel
    targets: Targets
    schedule: Schedule
    max_in_flight: int
    failures_before_pause: int

    async def send(self, requests: Sequence[Request], record: Record) -> None:
        """Returns when every request has its step written down."""
        lanes: dict[tuple[str, str, str], list[Request]] = defaultdict(list)
        for request in requests:
            lanes[request["workspace"], request["target_key"], request["user_id"]].append(request)
        failures: dict[tuple[str, str], int] = defaultdict(int)
        places = asyncio.Semaphore(self.max_in_flight)
        async with asyncio.TaskGroup() as group:
            for lane in lanes.values():
                group.create_task(self._lane(lane, record, places, failures))

    async def _lane(
        self, lane: Sequence[Request], record: Record, places: asyncio.Semaphore, failures: dict[tuple[str, str], int]
    ) -> None:
        for request in lane:
            async with places:
                step = await self._one(request, failures)
            record(request, step)

    async def _one(self, request: Request, failures: dict[tuple[str, str], int]) -> Step:
        target = self.targets.find(request["workspace"], request["target_key"])
        if target is None:
            return Step("SUPPRESSED", "the target was archived")
        if target.disabled:
            return Step("SUPPRESSED", "the target is switched off")
        of_target = (target.workspace, target.key)
        if failures[of_target] >= self.failures_before_pause:
            answer: Answer = Again(f"put off: {failures[of_target]} attempts in a row failed")
        else:
            answer = await self._sent(request)
            failures[of_target] = failures[of_target] + 1 if isinstance(answer, Again) else 0
        return after(request, answer, self.schedule, wall_clock_ms(), random.random())  # noqa: S311 - spreads load, guards nothing

    async def _sent(self, request: Request) -> Answer:
        try:
            return await self.channel.send(message_of(request))
        except Exception as error:  # noqa: BLE001 - one message that a channel cannot handle must not end all others' delivery
            log(__name__).exception("channel_failed", channel=self.channel.name, delivery_id=request["delivery_id"])
            return Impossible(f"the channel failed with {type(error).__name__}: {error}")
