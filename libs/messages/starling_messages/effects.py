"""Pure core: what a decision or an outcome causes. `starling_messenger.records` turns effects into records."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final, TypeAlias

from starling_messages.campaigns import InForce
from starling_messages.state import Decided, Origin

STEP_REQUESTED: Final = "REQUESTED"
STEP_HELD_OUT: Final = "HELD_OUT"
STEP_DROPPED: Final = "DROPPED"
SENDING: Final = "SENDING"
CONVERTED: Final = "CONVERTED"
SUPPRESSED: Final = "SUPPRESSED"
FAILED: Final = "FAILED"
BOUNCED: Final = "BOUNCED"
ARRIVED: Final = frozenset({"DELIVERED", "OPENED", "CLICKED"})
"""Outcomes that prove that the address takes messages."""


@dataclass(frozen=True, slots=True)
class Request:
    """A message to one address. `device`: the address, if the person has several. `event`: JSON text of the triggering event.

    `remaining_ms`: how long the message may still be sent.
    """

    delivery_id: str
    in_force: InForce
    variant: str | None
    address: str
    device: str | None
    traits: Mapping[str, Any]
    event: str | None
    origin: Origin
    remaining_ms: int


@dataclass(frozen=True, slots=True)
class Step:
    """The first time that a message reaches a step. `at`: epoch ms, stream time."""

    message: Decided
    name: str
    at: int
    reason: str | None = None
    value: float | None = None


@dataclass(frozen=True, slots=True)
class Report:
    """An outcome that the messenger itself determines. `at`: epoch ms, stream time."""

    message: Decided
    in_force: InForce
    outcome: str
    at: int
    reason: str | None = None


@dataclass(frozen=True, slots=True)
class Suppress:
    """An address that gets no more messages in a channel, because of an outcome. `digest`, `kind`: see `Suppression`."""

    message: Decided
    channel: str
    digest: str
    kind: str


Effect: TypeAlias = Request | Step | Report | Suppress
