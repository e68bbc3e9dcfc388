"""Adapter: name resolution in bounded time and in threads of its own, of which a workspace can use a share."""

import asyncio
import ipaddress
import socket
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from threading import Thread
from typing import Any, Final, TypeAlias

from starling_common.shares import Shares

_THREADS: Final = 32

_Key: TypeAlias = tuple[str, str]
"""Workspace and host."""


class LookupFailed(OSError):
    """The name was not resolved in time."""


@dataclass(eq=False, slots=True)
class _Lookup:
    """One lookup, with the number of attempts that wait for it."""

    key: _Key
    result: asyncio.Future[list[str]]
    attempts: int = 0
    has_thread: bool = False


class Lookups:
    """Resolves names with the system's resolver. Concurrent lookups of one host by one workspace are one.

    A lookup cannot be cancelled: behind a name server that does not answer it keeps its thread for many seconds. A host therefore
    has one thread at most, and one workspace a half of them.
    """

    def __init__(self, timeout_seconds: float) -> None:
        """`timeout_seconds` bounds the time for which an attempt waits. It does not end the lookup."""
        self._timeout_seconds = timeout_seconds
        self._threads = Shares(_THREADS)
        self._lookups: dict[_Key, _Lookup] = {}

    async def addresses(self, workspace: str, host: str) -> list[str]:
        """Return the IP addresses of a host. Raises: OSError if it has none, LookupFailed after the timeout."""
        if _is_address(host):
            return [host]
        lookup = self._lookup((workspace, host))
        lookup.attempts += 1
        try:
            async with asyncio.timeout(self._timeout_seconds):
                return await asyncio.shield(lookup.result)
        except TimeoutError as cause:
            raise LookupFailed(f"{host} was not resolved within {self._timeout_seconds:g} s") from cause
        finally:
            lookup.attempts -= 1
            if not lookup.attempts and not lookup.has_thread:
                self._lookups.pop(lookup.key, None)

    def _lookup(self, key: _Key) -> _Lookup:
        if key not in self._lookups:
            self._lookups[key] = _Lookup(key, asyncio.get_running_loop().create_future())
            self._start_waiting()
        return self._lookups[key]

    def _start_waiting(self) -> None:
        loop = asyncio.get_running_loop()
        for lookup in self._lookups.values():
            if not lookup.has_thread and self._threads.may_take(*lookup.key):
                lookup.has_thread = True
                self._threads.take(*lookup.key)
                # A daemon thread: the end of the process does not wait for a name server.
                Thread(target=self._look_up, args=(loop, lookup.key), name="lookup", daemon=True).start()

    def _look_up(self, loop: asyncio.AbstractEventLoop, key: _Key) -> None:
        try:
            found: Any = socket.getaddrinfo(key[1], None, type=socket.SOCK_STREAM)
        except Exception as error:  # noqa: BLE001 - the waiting attempts need the error of any kind
            found = error
        with suppress(RuntimeError):  # the loop has ended
            loop.call_soon_threadsafe(partial(self._finish, key, found))

    def _finish(self, key: _Key, found: Sequence[Any] | Exception) -> None:
        self._threads.give_back(*key)
        lookup = self._lookups.pop(key)
        if isinstance(found, Exception):
            lookup.result.set_exception(found)
            lookup.result.exception()  # all its attempts may have timed out
        else:
            lookup.result.set_result([str(entry[4][0]) for entry in found])
        self._start_waiting()


def _is_address(host: str) -> bool:
    try:
        ipaddress.ip_address(host)
    except ValueError:
        return False
    return True
