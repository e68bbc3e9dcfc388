"""Clients that never finish a request do not keep the API from the others. No broker and no database is needed for that."""

import select
from collections.abc import Iterator
from contextlib import ExitStack

import httpx
import pytest

from starling_common.testing import Service, running
from tests.contract.api.lonely import ENVIRONMENT, connect, post


@pytest.fixture(scope="module")
def lonely_api(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Service]:
    with running("starling_api", ENVIRONMENT, tmp_path_factory.mktemp("slow") / "log", ready=False) as service:
        with httpx.Client(transport=httpx.HTTPTransport(retries=8), trust_env=False) as http:
            http.get(f"{service.url}/healthz")
        yield service


@pytest.mark.parametrize("path", ["/v1/segments", "/v1/segments/preview"])
def test_a_body_that_does_not_arrive_is_408_and_closes_the_connection(lonely_api: Service, path: str) -> None:
    with connect(lonely_api) as client:
        client.sendall(post(path, "secret"))
        answer = b"".join(iter(lambda: client.recv(65_536), b""))
    assert answer.startswith(b"HTTP/1.1 408 ")
    assert b'"body_timeout"' in answer


@pytest.mark.parametrize("path", ["/v1/segments", "/v1/segments/preview"])
def test_the_token_is_checked_before_the_body_is_read(lonely_api: Service, path: str) -> None:
    with connect(lonely_api) as client:
        # Without a broker the process knows the tokens of its settings only, so it cannot call another one unknown.
        client.sendall(post(path, "unknown"))
        assert client.recv(65_536).startswith(b"HTTP/1.1 503 ")


def test_clients_that_drip_a_header_do_not_keep_the_api_from_the_others(lonely_api: Service) -> None:
    with ExitStack() as open_clients:
        for _ in range(300):
            client = open_clients.enter_context(connect(lonely_api))
            client.sendall(b"GET /v1/segments HTTP/1.1\r\nHost: ap")
        assert httpx.get(f"{lonely_api.url}/healthz", timeout=5).status_code == 200


def test_an_address_has_a_bounded_number_of_connections(lonely_api: Service) -> None:
    with ExitStack() as open_clients:
        poll = select.poll()
        for _ in range(450):
            client = open_clients.enter_context(connect(lonely_api))
            client.sendall(b"GET /v1/segments HTTP/1.1\r\nHost: ap")
            poll.register(client, select.POLLIN)
        closed: set[int] = set()
        while len(closed) < 50:
            found = poll.poll(60_000)
            assert found, f"{len(closed)} of 450 connections are closed"
            closed |= {number for number, _ in found}
        # A connection of an earlier test may count, too.
        assert len(closed) < 100
