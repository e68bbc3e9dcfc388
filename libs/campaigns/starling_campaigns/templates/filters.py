"""Pure core: the filters of templates. Each is bounded by the size of its input; what makes larger texts counts them first."""

import json
from collections.abc import Callable, Mapping
from typing import Any, Final
from urllib.parse import quote

from jinja2.runtime import Context
from jinja2.utils import pass_context
from markupsafe import Markup, escape

from starling_campaigns.templates.values import Meter, Missing, RenderingFailed, View

METER: Final = "_meter"
"""The name of the meter in the context. A template cannot refer to it: names begin with a letter."""
_MAX_DIGITS: Final = 10
_MAX_NUMBER_CHARACTERS: Final = 40
_PART_WEIGHT: Final = 40
"""The duration for each element of a JSON text, in that of reading a character."""

Filter = Callable[..., Any]


def text_of(value: Any) -> str:
    """Return the text of a scalar: as in JSON, but a text without quotes. Raises: RenderingFailed for an object or a list."""
    if isinstance(value, str):
        return value
    if value is True or value is False:
        return "true" if value else "false"
    if isinstance(value, float) and value.is_integer() and abs(value) < 2**53:
        return str(int(value))
    if isinstance(value, int | float | View | Missing):
        return str(value)
    raise RenderingFailed("template_error", f"a {type(value).__name__} has no text: use join, tojson, or one of its fields")


def _on_text(change: Callable[[str], str], weight: int = 1) -> Filter:
    """Return a filter over texts. `weight`: the duration for a character, in that of reading one."""

    @pass_context
    def apply(context: Context, value: Any) -> Any:
        if isinstance(value, Missing):
            return value
        text = text_of(value)
        _meter(context).read(weight * len(text))
        # The result of a change to a safe text is no longer safe.
        return change(str(text) if isinstance(text, Markup) else text)

    return apply


def _quoted(text: str) -> str:
    return quote(text, safe="", errors="replace")


def _default(value: Any, otherwise: Any = "", empty_too: Any = False) -> Any:
    """Return the default for a missing value, with `true` as second argument also for an empty or false one."""
    return otherwise if isinstance(value, Missing) or (empty_too is True and not value) else value


@pass_context
def _replace(context: Context, value: Any, old: Any, new: Any) -> Any:
    if isinstance(value, Missing):
        return value
    text, before, after = text_of(value), text_of(old), text_of(new)
    _meter(context).read(len(text) + text.count(before) * len(after))
    return str(text).replace(str(before), str(after))


@pass_context
def _truncate(context: Context, value: Any, length: Any = 255, end: Any = "…") -> Any:
    """Return at most `length` characters of a text; a shortened one ends with `end`."""
    if isinstance(value, Missing):
        return value
    text, ending, most = text_of(value), text_of(end), _whole(length, "truncate")
    _meter(context).read(len(ending))
    return text if len(text) <= most else str(text)[: max(most - len(ending), 0)] + ending[:most]


def _length(value: Any) -> Any:
    if isinstance(value, Missing):
        return value
    if isinstance(value, str | View):
        return len(value)
    raise RenderingFailed("template_error", "length applies to a text, a list or an object")


def _item(position: int, name: str) -> Filter:
    def apply(value: Any) -> Any:
        if isinstance(value, Missing):
            return value
        if isinstance(value, View) and isinstance(value.data, list):
            return value.get(position)
        raise RenderingFailed("template_error", f"{name} applies to a list")

    return apply


@pass_context
def _join(context: Context, value: Any, separator: Any = "") -> Any:
    """Return the first elements of a list, which must be scalars, with a separator between them."""
    if isinstance(value, Missing):
        return value
    if not isinstance(value, View) or not isinstance(value.data, list):
        raise RenderingFailed("template_error", "join applies to a list")
    parts, between = [text_of(one) for one in value], text_of(separator)
    _meter(context).read(sum(map(len, parts)) + len(between) * len(parts))
    return str(between).join(map(str, parts))


def _round(value: Any, digits: Any = 0) -> Any:
    if isinstance(value, Missing):
        return value
    places = _whole(digits, "round")
    if places > _MAX_DIGITS:
        raise RenderingFailed("template_error", f"round accepts at most {_MAX_DIGITS} digits")
    number = _number(value, "round")
    return round(number) if places == 0 else round(float(number), places)


def _fixed(value: Any, digits: Any = 2) -> Any:
    """Return a number as a text with exactly so many decimals."""
    if isinstance(value, Missing):
        return value
    places = _whole(digits, "fixed")
    if places > _MAX_DIGITS:
        raise RenderingFailed("template_error", f"fixed accepts at most {_MAX_DIGITS} digits")
    return f"{float(_number(value, 'fixed')):.{places}f}"


def _converted(kind: type[int] | type[float], name: str) -> Filter:
    def apply(value: Any, otherwise: Any = None) -> Any:
        if isinstance(value, Missing):
            return value
        try:
            if type(value) is str and len(value) <= _MAX_NUMBER_CHARACTERS:
                found = float(value)
                return kind(found)
            return kind(_number(value, name))
        except (ValueError, OverflowError, RenderingFailed):
            if otherwise is not None:
                return otherwise
            raise RenderingFailed("template_error", f"{name}: the value is not a number: give a default, {name}(0)") from None

    return apply


@pass_context
def _tojson(context: Context, value: Any) -> Any:
    """Return the value as JSON. Characters that HTML reads are written as escapes, so that the result is safe in a script."""
    if isinstance(value, Missing):
        return value
    data = value.data if isinstance(value, View) else str(value) if isinstance(value, Markup) else value
    meter, parts = _meter(context), []
    # The encoder yields parts, so that a large value is refused before all of it is written.
    for part in json.JSONEncoder(ensure_ascii=True, separators=(",", ":")).iterencode(data):
        parts.append(part)
        meter.read(len(part) + _PART_WEIGHT)
    text = "".join(parts)
    for character in "<>&'":
        text = text.replace(character, f"\\u{ord(character):04x}")
    return Markup(text)  # noqa: S704 - every character that HTML reads is escaped


@pass_context
def _escape(context: Context, value: Any) -> Any:
    if isinstance(value, Missing):
        return value
    text = text_of(value)
    _meter(context).read(len(text))
    return escape(text)


@pass_context
def _rounds(context: Context, value: Any, has_else: bool) -> Any:
    """Return the elements of a loop. A missing list has none, and is recorded if the loop has no `else`.

    Raises: RenderingFailed for a scalar.
    """
    if isinstance(value, Missing):
        if not has_else:
            _meter(context).missing.setdefault(value.path)
        return ()
    if isinstance(value, View):
        return _meter(context).rounds(value)
    raise RenderingFailed("template_error", "a loop is over a list or an object")


ROUNDS: Final = "_rounds"
"""The filter that the compiler puts around the data of each loop. A template cannot use it."""
INTERNAL: Final[Mapping[str, Filter]] = {ROUNDS: _rounds}

FILTERS: Final[Mapping[str, tuple[Filter, int, int]]] = {
    "default": (_default, 1, 2),
    "upper": (_on_text(str.upper), 0, 0),
    "lower": (_on_text(str.lower), 0, 0),
    "capitalize": (_on_text(str.capitalize), 0, 0),
    "title": (_on_text(str.title), 0, 0),
    "trim": (_on_text(str.strip), 0, 0),
    "urlencode": (_on_text(_quoted, 16), 0, 0),
    "escape": (_escape, 0, 0),
    "replace": (_replace, 2, 2),
    "truncate": (_truncate, 0, 2),
    "length": (_length, 0, 0),
    "first": (_item(0, "first"), 0, 0),
    "last": (_item(-1, "last"), 0, 0),
    "join": (_join, 0, 1),
    "round": (_round, 0, 1),
    "fixed": (_fixed, 0, 1),
    "int": (_converted(int, "int"), 0, 1),
    "float": (_converted(float, "float"), 0, 1),
    "tojson": (_tojson, 0, 0),
}
"""Name -> (function, least and most arguments)."""


def _meter(context: Context) -> Meter:
    found: Meter = context.parent[METER]
    return found


def _whole(value: Any, name: str) -> int:
    if type(value) is int and value >= 0:
        return value
    raise RenderingFailed("template_error", f"{name}: the argument is not a whole number from 0")


def _number(value: Any, name: str) -> int | float:
    if type(value) is int or type(value) is float:
        return value
    raise RenderingFailed("template_error", f"{name} applies to a number: convert a text with float")
