"""Adapter: attempts of asynchronous channels, made by the threads of the lanes in one event loop."""

import asyncio
import threading
from collections.abc import Callable, Mapping
from concurrent.futures import Future
from typing import Final

from starling_delivery.channel import Answer, Channel, Message, Unknown

_GRACE_SECONDS: Final = 10.0
"""The client ends an attempt at its deadline. An event loop that does not turn is waited for so much longer."""
_START_SECONDS: Final = 30.0


class Attempts:
    """Runs the channels in a thread of its own."""

    def __init__(self, openers: Mapping[str, Callable[[], Channel]], deadline_seconds: float) -> None:
        """`openers`: channel -> function that opens it, called in the event loop. `deadline_seconds`: of one attempt."""
        self._openers = openers
        self._deadline_seconds = deadline_seconds
        self._channels: dict[str, Channel] = {}
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name="attempts", daemon=True)

    def start(self) -> None:
        """Open the channels."""
        self._thread.start()
        asyncio.run_coroutine_threadsafe(self._open(), self._loop).result(_START_SECONDS)

    def send(self, channel: str, message: Message) -> Answer:
        """Make one attempt and return its result. Blocks. Raises: what the channel raises."""
        made: Future[Answer] = asyncio.run_coroutine_threadsafe(self._send(channel, message), self._loop)
        try:
            return made.result(self._deadline_seconds + 2 * _GRACE_SECONDS)
        except TimeoutError:
            made.cancel()
            return Unknown(f"the attempt did not end within {self._deadline_seconds:g} s")

    def stop(self) -> None:
        """Close the channels."""
        asyncio.run_coroutine_threadsafe(self._close(), self._loop).result(_START_SECONDS)
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(_START_SECONDS)
        self._loop.close()

    async def _open(self) -> None:
        self._channels = {name: opener() for name, opener in self._openers.items()}

    async def _send(self, channel: str, message: Message) -> Answer:
        async with asyncio.timeout(self._deadline_seconds + _GRACE_SECONDS):
            return await self._channels[channel].send(message)

    async def _close(self) -> None:
        for channel in self._channels.values():
            await channel.close()
