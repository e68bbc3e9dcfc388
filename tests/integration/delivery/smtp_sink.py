"""An SMTP server that keeps what it takes, and refuses what a test lets it refuse."""

import ssl
import threading
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from aiosmtpd.controller import Controller
from aiosmtpd.smtp import SMTP, AuthResult, Envelope, LoginPassword, Session

from starling_common.testing import free_port


@dataclass
class SmtpSink:
    """Keeps the mails in the order of their arrival. `at_recipient`, `at_data`: (recipient, number of the attempt) -> answer.

    `login`: user name and password that a client must give. `tls`: the context for STARTTLS, or for the connection with `is_smtps`.
    """

    at_recipient: Callable[[str, int], str | None] = lambda _address, _number: None
    at_data: Callable[[str, int], str | None] = lambda _address, _number: None
    login: tuple[str, str] | None = None
    tls: ssl.SSLContext | None = None
    is_smtps: bool = False
    at_port: int | None = None
    mails: list[tuple[str, bytes]] = field(default_factory=list)
    connections: int = 0
    attempts: dict[str, int] = field(default_factory=dict)
    lock: threading.Lock = field(default_factory=threading.Lock)

    def __post_init__(self) -> None:
        self.port = self.at_port or free_port()
        more: dict[str, Any] = {}
        if self.login is not None:
            more = {
                "authenticator": self._authenticated,
                "auth_required": True,
                "auth_require_tls": self.tls is not None and not self.is_smtps,
            }
        if self.tls is not None:
            more |= {"ssl_context": self.tls} if self.is_smtps else {"tls_context": self.tls, "require_starttls": True}
        self._controller = Controller(self, "127.0.0.1", self.port, ready_timeout=30, **more)
        self._controller.start()

    def close(self) -> None:
        self._controller.stop()

    def recipients(self) -> list[str]:
        return [recipient for recipient, _ in list(self.mails)]

    def _authenticated(self, server: SMTP, session: Session, envelope: Envelope, mechanism: str, data: LoginPassword) -> AuthResult:
        found = isinstance(data, LoginPassword) and (data.login.decode(), data.password.decode()) == self.login
        return AuthResult(success=found, handled=found)

    async def handle_EHLO(  # noqa: N802 - the library's name
        self, server: SMTP, session: Session, envelope: Envelope, hostname: str, responses: list[str]
    ) -> list[str]:
        with self.lock:
            self.connections += 1
        session.host_name = hostname
        return responses

    async def handle_RCPT(  # noqa: N802 - the library's name
        self, server: SMTP, session: Session, envelope: Envelope, address: str, options: list[str]
    ) -> str:
        with self.lock:
            number = self.attempts[address] = self.attempts.get(address, 0) + 1
        refusal = self.at_recipient(address, number)
        if refusal is not None:
            return refusal
        envelope.rcpt_tos.append(address)
        return "250 OK"

    async def handle_DATA(  # noqa: N802 - the library's name
        self, server: SMTP, session: Session, envelope: Envelope
    ) -> str:
        [address] = envelope.rcpt_tos
        refusal = self.at_data(address, self.attempts[address])
        if refusal is not None:
            return refusal
        with self.lock:
            self.mails.append((address, envelope.original_content or b""))
        return "250 OK"
