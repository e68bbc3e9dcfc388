"""Pure core: readers of the fields that policies and campaigns have in common. Each records errors and returns a default then."""

import re
from collections.abc import Mapping
from decimal import Decimal
from typing import Any, Final

from starling_policy.bounds import MAX_NAMES
from starling_policy.shares import WHOLE
from starling_segments.language.durations import duration_ms
from starling_segments.language.validation import Location
from starling_segments.parse.document import KEY_PATTERN

KEY: Final = re.compile(KEY_PATTERN[:-1] + r"\Z")

Fields = Mapping[str, Any]


def read_key(fields: Fields, name: str, location: Location, otherwise: str | None = None) -> str:
    """Read a key such as a channel or a purpose. `otherwise`: the default; None: the field is required."""
    value = fields.get(name)
    if value is None and otherwise is not None:
        return otherwise
    if value is None:
        location.refuse("missing_field", f"{name!r} is missing", f'"{name}": {KEY_PATTERN}')
    elif not isinstance(value, str) or not KEY.match(value):
        location.at(name).refuse("bad_key", "the value is not a valid key", KEY_PATTERN)
    else:
        return value
    return ""


def read_keys(fields: Fields, name: str, location: Location) -> frozenset[str] | None:
    """Read a list of keys; None without one, which means all."""
    value = fields.get(name)
    if value is None:
        return None
    expected = f"a list of 1 to {MAX_NAMES} keys ({KEY_PATTERN}); leave it out for all"
    if not isinstance(value, list) or not value:
        location.at(name).refuse("wrong_type", "the value is not a list of keys", expected)
        return None
    if len(value) > MAX_NAMES:
        location.at(name).refuse("too_wide", f"the list has {len(value)} keys", expected)
        return None
    wrong = [i for i, key in enumerate(value) if not isinstance(key, str) or not KEY.match(key)]
    for i in wrong:
        location.at(name, i).refuse("bad_key", "the value is not a valid key", KEY_PATTERN)
    return None if wrong else frozenset(value)


def read_whole(fields: Fields, name: str, location: Location, low: int, high: int, otherwise: int | None = None) -> int:
    """Read a whole number from `low` to `high`. `otherwise`: the default; None: the field is required."""
    value, expected = fields.get(name), f"a whole number from {low} to {high}"
    if value is None and otherwise is not None:
        return otherwise
    if value is None:
        location.refuse("missing_field", f"{name!r} is missing", f'"{name}": {expected}')
    elif type(value) is not int:
        location.at(name).refuse("wrong_type", "the value is not a whole number", expected)
    elif not low <= value <= high:
        location.at(name).refuse("out_of_range", f"{value} is out of range", expected)
    else:
        return value
    return low


def read_duration(fields: Fields, name: str, location: Location, longest: str, otherwise: int | None = None) -> int:
    """Read a duration from 1s to `longest`, milliseconds. `otherwise`: the default; None: the field is required."""
    value, expected = fields.get(name), f"a whole number and one of s m h d w, from 1s to {longest}"
    if value is None and otherwise is not None:
        return otherwise
    if value is None:
        location.refuse("missing_field", f"{name!r} is missing", f'"{name}": {expected}')
        return 0
    length, longest_ms = duration_ms(value), duration_ms(longest)
    if length is None:
        location.at(name).refuse("bad_duration", "the value is not a duration", expected)
    elif longest_ms is not None and length > longest_ms:
        location.at(name).refuse("out_of_range", f"{value} is longer than {longest}", expected)
    else:
        return length
    return 0


def read_choice(fields: Fields, name: str, location: Location, choices: tuple[str, ...]) -> str:
    """Read one of the texts; the first one is the default."""
    value = fields.get(name)
    if value is None:
        return choices[0]
    if not isinstance(value, str) or value not in choices:
        location.at(name).refuse("wrong_type", "the value is not one of the choices", "one of " + ", ".join(choices))
        return choices[0]
    return value


def read_percent(fields: Fields, name: str, location: Location) -> int:
    """Read a required percentage with at most two decimals; return hundredths of a percent."""
    value, expected = fields.get(name), "a number from 0 to 100 with at most two decimals"
    if value is None:
        location.refuse("missing_field", f"{name!r} is missing", f'"{name}": {expected}')
        return 0
    if type(value) is not int and type(value) is not float:
        location.at(name).refuse("wrong_type", "the value is not a number", expected)
        return 0
    share = Decimal(repr(value)) * 100
    if not 0 <= share <= WHOLE:
        location.at(name).refuse("out_of_range", f"{value} is out of range", expected)
    elif share != int(share):
        location.at(name).refuse("out_of_range", f"{value} has more than two decimals", expected)
    else:
        return int(share)
    return 0
