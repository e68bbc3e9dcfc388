"""Pure core: parses the bodies of consent changes and of suppressions."""

from collections.abc import Mapping
from typing import Any, Final, NamedTuple

from starling_policy.fields import read_choice, read_key
from starling_segments import DefinitionRefused, FieldError, Known
from starling_segments.language.validation import Location, Validation, finish, refuse_unknown_fields

CONSENT_CHANNELS: Final = ("email", "push", "sms", "webhook", "audience")
SUPPRESSED_CHANNELS: Final = ("email", "sms")
MAX_ADDRESSES: Final = 10_000
MAX_ADDRESS_CHARACTERS: Final = 254


class RequestedConsent(NamedTuple):
    """An explicit change of consent. `purpose` None: every purpose of the channel."""

    channel: str
    purpose: str | None
    granted: bool


class RequestedSuppressions(NamedTuple):
    """Addresses to suppress, or not to suppress any more."""

    addresses: tuple[str, ...]
    suppressed: bool


def requested_consent(document: object) -> RequestedConsent:
    """Return the change of a body. Raises: DefinitionRefused with all errors."""
    fields, location = _object(document, 'an object with "channel" and "granted"')
    refuse_unknown_fields(fields, frozenset({"channel", "purpose", "granted"}), location)
    if fields.get("channel") is None:
        location.refuse("missing_field", "'channel' is missing", f'"channel": one of {", ".join(CONSENT_CHANNELS)}')
    channel = read_choice(fields, "channel", location, CONSENT_CHANNELS)
    purpose = None if fields.get("purpose") is None else read_key(fields, "purpose", location)
    granted = fields.get("granted")
    if not isinstance(granted, bool):
        place = location if granted is None else location.at("granted")
        place.refuse("missing_field" if granted is None else "wrong_type", "'granted' is not a boolean", '"granted": true or false')
    finish(location.validation)
    return RequestedConsent(channel, purpose, granted is True)


def requested_suppressions(channel: str, document: object) -> RequestedSuppressions:
    """Return the suppressions of a body. Raises: DefinitionRefused with all errors."""
    fields, location = _object(document, 'an object with "addresses"')
    refuse_unknown_fields(fields, frozenset({"addresses", "suppressed"}), location)
    if channel not in SUPPRESSED_CHANNELS:
        location.refuse("wrong_type", f"the channel {channel!r} has no addresses", "one of " + ", ".join(SUPPRESSED_CHANNELS))
    addresses, expected = fields.get("addresses"), f"1 to {MAX_ADDRESSES:,} texts of 1 to {MAX_ADDRESS_CHARACTERS} characters"
    if not isinstance(addresses, list) or not 0 < len(addresses) <= MAX_ADDRESSES:
        location.at("addresses").refuse("wrong_type", "the value is not a list of addresses", expected)
        addresses = []
    for i, one in enumerate(addresses):
        if not isinstance(one, str) or not 0 < len(one.strip()) <= MAX_ADDRESS_CHARACTERS:
            location.at("addresses").at(i).refuse("wrong_type", "the value is not an address", expected)
    suppressed = fields.get("suppressed", True)
    if not isinstance(suppressed, bool):
        location.at("suppressed").refuse("wrong_type", "the value is not a boolean", "true or false")
    finish(location.validation)
    return RequestedSuppressions(tuple(addresses), suppressed is True)


def _object(document: object, expected: str) -> tuple[Mapping[str, Any], Location]:
    if not isinstance(document, dict):
        raise DefinitionRefused((FieldError("", "wrong_type", "it is not an object", expected),))
    return document, Location(Validation(Known()))
