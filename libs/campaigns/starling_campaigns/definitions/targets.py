"""Pure core: the targets: where and as whom messages and feeds are sent. One table describes the fields of every channel.

The table is the source of the checks, of the JSON Schema and of the fields that are never shown again.
"""

import base64
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final
from urllib.parse import urlsplit

from starling_campaigns.bounds import (
    LONGEST_DIGEST_SECONDS,
    MAX_CERTIFICATES_CHARACTERS,
    MAX_DIGEST_TITLE_CHARACTERS,
    MAX_FEED_SEGMENTS,
    MAX_HEADERS,
    MAX_PRIVATE_KEY_CHARACTERS,
    MAX_TARGET_TEXT_CHARACTERS,
    MAX_URL_CHARACTERS,
    SHORTEST_DIGEST_SECONDS,
)
from starling_campaigns.channels import AUDIENCE
from starling_campaigns.definitions.references import Fields, References, read_heading, read_new_key, read_segment_key
from starling_policy.fields import KEY
from starling_segments import Known, check_bounds
from starling_segments.language.validation import Location, Validation, finish, refuse_unknown_fields
from starling_segments.parse.document import KEY_PATTERN, LABELS
from starling_segments.parse.groups import read_object

MASK: Final = "***"
"""Replaces a secret in responses. In a body it keeps the stored value."""
SEALED: Final = "sealed:v1:"
"""The beginning of a stored secret, which is encrypted. Such a value was checked before its encryption."""

SES: Final = "ses"
SENDGRID: Final = "sendgrid"
DSN: Final = "dsn"
"""The providers whose callbacks the tracker takes for mails: Amazon SES by SNS, SendGrid, and delivery status notifications."""

BRAZE: Final = "braze"
CUSTOMERIO: Final = "customerio"
META: Final = "meta"
GOOGLE: Final = "google"
HTTP: Final = "http"
"""The adapters of the channel `audience`."""

Schema = dict[str, Any]


@dataclass(frozen=True, slots=True)
class Kind:
    """A kind of value. `is_valid` is the check; `schema` accepts every valid value; `expected` is the cure of an error."""

    is_valid: Callable[[Any], bool]
    schema: Schema
    expected: str


@dataclass(frozen=True, slots=True)
class TargetField:
    """One field of a target. `secret`: responses mask it. `fields`: those of an object, whose `kind` is None then.

    `each`: of an object with names that the user chooses: the field of each value, which is required; `kind` checks the names.
    `variants`: of an object whose first field selects the others: value of that field -> the names of the fields that go with it,
    each with whether it is required.
    """

    kind: Kind | None
    required: bool = True
    secret: bool = False
    fields: "Mapping[str, TargetField] | None" = None
    each: "TargetField | None" = None
    variants: Mapping[str, Mapping[str, bool]] | None = None

    @property
    def selector(self) -> str | None:
        """Return the name of the field that selects the others; None without `variants`."""
        return None if self.fields is None or self.variants is None else next(iter(self.fields))


def _pattern(pattern: str, most: int, expected: str) -> Kind:
    found = re.compile(pattern[:-1] + r"\Z")

    def is_valid(value: Any) -> bool:
        return isinstance(value, str) and 0 < len(value) <= most and found.match(value) is not None

    return Kind(is_valid, {"type": "string", "minLength": 1, "maxLength": most, "pattern": pattern}, expected)


def _choice(*choices: str) -> Kind:
    return Kind(lambda value: isinstance(value, str) and value in choices, {"enum": [*choices]}, "one of " + ", ".join(choices))


def _is_url(value: Any) -> bool:
    if (
        not isinstance(value, str)
        or len(value) > MAX_URL_CHARACTERS
        or not value.isascii()
        or not value.isprintable()
        or " " in value
    ):
        return False
    try:
        parts = urlsplit(value)
        return parts.scheme in {"http", "https"} and bool(parts.hostname) and parts.username is None and parts.port != 0
    except ValueError:
        return False


def _is_webhook_secret(value: Any) -> bool:
    if not isinstance(value, str) or not value.startswith("whsec_"):
        return False
    try:
        return 24 <= len(base64.b64decode(value.removeprefix("whsec_"), validate=True)) <= 64
    except ValueError:
        return False


def _is_segments(value: Any) -> bool:
    return (
        isinstance(value, list)
        and 0 < len(value) <= MAX_FEED_SEGMENTS
        and all(isinstance(key, str) and KEY.match(key) for key in value)
        and len(set(value)) == len(value)
    )


def _is_header_name(name: str) -> bool:
    lowered = name.lower()
    return _HEADER_NAME.match(name) is not None and lowered not in _OWN_HEADERS and not lowered.startswith("webhook-")


_LINE: Final = _pattern(r"^[^\x00-\x1f\x7f-\x9f\u2028\u2029]+$", MAX_TARGET_TEXT_CHARACTERS, "one line of text")
_NAME: Final = _pattern("^[A-Za-z0-9._-]+$", 200, "letters, digits and ._-")
_HOST: Final = _pattern("^[A-Za-z0-9.:_-]+$", 253, "a host name or an address, without a port")
_BROKERS: Final = _pattern("^[A-Za-z0-9.:,_-]+$", MAX_TARGET_TEXT_CHARACTERS, "host:port, comma separated")
_ADDRESS: Final = _pattern(
    r"^([^\x00-\x1f\x7f-\x9f\u2028\u2029<>@]{1,200} )?<?[^\s<>@]{1,64}@[A-Za-z0-9.-]{1,189}>?$", 470,
    "an address, such as shop@example.com or Shop <shop@example.com>",
)  # fmt: skip
_PRIVATE_KEY: Final = _pattern(
    r"^-----BEGIN [A-Z ]+-----[A-Za-z0-9+/=\s]+-----END [A-Z ]+-----\s*$", MAX_PRIVATE_KEY_CHARACTERS, "a private key in PEM"
)
_SENDER: Final = _pattern(
    r"^(\+[1-9][0-9]{6,14}|[A-Za-z0-9 ]{1,11})$", 16, "a number such as +4915112345678, or 1 to 11 letters and digits"
)
_SUBJECT: Final = _pattern(r"^(mailto:[^\s@]{1,64}@[^\s@]{1,200}|https://[^\s]{1,1000})$", 1_100, "a mailto: or an https: address")
_EC_KEY: Final = _pattern("^[A-Za-z0-9_-]+={0,2}$", 200, "a key in base64url")
_TOPIC: Final = _pattern("^[A-Za-z0-9._-]+$", 249, "the name of a topic")
_TOPIC_ARN: Final = _pattern(
    "^arn:aws(-cn|-us-gov)?:sns:[a-z0-9-]{1,32}:[0-9]{12}:[A-Za-z0-9_-]{1,256}$", 340,
    "the ARN of a topic of SNS, such as arn:aws:sns:eu-central-1:123456789012:mails",
)  # fmt: skip
_SES_NAME: Final = _pattern("^[A-Za-z0-9_-]{1,64}$", 64, "1 to 64 letters, digits, _ and -")
_VERIFICATION_KEY: Final = _pattern(
    "^MFkwEwYHKoZIzj0CAQYIKoZIzj0DAQcDQgAE[A-Za-z0-9+/]{86}==$", 124,
    "the verification key of the event webhook: 124 characters of base64 that begin with MFkwEwYHKoZIzj0C",
)  # fmt: skip
_SHARED_SECRET: Final = _pattern("^[!-~]{16,200}$", 200, "16 to 200 characters of ASCII, without spaces")
_WEBHOOK_SECRET: Final = Kind(
    _is_webhook_secret,
    {"type": "string", "pattern": "^whsec_[A-Za-z0-9+/]{32,88}={0,2}$"},
    "whsec_ and the base64 of 24 to 64 random bytes",
)
_URL: Final = Kind(
    _is_url,
    {"type": "string", "minLength": 1, "maxLength": MAX_URL_CHARACTERS},
    f"an http or https URL of at most {MAX_URL_CHARACTERS} ASCII characters, without user name and password",
)
_SEGMENT_NAMES: Final = Kind(
    lambda value: len(value) <= MAX_FEED_SEGMENTS and all(KEY.match(name) for name in value),
    {"type": "object", "propertyNames": {"pattern": KEY_PATTERN}, "maxProperties": MAX_FEED_SEGMENTS},
    "an object that has the id of an audience for each of the segments",
)
_AUDIENCE_ID: Final = _pattern("^[A-Za-z0-9._-]+$", 100, "the id of an audience: letters, digits and ._-")
_ATTRIBUTE: Final = _pattern("^[A-Za-z][A-Za-z0-9_]*$", 100, "a letter, then letters, digits and _")
_ACCOUNT_ID: Final = _pattern("^[0-9]+$", 20, "the digits of the id, without hyphens")
_ACCOUNT_TYPE: Final = _choice(
    "GOOGLE_ADS", "DISPLAY_VIDEO_PARTNER", "DISPLAY_VIDEO_ADVERTISER", "DATA_PARTNER", "GOOGLE_ANALYTICS_PROPERTY"
)
_HEADER_NAME: Final = re.compile(r"[A-Za-z0-9!#$%&'*+.^_`|~-]{1,100}\Z")
_OWN_HEADERS: Final = frozenset({
    "host", "content-length", "content-type", "content-encoding", "transfer-encoding", "connection", "keep-alive", "upgrade", "te",
    "trailer", "expect", "accept-encoding", "user-agent", "proxy-authorization", "proxy-connection",
})  # fmt: skip
"""Headers that the channel or the connection sets."""
_HEADER_NAMES: Final = Kind(
    lambda value: (
        len(value) <= MAX_HEADERS
        and len({name.lower() for name in value}) == len(value)
        and all(_is_header_name(name) for name in value)
    ),
    {
        "type": "object",
        "propertyNames": {"type": "string", "pattern": "^[A-Za-z0-9!#$%&'*+.^_`|~-]{1,100}$"},
        "maxProperties": MAX_HEADERS,
    },
    f"an object of at most {MAX_HEADERS} names and values of headers that Starling does not set, each name once in any case",
)
_HEADER_VALUE: Final = _pattern(
    r"^[\x21-\x7e]([\x20-\x7e]*[\x21-\x7e])?$", 1_000, "printable ASCII characters, without spaces at the ends"
)
_PORT: Final = Kind(
    lambda value: type(value) is int and 1 <= value <= 65_535,
    {"type": "integer", "minimum": 1, "maximum": 65_535},
    "a whole number from 1 to 65535",
)
_SEGMENTS: Final = Kind(
    _is_segments,
    {
        "type": "array",
        "items": {"type": "string", "pattern": KEY_PATTERN},
        "minItems": 1,
        "maxItems": MAX_FEED_SEGMENTS,
        "uniqueItems": True,
    },
    f"a list of 1 to {MAX_FEED_SEGMENTS} different keys of segments",
)
_TITLE: Final = _pattern(
    r"^[^\x00-\x1f\x7f-\x9f\u2028\u2029]+$",
    MAX_DIGEST_TITLE_CHARACTERS,
    f"one line of text, at most {MAX_DIGEST_TITLE_CHARACTERS} characters",
)
_INTERVAL: Final = Kind(
    lambda value: type(value) is int and SHORTEST_DIGEST_SECONDS <= value <= LONGEST_DIGEST_SECONDS,
    {"type": "integer", "minimum": SHORTEST_DIGEST_SECONDS, "maximum": LONGEST_DIGEST_SECONDS},
    f"a whole number of seconds from {SHORTEST_DIGEST_SECONDS} to {LONGEST_DIGEST_SECONDS}",
)
_CERTIFICATES: Final = _pattern(
    r"^(-----BEGIN CERTIFICATE-----[A-Za-z0-9+/=\s]+-----END CERTIFICATE-----\s*)+$",
    MAX_CERTIFICATES_CHARACTERS,
    "certificates in PEM",
)

_DIGEST_FIELDS: Final[Mapping[str, TargetField]] = {
    # The address of an incoming webhook is its only credential.
    "url": TargetField(_URL, secret=True),
    "segments": TargetField(_SEGMENTS),
    "title": TargetField(_TITLE, required=False),
    "interval_seconds": TargetField(_INTERVAL, required=False),
}

CHANNEL_FIELDS: Final[Mapping[str, Mapping[str, TargetField]]] = {
    "email": {
        "host": TargetField(_HOST),
        "port": TargetField(_PORT),
        "tls": TargetField(_choice("none", "starttls", "tls")),
        "from": TargetField(_ADDRESS),
        "username": TargetField(_LINE, required=False),
        "password": TargetField(_LINE, required=False, secret=True),
        "dkim": TargetField(
            None,
            required=False,
            fields={
                "domain": TargetField(_HOST),
                "selector": TargetField(_NAME),
                "private_key": TargetField(_PRIVATE_KEY, secret=True),
            },
        ),
        "callbacks": TargetField(
            None,
            required=False,
            fields={
                "provider": TargetField(_choice(SES, SENDGRID, DSN)),
                "topic_arn": TargetField(_TOPIC_ARN, required=False),
                "configuration_set": TargetField(_SES_NAME, required=False),
                "public_key": TargetField(_VERIFICATION_KEY, required=False),
                "secret": TargetField(_SHARED_SECRET, required=False, secret=True),
            },
            variants={
                SES: {"topic_arn": True, "configuration_set": False},
                SENDGRID: {"public_key": True},
                DSN: {"secret": True},
            },
        ),
    },
    "webpush": {"subject": TargetField(_SUBJECT), "private_key": TargetField(_EC_KEY, secret=True)},
    "fcm": {
        "project_id": TargetField(_NAME),
        "client_email": TargetField(_ADDRESS),
        "private_key": TargetField(_PRIVATE_KEY, secret=True),
    },
    "apns": {
        "team_id": TargetField(_NAME),
        "key_id": TargetField(_NAME),
        "topic": TargetField(_NAME),
        "environment": TargetField(_choice("production", "sandbox")),
        "private_key": TargetField(_PRIVATE_KEY, secret=True),
    },
    "sms": {
        "base_url": TargetField(_URL),
        "account_sid": TargetField(_NAME),
        "auth_token": TargetField(_LINE, secret=True),
        "from": TargetField(_SENDER),
    },
    "webhook": {
        "url": TargetField(_URL),
        "format": TargetField(_choice("standard", "segment-track", "segment-identify"), required=False),
        "secret": TargetField(_WEBHOOK_SECRET, required=False, secret=True),
    },
    "slack": _DIGEST_FIELDS,
    "teams": _DIGEST_FIELDS,
    "kafka": {
        "topic": TargetField(_TOPIC),
        "segments": TargetField(_SEGMENTS),
        "format": TargetField(_choice("avro", "json"), required=False),
        "bootstrap_servers": TargetField(_BROKERS, required=False),
        "security": TargetField(
            None,
            required=False,
            fields={
                "protocol": TargetField(_choice("plaintext", "ssl", "sasl_plaintext", "sasl_ssl")),
                "mechanism": TargetField(_choice("PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512"), required=False),
                "username": TargetField(_LINE, required=False),
                "password": TargetField(_LINE, required=False, secret=True),
                "ca": TargetField(_CERTIFICATES, required=False),
            },
            variants={
                "plaintext": {},
                "ssl": {"ca": False},
                "sasl_plaintext": {"mechanism": True, "username": True, "password": True},
                "sasl_ssl": {"mechanism": True, "username": True, "password": True, "ca": False},
            },
        ),
    },
    AUDIENCE: {
        "adapter": TargetField(_choice(BRAZE, CUSTOMERIO, META, GOOGLE, HTTP)),
        "segments": TargetField(_SEGMENTS),
        "base_url": TargetField(_URL, required=False),
        "attribute": TargetField(_ATTRIBUTE, required=False),
        "site_id": TargetField(_NAME, required=False),
        "api_key": TargetField(_LINE, required=False, secret=True),
        "token": TargetField(_LINE, required=False, secret=True),
        "audiences": TargetField(_SEGMENT_NAMES, required=False, each=TargetField(_AUDIENCE_ID)),
        "account_id": TargetField(_ACCOUNT_ID, required=False),
        "account_type": TargetField(_ACCOUNT_TYPE, required=False),
        "login_account_id": TargetField(_ACCOUNT_ID, required=False),
        "login_account_type": TargetField(_ACCOUNT_TYPE, required=False),
        "client_email": TargetField(_ADDRESS, required=False),
        "private_key": TargetField(_PRIVATE_KEY, required=False, secret=True),
        "token_url": TargetField(_URL, required=False),
        "url": TargetField(_URL, required=False),
        "headers": TargetField(_HEADER_NAMES, required=False, each=TargetField(_HEADER_VALUE, secret=True)),
        "secret": TargetField(_WEBHOOK_SECRET, required=False, secret=True),
    },
}
"""Channel -> its fields. `bootstrap_servers` of Kafka are missing for the cluster of the installation."""
_COMMON_AUDIENCE: Final = {"segments": False}
"""Required of each adapter by its own field already."""
CHANNEL_VARIANTS: Final[Mapping[str, Mapping[str, Mapping[str, bool]]]] = {
    AUDIENCE: {
        # The host of Braze depends on the account, so it has no default.
        BRAZE: {**_COMMON_AUDIENCE, "base_url": True, "api_key": True, "attribute": False},
        CUSTOMERIO: {**_COMMON_AUDIENCE, "base_url": False, "site_id": True, "api_key": True, "attribute": False},
        META: {**_COMMON_AUDIENCE, "base_url": False, "token": True, "audiences": True},
        GOOGLE: {
            **_COMMON_AUDIENCE,
            "base_url": False,
            "token_url": False,
            "client_email": True,
            "private_key": True,
            "account_id": True,
            "account_type": False,
            "login_account_id": False,
            "login_account_type": False,
            "audiences": True,
        },
        HTTP: {**_COMMON_AUDIENCE, "url": True, "headers": False, "secret": False},
    },
}
"""Channel whose first field selects the others -> value of that field -> the fields that go with it, each with whether it is
required."""
COMMON_FIELDS: Final = frozenset({"key", "channel", "name", "description"}) | LABELS


@dataclass(frozen=True, slots=True)
class Target:
    """One target. `settings`: the fields of its channel, secrets included; no representation shows them."""

    key: str
    name: str
    channel: str
    settings: Mapping[str, Any]

    def __repr__(self) -> str:
        return f"Target(key={self.key!r}, channel={self.channel!r})"


def parse_target(document: object, taken_keys: frozenset[str] = frozenset(), references: References | None = None) -> Target:
    """Return the target of a JSON document, whose masked secrets are completed. Raises: DefinitionRefused with all errors.

    `references`: the names to which the segments of a feed are compared; None for a stored document.
    """
    check_bounds(document)
    validation = Validation(Known())
    location = Location(validation)
    fields = read_object(document, location, "a target: an object")
    finish(validation)
    assert fields is not None  # noqa: S101 - anything else is refused
    key = read_new_key(fields, location, taken_keys)
    name, _ = read_heading(fields, location, name_required=False)
    channel = fields.get("channel")
    if channel is None:
        location.refuse("missing_field", "the channel is missing", '"channel": one of ' + ", ".join(CHANNEL_FIELDS))
    elif not isinstance(channel, str) or channel not in CHANNEL_FIELDS:
        location.at("channel").refuse("wrong_type", "the value is not a channel", "one of " + ", ".join(CHANNEL_FIELDS))
    else:
        table = CHANNEL_FIELDS[channel]
        refuse_unknown_fields(fields, COMMON_FIELDS | table.keys(), location)
        _check(fields, table, location)
        _check_variant(fields, _of_channel(channel), location)
        _check_feed(fields, table, location, references)
    finish(validation)
    settings = {name: fields[name] for name in CHANNEL_FIELDS[str(channel)] if fields.get(name) is not None}
    return Target(key, name, str(channel), settings)


def _of_channel(channel: str) -> TargetField:
    """Return the fields of a channel as those of an object."""
    return TargetField(None, fields=CHANNEL_FIELDS[channel], variants=CHANNEL_VARIANTS.get(channel))


def _check(fields: Fields, table: Mapping[str, TargetField], location: Location) -> None:
    for name, field in table.items():
        value, child = fields.get(name), location.at(name)
        expected = "an object" if field.kind is None else field.kind.expected
        if value is None:
            if field.required:
                location.refuse("missing_field", f"{name!r} is missing", f'"{name}": {expected}')
        elif field.fields is not None:
            inner = read_object(value, child, "an object with " + ", ".join(field.fields))
            if inner is not None:
                refuse_unknown_fields(inner, frozenset(field.fields), child)
                _check(inner, field.fields, child)
                _check_variant(inner, field, child)
        elif field.each is not None:
            inner = read_object(value, child, expected)
            if inner is not None and field.kind is not None and not field.kind.is_valid(inner):
                child.refuse("wrong_type", f"the names are not valid for {name!r}", expected)
            elif inner is not None:
                _check(inner, dict.fromkeys(inner, field.each), child)
        elif field.secret and value == MASK:
            child.refuse("wrong_type", f"{MASK} stands for a stored value, and there is none", expected)
        elif field.secret and isinstance(value, str) and value.startswith(SEALED):
            continue
        elif field.kind is not None and not field.kind.is_valid(value):
            child.refuse("wrong_type", f"the value is not valid for {name!r}", expected)


def _check_feed(fields: Fields, table: Mapping[str, TargetField], location: Location, references: References | None) -> None:
    """Refuse unknown or archived segments, audiences that are not those of the segments, and the security of no cluster."""
    segments = fields.get("segments")
    if "segments" in table and _is_segments(segments):
        keys: list[str] = list(segments or ())
        if references is not None:
            for index, key in enumerate(keys):
                read_segment_key({str(index): key}, str(index), location.at("segments"), references)
        _check_audiences(fields.get("audiences"), keys, location)
    if "bootstrap_servers" in table and fields.get("security") is not None and fields.get("bootstrap_servers") is None:
        expected = '"bootstrap_servers": ' + _BROKERS.expected
        location.refuse("missing_field", "'security' belongs to 'bootstrap_servers', which is missing", expected)


def _check_audiences(audiences: object, segments: Sequence[str], location: Location) -> None:
    """Refuse audiences that are not those of the segments."""
    if not isinstance(audiences, Mapping):
        return
    for key in segments:
        if key not in audiences:
            what = f"the segment {key!r} has no audience"
            location.at("audiences").refuse("missing_field", what, f'"{key}": {_AUDIENCE_ID.expected}')
    for key in audiences:
        if key not in segments:
            location.at("audiences").at(key).refuse("unknown_field", f"{key!r} is none of the segments", "a key of segments")


def _check_variant(fields: Fields, field: TargetField, location: Location) -> None:
    """Refuse the fields that do not go with the selected variant, and those of it that are missing."""
    selector, variants, table = field.selector, field.variants, field.fields
    if selector is None or variants is None or table is None:
        return
    selected = fields.get(selector)
    allowed = variants.get(selected) if isinstance(selected, str) else None
    if allowed is None:
        return  # refused already
    for name, one in table.items():
        is_given = fields.get(name) is not None
        if is_given and name != selector and name not in allowed:
            location.at(name).refuse("wrong_type", f"{name!r} does not go with {selected}", "only " + ", ".join(allowed))
        elif not is_given and allowed.get(name):
            expected = "" if one.kind is None else one.kind.expected
            location.refuse("missing_field", f"{name!r} is missing for {selected}", f'"{name}": {expected}')


def shown_target(document: Mapping[str, Any]) -> dict[str, Any]:
    """Return the document of a target for a response: with masked secrets."""
    return _mapped(document, CHANNEL_FIELDS.get(str(document.get("channel")), {}), lambda _name, _value: MASK)


def secrets_of_target(document: Mapping[str, Any]) -> list[tuple[str, ...]]:
    """Return the path of each secret in the document of a target, such as `("dkim", "private_key")`."""
    return list(_secret_paths(document, CHANNEL_FIELDS.get(str(document.get("channel")), {})))


def _secret_paths(document: Mapping[str, Any], table: Mapping[str, TargetField]) -> Iterator[tuple[str, ...]]:
    for name, field in table.items():
        value = document.get(name)
        inner = _inner_of(field, value)
        if field.secret and value is not None:
            yield (name,)
        elif inner is not None:
            yield from ((name, *path) for path in _secret_paths(value or {}, inner))


def _inner_of(field: TargetField, value: object) -> Mapping[str, TargetField] | None:
    """Return the fields of a value that is an object; None for any other value."""
    if not isinstance(value, Mapping):
        return None
    return field.fields if field.each is None else dict.fromkeys(value, field.each)


def unmasked_target(document: Mapping[str, Any], before: Mapping[str, Any] | None) -> dict[str, Any]:
    """Return the document with the stored value of each masked or missing secret. Another channel or adapter keeps none.

    A null removes an optional secret. Of an object with names that the user chooses, only masked values are kept.
    """
    if before is None or document.get("channel") != before.get("channel"):
        return dict(document)
    selector = _of_channel(str(before["channel"])).selector if before["channel"] in CHANNEL_FIELDS else None
    if selector is not None and document.get(selector) != before.get(selector):
        return dict(document)
    return _completed(document, before, CHANNEL_FIELDS.get(str(before.get("channel")), {}))


def _mapped(document: Mapping[str, Any], table: Mapping[str, TargetField], change: Callable[[str, Any], Any]) -> dict[str, Any]:
    found = dict(document)
    for name, field in table.items():
        if found.get(name) is None:
            continue
        inner = _inner_of(field, found[name])
        if field.secret:
            found[name] = change(name, found[name])
        elif inner is not None:
            found[name] = _mapped(found[name], inner, change)
    return found


def _completed(document: Mapping[str, Any], before: Mapping[str, Any], table: Mapping[str, TargetField]) -> dict[str, Any]:
    found = dict(document)
    for name, field in table.items():
        stored = before.get(name)
        if stored is None:
            continue
        if field.secret and (name not in found or found[name] == MASK):
            found[name] = stored
        elif field.each is not None and isinstance(found.get(name), Mapping) and isinstance(stored, Mapping):
            masked = {inner: stored[inner] for inner, value in found[name].items() if value == MASK and inner in stored}
            found[name] = {**found[name], **masked}
        elif field.fields is not None and isinstance(found.get(name), Mapping) and isinstance(stored, Mapping):
            selector = field.selector
            if selector is None or found[name].get(selector) == stored.get(selector):  # another variant keeps no secret
                found[name] = _completed(found[name], stored, field.fields)
    return found
