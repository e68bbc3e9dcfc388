"""Edge: a delivery process: its folded topics, its two consumer groups, and its run until a signal."""

import asyncio
import signal
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, Final, NamedTuple, Protocol

from confluent_kafka import Consumer
from confluent_kafka import Message as KafkaMessage

from starling_common.kafka.group_requests import GroupRequests
from starling_common.telemetry.health import HealthServer, Turns
from starling_delivery.agents import Agent
from starling_delivery.channel import Channel
from starling_delivery.messages.ledger import Ledger
from starling_delivery.sending.dispatch import Dispatcher
from starling_delivery.sending.routing import Routed

_MOST_TURN_SECONDS: Final = 300.0
"""Maximum time between two polls. After it the group reassigns the partitions."""


class WatchedConsumer(Consumer):
    """A consumer whose polls are noted for liveness."""

    def __init__(self, config: dict[str, Any], name: str) -> None:
        super().__init__(config)
        self.turns = Turns(f"the loop of {name}", _MOST_TURN_SECONDS)

    def poll(self, *arguments: Any, **named: Any) -> KafkaMessage | None:
        """Return the first message of a poll."""
        self.turns.turned()
        message: KafkaMessage | None = super().poll(*arguments, **named)
        return message


class View(Protocol):
    """A folded topic, whatever its value."""

    def start(self) -> None:
        """Read the topic to its end. Blocks."""

    def stop(self) -> None:
        """Stop reading."""

    def problem(self) -> str | None:
        """Return the error that has stopped the reading."""


class Group(NamedTuple):
    """One of the two consumer groups of a process. `topic`: an input, with which the group's requests are tried."""

    name: str
    topic: str
    agent: Agent
    consumer: WatchedConsumer


@dataclass
class Delivery:
    """The process of a channel of feeds, or of the channels of campaigns, not yet started.

    `groups`: of the new messages, and of the retries.
    """

    channels: Sequence[Channel]
    views: Mapping[str, View]
    dispatcher: Dispatcher | Routed
    groups: tuple[Group, Group]
    requests: tuple[GroupRequests, GroupRequests]
    health: HealthServer
    turns: Turns
    ledger: Ledger | None = None

    async def run(self) -> None:
        """Run until SIGTERM or SIGINT, then complete and record the attempts in progress."""
        stopping = asyncio.Event()
        loop = asyncio.get_running_loop()
        for number in (signal.SIGTERM, signal.SIGINT):
            loop.add_signal_handler(number, stopping.set)
        for requests in self.requests:
            requests.start()
        if self.ledger is not None:
            await asyncio.to_thread(self.ledger.start)
            self.ledger.run_in(loop)
        for view in self.views.values():
            await asyncio.to_thread(view.start)
        try:
            async with asyncio.TaskGroup() as group:
                group.create_task(self._turn(stopping))
                group.create_task(self.dispatcher.run(stopping))
                for one in self.groups:
                    group.create_task(one.agent.run(stopping))
        finally:
            self.turns.rest()
            if self.ledger is not None:
                await asyncio.to_thread(self.ledger.stop)
            for requests in self.requests:
                requests.stop()
            for channel in self.channels:
                await channel.close()
            for view in self.views.values():
                await asyncio.to_thread(view.stop)
            self.health.stop()

    async def _turn(self, stopping: asyncio.Event) -> None:
        while not stopping.is_set():
            self.turns.turned()
            with suppress(TimeoutError):
                await asyncio.wait_for(stopping.wait(), 1)
