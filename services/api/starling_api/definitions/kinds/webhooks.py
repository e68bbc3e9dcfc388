"""Pure core: the documents of webhooks, and their signing secrets."""

import base64
import binascii
from typing import Final

from starling_api.definitions.kinds.kind import Document
from starling_api.definitions.kinds.reading import finish, key_errors, label_errors, labels_of, object_of, unknown_field_errors
from starling_api.definitions.webhook_fields import batch_errors, format_errors, header_errors, rate_errors, stored_fields
from starling_common.http.web_address import parse_web_address
from starling_common.security.sealing import is_sealed
from starling_segments import FieldError, Known
from starling_segments.parse.document import LABELS

TITLE: Final = "webhook"
WEBHOOK_EVENTS: Final = ("entered", "exited")
FIELDS: Final = frozenset({"key", "url", "secret", "segments", "events", "format", "headers", "batch", "rate"})
MAX_URL_CHARACTERS: Final = 2000
_SECRET_MARK: Final = "whsec_"  # noqa: S105 - the public prefix of every secret


def read_webhook(document: object, known: Known) -> Document:
    """Return the document of a webhook: `{key, url, secret, segments?, events?, format?, headers?, batch?, rate?}`.

    The caller has added a missing secret. Raises: DefinitionRefused.
    """
    given = object_of(document)
    errors = key_errors(given, known) + _url_errors(given) + _secret_errors(given) + _segments_errors(given, known)
    errors += _events_errors(given) + format_errors(given) + header_errors(given) + batch_errors(given)
    errors += rate_errors(given)
    errors += unknown_field_errors(given, TITLE, FIELDS | LABELS)
    errors += label_errors(given)
    finish(errors)
    return {
        "key": given["key"],
        "url": given["url"],
        "secret": given["secret"],
        "segments": given.get("segments"),
        "events": given.get("events") or list(WEBHOOK_EVENTS),
        **stored_fields(given),
        **labels_of(given),
    }


def new_secret(random_bytes: bytes) -> str:
    """Return a secret in the format of Standard Webhooks. Shape: 24 to 64 random bytes."""
    return _SECRET_MARK + base64.b64encode(random_bytes).decode()


def _url_errors(given: Document) -> tuple[FieldError, ...]:
    url = given.get("url")
    expected = (
        f"an http or https URL of at most {MAX_URL_CHARACTERS} characters, without user name and password, such as "
        "https://hooks.example.com/starling; labels of the host have 1 to 63 characters that IDNA 2008 allows"
    )
    if url is None:
        return (FieldError("", "missing_field", "it has no url", f'"url": {expected}'),)
    reason = _why_not_callable(url)
    return () if reason is None else (FieldError("/url", "wrong_type", reason, expected),)


def _why_not_callable(url: object) -> str | None:
    if not isinstance(url, str):
        return "it is not a text"
    if len(url) > MAX_URL_CHARACTERS:
        return f"it has {len(url)} characters"
    try:
        address = parse_web_address(url)
    except ValueError as error:
        return str(error)
    return "it contains a user name or a password" if address.has_credentials else None


def _secret_errors(given: Document) -> tuple[FieldError, ...]:
    secret = given.get("secret")
    if is_sealed(secret):
        return ()
    if isinstance(secret, str) and secret.startswith(_SECRET_MARK):
        try:
            if 24 <= len(base64.b64decode(secret.removeprefix(_SECRET_MARK), validate=True)) <= 64:
                return ()
        except (binascii.Error, ValueError):
            pass  # not base64, so not a secret
    return (FieldError("/secret", "wrong_type", "it is not a secret", "whsec_ and the base64 of 24 to 64 random bytes, or null"),)


def _segments_errors(given: Document, known: Known) -> tuple[FieldError, ...]:
    segments = given.get("segments")
    if segments is None:
        return ()
    if not isinstance(segments, list) or not segments:
        return (FieldError("/segments", "wrong_type", "it is not a list of segments", "a list of keys, or null for every segment"),)
    return tuple(
        FieldError(f"/segments/{index}", "unknown_segment", f"there is no segment {key!r}", "the key of a segment")
        for index, key in enumerate(segments)
        if not isinstance(key, str) or key not in known.segments
    )


def _events_errors(given: Document) -> tuple[FieldError, ...]:
    events = given.get("events")
    if events is None or (isinstance(events, list) and events and all(event in WEBHOOK_EVENTS for event in events)):
        return ()
    return (FieldError("/events", "wrong_type", "it is not a list of events", "a list of " + ", ".join(WEBHOOK_EVENTS)),)
