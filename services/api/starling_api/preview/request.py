"""Pure core: parses the body of a preview or a diff into a segment."""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any, Final

from starling_api.definitions.kinds.reading import READ_ONLY
from starling_segments import DefinitionRefused, FieldError, Known, Segment, parse_segment
from starling_segments.parse.document import LABELS

_CONDITION_FIELDS: Final = ("where", "timezone")
_IGNORED_FIELDS: Final = frozenset({"key", "name", "description"}) | LABELS | READ_ONLY
"""The other fields of a segment document, which a request may contain."""


def requested_segment(document: object, known: Known, before: Mapping[str, Any] | None = None) -> Segment:
    """Return the segment of `{where, timezone?}`. `before`: document of the changed segment, the default for the time zone.

    Raises: DefinitionRefused with all errors.
    """
    if not isinstance(document, Mapping):
        raise DefinitionRefused((FieldError("", "wrong_type", "it is not an object", 'an object with "where"'),))
    key = _unused(known) if before is None else before["key"]
    given = {field: value for field, value in document.items() if field not in _IGNORED_FIELDS}
    unknown = tuple(
        FieldError(f"/{field}", "unknown_field", f"{field!r} is not a field of a preview", ", ".join(_CONDITION_FIELDS))
        for field in given
        if field not in _CONDITION_FIELDS
    )
    zone = given.get("timezone") or (None if before is None else before.get("timezone"))
    try:
        requested = {"key": key, "name": key, "where": given.get("where"), "timezone": zone}
        segment = parse_segment(requested, replace(known, taken_keys=frozenset()))
    except DefinitionRefused as refused:
        raise DefinitionRefused((*unknown, *refused.errors)) from refused
    if unknown:
        raise DefinitionRefused(unknown)
    return segment


def _unused(known: Known) -> str:
    """Return a key that no segment has, so that the condition cannot refer to itself."""
    key = "preview"
    while key in known.segments:
        key += "-"
    return key
