"""Pure core: parses the body of a policy check into a message, a policy and what is known of the user.

What the body does not give comes from the messenger's state of the user. A campaign and a policy may be the stored ones.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Final, TypeVar

from starling_api.http.errors import NotFound
from starling_campaigns.definitions.policy import POLICY_KEY
from starling_common.cassandra.read_models import CAMPAIGN, POLICY
from starling_common.time.instants import parse_instant
from starling_policy import (
    MARKETING,
    SUPPRESSION_KINDS,
    ConsentChange,
    History,
    MessageRules,
    PastMessage,
    Policy,
    Suppression,
    address_digest,
    read_campaign,
    read_policy,
)
from starling_policy.bounds import (
    MAX_CONSENT_CHANGES,
    MAX_DEDUPE_KEY_CHARACTERS,
    MAX_DEVICES,
    MAX_MESSAGES,
    MAX_NAMES,
    MAX_PRIORITY,
    MAX_SUPPRESSIONS,
)
from starling_policy.campaign import DEFAULT_PRIORITY
from starling_policy.fields import read_choice, read_key, read_whole
from starling_segments import DefinitionRefused, FieldError, Known
from starling_segments.language.validation import Location, Validation, finish, refuse_unknown_fields
from starling_segments.parse.groups import read_object

T = TypeVar("T")
Fields = Mapping[str, Any]

MAX_USER_BYTES: Final = 512
MAX_ADDRESS_CHARACTERS: Final = 4_096
REQUESTED: Final = "requested"
HELD_OUT: Final = "held_out"
FIELDS: Final = frozenset({
    "user", "campaign", "channel", "purpose", "priority", "at", "policy", "traits", "devices", "consent", "suppressions",
    "messages",
})  # fmt: skip
_MESSAGE_FIELDS: Final = frozenset({"at", "channel", "purpose", "campaign", "dedupe_key", "status", "slot_returned"})
_WITHOUT_CAMPAIGN: Final = ("channel", "purpose", "priority")
_FIRST_MS: Final = 0
_LAST_MS: Final = 253_086_249_600_000
"""9989-12-27: every instant of an answer is within the years that a date can have."""
_INSTANT: Final = "an instant in ISO 8601 from 1970 to 9989, such as 2026-03-01T09:30:00Z"


@dataclass(frozen=True, slots=True)
class RequestedCheck:
    """A requested check. `traits` None: those of the profile; `at` None: the stream time of the read models. Epoch ms."""

    user: str
    rules: MessageRules
    policy: Policy
    at: int | None
    traits: Mapping[str, Any] | None
    devices: Mapping[str, tuple[str, ...]]
    consent_changes: tuple[ConsentChange, ...]
    suppressions: tuple[Suppression, ...]
    history: History
    given: frozenset[str] = frozenset()
    """The fields of the body. What is not given comes from the messenger."""


def with_stored(document: object, stored: Callable[[str, str], Mapping[str, Any] | None]) -> object:
    """Return the body with the stored documents of a campaign that is given by its key, and of a missing policy.

    `stored`: (kind, key) -> the stored document, or None. Without a stored policy nothing is restricted. Raises: NotFound.
    """
    if not isinstance(document, dict):
        return document
    found = dict(document)
    campaign = found.get("campaign")
    if isinstance(campaign, str):
        found["campaign"] = stored(CAMPAIGN, campaign)
        if found["campaign"] is None:
            raise NotFound("campaign", campaign)
    if found.get("policy") is None:
        policy = stored(POLICY, POLICY_KEY) or {}
        found["policy"] = {name: value for name, value in policy.items() if name != "key"}
    return found


def requested_check(document: object, timezone: str) -> RequestedCheck:
    """Return the check of a body after `with_stored`. `timezone`: the workspace's, for a policy without one.

    Raises: DefinitionRefused with all errors.
    """
    if not isinstance(document, dict):
        raise DefinitionRefused(
            (FieldError("", "wrong_type", "it is not an object", 'an object with "user", "channel" and "policy"'),)
        )
    validation = Validation(Known())
    location = Location(validation)
    refuse_unknown_fields(document, FIELDS, location)
    found = RequestedCheck(
        user=_read_user(document, location),
        rules=_read_rules(document, location),
        policy=_read_policy(document, location, timezone),
        at=_read_instant(document, "at", location) if document.get("at") is not None else None,
        traits=None if document.get("traits") is None else read_object(document["traits"], location.at("traits"), "an object"),
        devices=_read_devices(document, location),
        consent_changes=_read_list(document, "consent", location, MAX_CONSENT_CHANGES, _read_consent),
        suppressions=_read_list(document, "suppressions", location, MAX_SUPPRESSIONS, _read_suppression),
        history=History(_read_list(document, "messages", location, MAX_MESSAGES, _read_message)),
        given=frozenset(name for name, value in document.items() if value is not None),
    )
    finish(validation)
    return found


def _read_user(fields: Fields, location: Location) -> str:
    user, expected = fields.get("user"), f"a user id of 1 to {MAX_USER_BYTES} bytes"
    if user is None:
        location.refuse("missing_field", "'user' is missing", f'"user": {expected}')
    elif not isinstance(user, str) or not 0 < len(user.encode()) <= MAX_USER_BYTES:
        location.at("user").refuse("wrong_type", "the value is not a user id", expected)
    else:
        return user
    return ""


def _read_rules(fields: Fields, location: Location) -> MessageRules:
    """Read the campaign, or the channel, purpose and priority of a message without one."""
    campaign, child = fields.get("campaign"), location.at("campaign")
    if campaign is None:
        return MessageRules(
            read_key(fields, "channel", location),
            purpose=read_key(fields, "purpose", location, MARKETING),
            priority=read_whole(fields, "priority", location, 0, MAX_PRIORITY, DEFAULT_PRIORITY),
        )
    for name in _WITHOUT_CAMPAIGN:
        if fields.get(name) is not None:
            location.at(name).refuse("unknown_field", f"{name!r} is a field of the campaign here", f'"campaign": {{"{name}": …}}')
    return read_campaign(campaign, child)


def _read_policy(fields: Fields, location: Location, timezone: str) -> Policy:
    return read_policy(fields["policy"], location.at("policy"), timezone)


def _read_instant(fields: Fields, name: str, location: Location) -> int:
    text = fields.get(name)
    if text is None:
        location.refuse("missing_field", f"{name!r} is missing", f'"{name}": {_INSTANT}')
        return _FIRST_MS
    child = location.at(name)
    try:
        instant = parse_instant(text) if isinstance(text, str) and len(text) <= 40 else None
    except ValueError:
        instant = None
    if instant is None:
        child.refuse("bad_date", "the value is not an instant", _INSTANT)
    elif not _FIRST_MS <= instant <= _LAST_MS:
        child.refuse("out_of_range", "the instant is out of range", _INSTANT)
    else:
        return instant
    return _FIRST_MS


def _read_devices(fields: Fields, location: Location) -> Mapping[str, tuple[str, ...]]:
    value = fields.get("devices")
    if value is None:
        return {}
    child, expected = location.at("devices"), f'{{"push": [token]}}: at most {MAX_NAMES} channels with {MAX_DEVICES} devices each'
    channels = read_object(value, child, expected)
    if channels is None:
        return {}
    if len(channels) > MAX_NAMES:
        child.refuse("too_wide", f"there are {len(channels)} channels", expected)
        return {}
    found = {}
    for channel, tokens in channels.items():
        if not isinstance(tokens, list) or len(tokens) > MAX_DEVICES or not all(isinstance(token, str) for token in tokens):
            child.at(channel).refuse("wrong_type", "the value is not a list of devices", f"at most {MAX_DEVICES} texts")
        else:
            found[channel] = tuple(tokens)
    return found


def _read_list(
    fields: Fields, name: str, location: Location, most: int, read_one: Callable[[Fields, Location], T]
) -> tuple[T, ...]:
    value, child = fields.get(name), location.at(name)
    if value is None:
        return ()
    if not isinstance(value, list):
        child.refuse("wrong_type", "the value is not a list", f"a list of at most {most} objects")
        return ()
    if len(value) > most:
        child.refuse("too_wide", f"the list has {len(value)} items", f"at most {most} items")
        return ()
    found = []
    for i, one in enumerate(value):
        inner = read_object(one, child.at(i), "an object")
        if inner is not None:
            found.append(read_one(inner, child.at(i)))
    return tuple(found)


def _read_consent(fields: Fields, location: Location) -> ConsentChange:
    refuse_unknown_fields(fields, frozenset({"channel", "purpose", "granted", "at"}), location)
    granted = _read_flag(fields, "granted", location)
    if granted is None:
        location.refuse("missing_field", "'granted' is missing", '"granted": true or false')
    purpose = None if fields.get("purpose") is None else read_key(fields, "purpose", location)
    at = _read_instant(fields, "at", location)
    return ConsentChange(read_key(fields, "channel", location), purpose, bool(granted), at)


def _read_suppression(fields: Fields, location: Location) -> Suppression:
    refuse_unknown_fields(fields, frozenset({"channel", "address", "reason"}), location)
    address, expected = fields.get("address"), f"a text of 1 to {MAX_ADDRESS_CHARACTERS} characters"
    if not isinstance(address, str) or not 0 < len(address) <= MAX_ADDRESS_CHARACTERS:
        location.at("address").refuse("wrong_type", "the value is not an address", expected)
        address = ""
    reason = read_choice(fields, "reason", location, SUPPRESSION_KINDS)
    return Suppression(read_key(fields, "channel", location), address_digest(address), reason)


def _read_message(fields: Fields, location: Location) -> PastMessage:
    refuse_unknown_fields(fields, _MESSAGE_FIELDS, location)
    dedupe_key = fields.get("dedupe_key")
    if dedupe_key is not None and (not isinstance(dedupe_key, str) or not 0 < len(dedupe_key) <= MAX_DEDUPE_KEY_CHARACTERS):
        expected = f"a text of 1 to {MAX_DEDUPE_KEY_CHARACTERS} characters"
        location.at("dedupe_key").refuse("wrong_type", "the value is not a valid dedupe_key", expected)
        dedupe_key = None
    return PastMessage(
        at=_read_instant(fields, "at", location),
        channel=read_key(fields, "channel", location),
        purpose=read_key(fields, "purpose", location, MARKETING),
        campaign=None if fields.get("campaign") is None else read_key(fields, "campaign", location),
        dedupe_key=dedupe_key,
        held_out=read_choice(fields, "status", location, (REQUESTED, HELD_OUT)) == HELD_OUT,
        slot_returned=bool(_read_flag(fields, "slot_returned", location)),
    )


def _read_flag(fields: Fields, name: str, location: Location) -> bool | None:
    value = fields.get(name)
    if value is None or isinstance(value, bool):
        return value
    location.at(name).refuse("wrong_type", "the value is not true or false", "true or false")
    return False
