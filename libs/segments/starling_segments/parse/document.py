"""Pure core: reads untrusted JSON as a segment, condition or measure, or returns all validation errors."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any
from zoneinfo import ZoneInfo

from starling_segments.language.bounds import check_bounds
from starling_segments.language.tree import Condition, Measure, Ratio, Segment
from starling_segments.language.validation import UTC, FieldError, Known, Location, Validation, finish, refuse_unknown_fields
from starling_segments.parse.behaviour import read_bare_measure
from starling_segments.parse.conditions import read_condition
from starling_segments.parse.cost import refuse_costly
from starling_segments.parse.groups import read_object

KEY_PATTERN = "^[a-z][a-z0-9_-]{0,63}$"
MAX_NAME_CHARACTERS = 200
MAX_DESCRIPTION_BYTES = 4_096
SERVER_FIELDS = frozenset({"version", "status"})
"""Fields that the server sets; a document with them (one that was read and is sent back) is valid, and they are ignored."""
LABELS = frozenset({"tags", "owner"})
"""Fields for people, without effect on membership."""
SEGMENT_FIELDS = frozenset({"key", "name", "description", "timezone", "where"}) | LABELS | SERVER_FIELDS
MAX_TAGS = 32
MAX_TAG_CHARACTERS = 64
MAX_OWNER_CHARACTERS = 200

_KEY = re.compile(KEY_PATTERN[:-1] + r"\Z")
_NO_REFERENCES = Known()


def parse_segment(document: object, known: Known) -> Segment:
    """Return the segment of a JSON document.

    Raises: DefinitionRefused with all validation errors; those of `check_bounds` alone, if there are any.
    """
    check_bounds(document)
    validation = Validation(known)
    location = Location(validation)
    fields = read_object(document, location, "a segment: an object") or {}
    if not validation.errors:
        refuse_unknown_fields(fields, SEGMENT_FIELDS, location)
        key = _read_key(fields, location)
        name = _read_name(fields, location)
        description = _read_description(fields, location)
        read_labels(fields, location)
        validation.zone = _read_zone(fields.get("timezone") or known.timezone, location.at("timezone"))
        where = _read_where(fields, location)
    finish(validation)
    assert where is not None  # noqa: S101 - a condition that cannot be read leaves a fault
    refuse_costly(where, "/where", known.limits)
    return Segment(key, name, description, validation.zone.key, where)


def parse_condition(where: object, timezone: str, known: Known) -> Condition:
    """Return a condition without a segment, as in a preview; pointers start at the condition.

    Raises: as `parse_segment`.
    """
    check_bounds(where)
    validation = Validation(known)
    validation.zone = _read_zone(timezone, Location(validation).at("timezone"))
    condition = read_condition(where, Location(validation))
    finish(validation)
    assert condition is not None  # noqa: S101 - as above
    refuse_costly(condition, "", known.limits)
    return condition


def parse_measure(document: object, timezone: str = "UTC") -> Measure | Ratio:
    """Return the event measure of a computed trait: `{event, where?, measure?, a window?}`, without `op` and `value`.

    Raises: as `parse_segment`.
    """
    check_bounds(document)
    validation = Validation(_NO_REFERENCES)
    location = Location(validation)
    validation.zone = _read_zone(timezone, location.at("timezone"))
    fields = read_object(document, location, "a measure: an object")
    measure = None if fields is None else read_bare_measure(fields, location)
    finish(validation)
    assert measure is not None  # noqa: S101 - as above
    return measure


def _read_key(fields: Mapping[str, Any], location: Location) -> str:
    key = fields.get("key")
    if key is None:
        location.refuse("missing_field", "the key is missing", f'"key": {KEY_PATTERN}')
    elif not isinstance(key, str) or not _KEY.match(key):
        location.at("key").refuse("bad_key", "the value is not a valid key", KEY_PATTERN)
    elif key in location.validation.known.taken_keys:
        location.at("key").refuse("key_taken", f"the key {key!r} is or was used by another segment", "a key never used before")
    else:
        location.validation.key = key
        return key
    return ""


def _read_name(fields: Mapping[str, Any], location: Location) -> str:
    name = fields.get("name")
    if name is None:
        location.refuse("missing_field", "the name is missing", f'"name": 1 to {MAX_NAME_CHARACTERS} characters')
    elif not isinstance(name, str) or not 0 < len(name) <= MAX_NAME_CHARACTERS:
        location.at("name").refuse("wrong_type", "the value is not a valid name", f"text of 1 to {MAX_NAME_CHARACTERS} characters")
    else:
        return name
    return ""


def _read_description(fields: Mapping[str, Any], location: Location) -> str:
    description = fields.get("description")
    if description is None:
        return ""
    if not isinstance(description, str):
        location.at("description").refuse("wrong_type", "the value is not a string", "text")
        return ""
    location.validation.errors.extend(description_errors(description))
    return description


def description_errors(description: str) -> tuple[FieldError, ...]:
    """Return the validation errors of the `description` of any definition."""
    size = len(description.encode())
    if size <= MAX_DESCRIPTION_BYTES:
        return ()
    return (
        FieldError(
            "/description", "too_large", f"the description has {size} bytes", f"at most {MAX_DESCRIPTION_BYTES} bytes of UTF-8"
        ),
    )


def read_labels(fields: Mapping[str, Any], location: Location) -> None:
    """Record errors for tags and an owner that are not texts within the limits."""
    tags, owner = fields.get("tags"), fields.get("owner")
    if tags is not None and not (isinstance(tags, list) and len(tags) <= MAX_TAGS and all(map(_is_tag, tags))):
        location.at("tags").refuse(
            "wrong_type",
            "the value is not a list of valid tags",
            f"at most {MAX_TAGS} texts of 1 to {MAX_TAG_CHARACTERS} characters",
        )
    if owner is not None and not (isinstance(owner, str) and 0 < len(owner) <= MAX_OWNER_CHARACTERS):
        location.at("owner").refuse(
            "wrong_type", "the value is not a valid owner", f"a text of 1 to {MAX_OWNER_CHARACTERS} characters"
        )


def _is_tag(tag: object) -> bool:
    return isinstance(tag, str) and 0 < len(tag) <= MAX_TAG_CHARACTERS


def _read_zone(name: object, location: Location) -> ZoneInfo:
    """Read the timezone; UTC without one, or after recording an error."""
    if name is None:
        return UTC
    try:
        if isinstance(name, str) and name.isprintable():
            return ZoneInfo(name)
    except (KeyError, ValueError, OSError):
        pass  # each of these means an unknown timezone
    location.refuse("bad_timezone", "unknown timezone", "an IANA name such as Europe/Berlin")
    return UTC


def _read_where(fields: Mapping[str, Any], location: Location) -> Condition | None:
    if fields.get("where") is None:
        location.refuse("missing_field", "the condition is missing", '"where": a condition')
        return None
    return read_condition(fields["where"], location.at("where"))
