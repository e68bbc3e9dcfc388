"""Pure core: lines of a history file → items of the ingest API."""

import csv
import json
from collections.abc import Mapping, Sequence
from typing import Any, TypeAlias

from starling_common.outcome import Done, Refused
from starling_common.values import deterministic_id

Item: TypeAlias = dict[str, Any]

_TEXT_COLUMNS = frozenset(
    {"type", "event", "name", "userId", "anonymousId", "messageId", "groupId", "previousId", "timestamp", "originalTimestamp"}
)
_OBJECTS = ("properties", "traits", "context", "integrations")
_BOOLEANS = {"true": True, "false": False}


def item_of_json(line: str) -> Done[Item] | Refused:
    """Return one line of `segment-jsonl` as an item of the tracking API."""
    try:
        found = json.loads(line, parse_constant=_no_number)
    except ValueError as error:
        return Refused("not_json", f"not JSON: {error}")
    return Done(found) if isinstance(found, dict) else Refused("not_an_object", "not a JSON object")


def item_of_row(header: Sequence[str], line: str) -> Done[Item] | Refused:
    """Return one line of `csv` as an item.

    A column is a field of the item, with dots for nested fields: `userId`, `event`, `timestamp`, `properties.revenue`,
    `traits.plan`. An empty cell is a missing value. Numbers and true/false in `properties`, `traits` and `context`
    become JSON numbers and booleans. A line without a `type` is a `track`.
    """
    cells = next(csv.reader([line]), [])
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
        found = json.loads(cell, parse_constant=_no_number)
    except ValueError:
        return cell
    return found if isinstance(found, int | float) and not isinstance(found, bool) else cell


def with_message_id(item: Item, line: bytes, offset_bytes: int) -> Item:
    """Return the item with a `messageId`, derived from the line and its offset, so that a repeated import is de-duplicated."""
    return item if item.get("messageId") else {**item, "messageId": deterministic_id("import", offset_bytes, line)}


def _no_number(name: str) -> float:
    raise ValueError(f"{name} is not a JSON number")


def _set_path(tree: Item, path: Sequence[str], value: Any) -> None:
    for key in path[:-1]:
        tree = tree.setdefault(key, {})
    tree[path[-1]] = value


def body_of(items: Sequence[Mapping[str, Any]]) -> bytes:
    """Return the body of one `/v1/import` call."""
    return json.dumps({"batch": list(items)}, separators=(",", ":"), ensure_ascii=False).encode()
