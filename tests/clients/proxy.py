"""A reverse proxy that loses answers, refuses, and resets connections, as networks and load balancers do."""

import asyncio
import contextlib
import gzip
import re
from collections import Counter
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from itertools import cycle
from typing import Final

LOST: Final = "answer lost"
RATE_LIMITED: Final = "429"
UNAVAILABLE: Final = "503"
RESET: Final = "reset"
FAULTS: Final = (LOST, RATE_LIMITED, UNAVAILABLE, RESET)

_MOST_FAULTS: Final = 2
"""For one batch: clients give up after three failed attempts."""
_GZIP: Final = b"\x1f\x8b"
_MESSAGE_ID: Final = re.compile(rb'"messageId":\s*"[^"]*"')
_REFUSALS: Final = {RATE_LIMITED: ("429 Too Many Requests", "Retry-After: 1\r\n"), UNAVAILABLE: ("503 Service Unavailable", "")}


@dataclass(frozen=True, slots=True)
class _Request:
    method: str
    head: bytes
    body: bytes


class FaultyProxy:
    """Forwards HTTP/1.1 requests to one server. Only requests with a method of `POST` meet faults."""

    def __init__(self, upstream_port: int, faults: Sequence[str]) -> None:
        """`faults`: the kinds after which the client repeats a request."""
        self.seen: Counter[str] = Counter()
        self._upstream_port = upstream_port
        self._given: Counter[bytes] = Counter()
        once = [fault for kind in faults for fault in (None, kind)]
        self._plan = cycle([*once, None, *faults[:2]])

    @asynccontextmanager
    async def listening(self) -> AsyncIterator[int]:
        """Yield the port."""
        server = await asyncio.start_server(self._connection, "127.0.0.1", 0)
        try:
            yield server.sockets[0].getsockname()[1]
        finally:
            server.close()

    def _next_fault(self, request: _Request) -> str | None:
        if request.method != "POST":
            return None
        first = _MESSAGE_ID.search(gzip.decompress(request.body) if request.body.startswith(_GZIP) else request.body)
        fault = next(self._plan) if first is not None and self._given[first[0]] < _MOST_FAULTS else None
        if fault and first:
            self._given[first[0]] += 1
        return fault

    async def _connection(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with contextlib.suppress(OSError, asyncio.IncompleteReadError):
            while await self._one(reader, writer):
                pass
        writer.close()

    async def _one(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> bool:
        """Serve one request; return whether the connection stays open."""
        request = await _read(reader)
        fault = self._next_fault(request)
        self.seen[fault or request.method] += 1
        if fault == RESET:
            writer.transport.abort()
            return False
        if fault in _REFUSALS:
            status, header = _REFUSALS[fault]
            writer.write(
                f"HTTP/1.1 {status}\r\n{header}Access-Control-Allow-Origin: *\r\nAccess-Control-Expose-Headers: Retry-After\r\n"
                "Content-Type: application/json\r\nContent-Length: 2\r\n\r\n{}".encode()
            )
            await writer.drain()
            return True
        answer = await self._forwarded(request)
        if fault == LOST:
            writer.transport.abort()
            return False
        writer.write(answer)
        await writer.drain()
        return False

    async def _forwarded(self, request: _Request) -> bytes:
        reader, writer = await asyncio.open_connection("127.0.0.1", self._upstream_port)
        lines = [line for line in request.head.split(b"\r\n") if line and not line.lower().startswith(b"connection:")]
        writer.write(b"\r\n".join([*lines, b"Connection: close", b"", request.body]))
        answer = await reader.read(-1)
        writer.close()
        return answer


async def _read(reader: asyncio.StreamReader) -> _Request:
    """Read one request. Raises: IncompleteReadError at the end of the connection."""
    head = await reader.readuntil(b"\r\n\r\n")
    first, *lines = head.decode("latin-1").split("\r\n")
    headers = {name.strip().lower(): value.strip() for name, _, value in (line.partition(":") for line in lines)}
    if headers.get("transfer-encoding", "").lower() == "chunked":
        body = b""
        while True:
            size = await reader.readuntil(b"\r\n")
            chunk = await reader.readexactly(int(size, 16) + 2)
            body += size + chunk
            if size.strip() == b"0":
                break
    else:
        body = await reader.readexactly(int(headers.get("content-length") or 0))
    return _Request(first.split(" ", 1)[0], head.removesuffix(b"\r\n"), body)
