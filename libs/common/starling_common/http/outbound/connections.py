"""Adapter: an HTTP client whose connections are guarded: each address is checked when the connection to it is opened."""

import ssl
from collections.abc import Iterable
from contextvars import ContextVar
from typing import Final

import httpcore
import httpx

from starling_common.http.outbound.addresses import AddressRefused, is_public
from starling_common.http.outbound.lookups import Lookups

WORKSPACE: Final[ContextVar[str]] = ContextVar("workspace")
"""The workspace of the attempt, which the task of the attempt sets. Its share of the lookups is used."""

TRACEPARENT: Final[ContextVar[str | None]] = ContextVar("traceparent", default=None)
"""The trace context that the request of the attempt has; None while traces are off, and for a trace that is not sampled."""


class GuardedBackend(httpcore.AsyncNetworkBackend):
    """Resolves the host, refuses private networks, and connects to the first address that accepts.

    The host name stays that of the connection, for TLS and for the pool. A later change of DNS has no effect on it.
    """

    def __init__(self, lookups: Lookups, *, allow_private: bool) -> None:
        self._lookups = lookups
        self._allow_private = allow_private
        self._inner = httpcore.AnyIOBackend()

    async def connect_tcp(
        self,
        host: str,
        port: int,
        timeout: float | None = None,  # noqa: ASYNC109 - the library's interface
        local_address: str | None = None,
        socket_options: Iterable[httpcore.SOCKET_OPTION] | None = None,
    ) -> httpcore.AsyncNetworkStream:
        """Return a connection. Raises: AddressRefused, OSError for a name that cannot be resolved, httpcore.ConnectError."""
        addresses = await self._lookups.addresses(WORKSPACE.get(), host)
        if not self._allow_private and not all(is_public(address) for address in addresses):
            raise AddressRefused("the address is in a private network")
        failure: Exception = httpcore.ConnectError(f"{host} has no address")
        for address in dict.fromkeys(addresses):
            try:
                return await self._inner.connect_tcp(address, port, timeout, local_address, socket_options)
            except httpcore.ConnectError as error:
                failure = error
        raise failure


class _GuardedTransport(httpx.AsyncHTTPTransport):
    def __init__(
        self, backend: httpcore.AsyncNetworkBackend, connections: int, ca_file: str | None, keepalive_seconds: float, *, http2: bool
    ) -> None:
        context = httpx.create_ssl_context(trust_env=False) if ca_file is None else ssl.create_default_context(cafile=ca_file)
        super().__init__(verify=context)
        self._pool = httpcore.AsyncConnectionPool(
            ssl_context=context,
            max_connections=connections,
            max_keepalive_connections=connections,
            keepalive_expiry=keepalive_seconds,
            http2=http2,
            network_backend=backend,
        )


def guarded_client(  # noqa: PLR0913 - the limits of connections
    *,
    timeout_seconds: float,
    lookup_seconds: float,
    connections: int,
    allow_private: bool,
    http2: bool = False,
    ca_file: str | None = None,
    keepalive_seconds: float = 5.0,
) -> httpx.AsyncClient:
    """Return a client that follows no redirect and connects to public addresses only. Set `WORKSPACE` before a request.

    `http2`: also HTTP/2, if the server takes it. `ca_file`: the trusted authorities; None: those of browsers. `keepalive_seconds`:
    the time after which an unused connection is closed. Raises: OSError, SSLError for the file.
    """
    backend = GuardedBackend(Lookups(lookup_seconds), allow_private=allow_private)
    transport = _GuardedTransport(backend, connections, ca_file, keepalive_seconds, http2=http2)
    return httpx.AsyncClient(transport=transport, timeout=timeout_seconds, follow_redirects=False, trust_env=False)
