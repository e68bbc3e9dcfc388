"""Pure core: the HTTP responses of the tracker."""

import base64
import string
from typing import Final, NamedTuple
from urllib.parse import quote

RETRY_SECONDS: Final = 5
"""When a client may send a request again that the broker did not acknowledge."""

_PIXEL: Final = base64.b64decode("R0lGODlhAQABAIAAAAAAAP///yH5BAEAAAAALAAAAAABAAEAAAIBRAA7")
"""A transparent GIF of one pixel."""

_PRIVATE: Final = [
    ("cache-control", "no-store, max-age=0"),
    ("referrer-policy", "no-referrer"),
    ("x-robots-tag", "noindex, nofollow"),
    ("x-content-type-options", "nosniff"),
]
_PAGE: Final = [
    *_PRIVATE,
    ("content-type", "text/html; charset=utf-8"),
    ("content-security-policy", "default-src 'none'; style-src 'unsafe-inline'; form-action 'self'; frame-ancestors 'none'"),
]


_KEPT: Final = string.digits + string.ascii_letters + string.punctuation
"""What a URL keeps in a header. Everything else is escaped: line breaks would begin another header."""


class Answer(NamedTuple):
    """One HTTP response."""

    status: int
    headers: list[tuple[str, str]]
    body: bytes


def pixel() -> Answer:
    """Return the pixel, which no client keeps."""
    return Answer(200, [*_PRIVATE, ("content-type", "image/gif")], _PIXEL)


def redirect(url: str) -> Answer:
    """Return 302 to the URL of a link. It comes from a valid token, so the sender of the message has written it."""
    return Answer(302, [*_PRIVATE, ("location", quote(url, safe=_KEPT))], b"")


def page(status: int, body: bytes, *more: tuple[str, str]) -> Answer:
    """Return a page."""
    return Answer(status, [*_PAGE, *more], body)


def text(status: int, content_type: str, body: bytes) -> Answer:
    """Return a text, such as that of a health check."""
    return Answer(status, [*_PRIVATE, ("content-type", content_type)], body)


def no_reply() -> Answer:
    """Return the answer to a text of a person: TwiML that sends nothing back. The provider itself confirms STOP and START."""
    return text(200, "text/xml; charset=utf-8", b"<Response/>")


def plain(status: int, words: str, *more: tuple[str, str]) -> Answer:
    """Return one line for a program."""
    return Answer(status, [*_PRIVATE, ("content-type", "text/plain; charset=utf-8"), *more], f"{words}\n".encode())
