"""Pure core: the interface of channels. A new channel implements `Channel`, registers itself, and inherits the contract tests."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import Enum
from typing import Final, NamedTuple, Protocol, TypeAlias


@dataclass(frozen=True, slots=True)
class Message:
    """One complete message to send.

    Shape: `delivery_id` is stable across attempts; `message_id` is the receiver's idempotency key; `payload` is the
           body, equal in every attempt; `target_key` is the key of the webhook (or campaign) with the signing secret. The message
           of a batch has the changes of several users in its body, and no `user_id`. `content`: the rendered parts of a message to
           a person, which has no `payload`; `campaign` and `purpose`: those that it belongs to; `is_test`: it is sent to its
           author, so its links must not act for the person.
    Units: `attempt` counts from 1; `expires_at` is the wall clock in ms after which the message must not arrive, or None.
    """

    workspace: str
    user_id: str
    delivery_id: str
    message_id: str
    target_key: str
    address: str
    payload: str
    attempt: int
    content: Mapping[str, str] = field(default_factory=dict)
    purpose: str | None = None
    campaign: str | None = None
    is_test: bool = False
    expires_at: int | None = None


@dataclass(frozen=True, slots=True)
class Delivered:
    """The receiver accepted the message."""

    status_code: int | None = None


@dataclass(frozen=True, slots=True)
class Again:
    """A temporary failure: the receiver has not taken the message. `retry_after_seconds`: delay that the receiver requested.

    `is_of_target`: false if the failure concerns this message alone, so that it does not count in the circuit of the target.
    """

    why: str
    status_code: int | None = None
    retry_after_seconds: float | None = None
    is_of_target: bool = True


@dataclass(frozen=True, slots=True)
class Impossible:
    """A permanent failure of this message, such as a forbidden address."""

    why: str
    status_code: int | None = None


@dataclass(frozen=True, slots=True)
class Gone:
    """The receiver accepts no further messages; the target is to be disabled."""

    why: str
    status_code: int | None = None


@dataclass(frozen=True, slots=True)
class Bounced:
    """The receiver refuses the address of this message permanently. `is_hard`: no further message is sent to the address.

    `by_person`: the person has replied STOP, and may end that by START.

    The messenger forgets the device of a bounced message, so a bounce of the channel `push` needs not be hard.
    """

    why: str
    status_code: int | None = None
    is_hard: bool = True
    by_person: bool = False


@dataclass(frozen=True, slots=True)
class Unknown:
    """The receiver may have taken the message: the connection was lost before its answer. `is_of_target`: as of `Again`."""

    why: str
    is_of_target: bool = True


Answer: TypeAlias = Delivered | Again | Impossible | Gone | Bounced | Unknown


class Channel(Protocol):
    """Sends messages. Several calls of `send` may run concurrently."""

    name: str

    async def send(self, message: Message) -> Answer:
        """Make one attempt and return its result. Failures of the receiver are results, not exceptions.

        An exception makes this message a dead letter, with the type of the exception. Cancellation is propagated.
        """

    async def close(self) -> None:
        """Close the connections."""


class Arrival(Enum):
    """How often a message of a channel of campaigns may arrive. It decides what becomes of `Unknown`."""

    AT_MOST_ONCE = "at most once"
    AT_LEAST_ONCE = "at least once"


AT_MOST_ONCE: Final = Arrival.AT_MOST_ONCE
"""For people: SENDING is stored before the attempt. `Unknown` ends the message, and a kill of the process leaves it unknown."""

AT_LEAST_ONCE: Final = Arrival.AT_LEAST_ONCE
"""For systems that know `message_id`: the outcome is stored after the attempt. `Unknown` and a kill let it be sent again."""


class Park(NamedTuple):
    """The message is not sent now; it waits in a tier, without an attempt. `reason`: the label of the metric."""

    why: str
    reason: str


class MessageChannel(Channel, Protocol):
    """A channel of campaigns. The kit bounds each attempt, renders `content`, and decides by `semantics` when it is stored."""

    semantics: Arrival

    def hold(self, message: Message) -> Park | None:
        """Return why this process cannot send a rendered message now; None if it can."""

    def unsubscribe_link(self, message: Message) -> str | None:
        """Return the link by which the person of a message unsubscribes; None without one."""
