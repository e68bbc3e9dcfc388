"""Pure core: lines of a history file → items of the ingest API."""

import csv
import json
import math
import re
from collections.abc import Mapping, Sequence
from typing import Any, Final, TypeAlias

from starling_common.outcome import Done, Refused
from starling_common.values import deterministic_id

Item: TypeAlias = dict[str, Any]

_TEXT_COLUMNS = frozenset(
    {"type", "event", "name", "userId", "anonymousId", "messageId", "groupId", "previousId", "timestamp", "originalTimestamp"}
)
_OBJECTS = ("properties", "traits", "context", "integrations")
_BOOLEANS = {"true": True, "false": False}
_SURROGATE: Final = re.compile(r"\\u[dD][89a-fA-F]")
"""The escape of a half of a surrogate pair, which UTF-8 cannot encode alone."""
_MAX_NESTING: Final = 100
"""Most levels of objects and lists. The ingest API refuses a whole batch with an item that is nested too deeply for its parser."""


_TOO_DEEP: Final = Refused("too_deep", f"objects and lists are nested more than {_MAX_NESTING} deep")


def item_of_json(line: str) -> Done[Item] | Refused:
    """Return one line of `segment-jsonl` as an item of the tracking API."""
    try:
        found = json.loads(line, parse_float=_finite, parse_constant=_no_number)
        if _SURROGATE.search(line):
            json.dumps(found, ensure_ascii=False).encode()
    except UnicodeEncodeError:
        return Refused("not_unicode", "a text has half of a surrogate pair")
    except ValueError as error:
        return Refused("not_json", f"not JSON: {error}")
    except RecursionError:
        return _TOO_DEEP
    if not isinstance(found, dict):
        return Refused("not_an_object", "not a JSON object")
    return _TOO_DEEP if line.count("[") + line.count("{") > _MAX_NESTING and _is_deeper(found, _MAX_NESTING) else Done(found)


def item_of_row(header: Sequence[str], line: str) -> Done[Item] | Refused:
    """Return one line of `csv` as an item.

    A column is a field of the item, with dots for nested fields: `userId`, `event`, `timestamp`, `properties.revenue`,
    `traits.plan`. An empty cell is a missing value. Numbers and true/false in `properties`, `traits` and `context`
    become JSON numbers and booleans. A line without a `type` is a `track`.
    """
    try:
        cells = next(csv.reader([line]), [])
    except csv.Error as error:
        return Refused("not_csv", f"not CSV: {error}")
    if len(cells) != len(header):
        return Refused("wrong_columns", f"{len(cells)} cells under {len(header)} columns")
    item: Item = {"type": "track"}
    for column, cell in zip(header, cells, strict=True):
        if cell != "":
            _set_path(item, column.split("."), cell if column in _TEXT_COLUMNS else value_of_cell(cell))
    return Done(item)


def header_errors(header: Sequence[str]) -> list[str]:
    """Return the validation errors of a CSV header; an empty list means that it is valid."""
    unknown = [column for column in header if column not in _TEXT_COLUMNS and column.split(".")[0] not in _OBJECTS]
    bare = [column for column in header if column in _OBJECTS]
    errors = [f"unknown column {column!r}" for column in unknown]
    errors += [f"column {column!r} needs a field, such as {column}.colour" for column in bare]
    errors += [
        f"column {one!r} is a value, but {other!r} is a field inside it"
        for one in header
        for other in header
        if other.startswith(f"{one}.")
    ]
    errors += [f"column {column!r} occurs twice" for column in sorted(set(header)) if header.count(column) > 1]
    if not {"userId", "anonymousId"} & set(header):
        errors.append("a column userId or anonymousId is required")
    return errors


def value_of_cell(cell: str) -> str | int | float | bool:
    """Return a cell as a JSON number or boolean; any other text is returned unchanged (also `007` and `1e5x`)."""
    if cell in _BOOLEANS:
        return _BOOLEANS[cell]
    try:
        found = json.loads(cell, parse_float=_finite, parse_constant=_no_number)
    except (ValueError, RecursionError):
        return cell
    return found if isinstance(found, int | float) and not isinstance(found, bool) else cell


def with_message_id(item: Item, line: bytes, offset_bytes: int) -> Item:
    """Return the item with a `messageId`, derived from the line and its offset, so that a repeated import is de-duplicated."""
    return item if item.get("messageId") else {**item, "messageId": deterministic_id("import", offset_bytes, line)}


def _no_number(name: str) -> float:
    raise ValueError(f"{name} is not a JSON number")


def _finite(text: str) -> float:
    number = float(text)
    return number if math.isfinite(number) else _no_number(text[:40])


def _is_deeper(document: object, levels: int) -> bool:
    """Return whether objects and lists are nested in more levels than that."""
    layer = [document]
    for _ in range(levels + 1):
        layer = [
            part for node in layer if isinstance(node, dict | list) for part in (node.values() if isinstance(node, dict) else node)
        ]
    return bool(layer)


def _set_path(tree: Item, path: Sequence[str], value: Any) -> None:
    for key in path[:-1]:
        tree = tree.setdefault(key, {})
    tree[path[-1]] = value


def body_of(items: Sequence[Mapping[str, Any]]) -> bytes:
    """Return the body of one `/v1/import` call."""
    return json.dumps({"batch": list(items)}, separators=(",", ":"), ensure_ascii=False).encode()
