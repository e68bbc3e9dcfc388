"""Pure core: what became of a message, as an event of its user: the one place that says what it is called and what is in it."""

from collections.abc import Mapping
from types import MappingProxyType
from typing import Any, Final

PROPERTIES: Final = ("delivery_id", "channel", "target_key", "outcome", "attempt", "status_code", "detail", "segment_key")
"""The fields of a `DeliveryReported` that are the event's properties. Its context is empty."""


def event_name(outcome: str) -> str:
    """`DELIVERED` -> `Message Delivered`."""
    return f"Message {outcome.capitalize()}"


_OUTCOMES: Final = ("SENT", "DELIVERED", "OPENED", "CLICKED", "BOUNCED", "FAILED", "SUPPRESSED")
EVENT_NAMES: Final[Mapping[str, str]] = MappingProxyType({outcome: event_name(outcome) for outcome in _OUTCOMES})
"""By outcome, those that segments know. `RETRYING` is none of them: a user's history shows it, but nothing has become of the
message yet.
"""


def properties_of(report: Mapping[str, Any]) -> dict[str, Any]:
    """The event's properties; what was not said is null, which a segment takes as missing."""
    return {name: report[name] for name in PROPERTIES}


def reported_at(received_at: int, event_time_ms: int) -> int:
    """When a report came, in microseconds of the wall clock: its place in the order of arrival.

    Its own `received_at` is that of the item behind the message, and a retry reports hours after it. A channel's clock may be
    behind the edge's: nothing becomes of a message before what it tells of.
    """
    return max(received_at, event_time_ms * 1000)
