"""Edge: how the commands of the API print their answers."""

import json
import sys
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any, Final

import typer
from rich.table import Table

from starling_cli.commands.common import print_line, print_table
from starling_local.errors import NotPossible

AsJson = Annotated[bool, typer.Option("--json", help="Print a JSON object a line.")]

STANDARD_INPUT: Final = "-"
"""Stands for a file. The library's own check of paths refuses it."""


def read_bytes(file: Path) -> bytes:
    """Return what the file or standard input contains. Raises: NotPossible if it cannot be read."""
    if str(file) == STANDARD_INPUT:
        return sys.stdin.buffer.read()
    try:
        return file.read_bytes()
    except OSError as error:
        raise NotPossible(f"{file} cannot be read: {error.strerror}") from error


def print_document(document: object) -> None:
    """Print one JSON document on several lines."""
    print_line(json.dumps(document, indent=2, ensure_ascii=False))


def print_items(items: Iterable[Mapping[str, Any]], columns: Sequence[str], *, as_json: bool) -> None:
    """Print the fields of each item in a row of a table, or each item as a line of JSON. A missing field is empty."""
    if as_json:
        for item in items:
            print_line(json.dumps(item, ensure_ascii=False))
        return
    table = Table(*(column.replace("_", " ") for column in columns), box=None, pad_edge=False)
    for item in items:
        table.add_row(*(_text(item.get(column)) for column in columns))
    print_table(table)


def _text(value: object) -> str:
    if value is None:
        return ""
    return ", ".join(map(str, value)) if isinstance(value, list) else str(value)
