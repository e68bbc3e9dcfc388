"""Edge: `definitions`: the definitions of an installation in a file."""

from collections.abc import Iterator
from pathlib import Path
from typing import Annotated, Any, Final

import typer
from rich.table import Table

from starling_cli.api_client import ApiClient, ApiRefused
from starling_cli.commands.common import DataDir, api_at, print_line, print_table
from starling_cli.commands.remote.output import read_bytes
from starling_cli.definitions import (
    KINDS,
    SEGMENT,
    WEBHOOK,
    Definition,
    exported,
    file_of,
    lines,
    needs_new,
    ordered,
    portable,
    read_files,
    read_lines,
)
from starling_local.errors import NotPossible, UserError

definitions_app = typer.Typer(
    no_args_is_help=True,
    help="Export, plan and apply segments, computed traits, views in SQL, event types, lists and webhooks of the local instance, "
    "or of the installation of --url or --context.",
)

File = Annotated[
    Path,
    typer.Argument(
        metavar="FILE|DIRECTORY",
        help="Path of the file; - reads standard input. Of a directory: every .jsonl, and every .json with one definition.",
    ),
]
_UNKNOWN: Final = "?"


@definitions_app.command("export")
def export_definitions(
    to: Annotated[
        Path | None,
        typer.Option(
            "--to", file_okay=False, metavar="DIRECTORY", help="Write KIND/KEY.json below it instead. Other files stay as they are."
        ),
    ] = None,
    data_dir: DataDir = None,
) -> None:
    """Print every definition that is not archived, one line of JSON each.

    Members of lists, secrets of webhooks and values of their headers are not contained.
    """
    api = api_at(data_dir)
    found = ordered(exported(kind, document) for kind in KINDS for document in api.definitions(kind.path))
    if to is None:
        for line in lines(found):
            print_line(line)
        return
    for name, text in map(file_of, found):
        (to / name).parent.mkdir(parents=True, exist_ok=True)
        (to / name).write_text(text)
    print_line(f"{len(found)} definitions are in {to}")


@definitions_app.command("plan")
def plan_definitions(file: File, data_dir: DataDir = None) -> None:
    """Print what `apply` would change, with the people who would enter and leave each segment. Changes nothing."""
    api, definitions = api_at(data_dir), _read(file)
    table = Table("definition", "change", "enter", "leave", box=None, pad_edge=False)
    new: set[str] = set()
    refused = []
    for one in definitions:
        try:
            current = api.definition(one.kind.path, str(one.document["key"]))
            if current is None:
                new.add(str(one.document["key"]))
            change, enter, leave = _planned(api, one, current, new)
        except ApiRefused as cause:
            refused.append(f"{one.title}: {cause}")
            change, enter, leave = "refused", "", ""
        table.add_row(one.title, change, enter, leave)
    print_table(table)
    _fail(refused, len(definitions))


@definitions_app.command("apply")
def apply_definitions(file: File, data_dir: DataDir = None) -> None:
    """Create or change the definitions of a file. Others stay as they are. A repetition changes nothing."""
    api, definitions = api_at(data_dir), _read(file)
    refused = []
    for one in definitions:
        try:
            print_line(f"{one.title}: {_applied(api, one)}")
        except ApiRefused as cause:
            refused.append(f"{one.title}: {cause}")
            print_line(f"{one.title}: refused")
    _fail(refused, len(definitions))


def _read(file: Path) -> list[Definition]:
    if file.is_dir():
        paths = sorted(path for path in file.rglob("*") if path.suffix in {".json", ".jsonl"} and path.is_file())
        return read_files((str(path), _text(path)) for path in paths)
    return read_lines(_text(file))


def _text(file: Path) -> str:
    try:
        return read_bytes(file).decode()
    except ValueError as error:
        raise NotPossible(f"{file} is not UTF-8: {error}") from error


def _fail(refused: list[str], count: int) -> None:
    """Raise UserError with every refusal, if there is one."""
    if refused:
        raise UserError("\n".join([f"{len(refused)} of {count} definitions were refused", *refused]))


def _planned(api: ApiClient, one: Definition, current: Any, new: set[str]) -> tuple[str, str, str]:
    """Return the change, and the numbers of people who enter and leave. Raises: ApiRefused."""
    try:
        planned = api.put(one.kind.path, one.document, put_creates=one.kind.put_creates, dry_run=True)
    except ApiRefused as cause:
        if current is None and needs_new(cause.errors, new):
            return "new, uses new definitions", _UNKNOWN if one.kind is SEGMENT else "", ""
        raise
    if current is None:
        return "new", *_entering(api, one)
    status = _status_change(one, current)
    if portable(planned) == portable(current):
        return status or "unchanged", "", ""
    change = "changed" if status is None else f"changed, {status}"
    if one.kind is not SEGMENT or planned.get("where") == current.get("where"):
        return change, "", ""
    try:
        found = api.diff(str(one.document["key"]), one.document)
    except ApiRefused:  # the definition is valid, and its people cannot be counted now
        return change, _UNKNOWN, _UNKNOWN
    return change, _estimate(found["enter"]), _estimate(found["leave"])


def _entering(api: ApiClient, one: Definition) -> tuple[str, str]:
    if one.kind is not SEGMENT:
        return "", ""
    try:
        return _estimate(api.preview(one.document)), ""
    except ApiRefused:
        return _UNKNOWN, ""


def _estimate(found: Any) -> str:
    exact = found["low"] == found["high"]
    return f"{found['estimate']:,}" if exact else f"{found['estimate']:,} ({found['low']:,} to {found['high']:,})"


def _applied(api: ApiClient, one: Definition) -> str:
    current = api.definition(one.kind.path, str(one.document["key"]))
    made = api.put(one.kind.path, one.document, put_creates=one.kind.put_creates)
    changes = list(_changes(api, one, current, made))
    return ", ".join(changes) or "unchanged"


def _changes(api: ApiClient, one: Definition, current: Any, made: Any) -> Iterator[str]:
    if current is None:
        yield "created, with a new secret: `GET` does not show it, rotate it to get one" if one.kind is WEBHOOK else "created"
    elif portable(made) != portable(current):
        yield f"changed, version {made['version']}"
    status = _status_change(one, made)
    if status is not None:
        api.change_status(str(one.document["key"]), "pause" if one.paused else "resume")
        yield status


def _status_change(one: Definition, current: Any) -> str | None:
    """Return `paused` or `resumed` if the segment's status differs from that of the file."""
    if one.kind is not SEGMENT or one.paused == (current.get("status") == "paused"):
        return None
    return "paused" if one.paused else "resumed"
