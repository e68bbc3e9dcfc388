"""Pure core: untrusted JSON -> segment, condition or measure, or every place where it is wrong."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any
from zoneinfo import ZoneInfo

from starling_segments.language.bounds import check_bounds
from starling_segments.language.tree import Condition, Measure, Ratio, Segment
from starling_segments.language.validation import UTC, Fault, Known, Place, Reading, finish, refuse_unknown_fields
from starling_segments.parse.behaviour import read_bare_measure
from starling_segments.parse.conditions import read_condition
from starling_segments.parse.groups import read_object

KEY_PATTERN = "^[a-z][a-z0-9_-]{0,63}$"
MAX_NAME_CHARACTERS = 200
MAX_DESCRIPTION_BYTES = 4_096
SERVER_FIELDS = frozenset({"version", "status"})
"""Set by the server: a document that carries them (one that was read and is sent back) is taken without them."""
LABELS = frozenset({"tags", "owner"})
"""For people: no part of the meaning."""
SEGMENT_FIELDS = frozenset({"key", "name", "description", "timezone", "where"}) | LABELS | SERVER_FIELDS
MAX_TAGS = 32
MAX_TAG_CHARACTERS = 64
MAX_OWNER_CHARACTERS = 200

_KEY = re.compile(KEY_PATTERN[:-1] + r"\Z")
_NOBODY = Known()


def parse_segment(document: object, known: Known) -> Segment:
    """A segment from its JSON document.

    Raises: DefinitionRefused with all its faults; those of `check_bounds` come alone.
    """
    check_bounds(document)
    reading = Reading(known)
    place = Place(reading)
    fields = read_object(document, place, "a segment: an object") or {}
    if not reading.faults:
        refuse_unknown_fields(fields, SEGMENT_FIELDS, place)
        key = _read_key(fields, place)
        name = _read_name(fields, place)
        description = _read_description(fields, place)
        read_labels(fields, place)
        reading.zone = _read_zone(fields.get("timezone") or known.timezone, place.at("timezone"))
        where = _read_where(fields, place)
    finish(reading)
    assert where is not None  # noqa: S101 - a condition that cannot be read leaves a fault
    return Segment(key, name, description, reading.zone.key, where)


def parse_condition(where: object, timezone: str, known: Known) -> Condition:
    """A bare condition, as a preview has it; pointers start at the condition.

    Raises: as `parse_segment`.
    """
    check_bounds(where)
    reading = Reading(known)
    reading.zone = _read_zone(timezone, Place(reading).at("timezone"))
    condition = read_condition(where, Place(reading))
    finish(reading)
    assert condition is not None  # noqa: S101 - as above
    return condition


def parse_measure(document: object, timezone: str = "UTC") -> Measure | Ratio:
    """`{event, where?, measure?, a window?}`: an event measure without `op` and `value`, as a computed trait is.

    Raises: as `parse_segment`.
    """
    check_bounds(document)
    reading = Reading(_NOBODY)
    place = Place(reading)
    reading.zone = _read_zone(timezone, place.at("timezone"))
    fields = read_object(document, place, "a measure: an object")
    measure = None if fields is None else read_bare_measure(fields, place)
    finish(reading)
    assert measure is not None  # noqa: S101 - as above
    return measure


def _read_key(fields: Mapping[str, Any], place: Place) -> str:
    key = fields.get("key")
    if key is None:
        place.refuse("missing_field", "the key is missing", f'"key": {KEY_PATTERN}')
    elif not isinstance(key, str) or not _KEY.match(key):
        place.at("key").refuse("bad_key", "the value is not a valid key", KEY_PATTERN)
    elif key in place.reading.known.taken_keys:
        place.at("key").refuse("key_taken", f"the key {key!r} is or was used by another segment", "a key never used before")
    else:
        place.reading.key = key
        return key
    return ""


def _read_name(fields: Mapping[str, Any], place: Place) -> str:
    name = fields.get("name")
    if name is None:
        place.refuse("missing_field", "the name is missing", f'"name": 1 to {MAX_NAME_CHARACTERS} characters')
    elif not isinstance(name, str) or not 0 < len(name) <= MAX_NAME_CHARACTERS:
        place.at("name").refuse("wrong_type", "the value is not a valid name", f"text of 1 to {MAX_NAME_CHARACTERS} characters")
    else:
        return name
    return ""


def _read_description(fields: Mapping[str, Any], place: Place) -> str:
    description = fields.get("description")
    if description is None:
        return ""
    if not isinstance(description, str):
        place.at("description").refuse("wrong_type", "the value is not a string", "text")
        return ""
    place.reading.faults.extend(description_faults(description))
    return description


def description_faults(description: str) -> tuple[Fault, ...]:
    """What is wrong with the `description` of a definition of any kind."""
    size = len(description.encode())
    if size <= MAX_DESCRIPTION_BYTES:
        return ()
    return (
        Fault("/description", "too_large", f"the description has {size} bytes", f"at most {MAX_DESCRIPTION_BYTES} bytes of UTF-8"),
    )


def read_labels(fields: Mapping[str, Any], place: Place) -> None:
    """Refuse tags and an owner that are not texts of a bounded length."""
    tags, owner = fields.get("tags"), fields.get("owner")
    if tags is not None and not (isinstance(tags, list) and len(tags) <= MAX_TAGS and all(map(_is_tag, tags))):
        place.at("tags").refuse(
            "wrong_type",
            "the value is not a list of valid tags",
            f"at most {MAX_TAGS} texts of 1 to {MAX_TAG_CHARACTERS} characters",
        )
    if owner is not None and not (isinstance(owner, str) and 0 < len(owner) <= MAX_OWNER_CHARACTERS):
        place.at("owner").refuse(
            "wrong_type", "the value is not a valid owner", f"a text of 1 to {MAX_OWNER_CHARACTERS} characters"
        )


def _is_tag(tag: object) -> bool:
    return isinstance(tag, str) and 0 < len(tag) <= MAX_TAG_CHARACTERS


def _read_zone(name: object, place: Place) -> ZoneInfo:
    """The timezone; UTC when there is none, or after saying that it is none."""
    if name is None:
        return UTC
    try:
        if isinstance(name, str) and name.isprintable():
            return ZoneInfo(name)
    except (KeyError, ValueError, OSError):
        pass  # every way in which the time zone database says that it has no such zone
    place.refuse("bad_timezone", "unknown timezone", "an IANA name such as Europe/Berlin")
    return UTC


def _read_where(fields: Mapping[str, Any], place: Place) -> Condition | None:
    if fields.get("where") is None:
        place.refuse("missing_field", "the condition is missing", '"where": a condition')
        return None
    return read_condition(fields["where"], place.at("where"))
