"""Pure core: what a channel is. A new channel implements `Channel`, registers one line, and inherits the contract suite."""

from dataclasses import dataclass
from typing import Protocol, TypeAlias


@dataclass(frozen=True, slots=True)
class Message:
    """One message to send, complete.

    Shape: `delivery_id` is stable across attempts; `message_id` is the other side's idempotency key; `payload` is the
           body, the same bytes at every attempt; `target_key` names the webhook (or campaign) whose secret signs it.
    Units: `attempt` counts from 1.
    """

    workspace: str
    user_id: str
    delivery_id: str
    message_id: str
    target_key: str
    address: str
    payload: str
    attempt: int


@dataclass(frozen=True, slots=True)
class Delivered:
    """The other side took it."""

    status_code: int | None = None


@dataclass(frozen=True, slots=True)
class Again:
    """Not now; worth another attempt. `retry_after_seconds` is the other side's own wish, if it had one."""

    why: str
    status_code: int | None = None
    retry_after_seconds: float | None = None


@dataclass(frozen=True, slots=True)
class Impossible:
    """It can never be delivered as it is, such as an address that is not allowed."""

    why: str
    status_code: int | None = None


@dataclass(frozen=True, slots=True)
class Gone:
    """The other side wants nothing more, ever: the target is to be switched off."""

    why: str
    status_code: int | None = None


Answer: TypeAlias = Delivered | Again | Impossible | Gone


class Channel(Protocol):
    """Sends one message at a time. Several may be on their way at once."""

    name: str

    async def send(self, message: Message) -> Answer:
        """What became of it. Raises nothing for anything that the other side does or fails to do.

        An exception all the same makes this one message a dead letter, with the exception's type; a cancellation passes.
        """

    async def close(self) -> None:
        """Give back what is held."""
