"""Requests reach public addresses only, and nothing of one response is kept for another request."""

import asyncio
import socket
from collections.abc import Iterator, Sequence
from typing import Any

import aiohappyeyeballs
import pytest
from aiohttp import ClientConnectionError

from starling_common.http.outbound.addresses import AddressRefused
from starling_common.http.outbound.connections import WORKSPACE
from starling_common.http.outbound.sessions import GuardedSession
from tests.contract.delivery.endpoint import Endpoint, answering


@pytest.fixture
def endpoint() -> Iterator[Endpoint]:
    made = Endpoint()
    yield made
    made.close()


def resolving(monkeypatch: pytest.MonkeyPatch, *answers: Sequence[str]) -> None:
    """Let each lookup of a name return the next of these lists of addresses."""
    left = iter(answers)

    def look_up(*_: object, **__: object) -> list[Any]:
        return [(socket.AF_INET, socket.SOCK_STREAM, 6, "", (address, 0)) for address in next(left)]

    monkeypatch.setattr(socket, "getaddrinfo", look_up)


def post(*urls: str, allow_private: bool = True) -> list[int]:
    """Return the statuses of requests that follow one another."""

    async def posted() -> list[int]:
        WORKSPACE.set("acme")
        session, statuses = GuardedSession(lookup_seconds=5, connections=4, allow_private=allow_private), list[int]()
        try:
            for url in urls:
                async with asyncio.timeout(10), session.post(url, b"{}", {}) as response:
                    await response.read()
                    statuses.append(response.status)
        finally:
            await session.close()
        return statuses

    return asyncio.run(posted())


@pytest.mark.parametrize("host", ["127.0.0.1", "[::1]", "10.0.0.1"])
def test_an_address_in_a_private_network_is_refused(host: str) -> None:
    with pytest.raises(AddressRefused, match="private network"):
        post(f"https://{host}/hook", allow_private=False)


@pytest.mark.parametrize("host", ["2130706433", "127.1"])
def test_an_address_that_is_not_four_numbers_is_refused(host: str) -> None:
    with pytest.raises(AddressRefused, match="not a canonical IPv4 address"):
        post(f"https://{host}/hook", allow_private=False)


def test_a_name_with_one_private_address_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    resolving(monkeypatch, ["93.184.215.14", "127.0.0.1"])
    with pytest.raises(AddressRefused, match="private network"):
        post("https://hook.example/", allow_private=False)


def test_the_checked_address_itself_is_connected_to(monkeypatch: pytest.MonkeyPatch) -> None:
    """A name server that answers with a public address first, and a private one then, gets no connection to the private one."""
    resolving(monkeypatch, ["93.184.215.14"], ["127.0.0.1"])
    opened: list[str] = []

    async def start_connection(addr_infos: Sequence[Any], **_: object) -> socket.socket:
        opened.extend(str(info[4][0]) for info in addr_infos)
        raise OSError("no network")

    monkeypatch.setattr(aiohappyeyeballs, "start_connection", start_connection)
    with pytest.raises(ClientConnectionError):
        post("https://rebinding.example/", allow_private=False)
    with pytest.raises(AddressRefused, match="private network"):
        post("https://rebinding.example/", allow_private=False)
    assert opened == ["93.184.215.14"]


def test_the_next_address_is_tried_if_one_refuses(monkeypatch: pytest.MonkeyPatch, endpoint: Endpoint) -> None:
    resolving(monkeypatch, ["127.0.0.2", "127.0.0.1"])
    assert post(endpoint.url.replace("127.0.0.1", "hook.example")) == [200]


def test_no_cookie_is_kept_and_no_redirect_is_followed(endpoint: Endpoint) -> None:
    endpoint.respond = answering(302, Set_Cookie="a=b; Path=/", Location=f"{endpoint.url}/elsewhere")
    assert post(f"{endpoint.url}/1", f"{endpoint.url}/2") == [302, 302]
    assert [request.path for request in endpoint.requests] == ["/1", "/2"]
    assert not any("cookie" in request.headers for request in endpoint.requests)


def test_sending_is_called_with_a_connection_before_anything_is_sent(endpoint: Endpoint) -> None:
    before: list[int] = []

    async def posted() -> None:
        WORKSPACE.set("acme")
        session = GuardedSession(lookup_seconds=5, connections=4, allow_private=True)
        try:
            for _ in range(2):  # the second request uses the connection of the first one
                async with session.post(endpoint.url, b"{}", {}, lambda: before.append(len(endpoint.requests))) as response:
                    await response.read()
            endpoint.close()
            with pytest.raises(ClientConnectionError):
                async with session.post("http://127.0.0.1:1/", b"{}", {}, lambda: before.append(-1)):
                    pass
        finally:
            await session.close()

    asyncio.run(posted())
    assert before == [0, 1]
