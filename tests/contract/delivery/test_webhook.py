"""The webhook channel against a real HTTP server that verifies with the published library."""

import gzip
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import replace
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Thread
from typing import ClassVar

import pytest

from starling_common.http.outbound.sessions import GuardedSession
from starling_common.time.instants import wall_clock_ms
from starling_delivery.channel import Again, Answer, Channel, Delivered, Gone, Impossible, Message
from starling_delivery.channels.webhook import WebhookChannel
from starling_delivery.targets import Targets
from starling_demo.receiver import Receiver
from tests.contract.delivery.feed_contract import FeedContract
from tests.unit.delivery.making import SECRET, definition, targets

OTHER_SECRET = "whsec_" + "WFhYWFhYWFhYWFhYWFhYWFhYWFhYWFhY"


class TestWebhook(FeedContract):
    receiver: Receiver

    @pytest.fixture(autouse=True)
    def _receiving(self) -> Iterator[None]:
        self.receiver = Receiver(SECRET)
        yield
        self.receiver.close()

    def open(self, *, allow_private: bool = True) -> Channel:
        return self.open_with(targets(definition()), allow_private=allow_private)

    def open_with(self, known: Targets, *, allow_private: bool = True) -> Channel:
        session = GuardedSession(lookup_seconds=5, connections=8, allow_private=allow_private)
        return WebhookChannel(session, known, allow_private=allow_private)

    def open_broken(self) -> Channel:
        self.receiver.close()
        return self.open()

    def message(self, delivery_id: str = "d1") -> Message:
        body = '{"type":"segment.entered","timestamp":"1970-01-01T00:00:01.000Z","data":{"name":"Zoë"}}'
        return Message("default", "ada", delivery_id, f"m-{delivery_id}", "hook", self.receiver.url, body, 1)

    def received(self) -> list[str]:
        return [call["id"] for call in self.receiver.calls]

    def test_every_call_is_genuine_by_the_published_library(self) -> None:
        self.send(self.open, self.message())
        assert self.receiver.forged == 0
        assert self.receiver.calls[0]["data"] == {"name": "Zoë"}

    def test_a_wrong_secret_would_be_noticed(self) -> None:
        self.receiver.secret = OTHER_SECRET
        [answer] = self.send(self.open, self.message())
        assert isinstance(answer, Again)
        assert (self.receiver.forged, answer.status_code) == (1, 401)

    @pytest.mark.parametrize("secret", [SECRET, OTHER_SECRET])
    def test_a_message_is_genuine_by_either_secret_after_a_rotation(self, secret: str) -> None:
        self.receiver.secret = secret
        known = targets(definition(secret=OTHER_SECRET, previous_secret=SECRET, previous_secret_until_ms=wall_clock_ms() + 60_000))
        assert self.send(lambda: self.open_with(known), self.message()) == [Delivered(204)]
        assert self.receiver.forged == 0

    def test_the_previous_secret_ends(self) -> None:
        known = targets(definition(secret=OTHER_SECRET, previous_secret=SECRET, previous_secret_until_ms=wall_clock_ms()))
        self.send(lambda: self.open_with(known), self.message())
        assert self.receiver.forged == 1

    def test_a_private_address_is_refused_before_anything_is_sent(self) -> None:
        message = replace(self.message(), address=self.receiver.url.replace("http:", "https:"))
        [answer] = self.send(lambda: self.open(allow_private=False), message)
        assert answer == Impossible("the address is in a private network")
        assert self.receiver.calls == []

    def test_a_webhook_that_was_archived_gets_nothing(self) -> None:
        [answer] = self.send(self.open, replace(self.message(), target_key="archived"))
        assert isinstance(answer, Impossible)
        assert self.receiver.calls == []


class _Answering(BaseHTTPRequestHandler):
    status: ClassVar[int] = 200
    headers_out: ClassVar[dict[str, str]] = {}
    calls: ClassVar[int] = 0

    def do_POST(self) -> None:
        type(self).calls += 1
        self.rfile.read(int(self.headers["Content-Length"]))
        self.send_response(self.status)
        for name, value in {"Content-Length": "0", **self.headers_out}.items():
            self.send_header(name, value)
        self.end_headers()

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002 - the library's name
        return None


@pytest.mark.parametrize(
    ("status", "headers", "answer"),
    [
        pytest.param(200, {}, Delivered(200), id="200"),
        pytest.param(204, {}, Delivered(204), id="204"),
        pytest.param(302, {"Location": "/elsewhere"}, Again("the endpoint answered 302", 302), id="a redirect is not followed"),
        pytest.param(400, {}, Again("the endpoint answered 400", 400), id="400"),
        pytest.param(410, {}, Gone("the endpoint answered 410 Gone", 410), id="gone"),
        pytest.param(429, {"Retry-After": "17"}, Again("the endpoint answered 429", 429, 17.0), id="429 with a wish"),
        pytest.param(503, {"Retry-After": "soon"}, Again("the endpoint answered 503", 503), id="a wish that is none"),
        pytest.param(503, {"Retry-After": "999999"}, Again("the endpoint answered 503", 503, 3600.0), id="a wish beyond belief"),
    ],
)
def test_what_each_status_means(status: int, headers: dict[str, str], answer: Answer) -> None:
    class handler(_Answering):
        pass

    handler.status, handler.headers_out, handler.calls = status, headers, 0
    server = ThreadingHTTPServer(("127.0.0.1", 0), handler)
    Thread(target=server.serve_forever, args=(0.02,), daemon=True).start()
    try:
        contract = TestWebhook()
        message = Message("default", "ada", "d", "m", "hook", f"http://127.0.0.1:{server.server_port}/hook", "{}", 1)
        assert contract.send(contract.open, message) == [answer]
        assert handler.calls == 1
    finally:
        server.shutdown()
        server.server_close()


def test_a_webhook_sends_its_own_headers_and_starlings() -> None:
    received: list[dict[str, str]] = []

    class Handler(_Answering):
        def do_POST(self) -> None:
            received.append({name.lower(): value for name, value in self.headers.items()})
            super().do_POST()

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    Thread(target=server.serve_forever, args=(0.02,), daemon=True).start()
    try:
        contract, known = TestWebhook(), targets(definition(headers={"Authorization": "Bearer t", "X-Team": "a b"}))
        message = Message("default", "ada", "d", "m", "hook", f"http://127.0.0.1:{server.server_port}/hook", "{}", 1)
        assert contract.send(lambda: contract.open_with(known), message) == [Delivered(200)]
    finally:
        server.shutdown()
        server.server_close()
    [headers] = received
    assert (headers["authorization"], headers["x-team"], headers["webhook-id"]) == ("Bearer t", "a b", "m")


def _drip_headers(handler: BaseHTTPRequestHandler) -> None:
    while True:
        handler.wfile.write(b"X: y\r\n")
        time.sleep(0.02)  # sleep: the pace of the endpoint


def _drip_body(handler: BaseHTTPRequestHandler) -> None:
    handler.wfile.write(b"Content-Length: 1000000\r\n\r\n")
    while True:
        handler.wfile.write(b"y")
        time.sleep(0.02)  # sleep: the pace of the endpoint


def _hang(handler: BaseHTTPRequestHandler) -> None:
    handler.rfile.read()  # returns when the client closes the connection


def _send_endless_body(handler: BaseHTTPRequestHandler) -> None:
    handler.wfile.write(b"\r\n")
    while True:
        handler.wfile.write(bytes(65_536))


def _send_gzip_bomb(handler: BaseHTTPRequestHandler) -> None:
    handler.wfile.write(b"Content-Encoding: gzip\r\nContent-Length: %d\r\n\r\n" % len(BOMB))
    handler.wfile.write(BOMB)


BOMB = gzip.compress(bytes(2**24))
LATE = Again("the endpoint did not answer within 0.5 s")


@pytest.mark.parametrize(
    ("respond", "answer"),
    [
        pytest.param(_drip_headers, LATE, id="headers drip"),
        pytest.param(_drip_body, Delivered(200), id="body drips"),
        pytest.param(_hang, LATE, id="no response"),
        pytest.param(_send_endless_body, Delivered(200), id="endless body"),
        pytest.param(_send_gzip_bomb, Delivered(200), id="gzip bomb"),
    ],
)
def test_a_hostile_endpoint_costs_one_attempt_its_deadline(
    respond: Callable[[BaseHTTPRequestHandler], None], answer: Answer
) -> None:
    class Handler(_Answering):
        def do_POST(self) -> None:
            self.rfile.read(int(self.headers["Content-Length"]))
            self.wfile.write(b"HTTP/1.1 200 OK\r\n")
            with suppress(OSError):
                respond(self)

    def channel() -> Channel:
        session = GuardedSession(lookup_seconds=5, connections=8, allow_private=True)
        return WebhookChannel(session, targets(definition()), allow_private=True, deadline_seconds=0.5)

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.daemon_threads = True
    Thread(target=server.serve_forever, args=(0.02,), daemon=True).start()
    try:
        message = Message("default", "ada", "d", "m", "hook", f"http://127.0.0.1:{server.server_port}/hook", "{}", 1)
        assert TestWebhook().send(channel, message) == [answer]
    finally:
        server.shutdown()
        server.server_close()
