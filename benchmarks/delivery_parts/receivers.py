"""The other sides of the channels: an HTTP endpoint and an SMTP server that do as little as possible.

As a process, `python -m delivery_parts.receivers http|smtp` prints its port and ends with its standard input. In a thread,
`Serving` notes when each message arrived.
"""

import asyncio
import os
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from subprocess import PIPE, Popen
from typing import Final

from common.bench import HERE

ANSWER: Final = b"HTTP/1.1 204 No Content\r\n\r\n"
_START_SECONDS: Final = 30.0


class Endpoint(asyncio.Protocol):
    """Answers 204 to each request with a Content-Length. `arrived` gets the id of each webhook; `hangs`: without an answer."""

    def __init__(self, arrived: Callable[[str], None] | None = None, *, hangs: bool = False) -> None:
        self._data = bytearray()
        self._arrived = arrived
        self._hangs = hangs

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = transport

    def data_received(self, data: bytes) -> None:
        self._data += data
        while (end := self._data.find(b"\r\n\r\n")) >= 0:
            head = bytes(self._data[:end]).lower()
            length = int(_header(head, b"content-length"))
            if len(self._data) < end + 4 + length:
                return
            del self._data[: end + 4 + length]
            if self._arrived is not None:
                self._arrived(_header(head, b"webhook-id").decode())
            if not self._hangs:
                self._transport.write(ANSWER)  # type: ignore[attr-defined]


def _header(head: bytes, name: bytes) -> bytes:
    return head.partition(b"\r\n" + name + b": ")[2].partition(b"\r\n")[0]


class MailServer(asyncio.Protocol):
    """Takes every mail: one answer for each command, and none of the extensions."""

    def __init__(self) -> None:
        self._data = bytearray()
        self._in_mail = False

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = transport
        self._answer(b"220 localhost")

    def data_received(self, data: bytes) -> None:
        self._data += data
        while (end := self._data.find(b"\r\n.\r\n" if self._in_mail else b"\r\n")) >= 0:
            line = bytes(self._data[:end])
            del self._data[: end + (5 if self._in_mail else 2)]
            if self._in_mail:
                self._in_mail = False
                self._answer(b"250 taken")
            else:
                self._command(line[:4].upper())

    def _command(self, name: bytes) -> None:
        self._in_mail = name == b"DATA"
        self._answer({b"DATA": b"354 go on", b"QUIT": b"221 bye"}.get(name, b"250 localhost"))
        if name == b"QUIT":
            self._transport.close()

    def _answer(self, text: bytes) -> None:
        self._transport.write(text + b"\r\n")  # type: ignore[attr-defined]


PROTOCOLS: Final[dict[str, Callable[[], asyncio.Protocol]]] = {"http": Endpoint, "smtp": MailServer}


@contextmanager
def receiving(kind: str) -> Iterator[int]:
    """Yield the port of a receiver in a process of its own."""
    environment = {**os.environ, "PYTHONPATH": str(HERE)}
    with Popen((sys.executable, "-m", __name__, kind), stdin=PIPE, stdout=PIPE, text=True, env=environment) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        try:
            yield int(process.stdout.readline())
        finally:
            process.stdin.close()


class Serving:
    """Serves an endpoint in a thread. `arrived`: id of each webhook -> when its first request came, monotonic seconds."""

    def __init__(self, *, hangs: bool = False) -> None:
        self.arrived: dict[str, float] = {}
        self.port = 0
        self._hangs = hangs
        self._loop = asyncio.new_event_loop()
        self._is_ready = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()
        if not self._is_ready.wait(_START_SECONDS):
            raise TimeoutError(f"the endpoint did not start within {_START_SECONDS} s")

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}/hook"

    def close(self) -> None:
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(10)

    def _run(self) -> None:
        asyncio.set_event_loop(self._loop)
        server = self._loop.run_until_complete(
            self._loop.create_server(lambda: Endpoint(self._note, hangs=self._hangs), "127.0.0.1", 0, backlog=1_000)
        )
        self.port = server.sockets[0].getsockname()[1]
        self._is_ready.set()
        self._loop.run_forever()

    def _note(self, message_id: str) -> None:
        self.arrived.setdefault(message_id, time.monotonic())


async def serve(kind: str) -> None:
    server = await asyncio.get_running_loop().create_server(PROTOCOLS[kind], "127.0.0.1", 0, backlog=1_000)
    print(server.sockets[0].getsockname()[1], flush=True)
    await asyncio.to_thread(sys.stdin.read)
    os._exit(0)


if __name__ == "__main__":
    asyncio.run(serve(sys.argv[1]))
