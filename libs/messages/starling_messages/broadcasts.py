"""Pure core: the instants of a broadcast. The messenger and the service that lists the members must agree on them."""

from typing import Final

from starling_campaigns.definitions.triggers import BroadcastTrigger
from starling_common.time.instants import format_instant
from starling_policy import first_instant_of

EARLIEST_ZONE_MS: Final = 14 * 3_600_000
"""The offset of UTC+14, where a local time comes first."""


def listed_at(trigger: BroadcastTrigger) -> int:
    """Return the instant, epoch ms, whose members are listed: that of the broadcast, for a local time that of the earliest zone."""
    if trigger.local is None:
        return trigger.at_ms or 0
    return first_instant_of(trigger.local, "UTC") - EARLIEST_ZONE_MS


def due_at(trigger: BroadcastTrigger, zone: str) -> int:
    """Return the instant, epoch ms, at which a user in the zone is due: never before `listed_at`.

    A local time that the clock shows twice means the first one; a time that it skips means the instant after the gap.
    """
    return trigger.at_ms or 0 if trigger.local is None else first_instant_of(trigger.local, zone)


def instance_of(trigger: BroadcastTrigger) -> str:
    """Return what identifies the broadcast among the messages of its campaign: the instant, or the local time as written."""
    return format_instant(trigger.at_ms or 0) if trigger.local is None else trigger.local
