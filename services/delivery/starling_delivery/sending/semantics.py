"""Core: what an attempt of the kit is: of a feed, at least once; of a message of a campaign, as its channel states."""

import time
from collections.abc import Awaitable, Callable
from enum import Enum
from typing import Final, Protocol, TypeAlias

from starling_common.telemetry.logs import log
from starling_common.time.instants import wall_clock_ms
from starling_delivery.batches import batch_message
from starling_delivery.channel import AT_MOST_ONCE, Again, Answer, Arrival, Message, Park, Unknown
from starling_delivery.item import Item
from starling_delivery.policy import Request, Schedule, Step, after, after_message, after_repeatable, message_of
from starling_delivery.sending.lane import Batch

_LONGEST_CLAIM_SECONDS: Final = 30.0
"""An attempt whose last look is older is not made. A suspended process continues with what has been stopped meanwhile."""


class Lost(Enum):
    """Another process has the record of the message: nothing is sent and nothing is published."""

    LOST = "lost"


Attempted: TypeAlias = Answer | Step | Park | Lost
"""The answer of the receiver, or what becomes of a message for which no attempt was made."""

Send: TypeAlias = Callable[[Message], Awaitable[Answer]]

Look: TypeAlias = Callable[[Request, int], Message | Step | Park]
"""(request, wall clock in ms) -> the rendered message of a campaign, or why it is not sent."""


class Semantics(Protocol):
    """How often a message may arrive. `awaits_outcome`: an attempt keeps its slot until its outcome is stored."""

    @property
    def awaits_outcome(self) -> bool:
        """Whether the messages sent without a stored outcome are bounded by the slots."""

    async def attempt(self, part: Batch, send: Send) -> Attempted:
        """Make one attempt. An exception makes a dead letter of each message."""

    def after(self, request: Request, answer: Answer, schedule: Schedule, now_ms: int, jitter: float) -> Step:
        """Return the step after an answer."""


class AtLeastOnce:
    """Send, then store the outcome with the progress. A message may arrive again; its idempotency key is the same."""

    awaits_outcome = False

    async def attempt(self, part: Batch, send: Send) -> Answer:
        """Send the message, or the batch."""
        first = part[0]
        if first.batching is None:
            return await send(message_of(first.request, first.message_id))
        return await send(batch_message([item.request for item in part]))

    def after(self, request: Request, answer: Answer, schedule: Schedule, now_ms: int, jitter: float) -> Step:
        """Return the step after an answer."""
        return after(request, answer, schedule, now_ms, jitter)


class Claims(Protocol):
    """Stores that an attempt begins."""

    async def claim(self, item: Item) -> bool:
        """Store the report SENDING and the progress in one transaction. Return False if another process has the record."""


class AtMostOnce:
    """Look, store SENDING with the progress in one transaction, and only then send. Nothing is sent twice.

    A process that ends in between leaves a message without an outcome, which is unknown.
    """

    awaits_outcome = True

    def __init__(self, look: Look, claims: Claims, passed: Callable[[str], None] = lambda _: None) -> None:
        """`passed`: called at failpoints."""
        self._look = look
        self._claims = claims
        self._passed = passed

    async def attempt(self, part: Batch, send: Send) -> Attempted:
        """Send one message, if it may be sent and no other process has it."""
        [item] = part
        looked_at = time.monotonic()
        looked = self._look(item.request, wall_clock_ms())
        if not isinstance(looked, Message):
            return looked
        if not await self._claims.claim(item):
            return Lost.LOST
        self._passed("after_sending")
        if time.monotonic() - looked_at > _LONGEST_CLAIM_SECONDS:
            return Again("the transaction of SENDING took too long", is_of_target=False)
        try:
            return await send(looked)
        except Exception as error:  # noqa: BLE001 - the message may have been sent before
            log(__name__).exception("channel_failed", delivery_id=item.request["delivery_id"])
            return Unknown(f"{type(error).__name__}: {error}")

    def after(self, request: Request, answer: Answer, schedule: Schedule, now_ms: int, jitter: float) -> Step:
        """Return the step after an answer."""
        self._passed("before_outcome")
        return after_message(request, answer, schedule, now_ms, jitter)


class RepeatedlyLooked:
    """Look, send, and store the outcome with the progress in one transaction. A message may arrive again, with the same id."""

    awaits_outcome = True

    def __init__(self, look: Look, passed: Callable[[str], None] = lambda _: None) -> None:
        """`passed`: called at failpoints."""
        self._look = look
        self._passed = passed

    async def attempt(self, part: Batch, send: Send) -> Attempted:
        """Send one message, if it may be sent."""
        [item] = part
        looked = self._look(item.request, wall_clock_ms())
        return await send(looked) if isinstance(looked, Message) else looked

    def after(self, request: Request, answer: Answer, schedule: Schedule, now_ms: int, jitter: float) -> Step:
        """Return the step after an answer."""
        self._passed("before_outcome")
        return after_repeatable(request, answer, schedule, now_ms, jitter)


def semantics_of(arrival: Arrival, look: Look, claims: Claims, passed: Callable[[str], None]) -> Semantics:
    """Return what an attempt of a channel of campaigns is. `passed`: called at failpoints."""
    return AtMostOnce(look, claims, passed) if arrival is AT_MOST_ONCE else RepeatedlyLooked(look, passed)
