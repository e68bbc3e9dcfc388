"""Pure core: the body of a preview or a diff -> the segment that it asks about."""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any, Final

from starling_api.definitions.kinds import READ_ONLY
from starling_segments import DefinitionRefused, FieldError, Known, Segment, parse_segment
from starling_segments.parse.document import LABELS

_SAYS_WHOM: Final = ("where", "timezone")
_SAYS_NOT_WHOM: Final = frozenset({"key", "name", "description"}) | LABELS | READ_ONLY
"""What else a segment's document has: it may be sent whole."""


def asked_segment(document: object, known: Known, before: Mapping[str, Any] | None = None) -> Segment:
    """`{where, timezone?}`; `before`: the document of the segment that it would change, whose timezone it keeps.

    Raises: DefinitionRefused with all faults.
    """
    if not isinstance(document, Mapping):
        raise DefinitionRefused((FieldError("", "wrong_type", "it is not an object", 'an object with "where"'),))
    named = _unused(known) if before is None else before["key"]
    given = {field: value for field, value in document.items() if field not in _SAYS_NOT_WHOM}
    faults = tuple(
        FieldError(f"/{field}", "unknown_field", f"{field!r} is not a field here", ", ".join(_SAYS_WHOM))
        for field in given
        if field not in _SAYS_WHOM
    )
    zone = given.get("timezone") or (None if before is None else before.get("timezone"))
    try:
        asked = {"key": named, "name": named, "where": given.get("where"), "timezone": zone}
        segment = parse_segment(asked, replace(known, taken_keys=frozenset()))
    except DefinitionRefused as refused:
        raise DefinitionRefused((*faults, *refused.errors)) from refused
    if faults:
        raise DefinitionRefused(faults)
    return segment


def _unused(known: Known) -> str:
    """A key that no segment has: a condition on it would be built on itself."""
    key = "asked"
    while key in known.segments:
        key += "-"
    return key
