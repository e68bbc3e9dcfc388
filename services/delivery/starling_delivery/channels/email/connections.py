"""Adapter: connections to SMTP servers: guarded, logged in, and used again."""

import asyncio
import socket
import ssl
import time
from collections import defaultdict, deque
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any, Final

import aiosmtplib

from starling_common.http.outbound.addresses import AddressRefused, is_public
from starling_common.http.outbound.lookups import Lookups

_IDLE_SECONDS: Final = 20.0
"""Servers close a connection after a minute or more without a command. An older one is closed here."""

_MOST_MAILS: Final = 100
"""Maximum of mails of one connection: servers limit them, and the load is balanced again."""

_MAIL_PORTS: Final = frozenset({25, 465, 587})
_LOWEST_FREE_PORT: Final = 1024

Key = tuple[str, str, int]
"""Workspace, key and version of a target."""


@dataclass(eq=False)
class Connection:
    """One connection. `is_fresh`: it has sent no mail yet."""

    smtp: aiosmtplib.SMTP
    mails: int = 0
    idle_since: float = 0.0

    @property
    def is_fresh(self) -> bool:
        """Whether a failure is not that of a connection that the server has closed while it was idle."""
        return self.mails == 0

    def close(self) -> None:
        """Close the connection without QUIT."""
        self.smtp.close()


@dataclass(frozen=True)
class Guard:
    """Which servers may be reached. `allow_private`: also those in private networks, on any port."""

    lookups: Lookups
    allow_private: bool

    async def connected(self, workspace: str, host: str, port: int) -> socket.socket:
        """Return a socket that is connected to the first address that accepts. Raises: AddressRefused, OSError."""
        if not self.allow_private and port not in _MAIL_PORTS and port < _LOWEST_FREE_PORT:
            raise AddressRefused(f"the port {port} is not allowed: use 587, 465 or 25, or a port from {_LOWEST_FREE_PORT}")
        addresses = await self.lookups.addresses(workspace, host)
        if not self.allow_private and not all(is_public(address) for address in addresses):
            raise AddressRefused(
                f"{host} is in a private network: set STARLING_EMAIL__ALLOW_PRIVATE_ADDRESSES=true for a relay of your own"
            )
        failure: OSError = OSError(f"{host} has no address")
        for address in dict.fromkeys(addresses):
            try:
                return await _connected(address, port)
            except OSError as error:
                failure = error
        raise failure


async def _connected(address: str, port: int) -> socket.socket:
    family = socket.AF_INET6 if ":" in address else socket.AF_INET
    made = socket.socket(family, socket.SOCK_STREAM)
    try:
        made.setblocking(False)
        made.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        await asyncio.get_running_loop().sock_connect(made, (address, port))
    except BaseException:
        made.close()
        raise
    return made


@dataclass
class Connections:
    """The connections of all targets. `take` returns one; `give_back` keeps it for the next mail."""

    guard: Guard
    tls: ssl.SSLContext
    hostname: str
    per_target: int
    timeout_seconds: float
    _idle: dict[Key, deque[Connection]] = field(default_factory=lambda: defaultdict(deque))
    _slots: dict[tuple[str, str], asyncio.Semaphore] = field(default_factory=dict)

    def slot(self, workspace: str, key: str) -> asyncio.Semaphore:
        """Return what bounds the concurrent connections to one target."""
        return self._slots.setdefault((workspace, key), asyncio.Semaphore(self.per_target))

    async def take(self, key: Key, settings: Mapping[str, Any], *, fresh: bool = False) -> Connection:
        """Return a connection that is ready for a mail. `fresh`: a new one.

        Raises: AddressRefused, OSError, aiosmtplib.SMTPException.
        """
        self.close_idle()
        idle = self._idle[key]
        while idle and not fresh:
            found = idle.pop()
            if found.smtp.is_connected:
                return found
            found.close()
        return await self._open(key[0], settings)

    def give_back(self, key: Key, connection: Connection) -> None:
        """Keep a connection after a mail."""
        connection.mails += 1
        if connection.mails >= _MOST_MAILS or not connection.smtp.is_connected:
            connection.close()
            return
        connection.idle_since = time.monotonic()
        self._idle[key].append(connection)

    def close_idle(self, most_seconds: float = _IDLE_SECONDS) -> None:
        """Close connections that were not used for so long, and forget targets without one."""
        oldest = time.monotonic() - most_seconds
        for key in list(self._idle):
            idle = self._idle[key]
            while idle and idle[0].idle_since <= oldest:
                idle.popleft().close()
            if not idle:
                del self._idle[key]

    async def close(self) -> None:
        """Close the idle connections with QUIT."""
        connections = [connection for idle in self._idle.values() for connection in idle]
        self._idle.clear()
        for connection in connections:
            with suppress(aiosmtplib.SMTPException, OSError, TimeoutError):
                await connection.smtp.quit(timeout=1)
            connection.close()

    async def _open(self, workspace: str, settings: Mapping[str, Any]) -> Connection:
        connected = await self.guard.connected(workspace, settings["host"], settings["port"])
        smtp = aiosmtplib.SMTP(
            hostname=settings["host"],
            sock=connected,
            use_tls=settings["tls"] == "tls",
            start_tls=settings["tls"] == "starttls",
            tls_context=self.tls,
            username=settings.get("username"),
            password=settings.get("password"),
            local_hostname=self.hostname,
            timeout=self.timeout_seconds,
        )
        try:
            await smtp.connect()
        except BaseException:
            smtp.close()
            connected.close()
            raise
        return Connection(smtp)
