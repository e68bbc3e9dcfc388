"""Adapter: the HTTP server of the services that clients from outside reach.

The server accepts a fixed number of connections. Without a limit for each address one client could hold them all with requests
that it never finishes, and health checks would not get through.
"""

import asyncio
import ipaddress
import os
import socket
import stat
from collections import defaultdict
from pathlib import Path
from typing import Annotated, Any, Final

from granian.constants import HTTPModes, Interfaces
from granian.http import HTTP1Settings
from granian.server.embed import Server
from pydantic import Field

from starling_common.http.open_files import allow_open_files
from starling_common.settings import Http
from starling_common.telemetry.logs import log

_BACKLOG: Final = 2048
"""Most connections that the system has accepted and the server has not."""
_SPARE_FILES: Final = 512
"""File descriptors for everything else: broker and database connections, files, the libraries' own."""
_CHECK_SECONDS: Final = 1.0
_OPEN_FILES: Final = Path("/proc/self/fd")
"""Linux; elsewhere there is no cap for each address."""


class PublicHttp(Http):
    """The HTTP address of a service that clients from outside reach, and the limits of their connections."""

    max_connections: Annotated[int, Field(ge=16, le=100_000, description="maximum open connections of the process")] = 8192
    max_connections_per_address: Annotated[
        int,
        Field(
            ge=1,
            le=100_000,
            description="maximum open connections of one client address (IPv6: one /64 network); newer ones are closed. "
            "Behind a proxy all connections have the proxy's address",
        ),
    ] = 2048
    head_timeout_seconds: Annotated[
        float, Field(ge=1, le=300, description="maximum time for the headers of a request, and of an idle connection")
    ] = 30


def http_server(app: Any, http: PublicHttp, interface: Interfaces) -> Server:
    """Return a server for the application, with HTTP/1.1 only: HTTP/2 has no time limit for headers."""
    allow_open_files(http.max_connections + _SPARE_FILES)
    return Server(
        app,
        address=http.host,
        port=http.port,
        interface=interface,
        http=HTTPModes.http1,
        websockets=False,
        backlog=_BACKLOG,
        backpressure=http.max_connections,
        http1_settings=HTTP1Settings(header_read_timeout=round(http.head_timeout_seconds * 1000)),
        log_enabled=False,
    )


class ConnectionCap:
    """Closes the newest connections of an address beyond `most`. The server has no hook for new connections.

    Therefore the process's own sockets are listed. That takes about 5 µs for each open connection.
    """

    def __init__(self, port: int, most: int) -> None:
        """`port` is the server's own."""
        self._port = port
        self._most = most
        self._known: dict[tuple[str, int], int] = {}
        self._checks = 0

    async def watch(self) -> None:
        """Check once a second. Runs until cancelled."""
        while True:
            await asyncio.sleep(_CHECK_SECONDS)
            closed = self.check()
            for address, count in closed.items():
                log(__name__).warning("connections_closed", address=address, connections=count, cap=self._most)

    def check(self) -> dict[str, int]:
        """Close the connections beyond the cap; return their number by address."""
        names = [entry.name for entry in os.scandir(_OPEN_FILES)] if _OPEN_FILES.exists() else []
        if len(names) <= self._most:
            return {}
        self._checks += 1
        by_address: dict[str, list[tuple[int, socket.socket]]] = defaultdict(list)
        known: dict[tuple[str, int], int] = {}
        try:
            for name in names:
                accepted = _connection(int(name), self._port)
                if accepted is not None:
                    connection, peer = accepted
                    known[peer] = self._known.get(peer, self._checks)
                    by_address[network(peer[0])].append((known[peer], connection))
            self._known = known
            return {address: len(beyond) for address, found in by_address.items() if (beyond := self._close_beyond(found))}
        finally:
            for found in by_address.values():
                for _, connection in found:
                    connection.close()

    def _close_beyond(self, connections: list[tuple[int, socket.socket]]) -> list[socket.socket]:
        connections.sort(key=lambda found: found[0])
        beyond = [connection for _, connection in connections[self._most :]]
        for connection in beyond:
            try:
                connection.shutdown(socket.SHUT_RDWR)
            except OSError:
                continue  # closed by its client meanwhile
        return beyond


def network(address: str) -> str:
    """Return the address that the cap counts by: an IPv4 address itself, the /64 network of an IPv6 address."""
    try:
        parsed = ipaddress.ip_address(address.partition("%")[0])
    except ValueError:
        return address
    if isinstance(parsed, ipaddress.IPv4Address):
        return str(parsed)
    if parsed.ipv4_mapped is not None:
        return str(parsed.ipv4_mapped)
    return str(ipaddress.ip_network((parsed, 64), strict=False))


def _connection(number: int, port: int) -> tuple[socket.socket, tuple[str, int]] | None:
    """Return a duplicate of an accepted connection and the peer's address; None for every other descriptor."""
    try:
        if not stat.S_ISSOCK(os.fstat(number).st_mode):
            return None
        connection = socket.socket(fileno=os.dup(number))
    except OSError:
        return None  # closed meanwhile
    try:
        if connection.family in (socket.AF_INET, socket.AF_INET6) and connection.getsockname()[1] == port:
            peer = connection.getpeername()
            return connection, (peer[0], peer[1])
    except OSError:
        pass  # a listening socket, or one that is closed
    connection.close()
    return None
