"""The address of a connection is checked when the connection is opened."""

import asyncio
import socket
from collections.abc import Sequence
from typing import Any

import httpcore
import pytest

from starling_common.http.outbound.addresses import AddressRefused
from starling_common.http.outbound.connections import WORKSPACE, GuardedBackend
from starling_common.http.outbound.lookups import Lookups


def connect(monkeypatch: pytest.MonkeyPatch, addresses: Sequence[str], port: int, *, allow_private: bool) -> str:
    """Return the address that a connection to a host with these addresses has."""

    def look_up(*_: object, **__: object) -> list[Any]:
        return [(socket.AF_INET, socket.SOCK_STREAM, 6, "", (address, 0)) for address in addresses]

    monkeypatch.setattr(socket, "getaddrinfo", look_up)

    async def connected() -> str:
        WORKSPACE.set("acme")
        stream = await GuardedBackend(Lookups(5.0), allow_private=allow_private).connect_tcp("hook.example", port)
        address = str(stream.get_extra_info("server_addr")[0])
        await stream.aclose()
        return address

    return asyncio.run(connected())


@pytest.fixture
def port() -> Any:
    with socket.create_server(("127.0.0.1", 0)) as server:
        yield server.getsockname()[1]


def test_a_name_with_one_private_address_is_refused(monkeypatch: pytest.MonkeyPatch, port: int) -> None:
    with pytest.raises(AddressRefused, match="private network"):
        connect(monkeypatch, ["93.184.215.14", "127.0.0.1"], port, allow_private=False)


def test_dns_that_changes_between_the_check_and_the_connection_leads_nowhere(monkeypatch: pytest.MonkeyPatch) -> None:
    """The name is looked up once for each connection, and the checked address itself is connected to.

    A name server that answers with a public address first, and a private one then, gets no connection to the private one.
    """
    answers = iter([["93.184.215.14"], ["127.0.0.1"], ["10.0.0.1"]])

    def look_up(*_: object, **__: object) -> list[Any]:
        return [(socket.AF_INET, socket.SOCK_STREAM, 6, "", (address, 0)) for address in next(answers)]

    opened: list[str] = []

    class Network(httpcore.AsyncMockBackend):
        async def connect_tcp(self, host: str, *more: Any, **named: Any) -> httpcore.AsyncNetworkStream:
            opened.append(host)
            return await super().connect_tcp(host, *more, **named)

    monkeypatch.setattr(socket, "getaddrinfo", look_up)

    async def connected() -> None:
        WORKSPACE.set("acme")
        backend = GuardedBackend(Lookups(5.0), allow_private=False)
        monkeypatch.setattr(backend, "_inner", Network([]))
        await (await backend.connect_tcp("rebinding.example", 443)).aclose()
        for _ in range(2):
            with pytest.raises(AddressRefused, match="private network"):
                await backend.connect_tcp("rebinding.example", 443)

    asyncio.run(connected())
    assert opened == ["93.184.215.14"]


def test_the_next_address_is_tried_if_one_refuses(monkeypatch: pytest.MonkeyPatch, port: int) -> None:
    assert connect(monkeypatch, ["127.0.0.2", "127.0.0.1"], port, allow_private=True) == "127.0.0.1"


def test_a_name_whose_addresses_all_refuse_is_an_error(monkeypatch: pytest.MonkeyPatch, port: int) -> None:
    with pytest.raises(httpcore.ConnectError):
        connect(monkeypatch, ["127.0.0.2", "127.0.0.3"], port, allow_private=True)
