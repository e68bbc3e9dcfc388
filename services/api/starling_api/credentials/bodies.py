"""Pure core: the kinds of credentials, and the validation of the bodies that create and rotate them."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Final, NamedTuple

from starling_api.http.access.auth import ROLES
from starling_common.kafka.topics import TOKENS, WRITE_KEYS
from starling_common.records.credentials import SCOPES
from starling_common.time.instants import parse_instant
from starling_segments import DefinitionRefused, FieldError
from starling_segments.language.durations import DAY_MS, duration_ms
from starling_segments.parse.document import MAX_NAME_CHARACTERS

DEFAULT_SCOPES: Final = tuple(scope for scope in SCOPES if scope != "import")
"""History is imported by a key that was made for it: a key in a web page must not write the past."""
DEFAULT_OVERLAP: Final = "24h"
MAX_OVERLAP_MS: Final = 30 * DAY_MS
NO_OVERLAP: Final = "0s"
_NOW: Final = "an instant in ISO 8601 in the future, or null"


class Wanted(NamedTuple):
    """The fields of a new credential. `expires_at_ms` None: never."""

    name: str
    role: str | None
    scopes: tuple[str, ...]
    expires_at_ms: int | None


@dataclass(frozen=True, slots=True)
class CredentialKind:
    """One kind of credential. `mark`: the first characters of its ids; `secret_mark`: of its secrets."""

    title: str
    topic: str
    mark: str
    secret_mark: str
    read: Callable[[object, int], Wanted]
    """(body, wall clock in ms) -> the fields. Raises: DefinitionRefused with every error."""


def read_token(body: object, now_ms: int) -> Wanted:
    """Return the fields of `{name, role, expires_at?}`. Raises: DefinitionRefused."""
    given = _object(body, frozenset({"name", "role", "expires_at"}), TOKEN.title)
    errors = [*_name_errors(given), *_expiry_errors(given, now_ms)]
    role = given.get("role")
    expected = "one of " + ", ".join(ROLES)
    if role is None:
        errors.append(FieldError("", "missing_field", "it has no role", f'"role": {expected}'))
    elif not isinstance(role, str) or role not in ROLES:
        errors.append(FieldError("/role", "wrong_type", "it is not a role", expected))
    _finish(errors)
    return Wanted(given["name"], ROLES[given["role"]].value, (), _instant(given))


def read_write_key(body: object, now_ms: int) -> Wanted:
    """Return the fields of `{name, scopes?, expires_at?}`. Raises: DefinitionRefused."""
    given = _object(body, frozenset({"name", "scopes", "expires_at"}), WRITE_KEY.title)
    errors = [*_name_errors(given), *_expiry_errors(given, now_ms)]
    scopes = given.get("scopes")
    if scopes is None:
        scopes = DEFAULT_SCOPES
    elif not isinstance(scopes, list) or not scopes or not all(isinstance(one, str) and one in SCOPES for one in scopes):
        errors.append(FieldError("/scopes", "wrong_type", "it is not a list of scopes", "a list of " + ", ".join(SCOPES)))
    _finish(errors)
    return Wanted(given["name"], None, tuple(one for one in SCOPES if one in scopes), _instant(given))


def read_overlap(body: object) -> int:
    """Return the overlap of `{overlap?}` in milliseconds; the default is a day. Raises: DefinitionRefused."""
    given = _object(body, frozenset({"overlap"}), "rotation")
    text = given.get("overlap")
    if text is None:
        text = DEFAULT_OVERLAP
    length_ms = 0 if text == NO_OVERLAP else duration_ms(text)
    if length_ms is None or length_ms > MAX_OVERLAP_MS:
        expected = "a whole number and one of s m h d w, from 0s to 30d"
        raise DefinitionRefused((FieldError("/overlap", "wrong_type", "it is not an overlap", expected),))
    return length_ms


WRITE_KEY: Final = CredentialKind("write key", WRITE_KEYS, "key_", "stw_", read_write_key)
TOKEN: Final = CredentialKind("token", TOKENS, "tok_", "stt_", read_token)


def _object(body: object, fields: frozenset[str], title: str) -> Mapping[str, Any]:
    if not isinstance(body, dict):
        raise DefinitionRefused((FieldError("", "wrong_type", "it is not an object", "a JSON object"),))
    expected = "one of " + ", ".join(sorted(fields))
    # The pointer has no text of the client: a secret that is sent by mistake is not repeated.
    if body.keys() - fields:
        raise DefinitionRefused((FieldError("", "unknown_field", f"it has a field that is none of a {title}", expected),))
    return body


def _name_errors(given: Mapping[str, Any]) -> list[FieldError]:
    name = given.get("name")
    expected = f"text of 1 to {MAX_NAME_CHARACTERS} characters"
    if name is None:
        return [FieldError("", "missing_field", "it has no name", f'"name": {expected}')]
    if isinstance(name, str) and 0 < len(name) <= MAX_NAME_CHARACTERS:
        return []
    return [FieldError("/name", "wrong_type", "it is not a name", expected)]


def _expiry_errors(given: Mapping[str, Any], now_ms: int) -> list[FieldError]:
    text = given.get("expires_at")
    if text is None:
        return []
    try:
        instant = parse_instant(text) if isinstance(text, str) else None
    except (ValueError, OverflowError):
        instant = None
    if instant is None:
        return [FieldError("/expires_at", "wrong_type", "it is not an instant", _NOW)]
    return [] if instant > now_ms else [FieldError("/expires_at", "out_of_range", "the instant has passed", _NOW)]


def _instant(given: Mapping[str, Any]) -> int | None:
    text = given.get("expires_at")
    return None if text is None else parse_instant(text)


def _finish(errors: list[FieldError]) -> None:
    if errors:
        raise DefinitionRefused(tuple(errors))
