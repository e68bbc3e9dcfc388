"""Core: the dispatchers of the channels of one process. Each has lanes and circuits of its own."""

import asyncio
from collections.abc import Mapping

from starling_delivery.item import Item
from starling_delivery.sending.dispatch import Dispatcher


class Routed:
    """Passes each request to the dispatcher of its channel, so that no channel takes the room of another one."""

    def __init__(self, dispatchers: Mapping[str, Dispatcher]) -> None:
        """`dispatchers`: channel -> its dispatcher. The inputs return no request of another channel."""
        self._dispatchers = dispatchers

    def offer(self, item: Item) -> bool:
        """Take a request. Return False if it must be offered again."""
        return self._of(item).offer(item)

    def delay(self, item: Item) -> None:
        """Store a retry in a tier until it is due."""
        self._of(item).delay(item)

    async def run(self, stopping: asyncio.Event) -> None:
        """Send until `stopping` is set, then complete the attempts in progress. Raises: BrokerUnavailable, in a group."""
        async with asyncio.TaskGroup() as running:
            for dispatcher in self._dispatchers.values():
                running.create_task(dispatcher.run(stopping))

    async def drained(self) -> None:
        """Return when no attempt is in progress."""
        for dispatcher in self._dispatchers.values():
            await dispatcher.drained()

    def _of(self, item: Item) -> Dispatcher:
        return self._dispatchers[item.request["channel"]]
