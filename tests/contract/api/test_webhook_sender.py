"""The test call against real endpoints: each answer, and each of the ways in which there is none, has its reason."""

import asyncio
import socket
import threading
import time
from collections.abc import Iterator

import pytest

from starling_api.webhooks.example import Request, example_request
from starling_api.webhooks.sender import MAX_ANSWER_BYTES, Answer, WebhookSender
from starling_common.time.instants import wall_clock_ms
from starling_demo.receiver import Receiver
from tests.integration.delivery.endpoints import hostile_endpoints
from tests.unit.delivery.making import SECRET

DEADLINE_SECONDS = 2.0


@pytest.fixture(scope="module")
def endpoints() -> Iterator[dict[str, str]]:
    with hostile_endpoints() as urls:
        yield urls


@pytest.fixture
def receiver() -> Iterator[Receiver]:
    made = Receiver(SECRET)
    yield made
    made.close()


def example(url: str) -> Request:
    return example_request("acme", {"url": url, "secret": SECRET, "headers": {"X-Team": "growth"}}, "1", wall_clock_ms())


def send(url: str, *, allow_private: bool = True) -> Answer:
    async def sending() -> Answer:
        sender = WebhookSender(allow_private=allow_private, deadline_seconds=DEADLINE_SECONDS)
        try:
            return await sender.send("acme", example(url))
        finally:
            await sender.close()

    return asyncio.run(sending())


def test_a_receiver_gets_a_genuine_example_once(receiver: Receiver) -> None:
    answer = send(receiver.url)
    assert (answer.delivered, answer.status, answer.answer, answer.reason, answer.message) == (True, 204, "", None, None)
    assert (receiver.forged, [call["type"] for call in receiver.calls]) == (0, ["webhook.test"])


@pytest.mark.parametrize(
    ("status", "message"),
    [
        (410, "the endpoint answered 410 Gone: the same answer to a change would disable the webhook"),
        (503, "the endpoint answered 503: a change would be sent again"),
    ],
)
def test_a_refusal_has_its_consequence(receiver: Receiver, status: int, message: str) -> None:
    receiver.failures, receiver.failure_status = 1, status
    answer = send(receiver.url)
    assert (answer.delivered, answer.status, answer.reason, answer.message) == (False, status, "status", message)


@pytest.mark.parametrize(
    ("name", "reason", "status"),
    [
        ("drip-headers", "timeout", None), ("hang", "timeout", None), ("never-accept", "timeout", None),
        ("refuse", "not_connected", None), ("redirect", "status", 302),
        ("drip-body", None, 200), ("huge-body", None, 200), ("gzip-bomb", None, 200),
    ],
)  # fmt: skip
def test_a_hostile_endpoint_costs_its_deadline_and_a_thousand_bytes(
    endpoints: dict[str, str], name: str, reason: str | None, status: int | None
) -> None:
    begun = time.monotonic()
    answer = send(endpoints[name])
    assert (answer.reason, answer.status, answer.delivered) == (reason, status, reason is None)
    assert len(answer.answer or "") <= MAX_ANSWER_BYTES
    assert answer.took_ms <= (time.monotonic() - begun) * 1000 + 1  # it is rounded
    if reason == "timeout":
        assert answer.message == "the endpoint did not answer within 2 s"


@pytest.mark.parametrize(
    "host",
    [
        "127.0.0.1", "10.0.0.8", "169.254.169.254", "[::1]", "[::ffff:127.0.0.1]", "[64:ff9b::7f00:1]", "[2002:7f00:1::]",
        "[fd00::1]", "[fe80::1]", "localhost", "2130706433", "0x7f.1",
    ],
)  # fmt: skip
def test_no_form_of_an_address_leads_inside(receiver: Receiver, host: str) -> None:
    port = receiver.url.rpartition(":")[2].partition("/")[0]
    answer = send(f"https://{host}:{port}/hook", allow_private=False)
    assert (answer.reason, answer.status, answer.answer) == ("address_refused", None, None)
    assert receiver.calls == []
    assert receiver.forged == 0


def test_plain_http_and_privileged_ports_are_refused() -> None:
    plain, port = send("http://example.com/", allow_private=False), send("https://example.com:22/", allow_private=False)
    assert (plain.reason, plain.message) == ("address_refused", "the address must start with https://")
    assert (port.reason, port.message) == ("address_refused", "the port 22 is not allowed: use 443, or a port from 1024")


def test_an_endpoint_without_tls_is_named(receiver: Receiver) -> None:
    answer = send(receiver.url.replace("http:", "https:"))
    assert answer.reason == "tls_failed"
    assert (answer.message or "").startswith("the TLS connection failed: ")


def test_an_unknown_name_is_named() -> None:
    assert send("http://nothing.invalid/").reason == "name_not_resolved"


def test_an_endpoint_without_http_is_named() -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:

        def greet() -> None:
            connection, _ = server.accept()
            with connection:
                connection.recv(65_536)
                connection.sendall(b"220 mail.example ESMTP\r\n")

        threading.Thread(target=greet, daemon=True).start()
        answer = send(f"http://127.0.0.1:{server.getsockname()[1]}/")
    assert answer.reason == "no_http_answer"
