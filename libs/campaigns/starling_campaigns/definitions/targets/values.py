"""Pure core: the kinds of value that the targets of several channels have."""

import base64
from typing import Any, Final
from urllib.parse import urlsplit

from starling_campaigns.bounds import MAX_FEED_SEGMENTS, MAX_PRIVATE_KEY_CHARACTERS, MAX_TARGET_TEXT_CHARACTERS, MAX_URL_CHARACTERS
from starling_campaigns.definitions.targets.field import Kind, pattern
from starling_policy.fields import KEY
from starling_segments.parse.document import KEY_PATTERN


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


def is_segments(value: Any) -> bool:
    """Return whether a value is a list of different keys of segments, within its bounds."""
    return (
        isinstance(value, list)
        and 0 < len(value) <= MAX_FEED_SEGMENTS
        and all(isinstance(key, str) and KEY.match(key) for key in value)
        and len(set(value)) == len(value)
    )


LINE: Final = pattern(r"^[^\x00-\x1f\x7f-\x9f\u2028\u2029]+$", MAX_TARGET_TEXT_CHARACTERS, "one line of text")
NAME: Final = pattern("^[A-Za-z0-9._-]+$", 200, "letters, digits and ._-")
HOST: Final = pattern("^[A-Za-z0-9.:_-]+$", 253, "a host name or an address, without a port")
ADDRESS: Final = pattern(
    r"^([^\x00-\x1f\x7f-\x9f\u2028\u2029<>@]{1,200} )?<?[^\s<>@]{1,64}@[A-Za-z0-9.-]{1,189}>?$", 470,
    "an address, such as shop@example.com or Shop <shop@example.com>",
)  # fmt: skip
PRIVATE_KEY: Final = pattern(
    r"^-----BEGIN [A-Z ]+-----[A-Za-z0-9+/=\s]+-----END [A-Z ]+-----\s*$", MAX_PRIVATE_KEY_CHARACTERS, "a private key in PEM"
)
WEBHOOK_SECRET: Final = Kind(
    _is_webhook_secret,
    {"type": "string", "pattern": "^whsec_[A-Za-z0-9+/]{32,88}={0,2}$"},
    "whsec_ and the base64 of 24 to 64 random bytes",
)
URL: Final = Kind(
    _is_url,
    {"type": "string", "minLength": 1, "maxLength": MAX_URL_CHARACTERS},
    f"an http or https URL of at most {MAX_URL_CHARACTERS} ASCII characters, without user name and password",
)
SEGMENTS: Final = Kind(
    is_segments,
    {
        "type": "array",
        "items": {"type": "string", "pattern": KEY_PATTERN},
        "minItems": 1,
        "maxItems": MAX_FEED_SEGMENTS,
        "uniqueItems": True,
    },
    f"a list of 1 to {MAX_FEED_SEGMENTS} different keys of segments",
)
