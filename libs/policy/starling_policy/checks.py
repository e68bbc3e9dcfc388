"""Pure core: the checks of a decision, in their order. Each returns its outcome and what it observed.

Each check is a function of (message, person, policy, now) and holds for that instant. All instants are epoch milliseconds.
"""

import re
from bisect import bisect_right
from collections.abc import Callable, Mapping
from typing import Any, Final, NamedTuple, TypeAlias

from starling_policy.bounds import DEDUPE_MS
from starling_policy.document import Cap, Policy
from starling_policy.local_time import local_time, timezone_of
from starling_policy.person import COMPLAINT, History, Message, Person, address_digest
from starling_policy.shares import control_position, holdout_position

PASSED: Final = "passed"
FAILED: Final = "failed"
SKIPPED: Final = "skipped"

EXPIRED: Final = "expired"
LEFT_SEGMENT: Final = "left_segment"
CANCELLED: Final = "cancelled"
REENTRY: Final = "reentry"
DUPLICATE: Final = "duplicate"
NO_ADDRESS: Final = "no_address"
SUPPRESSED: Final = "suppressed"
NO_CONSENT: Final = "no_consent"
QUIET_HOURS: Final = "quiet_hours"
CAPPED: Final = "capped"
HOLDOUT: Final = "holdout"
TOO_MANY: Final = "too_many"
REASONS: Final = (
    EXPIRED, LEFT_SEGMENT, CANCELLED, REENTRY, DUPLICATE, NO_ADDRESS, SUPPRESSED, NO_CONSENT, QUIET_HOURS, CAPPED, HOLDOUT,
    TOO_MANY,
)  # fmt: skip
"""Every reason, in the order of the checks; `too_many` is that of a message for which there is no room."""


class Check(NamedTuple):
    """The result of one check. `reason`: of a failure. `next_change_at`: when time alone changes the outcome; None for never.

    `observed`: JSON, with instants in epoch ms under names that end in `_at`.
    """

    name: str
    outcome: str
    observed: Mapping[str, Any]
    reason: str | None = None
    next_change_at: int | None = None


CheckFunction: TypeAlias = Callable[[Message, Person, Policy, int], Check]


def expiry(message: Message, _person: Person, _policy: Policy, now: int) -> Check:
    """Fail after `expires_after`; the instant due + `expires_after` itself is in time."""
    last = message.expires_at
    observed = {"due_at": message.due_at, "expires_at": last}
    return Check("expiry", FAILED, observed, EXPIRED) if now > last else Check("expiry", PASSED, observed, None, last + 1)


def cancellation(message: Message, _person: Person, _policy: Policy, now: int) -> Check:
    """Fail after an exit or a cancelling event in (trigger, now]. The earliest gives the reason, the exit at a tie."""
    start = message.triggered_at
    if start is None:
        return Check("cancellation", SKIPPED, {})
    left_at = min((at for at in message.exits if at > start), default=None)
    cancelled_at = min((at for at in message.cancel_events if at > start), default=None)
    first = min((at for at in (left_at, cancelled_at) if at is not None), default=None)
    observed = {"left_at": left_at, "cancelled_at": cancelled_at}
    if first is None or first > now:
        return Check("cancellation", PASSED, observed, None, first)
    return Check("cancellation", FAILED, observed, LEFT_SEGMENT if first == left_at else CANCELLED)


def reentry(message: Message, person: Person, _policy: Policy, now: int) -> Check:
    """Fail for a campaign that the person has had too recently. Messages that failed or were held out count."""
    rules = message.rules
    if rules.campaign is None or rules.reentry_ms == 0:
        return Check("reentry", SKIPPED, {})
    last = person.history.last_of(rules.campaign)
    observed = {"last_at": last}
    if last is None:
        return Check("reentry", PASSED, observed)
    if rules.reentry_ms is None:
        return Check("reentry", FAILED, observed, REENTRY)
    allowed_at = last + rules.reentry_ms
    return Check("reentry", FAILED, observed, REENTRY, allowed_at) if now < allowed_at else Check("reentry", PASSED, observed)


def dedupe(message: Message, person: Person, _policy: Policy, now: int) -> Check:
    """Fail if a message with the same `dedupe_key` was requested or held out in (now - 24 h, now]."""
    key = message.rules.dedupe_key
    if key is None:
        return Check("dedupe", SKIPPED, {})
    last = person.history.last_with(key)
    observed = {"last_at": last}
    if last is None or last <= now - DEDUPE_MS:
        return Check("dedupe", PASSED, observed)
    return Check("dedupe", FAILED, observed, DUPLICATE, last + DEDUPE_MS)


_EMAIL: Final = re.compile(r"[^\s@<>()\[\],;:\"\\]{1,64}@[\w-]{1,63}(\.[\w-]{1,63})+")
_PHONE: Final = re.compile(r"\+[1-9][0-9]{6,14}")
_MAX_EMAIL_CHARACTERS: Final = 254
_MAX_DEVICE_CHARACTERS: Final = 4_096
_TRAITS: Final[Mapping[str, str]] = {"email": "email", "sms": "phone"}
"""Channel -> the trait with its address."""
PUSH: Final = "push"


def addresses_of(channel: str, person: Person) -> tuple[str, ...] | None:
    """Return the well-formed addresses of the person in a channel; None for a channel that needs none."""
    if channel in person.devices or channel == PUSH:
        devices = person.devices.get(channel, ())
        return tuple(one for one in devices if 0 < len(one) <= _MAX_DEVICE_CHARACTERS and one.isprintable() and " " not in one)
    trait = _TRAITS.get(channel)
    if trait is None:
        return None
    value = person.traits.get(trait)
    if not isinstance(value, str) or len(value) > _MAX_EMAIL_CHARACTERS:
        return ()
    text = value.strip()
    return (text,) if is_address(channel, text) else ()


def is_address(channel: str, text: str) -> bool:
    """Return whether a text is a well-formed address of a channel whose addresses are traits."""
    if len(text) > _MAX_EMAIL_CHARACTERS or not text.isprintable():
        return False
    return (_EMAIL if channel == "email" else _PHONE).fullmatch(text) is not None


def address(message: Message, person: Person, _policy: Policy, _now: int) -> Check:
    """Fail without a well-formed address or device."""
    found = addresses_of(message.rules.channel, person)
    if found is None:
        return Check("address", SKIPPED, {})
    observed = {"addresses": len(found)}
    return Check("address", PASSED, observed) if found else Check("address", FAILED, observed, NO_ADDRESS)


def suppression(message: Message, person: Person, _policy: Policy, _now: int) -> Check:
    """Fail if every address is suppressed. A complaint does not stop transactional messages."""
    if not person.suppressions:
        return Check("suppression", PASSED, {"kinds": []})
    channel, addresses = message.rules.channel, addresses_of(message.rules.channel, person)
    if not addresses:
        return Check("suppression", SKIPPED, {})
    ignored = COMPLAINT if message.rules.transactional else None
    here = [one for one in person.suppressions if one.channel == channel and one.kind != ignored]
    if not here:
        return Check("suppression", PASSED, {"kinds": []})
    digests = {address_digest(one) for one in addresses}
    found = {one.digest for one in here} & digests
    observed = {"kinds": sorted({one.kind for one in here if one.digest in found})}
    return Check("suppression", FAILED, observed, SUPPRESSED) if found == digests else Check("suppression", PASSED, observed)


def consent(message: Message, person: Person, policy: Policy, _now: int) -> Check:
    """Fail without consent. The newest explicit change decides, then the trait, then the default of the channel.

    Of explicit changes at the same instant a refusal decides.
    """
    rules = message.rules
    if rules.transactional:
        return Check("consent", SKIPPED, {})
    changes = [one for one in person.consent_changes if one.channel == rules.channel and one.purpose in (None, rules.purpose)]
    if changes:
        newest = max(changes, key=lambda one: (one.at, not one.granted))
        granted, observed = newest.granted, {"source": "explicit", "granted": newest.granted, "changed_at": newest.at}
    else:
        trait = _consent_trait(person.traits, rules.channel, rules.purpose)
        granted = rules.channel in policy.opt_out if trait is None else trait
        observed = {"source": "default" if trait is None else "trait", "granted": granted}
    return Check("consent", PASSED, observed) if granted else Check("consent", FAILED, observed, NO_CONSENT)


def _consent_trait(traits: Mapping[str, Any], channel: str, purpose: str) -> bool | None:
    """Return the trait `consent.<channel>`: true, false or `{purpose: bool}`; None for anything else."""
    channels = traits.get("consent")
    value = channels.get(channel) if isinstance(channels, Mapping) else None
    if isinstance(value, Mapping):
        value = value.get(purpose)
    return value if isinstance(value, bool) else None


def quiet_hours(message: Message, person: Person, policy: Policy, now: int) -> Check:
    """Fail in quiet hours, by the local time of the person."""
    hours = policy.quiet_hours
    if hours is None or message.rules.transactional:
        return Check("quiet_hours", SKIPPED, {})
    zone = timezone_of(person.traits, policy.timezone)
    local_ms, quiet, change_at = local_time(hours, zone, now)
    observed = {"timezone": zone, "local_time": _clock(local_ms)}
    if quiet:
        return Check("quiet_hours", FAILED, observed, QUIET_HOURS, change_at)
    return Check("quiet_hours", PASSED, observed, None, change_at)


def _clock(local_ms: int) -> str:
    seconds = local_ms // 1000
    return f"{seconds // 3600:02d}:{seconds // 60 % 60:02d}:{seconds % 60:02d}"


def caps(message: Message, person: Person, policy: Policy, now: int) -> Check:
    """Fail if a cap on this message has no slot. A slot is free again exactly `per` after its message was requested."""
    rules = message.rules
    applied = [] if rules.transactional else [one for one in enumerate(policy.caps) if one[1].counts(rules.channel, rules.purpose)]
    if not applied:
        return Check("caps", SKIPPED, {})
    observed: list[Mapping[str, Any]] = []
    full = False
    free_at: int | None = now
    for index, cap in applied:
        count, slot_at = _slots(cap, person.history, now)
        observed.append({"cap": index, "limit": cap.limit, "count": count, "slot_at": slot_at})
        if count >= cap.limit:
            full = True
            free_at = None if slot_at is None or free_at is None else max(free_at, slot_at)
    if not full:
        return Check("caps", PASSED, {"caps": observed})
    return Check("caps", FAILED, {"caps": observed}, CAPPED, free_at)


def _slots(cap: Cap, history: History, now: int) -> tuple[int, int | None]:
    """Return the number of counted messages in the window, and when a full cap has a slot again.

    The instant is None for a cap that is not full, and for a limit of 0.
    """
    taken = history.slots_taken(cap.channels, cap.purposes)
    count = len(taken) - bisect_right(taken, now - cap.per_ms)
    return count, taken[-cap.limit] + cap.per_ms if 0 < cap.limit <= count else None


def holdout(message: Message, person: Person, policy: Policy, _now: int) -> Check:
    """Fail in the holdout of the campaign, and in the control group."""
    rules = message.rules
    if rules.transactional or (policy.control_share == 0 and (rules.campaign is None or rules.holdout_share == 0)):
        return Check("holdout", SKIPPED, {})
    in_control = control_position(person.user_id) < policy.control_share
    in_campaign = rules.campaign is not None and holdout_position(rules.campaign, person.user_id) < rules.holdout_share
    observed = {"campaign": in_campaign, "control_group": in_control}
    return Check("holdout", FAILED, observed, HOLDOUT) if in_campaign or in_control else Check("holdout", PASSED, observed)


CHECKS: Final[tuple[CheckFunction, ...]] = (
    expiry, cancellation, reentry, dedupe, address, suppression, consent, quiet_hours, caps, holdout,
)  # fmt: skip
"""Every check in order: the first failure decides."""
