"""A name server that does not answer costs one thread, and the attempts of others do not wait for it."""

import asyncio
import socket
import threading
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

import pytest

from starling_common.http.outbound.lookups import LookupFailed, Lookups


@dataclass
class Resolver:
    """A resolver that does not answer for names in `.tarpit` before `released` is set."""

    released: threading.Event = field(default_factory=threading.Event)
    calls: list[str] = field(default_factory=list)

    def __call__(self, host: str, _port: object, **_more: object) -> list[Any]:
        self.calls.append(host)
        if host.endswith(".tarpit"):
            self.released.wait()
        if host.endswith(".missing"):
            raise socket.gaierror(socket.EAI_NONAME, "Name or service not known")
        return [(socket.AF_INET, socket.SOCK_STREAM, 6, "", ("93.184.215.14", 0))]


@pytest.fixture
def resolver(monkeypatch: pytest.MonkeyPatch) -> Iterator[Resolver]:
    made = Resolver()
    monkeypatch.setattr(socket, "getaddrinfo", made)
    yield made
    made.released.set()


def lookup_threads() -> int:
    return sum(thread.name == "lookup" for thread in threading.enumerate())


async def until_threads(count: int) -> None:
    while lookup_threads() != count:  # noqa: ASYNC110 - a thread has no event of its end
        await asyncio.sleep(0.001)  # sleep: a thread ends


def test_attempts_to_one_host_share_a_lookup(resolver: Resolver) -> None:
    async def look_up() -> list[list[str]]:
        lookups = Lookups(5.0)
        return list(await asyncio.gather(*(lookups.addresses("acme", "hook.example") for _ in range(50))))

    assert asyncio.run(look_up()) == [["93.184.215.14"]] * 50
    assert resolver.calls == ["hook.example"]


def test_an_address_needs_no_lookup(resolver: Resolver) -> None:
    async def look_up() -> list[str]:
        return await Lookups(5.0).addresses("acme", "2001:db8::1")

    assert asyncio.run(look_up()) == ["2001:db8::1"]
    assert resolver.calls == []


def test_a_name_without_an_address_is_an_error_of_its_attempts(resolver: Resolver) -> None:
    async def look_up() -> list[Any]:
        lookups = Lookups(5.0)
        return await asyncio.gather(*(lookups.addresses("acme", "x.missing") for _ in range(3)), return_exceptions=True)

    assert [type(error) for error in asyncio.run(look_up())] == [socket.gaierror] * 3
    assert resolver.calls == ["x.missing"]


def test_a_tarpit_costs_one_thread_however_often_it_is_tried(resolver: Resolver) -> None:
    async def look_up() -> None:
        lookups = Lookups(0.05)
        for _ in range(3):
            results = await asyncio.gather(*(lookups.addresses("acme", "a.tarpit") for _ in range(20)), return_exceptions=True)
            assert {str(error) for error in results} == {"a.tarpit was not resolved within 0.05 s"}
        assert lookup_threads() == 1
        resolver.released.set()
        await until_threads(0)

    asyncio.run(look_up())
    assert resolver.calls == ["a.tarpit"]


def test_the_tarpits_of_a_workspace_leave_half_of_the_threads_to_others(resolver: Resolver) -> None:
    async def look_up() -> None:
        lookups = Lookups(0.2)
        tarpits = [asyncio.create_task(lookups.addresses("acme", f"{n}.tarpit")) for n in range(200)]
        await asyncio.sleep(0)
        assert lookup_threads() == 16
        assert await lookups.addresses("other", "hook.example") == ["93.184.215.14"]
        assert {type(error) for error in await asyncio.gather(*tarpits, return_exceptions=True)} == {LookupFailed}
        assert lookup_threads() == 16
        resolver.released.set()
        await until_threads(0)
        assert await lookups.addresses("acme", "hook.example") == ["93.184.215.14"]

    asyncio.run(look_up())
    assert len(resolver.calls) == 18  # no lookup begins for attempts that have given up


def test_a_cancelled_attempt_does_not_end_the_lookup_of_the_next_one(resolver: Resolver) -> None:
    async def look_up() -> list[str]:
        lookups = Lookups(5.0)
        first = asyncio.create_task(lookups.addresses("acme", "a.tarpit"))
        await asyncio.sleep(0)
        first.cancel()
        second = asyncio.create_task(lookups.addresses("acme", "a.tarpit"))
        await asyncio.sleep(0)
        resolver.released.set()
        return await second

    assert asyncio.run(look_up()) == ["93.184.215.14"]
