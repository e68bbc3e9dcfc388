"""Pure core: delivery reports as events of the user: the event's name, properties and order of arrival."""

from collections.abc import Mapping
from types import MappingProxyType
from typing import Any, Final

PROPERTIES: Final[tuple[str, ...]] = (
    "delivery_id", "channel", "target_key", "outcome", "attempt", "status_code", "detail", "segment_key", "campaign",
)  # fmt: skip
"""The fields of a `DeliveryReported` that become the event's properties. The event's context is empty."""


def event_name(outcome: str) -> str:
    """Return the event's name of an outcome: `DELIVERED` -> `Message Delivered`."""
    return f"Message {outcome.capitalize()}"


_OUTCOMES: Final = (
    "SENT",
    "DELIVERED",
    "OPENED",
    "CLICKED",
    "BOUNCED",
    "FAILED",
    "SUPPRESSED",
    "COMPLAINED",
    "UNSUBSCRIBED",
    "CONVERTED",
)
EVENT_NAMES: Final[Mapping[str, str]] = MappingProxyType({outcome: event_name(outcome) for outcome in _OUTCOMES})
"""Event name by outcome, for the outcomes available to segments. `SENDING` and `RETRYING` are not final."""


def properties_of(report: Mapping[str, Any]) -> dict[str, Any]:
    """Return the event's properties. An absent value is null, which a segment treats as missing."""
    return {name: report[name] for name in PROPERTIES}


def reported_at(received_at: int, event_time_ms: int) -> int:
    """Return the arrival time of a report, in microseconds of the wall clock: its position in the order of arrival.

    The report's own `received_at` is that of the item that caused the message, and a retry reports hours after it. The maximum
    keeps a report after its cause if the clock of the channel is behind that of the ingest service.
    """
    return max(received_at, event_time_ms * 1000)
