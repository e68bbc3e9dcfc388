"""Pure core: the broadcasts whose members are not all written although their instant has come."""

from collections.abc import Mapping
from typing import Any, Final

from starling_common.time.instants import parse_instant

_EARLIEST_ZONE_MS: Final = 14 * 3_600_000
"""The offset of UTC+14, where a local time comes first."""


def is_unfinished(campaign: Mapping[str, Any]) -> bool:
    """Return whether the broadcaster still has to write members of a campaign, as `GET /v1/campaigns/{key}` shows it.

    One that waits for its instant, or is paused, has nothing to do.
    """
    progress, as_of = campaign.get("broadcast"), campaign.get("as_of")
    if campaign["status"] != "active" or progress is None or progress["state"] == "done" or as_of is None:
        return False
    trigger = campaign["trigger"]
    listed_at = parse_instant(trigger["at"]) if trigger.get("at") else parse_instant(trigger["local"]) - _EARLIEST_ZONE_MS
    return parse_instant(as_of) > listed_at
