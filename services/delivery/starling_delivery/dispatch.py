"""Core: sends messages concurrently, sequentially for each user and target, and determines the step after each attempt."""

import asyncio
import random
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from typing import Protocol

from starling_common.failures import is_of_installation, poison
from starling_common.outcome import Refused
from starling_common.telemetry.logs import log
from starling_common.time.instants import wall_clock_ms
from starling_delivery.channel import Again, Answer, Channel, Impossible
from starling_delivery.poison import tried_twice
from starling_delivery.policy import Request, Schedule, Step, after, message_of
from starling_delivery.targets import Targets


class Steps(Protocol):
    """Publishes the steps of requests. The methods must not block for long."""

    def record(self, request: Request, step: Step) -> None:
        """Publish the step of a request."""

    def refuse(self, request: Request, why: Refused) -> None:
        """Publish the dead letter of a request that cannot be processed."""


@dataclass(frozen=True)
class Dispatcher:
    """Sends requests through one channel.

    At most `max_in_flight` attempts run concurrently. After `failures_before_pause` failures in a row a target gets no more
    messages of the batch: they count as failed, so that the time-outs of one dead endpoint do not delay the messages of other
    targets.
    """

    channel: Channel
    targets: Targets
    schedule: Schedule
    max_in_flight: int
    failures_before_pause: int

    async def send(self, requests: Sequence[Request], steps: Steps) -> None:
        """Send all requests and return when the step of each is recorded."""
        lanes: dict[tuple[str, str, str], list[Request]] = defaultdict(list)
        for request in requests:
            lanes[request["workspace"], request["target_key"], request["user_id"]].append(request)
        failures: dict[tuple[str, str], int] = defaultdict(int)
        slots = asyncio.Semaphore(self.max_in_flight)
        async with asyncio.TaskGroup() as group:
            for lane in lanes.values():
                group.create_task(self._lane(lane, steps, slots, failures))

    async def _lane(
        self, lane: Sequence[Request], steps: Steps, slots: asyncio.Semaphore, failures: dict[tuple[str, str], int]
    ) -> None:
        for request in lane:
            try:
                async with slots:
                    step = await self._one(request, failures)
                published = tried_twice(partial(steps.record, request, step))
            except Exception as cause:
                if is_of_installation(cause):
                    raise
                published = poison(cause)
            if published is not None:
                steps.refuse(request, published)

    async def _one(self, request: Request, failures: dict[tuple[str, str], int]) -> Step:
        target = self.targets.find(request["workspace"], request["target_key"])
        if target is None:
            return Step("SUPPRESSED", "the target is archived")
        if target.disabled:
            return Step("SUPPRESSED", "the target is disabled")
        of_target = (target.workspace, target.key)
        if failures[of_target] >= self.failures_before_pause:
            answer: Answer = Again(f"postponed: {failures[of_target]} attempts in a row failed")
        else:
            answer = await self._sent(request)
            failures[of_target] = failures[of_target] + 1 if isinstance(answer, Again) else 0
        return after(request, answer, self.schedule, wall_clock_ms(), random.random())  # noqa: S311 - not used for security

    async def _sent(self, request: Request) -> Answer:
        try:
            return await self.channel.send(message_of(request))
        except Exception as error:  # noqa: BLE001 - a failing message must not stop the delivery of others
            log(__name__).exception("channel_failed", channel=self.channel.name, delivery_id=request["delivery_id"])
            return Impossible(f"the channel failed with {type(error).__name__}: {error}")
