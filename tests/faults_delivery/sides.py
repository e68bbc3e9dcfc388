"""The other sides of the run: a mail server that refuses some mails for a while, and an endpoint that misbehaves."""

import hashlib
import itertools
import threading
from collections import Counter
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from email import message_from_bytes
from enum import Enum
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


class Manner(Enum):
    """How an endpoint answers. The first group takes nothing, so that the message comes again; the second one ends it."""

    BUSY = "503"
    ELSEWHERE = "302"
    TOO_MANY = "429"
    SILENT = "no answer"
    DRIPPING_HEAD = "a byte of the head a second"

    TAKEN = "204"
    GONE = "410"
    GIGABYTE = "a gigabyte"
    DRIPPING_BODY = "a byte of the body a second"


REFUSING: Final = (
    *((Manner.BUSY,) * 6), Manner.ELSEWHERE, *((Manner.BUSY,) * 6), Manner.SILENT, *((Manner.BUSY,) * 6), Manner.ELSEWHERE,
    *((Manner.BUSY,) * 6), Manner.DRIPPING_HEAD, *((Manner.BUSY,) * 6), Manner.TOO_MANY,
)  # fmt: skip
"""The answers to those messages in turn that are refused at first. A 429 pauses all messages of the target, so it is rare."""
ENDING: Final = (Manner.GIGABYTE, Manner.DRIPPING_BODY)
"""The answers in turn to other messages, of which no further attempt follows. A 410 would end all messages of the target."""
_INSTEAD: Final = {
    Manner.SILENT: Manner.BUSY, Manner.DRIPPING_HEAD: Manner.BUSY, Manner.DRIPPING_BODY: Manner.GIGABYTE,
}  # fmt: skip
"""The slow answers, and those that are given instead after the first of them."""
_MOST_SLOW: Final = 24
"""While an answer is slow, most messages of the target are postponed, each time for longer. The third time takes half an hour."""
_REFUSED_IDS: Final = "01"
_ENDED_IDS: Final = "2"
"""Last characters of the ids, hexadecimal digits: one message in eight, and one in sixteen."""
_MOST_FLOOD_BYTES: Final = 2**30
_DRIP_SECONDS: Final = 1.0
_DRIPS: Final = 60
"""Longer than any attempt."""


@dataclass
class Endpoint:
    """Takes signed requests. `arrived`: id of each message, as often as it came; `forged`: requests with a wrong signature.

    `refusing` and `ending`: the answers to some messages at their first arrival; `always`: that to every request. `strayed`:
    requests to another address, as after a redirect; `flooded`: the most bytes of a long answer that were read.
    """

    secret: str
    refusing: Sequence[Manner] = (Manner.BUSY,)
    ending: Sequence[Manner] = (Manner.TAKEN,)
    always: Manner | None = None
    arrived: Counter[str] = field(default_factory=Counter)
    answered: Counter[Manner] = field(default_factory=Counter)
    forged: int = 0
    strayed: int = 0
    flooded: int = 0

    def __post_init__(self) -> None:
        self.closing = threading.Event()
        self._lock = threading.Lock()
        self._turns = itertools.cycle(self.refusing), itertools.cycle(self.ending)
        self._server = ThreadingHTTPServer(("127.0.0.1", 0), type("Handler", (_Handler,), {"endpoint": self}))
        self._server.daemon_threads = True
        self._server.handle_error = lambda *_: None  # type: ignore[method-assign]  # a killed channel ends its connections
        threading.Thread(target=self._server.serve_forever, args=(0.1,), name="endpoint", daemon=True).start()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self._server.server_port}{_PATH}"

    def close(self) -> None:
        self.closing.set()
        self._server.shutdown()
        self._server.server_close()

    def take(self, headers: dict[str, str], body: bytes) -> Manner | None:
        """Return how to answer; None after a wrong signature. A message that came before is taken."""
        try:
            Webhook(self.secret).verify(body, headers)
        except WebhookVerificationError:
            with self._lock:
                self.forged += 1
            return None
        known = headers["webhook-id"]
        with self._lock:
            self.arrived[known] += 1
            manner = self._manner(known) if self.arrived[known] == 1 else Manner.TAKEN
            manner = self.always or manner
            self.answered[manner] += 1
        return manner

    def _manner(self, known: str) -> Manner:
        refusing, ending = self._turns
        if known[-1] not in _REFUSED_IDS + _ENDED_IDS:
            return Manner.TAKEN
        manner = next(refusing if known[-1] in _REFUSED_IDS else ending)
        is_enough = sum(self.answered[slow] for slow in _INSTEAD) >= _MOST_SLOW
        return _INSTEAD.get(manner, manner) if is_enough else manner

    def stray(self) -> None:
        """Count a request to another address."""
        with self._lock:
            self.strayed += 1

    def flood(self, written: int) -> None:
        """Note how much of a long answer was read."""
        with self._lock:
            self.flooded = max(self.flooded, written)


_PATH: Final = "/hook"
_STATUSES: Final = {Manner.BUSY: 503, Manner.ELSEWHERE: 302, Manner.TOO_MANY: 429, Manner.TAKEN: 204, Manner.GONE: 410}
_HEADERS: Final = {Manner.ELSEWHERE: ("Location", "/elsewhere"), Manner.TOO_MANY: ("Retry-After", "1")}


class _Handler(BaseHTTPRequestHandler):
    endpoint: Endpoint
    protocol_version = "HTTP/1.1"

    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
        if self.path != _PATH:
            self.endpoint.stray()
            self._answer(404)
            return
        manner = self.endpoint.take({name.lower(): value for name, value in self.headers.items()}, body)
        with suppress(OSError):  # the other side has closed the connection
            self._behave(manner)

    def do_GET(self) -> None:
        # A client that follows a 302 changes the method.
        self.endpoint.stray()
        self._answer(404)

    def _behave(self, manner: Manner | None) -> None:
        self.close_connection = manner not in _STATUSES
        match manner:
            case None:
                self._answer(401)
            case Manner.SILENT:
                self.endpoint.closing.wait(_DRIPS * _DRIP_SECONDS)
            case Manner.DRIPPING_HEAD:
                self._drip(b"HTTP/1.1 204 No Content\r\nX-Padding: ")
            case Manner.DRIPPING_BODY:
                self.wfile.write(b"HTTP/1.1 200 OK\r\nContent-Length: 1000\r\n\r\n")
                self._drip(b"")
            case Manner.GIGABYTE:
                self._flood()
            case _:
                self._answer(_STATUSES[manner], _HEADERS.get(manner))

    def _answer(self, status: int, header: tuple[str, str] | None = None) -> None:
        self.send_response(status)
        if header is not None:
            self.send_header(*header)
        self.send_header("Content-Length", "0")
        self.end_headers()

    def _drip(self, begin: bytes) -> None:
        for byte in begin.ljust(_DRIPS, b"x"):
            self.wfile.write(bytes([byte]))
            if self.endpoint.closing.wait(_DRIP_SECONDS):
                return

    def _flood(self) -> None:
        self.wfile.write(b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n" % _MOST_FLOOD_BYTES)
        part, written = bytes(65_536), 0
        try:
            while written < _MOST_FLOOD_BYTES:
                self.wfile.write(part)
                written += len(part)
        finally:
            self.endpoint.flood(written)

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002 - the library's name
        pass
