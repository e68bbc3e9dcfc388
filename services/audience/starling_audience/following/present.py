"""Pure core: changes from the present state of users: after a change of consent, and for replayed dead letters."""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from typing import Any

from starling_audience.changes import NO_CONSENT, Change
from starling_audience.definitions import AudienceTarget
from starling_audience.identifiers import email_of, phone_of
from starling_audience.stores.read_model import KnownUser
from starling_common.values import deterministic_id
from starling_common.wire import Record

Allows = Callable[[str, Mapping[str, Any]], bool]
"""Returns whether a user with these traits consents."""


def after_consent(target: AudienceTarget, record: Record, known: KnownUser, allows: Allows) -> Iterator[Change]:
    """Yield the change of each segment of the target after a `ConsentChanged`.

    A refusal removes the user from every audience, also from those in which the user is not known to be.
    """
    user = record["user_id"]
    is_allowed = allows(user, known.traits)
    for segment in sorted(target.segments):
        membership = known.memberships.get(segment)
        if is_allowed and membership is None:
            continue
        change = _change(user, segment, known, is_allowed=is_allowed)
        yield replace(
            change,
            received_at=record["received_at"],
            correlation_id=record["correlation_id"],
            event_id=deterministic_id("consent", target.workspace, user, segment, record["changed_at"]),
            is_reported=membership is not None and membership.is_member,
        )


def after_replay(target: AudienceTarget, request: Record, known: KnownUser, allows: Allows) -> tuple[Change, bool]:
    """Return the change of a replayed dead letter, and whether a newer one has overtaken it.

    The change has the present status, so a replay never brings an older one back.
    """
    user, segment = request["user_id"], request["segment_key"] or ""
    membership = known.memberships.get(segment)
    change = replace(
        _change(user, segment, known, is_allowed=allows(user, known.traits)),
        received_at=request["received_at"],
        correlation_id=request["correlation_id"],
        delivery_id=request["delivery_id"],
        attempt=request["attempt"] + 1,
    )
    overtaken = segment not in target.segments or (membership is not None and membership.sequence > request["sequence"])
    return change, overtaken


def _change(user: str, segment: str, known: KnownUser, *, is_allowed: bool) -> Change:
    membership = known.memberships.get(segment)
    is_member = membership is not None and membership.is_member
    return Change(
        user_id=user,
        segment=segment,
        is_member=is_member and is_allowed,
        sequence=0 if membership is None else membership.sequence,
        email=email_of(known.traits),
        phone=phone_of(known.traits),
        effective_at=0 if membership is None else membership.effective_at,
        reason=NO_CONSENT if is_member and not is_allowed else None,
        overrides=not is_allowed,
    )
