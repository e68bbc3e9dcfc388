"""Adapter: the targets of audience sync that have not sent every change, by the offsets of their consumer groups."""

import json
from collections.abc import Iterable, Mapping
from typing import Any, Final

from starling_cli.settle.broker import Offsetter
from starling_cli.settle.settle import stage_lag
from starling_common.kafka.topics import AUDIENCE_RETRY, CONSENT, MEMBERSHIP, MEMBERSHIP_STATE, Stage, audience_group

_FOLLOWED: Final = (MEMBERSHIP, CONSENT, AUDIENCE_RETRY)


def unsent(offsets: Offsetter, workspace: str, targets: Iterable[Mapping[str, Any]]) -> list[str]:
    """Return a description of each target that lags. Disabled targets read nothing, and are left out. Raises BrokerUnavailable.

    `targets`: as `GET /v1/targets` returns them.
    """
    found = []
    for target in targets:
        if target["channel"] != "audience" or target["status"] != "active":
            continue
        key = str(target["key"])
        group = audience_group(workspace, key)
        if not _has_first_sync(offsets, group):
            found.append(f"target {key} has not completed its first sync")
        elif count := stage_lag(offsets, Stage(f"audience {key}", group, _FOLLOWED, optional=True)):
            found.append(f"target {key} lags by {count:,} record{'s' if count != 1 else ''}")
    return found


def _has_first_sync(offsets: Offsetter, group: str) -> bool:
    """Return whether the metadata of every committed offset of the state states that its first sync is complete."""
    partitions = offsets.partitions((MEMBERSHIP_STATE,))
    known = offsets.metadata(group, partitions)
    return all(_is_done(known.get(place, "")) for place in partitions)


def _is_done(metadata: str) -> bool:
    try:
        found = json.loads(metadata)
    except ValueError:
        return False
    return isinstance(found, dict) and found.get("done") is True
