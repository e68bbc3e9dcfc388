"""Pure core: where the reading of a target begins in each partition, from its committed offsets and their metadata.

The metadata of the offset in `segments.membership-state` has the mapping that the first sync was for, and whether it is complete.
"""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final, NamedTuple

from starling_common.kafka.topics import AUDIENCE_RETRY, CONSENT, MEMBERSHIP, MEMBERSHIP_STATE

TOPICS: Final = (MEMBERSHIP_STATE, MEMBERSHIP, CONSENT, AUDIENCE_RETRY)
FOLLOWED: Final = (MEMBERSHIP, CONSENT, AUDIENCE_RETRY)
"""The topics that are read after the first sync."""

Partition = tuple[str, int]
"""Topic and number."""


class Committed(NamedTuple):
    """A committed offset; negative without one."""

    offset: int
    metadata: str = ""


@dataclass(frozen=True, slots=True)
class Ends:
    """Offsets of one partition number. `first`: of the oldest record, `stable`: after the last committed record, by topic.

    `state_end`: after the last record of `segments.membership-state`, those of open transactions included.
    """

    first: Mapping[str, int]
    stable: Mapping[str, int]
    state_end: int


@dataclass(frozen=True, slots=True)
class Plan:
    """Where one partition number is read. `starts`: topic -> offset. `until`: the end of the first sync; None if it is complete.

    `is_new`: `starts` have to be committed before the first record is read.
    """

    starts: Mapping[str, int]
    until: int | None
    is_new: bool


def metadata_of(mapping: str, *, is_done: bool) -> str:
    """Return the metadata of the offset in `segments.membership-state`."""
    return json.dumps({"mapping": mapping, "done": is_done})


def plan_of(committed: Mapping[str, Committed], ends: Ends, mapping: str) -> Plan:
    """Return where to read one partition number.

    A first sync begins for a new target, for another mapping, and if changes have expired before they were read. The followed
    topics are read from their ends as of its start, because `segments.membership-state` contains every change before that.
    """
    state = committed.get(MEMBERSHIP_STATE, Committed(-1))
    known = _metadata(state.metadata)
    followed = {topic: committed.get(topic, Committed(-1)).offset for topic in FOLLOWED}
    is_lost = followed[MEMBERSHIP] < ends.first[MEMBERSHIP]
    if state.offset < 0 or min(followed.values()) < 0 or known.get("mapping") != mapping or is_lost:
        starts = {MEMBERSHIP_STATE: ends.first[MEMBERSHIP_STATE], **{topic: ends.stable[topic] for topic in FOLLOWED}}
        return Plan(starts, ends.state_end, is_new=True)
    starts = {topic: max(offset, ends.first[topic]) for topic, offset in followed.items()}
    starts[MEMBERSHIP_STATE] = max(state.offset, ends.first[MEMBERSHIP_STATE])
    return Plan(starts, None if known.get("done") is True else ends.state_end, is_new=False)


def _metadata(text: str) -> Mapping[str, object]:
    try:
        found = json.loads(text)
    except ValueError:
        return {}
    return found if isinstance(found, dict) else {}
