"""Pure core: lines of a history file → items of the ingest API. Nothing is sent here."""

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
_TREES = ("properties", "traits", "context", "integrations")
_WORDS = {"true": True, "false": False}


def item_of_json(line: str) -> Done[Item] | Refused:
    """One line of `segment-jsonl`: an item as the tracking API takes it."""
    try:
        found = json.loads(line, parse_constant=_no_number)
    except ValueError as error:
        return Refused("not_json", f"not JSON: {error}")
    return Done(found) if isinstance(found, dict) else Refused("not_an_object", "not a JSON object")


def item_of_row(header: Sequence[str], line: str) -> Done[Item] | Refused:
    """One line of `csv`, under its header.

    Columns are the fields of an item, with dots for what is inside: `userId`, `event`, `timestamp`,
    `properties.revenue`, `traits.plan`. An empty cell is a missing value; in `properties`, `traits` and
    `context` numbers and true/false become JSON ones; without a `type` column every line is a `track`.
    """
    cells = next(csv.reader([line]), [])
    if len(cells) != len(header):
        return Refused("wrong_columns", f"{len(cells)} cells under {len(header)} columns")
    item: Item = {"type": "track"}
    for column, cell in zip(header, cells, strict=True):
        if cell != "":
            _place(item, column.split("."), cell if column in _TEXT_COLUMNS else value_of_cell(cell))
    return Done(item)


def header_faults(header: Sequence[str]) -> list[str]:
    """What is wrong with a CSV header; empty means usable."""
    unknown = [column for column in header if column not in _TEXT_COLUMNS and column.split(".")[0] not in _TREES]
    bare = [column for column in header if column in _TREES]
    faults = [f"unknown column {column!r}" for column in unknown]
    faults += [f"column {column!r} needs a path, such as {column}.colour" for column in bare]
    faults += [
        f"column {one!r} is a value and holds {other!r}" for one in header for other in header if other.startswith(f"{one}.")
    ]
    faults += [f"column {column!r} is there twice" for column in sorted(set(header)) if header.count(column) > 1]
    if not {"userId", "anonymousId"} & set(header):
        faults.append("a column userId or anonymousId is needed")
    return faults


def value_of_cell(cell: str) -> str | int | float | bool:
    """Numbers and true/false as JSON writes them; anything else stays text (`007` and `1e5x` do)."""
    if cell in _WORDS:
        return _WORDS[cell]
    try:
        found = json.loads(cell, parse_constant=_no_number)
    except ValueError:
        return cell
    return found if isinstance(found, int | float) and not isinstance(found, bool) else cell


def with_message_id(item: Item, line: bytes, offset_bytes: int) -> Item:
    """The same item with a `messageId`: made from the line and its place, so that sending it again is no second event."""
    return item if item.get("messageId") else {**item, "messageId": deterministic_id("import", offset_bytes, line)}


def _no_number(name: str) -> float:
    raise ValueError(f"{name} is no JSON number")


def _place(tree: Item, path: Sequence[str], value: Any) -> None:
    for key in path[:-1]:
        tree = tree.setdefault(key, {})
    tree[path[-1]] = value


def body_of(items: Sequence[Mapping[str, Any]]) -> bytes:
    """The body of one `/v1/import` call."""
    return json.dumps({"batch": list(items)}, separators=(",", ":"), ensure_ascii=False).encode()
