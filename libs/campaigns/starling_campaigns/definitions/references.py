"""Pure core: the names to which a document may refer, and readers of the fields that several documents have in common."""

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, Final

from starling_policy.fields import KEY
from starling_segments import Known
from starling_segments.language.dates import read_instant
from starling_segments.language.validation import UTC, Location
from starling_segments.parse.document import KEY_PATTERN, MAX_NAME_CHARACTERS, description_errors, read_labels

Fields = Mapping[str, Any]

INSTANT_PATTERN: Final = (
    "^[0-9]{4}-[0-9]{2}-[0-9]{2}[Tt ][0-9]{2}:[0-9]{2}(:[0-9]{2}([.,][0-9]{1,9})?)?([Zz]|[+-][0-9]{2}(:?[0-9]{2})?)$"
)
LOCAL_PATTERN: Final = "^[0-9]{4}-[0-9]{2}-[0-9]{2}T[0-9]{2}:[0-9]{2}$"
NO_TIME_PATTERN: Final = "^0{1,9}[smhdw]$"
_INSTANT: Final = re.compile(INSTANT_PATTERN[:-1] + r"\Z")
_LOCAL: Final = re.compile(LOCAL_PATTERN[:-1] + r"\Z")
_NO_TIME: Final = re.compile(NO_TIME_PATTERN[:-1] + r"\Z")
_LAST_YEAR: Final = 9989


@dataclass(frozen=True)
class References:
    """The names of a workspace to which a campaign may refer. `known`: those of the segment language.

    `targets`: key of each target that is not archived -> its channel. `archived`: keys of archived segments and targets, for a
    clearer error. `taken_keys`: keys that a new definition must not have.
    """

    known: Known = field(default_factory=Known)
    targets: Mapping[str, str] = field(default_factory=dict)
    archived_segments: frozenset[str] = frozenset()
    archived_targets: frozenset[str] = frozenset()
    taken_keys: frozenset[str] = frozenset()


def read_new_key(fields: Fields, location: Location, taken: frozenset[str]) -> str:
    """Read the key of a definition, which was never used before."""
    key = fields.get("key")
    if key is None:
        location.refuse("missing_field", "the key is missing", f'"key": {KEY_PATTERN}')
    elif not isinstance(key, str) or not KEY.match(key):
        location.at("key").refuse("bad_key", "the value is not a valid key", KEY_PATTERN)
    elif key in taken:
        location.at("key").refuse("key_taken", f"the key {key!r} is or was in use", "a key never used before")
    else:
        return key
    return ""


def read_heading(fields: Fields, location: Location, *, name_required: bool) -> tuple[str, str]:
    """Read the name and the description, and check the labels. The name defaults to the key if it is not required."""
    read_labels(fields, location)
    name, description, expected = fields.get("name"), fields.get("description"), f"text of 1 to {MAX_NAME_CHARACTERS} characters"
    if name is None and name_required:
        location.refuse("missing_field", "the name is missing", f'"name": {expected}')
    if name is not None and not (isinstance(name, str) and 0 < len(name) <= MAX_NAME_CHARACTERS):
        location.at("name").refuse("wrong_type", "the value is not a valid name", expected)
    if description is not None and not isinstance(description, str):
        location.at("description").refuse("wrong_type", "the value is not a string", "text")
    elif description is not None:
        location.validation.errors.extend(description_errors(description))
    return str(name or fields.get("key") or ""), str(description or "")


def read_flag(fields: Fields, name: str, location: Location, otherwise: bool) -> bool:
    """Read a boolean. `otherwise`: the default."""
    value = fields.get(name)
    if value is None:
        return otherwise
    if not isinstance(value, bool):
        location.at(name).refuse("wrong_type", "the value is not a boolean", "true or false")
        return otherwise
    return value


def read_segment_key(fields: Fields, name: str, location: Location, references: References) -> str:
    """Read the key of a segment that exists and is not archived."""
    key, child = fields.get(name), location.at(name)
    if not isinstance(key, str) or not KEY.match(key):
        child.refuse("bad_key", "the value is not the key of a segment", KEY_PATTERN)
    elif key in references.archived_segments:
        child.refuse("unknown_segment", f"the segment {key!r} is archived", "the key of a segment in use")
    elif key not in references.known.segments:
        child.refuse("unknown_segment", f"there is no segment {key!r}", "the key of a segment")
    else:
        return key
    return ""


def read_at(fields: Fields, name: str, location: Location) -> int:
    """Read an instant with its offset from UTC, epoch ms."""
    value, expected = fields.get(name), "an instant in ISO 8601 with its offset, such as 2026-12-01T09:00:00Z"
    found = read_instant(value, UTC) if isinstance(value, str) and _INSTANT.match(value) else None
    if found is None:
        location.at(name).refuse("bad_date", "the value is not an instant", expected)
    return found or 0


def read_local(fields: Fields, name: str, location: Location) -> str:
    """Read a local time without an offset, to the minute."""
    value, expected = fields.get(name), "a local time without an offset, such as 2026-12-01T09:00"
    if isinstance(value, str) and _LOCAL.match(value):
        try:
            if 1970 <= datetime.fromisoformat(value).year <= _LAST_YEAR:
                return value
        except ValueError:
            pass  # a day or an hour that does not exist
    location.at(name).refuse("bad_date", "the value is not a local time", expected)
    return ""


def is_no_time(value: object) -> bool:
    """Return whether the value is a duration of zero, which only a delay can be."""
    return isinstance(value, str) and _NO_TIME.match(value) is not None
