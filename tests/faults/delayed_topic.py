"""A proxy before the broker that delays the produce requests of one topic at random; those of other topics overtake them."""

import asyncio
import random
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field

_PRODUCE = 0
_MOST_SECONDS = 0.5
_NAMES_WITHIN = 300
"""A produce request names its topic within its first bytes; the client sends one partition a request."""


@dataclass
class DelayedTopic:
    """A running proxy. `delayed`: the number of requests that it delayed."""

    broker: str
    topic: str
    dice: random.Random
    address: str = ""
    delayed: int = 0
    ready: threading.Event = field(default_factory=threading.Event)

    async def serve(self) -> None:
        """Accept connections until `stop`."""
        self._loop, self._over = asyncio.get_running_loop(), asyncio.Event()
        async with await asyncio.start_server(self._connected, "127.0.0.1", 0) as server:
            self.port = server.sockets[0].getsockname()[1]
            self.address = f"127.0.0.1:{self.port}"
            self.ready.set()
            await self._over.wait()

    def stop(self) -> None:
        self._loop.call_soon_threadsafe(self._over.set)

    async def _connected(self, client: asyncio.StreamReader, to_client: asyncio.StreamWriter) -> None:
        host, _, port = self.broker.partition(":")
        server, to_server = await asyncio.open_connection(host, int(port))
        mine = asyncio.create_task(self._requests(client, to_server))
        theirs = asyncio.create_task(self._responses(server, to_client, host.encode() + int(port).to_bytes(4, "big")))
        try:
            await asyncio.wait({mine, theirs}, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for task in (mine, theirs):
                task.cancel()
            to_client.close()
            to_server.close()

    async def _requests(self, client: asyncio.StreamReader, to_server: asyncio.StreamWriter) -> None:
        loop, not_before = asyncio.get_running_loop(), 0.0
        with suppress(asyncio.IncompleteReadError, ConnectionError):
            while True:
                frame = await _frame(client)
                is_delayed = frame[4:6] == _PRODUCE.to_bytes(2, "big") and self.topic.encode() in frame[:_NAMES_WITHIN]
                if not is_delayed:
                    to_server.write(frame)
                    continue
                # The requests of the topic stay in their order: the client's sequence numbers demand it.
                self.delayed += 1
                not_before = max(not_before, loop.time() + self.dice.uniform(0.0, _MOST_SECONDS))
                loop.call_at(not_before, to_server.write, frame)

    async def _responses(self, server: asyncio.StreamReader, to_client: asyncio.StreamWriter, place: bytes) -> None:
        # The broker's metadata contain its own address, to which the client would connect.
        own = b"127.0.0.1" + self.port.to_bytes(4, "big")
        with suppress(asyncio.IncompleteReadError, ConnectionError):
            while True:
                to_client.write((await _frame(server)).replace(place, own))


async def _frame(reader: asyncio.StreamReader) -> bytes:
    size = await reader.readexactly(4)
    return size + await reader.readexactly(int.from_bytes(size, "big"))


@contextmanager
def delayed(broker: str, topic: str, seed: int) -> Iterator[DelayedTopic]:
    """Run the proxy in a thread of its own until the block ends."""
    relay = DelayedTopic(broker, topic, random.Random(f"delay {seed}"))
    thread = threading.Thread(target=lambda: asyncio.run(relay.serve()), name="proxy", daemon=True)
    thread.start()
    assert relay.ready.wait(10)
    try:
        yield relay
    finally:
        relay.stop()
        thread.join(10)
