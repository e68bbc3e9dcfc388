"""Pure core: the operands of operators: validation of `value`, and the equivalent JSON Schema.

`read` returns the operand in canonical form (JSON values only), or None after recording a validation error.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from itertools import chain
from typing import Any

import re2

from starling_segments.language import dates, durations, semver
from starling_segments.language.bounds import MAX_INTEGER
from starling_segments.language.validation import Location

Schema = Mapping[str, Any]
WEEKDAYS = ("monday", "tuesday", "wednesday", "thursday", "friday", "saturday", "sunday")
MAX_ITEMS = 10_000
"""Maximum number of values in one list; more belong in an uploaded list."""
MAX_PATTERN_CHARACTERS = 1_000
_PATTERN_BYTES = 1 << 20
"""Memory limit of RE2 for one compiled pattern; a larger one is refused."""
TYPE_NAMES: Mapping[type, str] = {
    str: "string", int: "number", float: "number", bool: "boolean", list: "array", dict: "object"
}  # fmt: skip
_NUMBER: Schema = {"type": "number"}
_TEXT: Schema = {"type": "string"}
_SCALAR: Schema = {"type": ["string", "number", "boolean"]}


@dataclass(frozen=True, slots=True)
class Operand:
    """`read(value, location)`: the validation; `schema`: the JSON Schema of the value."""

    read: Callable[[Any, Location], Any]
    schema: Schema


def is_number(value: object) -> bool:
    """Return whether the value is a finite number; a boolean is not."""
    return type(value) is int or (type(value) is float and value - value == 0)


def is_scalar(value: object) -> bool:
    """Return whether the value is a text, a number or a boolean."""
    return type(value) in (str, bool) or is_number(value)


def _checked(fits: Callable[[Any], bool], expected: str, schema: Schema, code: str = "wrong_type") -> Operand:
    def read(value: Any, location: Location) -> Any:
        if fits(value):
            return value
        location.refuse(code, f"{_shown(value)} is not valid here", expected)
        return None

    return Operand(read, schema)


def _shown(value: object) -> str:
    text = repr(value)
    return text if len(text) <= 40 else text[:37] + "..."


def _list_of(item: Callable[[Any], bool]) -> Callable[[Any], bool]:
    return lambda value: type(value) is list and 0 < len(value) <= MAX_ITEMS and all(map(item, value))


def _pair_of(item: Callable[[Any], bool]) -> Callable[[Any], bool]:
    return lambda value: type(value) is list and len(value) == 2 and all(map(item, value))


def _is_text(value: Any) -> bool:
    return type(value) is str


def _is_range(value: Any) -> bool:
    return (_pair_of(is_number)(value) or _pair_of(_is_text)(value)) and value[0] <= value[1]


def _is_modulus(value: Any) -> bool:
    return _pair_of(lambda part: type(part) is int)(value) and 0 <= value[1] < value[0] <= MAX_INTEGER


def _whole(low: int, high: int) -> Operand:
    return _checked(
        lambda value: type(value) is int and low <= value <= high,
        f"a whole number from {low} to {high}",
        {"type": "integer", "minimum": low, "maximum": high},
    )


def _array(items: Schema, **bounds: int) -> Schema:
    return {"type": "array", "items": items, **({"minItems": 1, "maxItems": MAX_ITEMS} | bounds)}


def _read_texts(value: Any, location: Location) -> Any:
    texts = [value] if type(value) is str else value
    return _TEXTS.read(texts, location)


def _read_pattern(value: Any, location: Location) -> Any:
    if type(value) is not str:
        location.refuse("wrong_type", f"{_shown(value)} is not a pattern", "text in RE2 syntax")
        return None
    if len(value) > MAX_PATTERN_CHARACTERS:
        location.refuse("bad_pattern", f"the pattern has {len(value)} characters", f"at most {MAX_PATTERN_CHARACTERS} characters")
        return None
    try:
        compile_pattern(value)
    except re2.error as error:
        location.refuse("bad_pattern", f"RE2 cannot compile the pattern: {error}", "a pattern in RE2 syntax")
        return None
    return value


def compile_pattern(pattern: str) -> Any:
    """Return a compiled RE2 pattern, which matches in linear time. Raises: re2.error."""
    options = re2.Options()
    options.log_errors = False
    options.max_mem = _PATTERN_BYTES
    return re2.compile(pattern, options)


def _read_date(value: Any, location: Location) -> Any:
    span = dates.read_span(value, location.validation.zone) if type(value) is str else None
    if span is None:
        location.refuse("bad_date", f"{_shown(value)} is not a date", "ISO 8601: 2026-03-01 or 2026-03-01T09:30:00Z")
        return None
    return list(span)


def _read_dates(value: Any, location: Location) -> Any:
    if not _pair_of(_is_text)(value):
        location.refuse("bad_date", f"{_shown(value)} is not a pair of dates", "[first, last], ISO 8601")
        return None
    spans = [_read_date(part, location.at(i)) for i, part in enumerate(value)]
    if None in spans:
        return None
    if spans[0][0] > spans[1][0]:
        location.refuse("bad_date", "the first date is later than the last", "[first, last], the earlier first")
        return None
    return [spans[0][0], spans[1][1]]


def _read_duration(value: Any, location: Location) -> Any:
    length = durations.duration_ms(value)
    if length is None:
        location.refuse("bad_duration", f"{_shown(value)} is not a duration", durations.EXPECTED)
        return None
    return length


def _record(limits: Mapping[str, tuple[float, float]], expected: str) -> Operand:
    def fits(value: Any) -> bool:
        return type(value) is dict and value.keys() == limits.keys() and all(
            is_number(value[name]) and low <= value[name] <= high for name, (low, high) in limits.items()
        )  # fmt: skip

    properties = {name: {"type": "number", "minimum": low, "maximum": high} for name, (low, high) in limits.items()}
    schema = {"type": "object", "properties": properties, "required": [*limits], "additionalProperties": False}
    return _checked(fits, expected, schema)


def scalars_of(operand: Any) -> list[Any]:
    """Return the scalars of an operand of an equality or order operator."""
    return list(chain(operand)) if type(operand) is list else [operand]


_TEXTS = _checked(_list_of(_is_text), "text, or a list of texts", _array(_TEXT))

NOTHING = Operand(lambda _value, _place: (), {})
SCALAR = _checked(is_scalar, "text, a number, true or false", _SCALAR)
SCALARS = _checked(_list_of(is_scalar), f"a list of 1 to {MAX_ITEMS} texts, numbers, true or false", _array(_SCALAR))
ORDERED = _checked(lambda v: _is_text(v) or is_number(v), "a number or text", {"type": ["number", "string"]})
RANGE = _checked(
    _is_range,
    "[low, high]: two numbers or two texts, the lower first",
    {"anyOf": [_array(kind, minItems=2, maxItems=2) for kind in (_NUMBER, _TEXT)]},
)
TYPE_NAME = _checked(
    lambda v: _is_text(v) and v in TYPE_NAMES.values(),
    "one of string, number, boolean, array, object",
    {"enum": sorted(set(TYPE_NAMES.values()))},
)
TEXTS = Operand(_read_texts, {"anyOf": [_TEXT, _array(_TEXT)]})
PATTERN = Operand(_read_pattern, _TEXT)
VERSION = _checked(
    lambda v: _is_text(v) and semver.precedence(v) is not None,
    "a semantic version such as 2.0.0 or 2.1.0-rc.1",
    {"type": "string", "pattern": semver.SEMVER_PATTERN},
)
MODULUS = _checked(
    _is_modulus,
    f"[divisor, remainder]: whole numbers, 0 <= remainder < divisor <= {MAX_INTEGER}",
    _array({"type": "integer", "minimum": 0, "maximum": MAX_INTEGER}, minItems=2, maxItems=2),
)
DATE = Operand(_read_date, _TEXT)
DATES = Operand(_read_dates, _array(_TEXT, minItems=2, maxItems=2))
DURATION = Operand(_read_duration, {"type": "string", "pattern": durations.DURATION_PATTERN})
DAY, MONTH, SIZE = _whole(1, 31), _whole(1, 12), _whole(0, MAX_INTEGER)
WEEKDAY = _checked(lambda v: _is_text(v) and v in WEEKDAYS, "one of " + ", ".join(WEEKDAYS), {"enum": [*WEEKDAYS]})
CIRCLE = _record(
    {"lat": (-90, 90), "lon": (-180, 180), "km": (0, 20_038)},
    '{"lat": -90..90, "lon": -180..180, "km": 0..20038}',
)
BOX = _record(
    {"north": (-90, 90), "south": (-90, 90), "east": (-180, 180), "west": (-180, 180)},
    '{"north": .., "south": .., "east": .., "west": ..} in degrees',
)
