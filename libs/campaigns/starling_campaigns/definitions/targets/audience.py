"""Pure core: the targets of audience sync: an account of an advertising or a mailing system."""

import re
from collections.abc import Mapping
from typing import Final

from starling_campaigns.bounds import MAX_FEED_SEGMENTS, MAX_HEADERS
from starling_campaigns.definitions.targets.field import Kind, TargetField, choice, pattern
from starling_campaigns.definitions.targets.values import ADDRESS, LINE, NAME, PRIVATE_KEY, SEGMENTS, URL, WEBHOOK_SECRET
from starling_policy.fields import KEY
from starling_segments.parse.document import KEY_PATTERN

BRAZE: Final = "braze"
CUSTOMERIO: Final = "customerio"
META: Final = "meta"
GOOGLE: Final = "google"
HTTP: Final = "http"
"""The adapters of the channel `audience`."""

_HEADER_NAME: Final = re.compile(r"[A-Za-z0-9!#$%&'*+.^_`|~-]{1,100}\Z")
_OWN_HEADERS: Final = frozenset({
    "host", "content-length", "content-type", "content-encoding", "transfer-encoding", "connection", "keep-alive", "upgrade", "te",
    "trailer", "expect", "accept-encoding", "user-agent", "proxy-authorization", "proxy-connection",
})  # fmt: skip
"""Headers that the channel or the connection sets."""


def _is_header_name(name: str) -> bool:
    lowered = name.lower()
    return _HEADER_NAME.match(name) is not None and lowered not in _OWN_HEADERS and not lowered.startswith("webhook-")


_SEGMENT_NAMES: Final = Kind(
    lambda value: len(value) <= MAX_FEED_SEGMENTS and all(KEY.match(name) for name in value),
    {"type": "object", "propertyNames": {"pattern": KEY_PATTERN}, "maxProperties": MAX_FEED_SEGMENTS},
    "an object that has the id of an audience for each of the segments",
)
AUDIENCE_ID: Final = pattern("^[A-Za-z0-9._-]+$", 100, "the id of an audience: letters, digits and ._-")
_ATTRIBUTE: Final = pattern("^[A-Za-z][A-Za-z0-9_]*$", 100, "a letter, then letters, digits and _")
_ACCOUNT_ID: Final = pattern("^[0-9]+$", 20, "the digits of the id, without hyphens")
_ACCOUNT_TYPE: Final = choice(
    "GOOGLE_ADS", "DISPLAY_VIDEO_PARTNER", "DISPLAY_VIDEO_ADVERTISER", "DATA_PARTNER", "GOOGLE_ANALYTICS_PROPERTY"
)
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
_HEADER_VALUE: Final = pattern(
    r"^[\x21-\x7e]([\x20-\x7e]*[\x21-\x7e])?$", 1_000, "printable ASCII characters, without spaces at the ends"
)

FIELDS: Final[Mapping[str, TargetField]] = {
    "adapter": TargetField(choice(BRAZE, CUSTOMERIO, META, GOOGLE, HTTP)),
    "segments": TargetField(SEGMENTS),
    "base_url": TargetField(URL, required=False),
    "attribute": TargetField(_ATTRIBUTE, required=False),
    "site_id": TargetField(NAME, required=False),
    "api_key": TargetField(LINE, required=False, secret=True),
    "token": TargetField(LINE, required=False, secret=True),
    "audiences": TargetField(_SEGMENT_NAMES, required=False, each=TargetField(AUDIENCE_ID)),
    "account_id": TargetField(_ACCOUNT_ID, required=False),
    "account_type": TargetField(_ACCOUNT_TYPE, required=False),
    "login_account_id": TargetField(_ACCOUNT_ID, required=False),
    "login_account_type": TargetField(_ACCOUNT_TYPE, required=False),
    "client_email": TargetField(ADDRESS, required=False),
    "private_key": TargetField(PRIVATE_KEY, required=False, secret=True),
    "token_url": TargetField(URL, required=False),
    "url": TargetField(URL, required=False),
    "headers": TargetField(_HEADER_NAMES, required=False, each=TargetField(_HEADER_VALUE, secret=True)),
    "secret": TargetField(WEBHOOK_SECRET, required=False, secret=True),
}
"""The fields of the channel `audience`."""
_COMMON_AUDIENCE: Final = {"segments": False}
"""Required of each adapter by its own field already."""
VARIANTS: Final[Mapping[str, Mapping[str, bool]]] = {
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
}
"""Adapter -> the fields that go with it, each with whether it is required."""
