"""Pure core: the bounds of all definitions: size, nesting, numbers and texts.

The evaluation computes with doubles and writes texts as UTF-8. A value outside of that is refused before any other validation,
so that no operator has to handle it.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from typing import Any, Final

from starling_segments.language.validation import DefinitionRefused, FieldError, Known, Location, Validation, finish

MAX_DOCUMENT_BYTES: Final = 262_144
"""Maximum size of the document as compact JSON in UTF-8."""
MAX_INTEGER: Final = 2**53 - 1
"""Every integer up to this one is exact as a double."""
MAX_NESTING: Final = 64
"""Maximum nesting of objects and lists. 16 levels of groups use half of it; the properties of events are at most 32 deep."""
MAX_ELEMENTS: Final = 512
"""Number of elements of an observed array that an evaluation looks at: the first ones."""
MAX_TEXT: Final = 1_024
"""Number of characters of an observed text that `contains` and `matches` search: the first ones."""
MAX_COMPARED_TEXTS: Final = 16
"""Number of texts in an array of another value, such as a trait, that a text operator compares with: the first ones."""
MAX_COMBINATIONS: Final = 1_024
"""Maximum number of combinations of values, over all events of a sequence."""
_MOST_REPORTED: Final = 100
_TOO_DEEP: Final = ("too_deep", f"objects and lists are nested more than {MAX_NESTING} deep", f"at most {MAX_NESTING} levels")
_NO_REFERENCES = Known()


def read_document(text: str | bytes) -> Any:
    """Return the JSON value of a definition's text, within all bounds.

    Raises: DefinitionRefused with the locations that are out of bounds; ValueError for text that is not JSON.
    """
    try:
        document = json.loads(text.decode() if isinstance(text, bytes) else text, parse_int=_integer, parse_constant=_no_number)
    except RecursionError as cause:
        raise DefinitionRefused((FieldError("", *_TOO_DEEP),)) from cause
    check_bounds(document)
    return document


def check_bounds(document: object) -> None:
    """Raise DefinitionRefused with the locations at which the document is out of bounds."""
    validation = Validation(_NO_REFERENCES)
    _check(document, [], Location(validation))
    finish(validation)
    size = len(json.dumps(document, ensure_ascii=False, separators=(",", ":")).encode())
    if size > MAX_DOCUMENT_BYTES:
        expected = f"at most {MAX_DOCUMENT_BYTES} bytes; upload a long list of users as a list"
        raise DefinitionRefused((FieldError("", "too_large", f"the definition has {size} bytes of JSON", expected),))


def _integer(digits: str) -> int | float:
    """Python converts at most 4,300 digits; a double of more digits is infinite, and therefore out of bounds."""
    try:
        return int(digits)
    except ValueError:
        return float(digits)


def _no_number(token: str) -> None:
    raise ValueError(f"{token} is not a JSON number")


def _check(value: object, steps: list[str | int], location: Location) -> None:
    """Record what is out of bounds below `steps`, in document order, up to `_MOST_REPORTED` locations."""
    if len(location.validation.errors) >= _MOST_REPORTED:
        return
    if isinstance(value, dict | list):
        if len(steps) == MAX_NESTING:
            location.at(*steps).refuse(*_TOO_DEEP)
            return
        parts: Iterable[tuple[Any, object]] = value.items() if isinstance(value, dict) else enumerate(value)
        for step, part in parts:
            if isinstance(step, str) and not _is_unicode(step):
                location.at(*steps).refuse("bad_text", f"the field {step!r} is not valid Unicode", "a name without lone surrogates")
                continue
            steps.append(step)
            _check(part, steps, location)
            steps.pop()
    elif isinstance(value, str):
        if not _is_unicode(value):
            location.at(*steps).refuse("bad_text", "the text is not valid Unicode", "text without lone surrogates")
    elif isinstance(value, int):
        if not -MAX_INTEGER <= value <= MAX_INTEGER:
            expected = f"an integer from -{MAX_INTEGER} to {MAX_INTEGER}; write a longer identifier as text"
            location.at(*steps).refuse("out_of_range", "the integer is out of range", expected)
    elif isinstance(value, float) and value - value != 0:
        location.at(*steps).refuse("out_of_range", "the number is not finite", "a number within ±1.7976931348623157e308")


def _is_unicode(text: str) -> bool:
    try:
        return text.isascii() or bool(text.encode())
    except UnicodeEncodeError:
        return False
