"""Pure core: what an audience has to contain: the newest status of each user in each segment."""

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Final

from starling_audience.identifiers import email_of, phone_of
from starling_common.wire import Record

ENTERED: Final = "ENTERED"
NO_CONSENT: Final = "no_consent"
NO_IDENTIFIER: Final = "no_identifier"
SUPERSEDED: Final = "superseded"

Key = tuple[str, str]
"""User and segment."""


@dataclass(frozen=True, slots=True)
class Change:
    """The status of one user in one segment. No representation shows an identifier.

    `is_member`: whether the user belongs into the audience: false without consent too, of which `reason` is `no_consent`.
    `sequence`: of the membership change. `overrides`: a refusal of consent, which wins over what was read before it. `email`,
    `phone`: normalised, or None. Times: `effective_at` in ms, `received_at` in µs. `is_reported`: false for the members of a first
    sync, whose success is counted and not reported. `delivery_id`, `attempt`: of a replayed dead letter.
    """

    user_id: str
    segment: str
    is_member: bool
    sequence: int
    email: str | None = None
    phone: str | None = None
    effective_at: int = 0
    received_at: int = 0
    event_id: str = ""
    correlation_id: str = ""
    reason: str | None = None
    overrides: bool = False
    is_reported: bool = True
    delivery_id: str | None = None
    attempt: int = 1

    @property
    def key(self) -> Key:
        """Return the user and the segment."""
        return self.user_id, self.segment

    def __repr__(self) -> str:
        return f"Change(segment={self.segment!r}, is_member={self.is_member}, sequence={self.sequence})"


def fold(newest: dict[Key, Change], changes: Iterable[Change]) -> None:
    """Add changes, in the order in which they were read. The status with the highest sequence stays."""
    for change in changes:
        known = newest.get(change.key)
        if known is None or change.overrides or change.sequence >= known.sequence:
            newest[change.key] = change


def change_of(record: Record, traits: Mapping[str, Any], *, is_allowed: bool, is_reported: bool) -> Change:
    """Return the change of a `SegmentMembershipChanged`. `is_allowed`: the user consents to audiences."""
    entered = record["status"] == ENTERED
    return Change(
        user_id=record["user_id"],
        segment=record["segment_key"],
        is_member=entered and is_allowed,
        sequence=record["sequence"],
        email=email_of(traits),
        phone=phone_of(traits),
        effective_at=record["effective_at"],
        received_at=record["received_at"],
        event_id=record["event_id"],
        correlation_id=record["correlation_id"],
        reason=NO_CONSENT if entered and not is_allowed else None,
        is_reported=is_reported,
    )


def traits_of(record: Record) -> Mapping[str, Any]:
    """Return the traits in a `SegmentMembershipChanged`; none if they are no JSON object."""
    try:
        found = json.loads(record["traits"])
    except (ValueError, RecursionError):
        return {}
    return found if isinstance(found, dict) else {}
