"""Adapter: the guarded client of HTTP/1.1 for many requests a second. Each address is checked when the connection to it is opened.

The pool of httpx looks at each of its connections for every request: with 64 of them a request costs 17 times as much
(`make bench-delivery`, part `webhook`).
"""

import socket
import ssl
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from types import SimpleNamespace
from typing import Final

import certifi
from aiohttp import ClientResponse, ClientSession, ClientTimeout, DummyCookieJar, InvalidURL, TCPConnector, TraceConfig
from aiohttp.abc import AbstractResolver, ResolveResult
from yarl import URL

from starling_common.http.open_files import allow_open_files
from starling_common.http.outbound.addresses import AddressRefused, is_public
from starling_common.http.outbound.connections import WORKSPACE
from starling_common.http.outbound.lookups import Lookups

_OPEN_FILES: Final = 4096
"""The pool keeps any number of unused connections until they are too old. A thousand are the default of many systems."""

_NO_LIMIT: Final = ClientTimeout(total=None, connect=None, sock_connect=None, sock_read=None)


class GuardedSession:
    """Follows no redirect, keeps no cookie, expands no response, and connects to public addresses only.

    The caller sets `WORKSPACE` and bounds the time of each request.
    """

    def __init__(
        self,
        *,
        lookup_seconds: float,
        connections: int,
        allow_private: bool,
        ca_file: str | None = None,
        keepalive_seconds: float = 5.0,
    ) -> None:
        """`connections`: maximum of concurrent requests; further ones wait. `ca_file`: the trusted authorities; None: those of
        browsers. `keepalive_seconds`: the time after which an unused connection is closed. Raises: OSError, SSLError for the file.
        """
        self._lookups = Lookups(lookup_seconds)
        self._connections = connections
        self._allow_private = allow_private
        self._keepalive_seconds = keepalive_seconds
        self._tls = ssl.create_default_context(cafile=certifi.where() if ca_file is None else ca_file)
        self._session: ClientSession | None = None

    @asynccontextmanager
    async def post(
        self, url: str, body: bytes, headers: Mapping[str, str], sending: Callable[[], None] | None = None
    ) -> AsyncIterator[ClientResponse]:
        """Return the response to a POST, in a context that gives the connection back, or closes it if the body was not read.

        `url`: in ASCII, as `checked_url` returns it. `sending`: called with a connection, before a byte of the request.
        Raises: AddressRefused, aiohttp.ClientError, OSError; in the context too.
        """
        try:
            async with self._opened().post(
                URL(url, encoded=True), data=body, headers=headers, allow_redirects=False, trace_request_ctx=sending
            ) as response:
                yield response
        except InvalidURL as invalid:  # such as an IPv4 address that is not written as four numbers
            raise AddressRefused(f"the address is invalid: {invalid}") from invalid

    async def close(self) -> None:
        """Close the connections."""
        if self._session is not None:
            await self._session.close()

    def _opened(self) -> ClientSession:
        if self._session is None:  # the library needs a running event loop
            allow_open_files(_OPEN_FILES)
            self._session = ClientSession(
                connector=TCPConnector(
                    ssl=self._tls,
                    resolver=_Resolver(self._lookups, allow_private=self._allow_private),
                    use_dns_cache=False,
                    limit=self._connections,
                    keepalive_timeout=self._keepalive_seconds,
                    happy_eyeballs_delay=None,  # one address after another
                    enable_cleanup_closed=True,  # an endpoint that does not end TLS holds no connection
                    socket_factory=self._socket,
                ),
                cookie_jar=DummyCookieJar(),
                timeout=_NO_LIMIT,
                auto_decompress=False,
                trace_configs=[_traced()],
                trust_env=False,
            )
        return self._session

    def _socket(self, address: tuple[int, int, int, str, tuple[object, ...]]) -> socket.socket:
        """Return the socket of a connection. An address in a URL is not resolved, and is checked here alone."""
        family, kind, protocol, _, (host, *_) = address
        if not self._allow_private:
            _check(str(host))
        return socket.socket(family, kind, protocol)


def _traced() -> TraceConfig:
    """Return what calls the `sending` of each request."""

    async def begins(_session: ClientSession, context: SimpleNamespace, _params: object) -> None:
        if context.trace_request_ctx is not None:
            context.trace_request_ctx()

    config = TraceConfig()
    config.on_request_headers_sent.append(begins)  # in spite of its name, before the headers are written
    return config


class _Resolver(AbstractResolver):
    """Refuses a name if any of its addresses is in a private network."""

    def __init__(self, lookups: Lookups, *, allow_private: bool) -> None:
        self._lookups = lookups
        self._allow_private = allow_private

    async def resolve(
        self,
        host: str,
        port: int = 0,
        family: socket.AddressFamily = socket.AF_INET,  # noqa: ARG002 - the library's interface
    ) -> list[ResolveResult]:
        """Return the addresses of a host. Raises: AddressRefused, OSError."""
        addresses = list(dict.fromkeys(await self._lookups.addresses(WORKSPACE.get(), host)))
        if not self._allow_private:
            for address in addresses:
                _check(address)
        return [_result(host, address, port) for address in addresses]

    async def close(self) -> None:
        """Nothing to close: a lookup ends in its thread."""


def _check(address: str) -> None:
    if not is_public(address):
        raise AddressRefused("the address is in a private network")


def _result(host: str, address: str, port: int) -> ResolveResult:
    family = socket.AF_INET6 if ":" in address else socket.AF_INET
    flags = socket.AI_NUMERICHOST | socket.AI_NUMERICSERV
    return ResolveResult(hostname=host, host=address, port=port, family=family, proto=0, flags=flags)
