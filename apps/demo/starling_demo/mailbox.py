"""Adapter: a local SMTP server that keeps every mail."""

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field

from aiosmtpd.controller import Controller
from aiosmtpd.smtp import SMTP, Envelope, Session

from starling_common.testing import free_port
from starling_demo.expected_messages import MAILED, Message
from starling_demo.scenario import address


@dataclass
class Mailbox:
    """Takes every mail. `mails`: recipient and content, in the order of their arrival."""

    mails: list[tuple[str, bytes]] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.port = free_port()
        self._controller = Controller(self, "127.0.0.1", self.port, ready_timeout=30)
        self._controller.start()

    def close(self) -> None:
        """Stop the server."""
        self._controller.stop()

    async def handle_DATA(  # noqa: N802 - the library's name
        self,
        server: SMTP,  # noqa: ARG002 - the library's signature
        session: Session,  # noqa: ARG002
        envelope: Envelope,
    ) -> str:
        """Take one mail."""
        self.mails += [(recipient, envelope.original_content or b"") for recipient in envelope.rcpt_tos]
        return "250 OK"

    def differences(self, messages: Iterable[tuple[str, Message]]) -> list[str]:
        """Return one line for each person with more or fewer mails than messages. `messages`: user id and message."""
        due = Counter(address(user) for user, message in messages if message.fate == MAILED)
        came = Counter(recipient for recipient, _ in self.mails)
        people = sorted(due.keys() | came.keys())
        return [f"mailbox: {to}: expected {due[to]} mails, found {came[to]}" for to in people if due[to] != came[to]]
