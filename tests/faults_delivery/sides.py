"""The other sides of the run: a mail server that refuses some mails for a while, and an endpoint of a webhook."""

import hashlib
import threading
from collections import Counter
from dataclasses import dataclass, field
from email import message_from_bytes
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Final

from aiosmtpd.controller import Controller
from aiosmtpd.smtp import SMTP, Envelope, Session
from standardwebhooks.webhooks import Webhook, WebhookVerificationError

from starling_common.testing import free_port

_REFUSED_SHARE: Final = 16
"""One address in so many is refused at its first attempt, with an answer that allows another one."""


@dataclass
class MailServer:
    """Takes mails. `arrived`: delivery id of each mail, as often as it came; `samples`: some mails."""

    arrived: Counter[str] = field(default_factory=Counter)
    samples: list[bytes] = field(default_factory=list)
    refused: int = 0

    def __post_init__(self) -> None:
        self.port = free_port()
        self._known: set[str] = set()
        self._controller = Controller(self, "127.0.0.1", self.port, ready_timeout=30)
        self._controller.start()

    def close(self) -> None:
        self._controller.stop()

    async def handle_RCPT(  # noqa: N802 - the library's name
        self, server: SMTP, session: Session, envelope: Envelope, address: str, options: list[str]
    ) -> str:
        if address not in self._known:
            self._known.add(address)
            if hashlib.sha256(address.encode()).digest()[0] % _REFUSED_SHARE == 0:
                self.refused += 1
                return "451 4.7.1 Try again"
        envelope.rcpt_tos.append(address)
        return "250 OK"

    async def handle_DATA(self, server: SMTP, session: Session, envelope: Envelope) -> str:  # noqa: N802 - the library's name
        content = envelope.original_content or b""
        mail = message_from_bytes(content)
        self.arrived[mail["Message-ID"].strip("<>").partition("@")[0]] += 1
        if len(self.samples) < 200:
            self.samples.append(content)
        return "250 OK"


@dataclass
class Endpoint:
    """Takes signed requests. `arrived`: id of each message, as often as it came; `forged`: requests with a wrong signature."""

    secret: str
    arrived: Counter[str] = field(default_factory=Counter)
    forged: int = 0

    def __post_init__(self) -> None:
        self._server = ThreadingHTTPServer(("127.0.0.1", 0), _handler(self))
        self._server.daemon_threads = True
        threading.Thread(target=self._server.serve_forever, args=(0.1,), name="endpoint", daemon=True).start()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self._server.server_port}/hook"

    def close(self) -> None:
        self._server.shutdown()
        self._server.server_close()

    def take(self, headers: dict[str, str], body: bytes) -> int:
        """Return the status of the answer: one message in ten is refused at first."""
        try:
            Webhook(self.secret).verify(body, headers)
        except WebhookVerificationError:
            self.forged += 1
            return 401
        known = headers["webhook-id"]
        self.arrived[known] += 1
        return 503 if self.arrived[known] == 1 and known[-1] in "01" else 204


def _handler(endpoint: Endpoint) -> type[BaseHTTPRequestHandler]:
    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
            self.send_response(endpoint.take({name.lower(): value for name, value in self.headers.items()}, body))
            self.send_header("Content-Length", "0")
            self.end_headers()

        def log_message(self, format: str, *args: object) -> None:  # noqa: A002 - the library's name
            pass

    return Handler
