"""Endpoints that stop whatever waits for them: they drip, hang, bomb, redirect or refuse."""

import asyncio
import gzip
import json
import os
import socket
import subprocess
import sys
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager, suppress

from starling_common.testing import free_port

SILENT_HOST = "silent.example"
"""Its name server never answers, in a process of `SILENT_RESOLVER`."""

SILENT_RESOLVER = f"""
import socket, sys, threading
look_up = socket.getaddrinfo

def silent(host, *more, **named):
    if host == "{SILENT_HOST}":
        threading.Event().wait()
    return look_up(host, *more, **named)

socket.getaddrinfo = silent
from starling_delivery.__main__ import main
sys.exit(main())
"""

_BOMB = gzip.compress(bytes(2**24))
_PACE_SECONDS = 0.2

Respond = Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]]


async def _drip_headers(_reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    writer.write(b"HTTP/1.1 200 OK\r\n")
    await _drip(writer, b"X: y\r\n")


async def _drip_body(_reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: 1000000\r\n\r\n")
    await _drip(writer, b"y")


async def _drip(writer: asyncio.StreamWriter, data: bytes) -> None:
    while True:
        writer.write(data)
        await writer.drain()
        await asyncio.sleep(_PACE_SECONDS)  # sleep: the pace of the endpoint


async def _hang(reader: asyncio.StreamReader, _writer: asyncio.StreamWriter) -> None:
    await reader.read()  # returns when the client closes the connection


async def _send_endless_body(_reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    writer.write(b"HTTP/1.1 200 OK\r\n\r\n")
    while True:
        writer.write(bytes(65_536))
        await writer.drain()


async def _send_gzip_bomb(_reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    writer.write(b"HTTP/1.1 200 OK\r\nContent-Encoding: gzip\r\nContent-Length: %d\r\n\r\n" % len(_BOMB) + _BOMB)
    await writer.drain()


async def _redirect(_reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    writer.write(b"HTTP/1.1 302 Found\r\nLocation: /hook\r\nContent-Length: 0\r\nConnection: close\r\n\r\n")
    await writer.drain()


_SERVERS: dict[str, Respond] = {
    "drip-headers": _drip_headers,
    "drip-body": _drip_body,
    "gzip-bomb": _send_gzip_bomb,
    "hang": _hang,
    "redirect": _redirect,
    "huge-body": _send_endless_body,
}


@contextmanager
def hostile_endpoints() -> Iterator[dict[str, str]]:
    """Name -> URL of nine endpoints, in a process of their own."""
    with subprocess.Popen([sys.executable, "-m", __name__], stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        try:
            yield json.loads(process.stdout.readline())
        finally:
            process.stdin.close()


async def _run() -> None:
    with _never_accepting() as port:
        ports = {name: await _serve(respond) for name, respond in _SERVERS.items()}
        ports |= {"never-accept": port, "refuse": free_port()}
        urls = {name: f"http://127.0.0.1:{number}/hook" for name, number in ports.items()}
        sys.stdout.write(json.dumps(urls | {"silent-name-server": f"http://{SILENT_HOST}/hook"}) + "\n")
        sys.stdout.flush()
        await asyncio.to_thread(sys.stdin.read)
    os._exit(0)  # connections that hang are not worth a goodbye


async def _serve(respond: Respond) -> int:
    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with suppress(OSError, asyncio.IncompleteReadError):
            await reader.readuntil(b"\r\n\r\n")
            await respond(reader, writer)
            writer.close()

    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    port: int = server.sockets[0].getsockname()[1]
    return port


@contextmanager
def _never_accepting() -> Iterator[int]:
    """A port whose queue of connections is full: the system drops further requests to connect."""
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        listener.listen(0)
        waiting = []
        for _ in range(4):
            client = socket.socket()
            client.setblocking(False)
            client.connect_ex(listener.getsockname())
            waiting.append(client)
        try:
            yield listener.getsockname()[1]
        finally:
            for client in waiting:
                client.close()


if __name__ == "__main__":
    asyncio.run(_run())
