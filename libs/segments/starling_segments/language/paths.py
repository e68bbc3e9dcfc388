"""Pure core: dotted paths into decoded JSON.

`address.country`, `products.0.sku`; `products.*.sku` is the array of all of them, without the items that lack it. Each `*` looks
at the first `MAX_ELEMENTS` elements.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from starling_segments.language.bounds import MAX_ELEMENTS

Reader = Callable[[Mapping[str, Any]], Any]
MAX_PATH_CHARACTERS = 256
EXPECTED = f"a dotted path of at most {MAX_PATH_CHARACTERS} characters, no part of it empty"


def is_path(text: object) -> bool:
    """Return whether the value is a dotted path."""
    return isinstance(text, str) and 0 < len(text) <= MAX_PATH_CHARACTERS and all(text.split("."))


def reader(path: str) -> Reader:
    """Return a function from an object to the value at `path`; None if it is missing or null."""
    parts = path.split(".")
    if len(parts) == 1:
        return lambda root: root.get(path)
    head, tail = parts[0], tuple(parts[1:])
    return lambda root: walk(root.get(head), tail)


def item_reader(path: str | None) -> Callable[[Any], Any]:
    """Return a function from any value to the value at `path`; without a path, the value itself."""
    if path is None:
        return lambda item: item
    parts = tuple(path.split("."))
    return lambda item: walk(item, parts)


def walk(value: Any, parts: tuple[str, ...], left: dict[int, int] | None = None) -> Any:
    """Return the value at a path below `value`; None if it is missing.

    `left`: the number of parts after a `*` -> the number of elements that it may still look at.
    """
    for i, part in enumerate(parts):
        if type(value) is dict:
            value = value.get(part)
        elif type(value) is not list:
            return None
        elif part == "*":
            return _every(value, parts[i + 1 :], {} if left is None else left)
        else:
            value = _position(value, part)
    return value


def _every(items: list[Any], parts: tuple[str, ...], left: dict[int, int]) -> list[Any]:
    most = left.get(len(parts), MAX_ELEMENTS)
    seen = items[:most]
    left[len(parts)] = most - len(seen)
    found = [walk(item, parts, left) for item in seen]
    if "*" in parts:
        # An object may have a field named `*`, whose value need not be a list.
        return [value for values in found if type(values) is list for value in values[:MAX_ELEMENTS]][:MAX_ELEMENTS]
    return [value for value in found if value is not None]


def _position(items: list[Any], part: str) -> Any:
    if not (part.isascii() and part.isdigit()):
        return None
    return items[int(part)] if len(part) < 10 and int(part) < len(items) else None
