"""The email channel, held to the contract of channels with a real SMTP server."""

import email
import email.policy
import ssl
from collections.abc import Callable, Iterator
from socketserver import StreamRequestHandler, ThreadingTCPServer
from threading import Event, Thread

import pytest

from starling_common.http.outbound.lookups import Lookups
from starling_common.testing import free_port
from starling_delivery.channel import Message, MessageChannel
from starling_delivery.channels.email.channel import EmailChannel
from starling_delivery.channels.email.connections import Connections, Guard
from tests.contract.delivery.channel_contract import ChannelContract
from tests.integration.delivery.smtp_sink import SmtpSink
from tests.unit.delivery.messages import definition, definitions, message, smtp_target


class LosingServer:
    """An SMTP server that takes a mail whole, and then closes the connection, or gives no answer."""

    def __init__(self, *, hangs: bool) -> None:
        self.mails: list[bytes] = []
        self.closing = Event()
        server = self

        class Handler(StreamRequestHandler):
            def handle(self) -> None:
                self.wfile.write(b"220 losing\r\n")
                for line in self.rfile:
                    if line.upper().startswith(b"DATA"):
                        break
                    self.wfile.write(b"250 OK\r\n")
                self.wfile.write(b"354 Go on\r\n")
                server.mails.append(b"".join(iter(self.rfile.readline, b".\r\n")))
                if hangs:
                    server.closing.wait(30)

        self._server = ThreadingTCPServer(("127.0.0.1", 0), Handler)
        self._server.daemon_threads = True
        self.port = self._server.server_address[1]
        Thread(target=self._server.serve_forever, args=(0.02,), daemon=True).start()

    def close(self) -> None:
        self.closing.set()
        self._server.shutdown()
        self._server.server_close()


class TestEmail(ChannelContract):
    sink: SmtpSink
    losing: LosingServer | None = None

    @pytest.fixture(autouse=True)
    def _receiving(self) -> Iterator[None]:
        self.sink = SmtpSink()
        yield
        self.sink.close()
        if self.losing is not None:
            self.losing.close()

    def open(self, passed: Callable[[str], None] = lambda _: None) -> MessageChannel:
        return self.open_at(self.sink.port, passed)

    def open_at(self, port: int, passed: Callable[[str], None] = lambda _: None) -> MessageChannel:
        known = definitions(definition("target", smtp_target(port)))
        connections = Connections(Guard(Lookups(5), allow_private=True), ssl.create_default_context(), "mailer.example.com", 16, 10)
        return EmailChannel(known, connections, deadline_seconds=self.deadline_seconds, passed=passed)

    deadline_seconds = 10.0

    def open_broken(self) -> MessageChannel:
        return self.open_at(free_port())

    def open_losing(self) -> MessageChannel:
        return self._open_losing(hangs=False)

    def open_silent(self) -> MessageChannel:
        self.deadline_seconds = 0.3
        return self._open_losing(hangs=True)

    def _open_losing(self, *, hangs: bool) -> MessageChannel:
        self.losing = LosingServer(hangs=hangs)
        return self.open_at(self.losing.port)

    def message(self, delivery_id: str = "d1x", text: str = "Hello") -> Message:
        content = {"subject": "News", "html": f"<p>{text}</p>", "text": text}
        return message(delivery_id=delivery_id, message_id=delivery_id, purpose="transactional", content=content)

    def received(self) -> list[str]:
        found = [data for _, data in self.sink.mails] + ([] if self.losing is None else self.losing.mails)
        return [_text(data) for data in found]


def _text(data: bytes) -> str:
    part = email.message_from_bytes(data, policy=email.policy.default).get_body(("plain",))
    assert part is not None
    return str(part.get_content())
