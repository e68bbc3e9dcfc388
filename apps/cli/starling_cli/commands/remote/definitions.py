"""Edge: `definitions`: the definitions of an installation in a file."""

from collections.abc import Iterator
from pathlib import Path
from typing import Annotated, Any, Final

import typer
from rich.table import Table

from starling_cli.api_client import ApiClient, ApiRefused
from starling_cli.commands.common import DataDir, api_at, print_error, print_line, print_table
from starling_cli.commands.remote.output import read_bytes
from starling_cli.definitions import (
    CAMPAIGN,
    KINDS,
    SEGMENT,
    WEBHOOK,
    Definition,
    Kind,
    exported,
    file_of,
    is_halted,
    lines,
    missing_secrets,
    needs_new,
    ordered,
    portable,
    read_files,
    read_lines,
    read_secrets,
    with_secrets,
)
from starling_local.errors import NotPossible, UserError

definitions_app = typer.Typer(
    no_args_is_help=True,
    help="Export, plan and apply segments, computed traits, views in SQL, event types, lists, webhooks, targets, campaigns "
    "and the policy of the local instance, or of the installation of --url or --context.",
)

File = Annotated[
    Path,
    typer.Argument(
        metavar="FILE|DIRECTORY",
        help="Path of the file; - reads standard input. Of a directory: every .jsonl, and every .json with one definition.",
    ),
]
Secrets = Annotated[
    Path | None,
    typer.Option(
        "--secrets",
        metavar="FILE",
        help='JSON file with the secrets that an export leaves out: {"target KEY": {"/password": "…"}}. - reads standard input.',
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

    Members of lists and secrets are not contained: the places of those that `apply` needs are listed on standard error.
    """
    api = api_at(data_dir)
    found = ordered(exported(kind, document) for kind in KINDS for document in _stored(api, kind))
    for one in found:
        for pointer in missing_secrets(one):
            print_error(f"a secret is left out: {one.title}, {pointer}")
    if to is None:
        for line in lines(found):
            print_line(line)
        return
    for name, text in map(file_of, found):
        (to / name).parent.mkdir(parents=True, exist_ok=True)
        (to / name).write_text(text)
    print_line(f"{len(found)} definitions are in {to}")


@definitions_app.command("plan")
def plan_definitions(file: File, secrets: Secrets = None, data_dir: DataDir = None) -> None:
    """Print what `apply` would change, with the people who would enter and leave each segment. Changes nothing."""
    api, definitions = api_at(data_dir), _read(file, secrets)
    table = Table("definition", "change", "enter", "leave", box=None, pad_edge=False)
    new: set[str] = set()
    refused = []
    for one in definitions:
        try:
            current = _current(api, one)
            if current is None:
                new.add(one.key)
            change, enter, leave = _planned(api, one, current, new)
        except ApiRefused as cause:
            refused.append(f"{one.title}: {cause}")
            change, enter, leave = "refused", "", ""
        table.add_row(one.title, change, enter, leave)
    print_table(table)
    _fail(refused, len(definitions))


@definitions_app.command("apply")
def apply_definitions(file: File, secrets: Secrets = None, data_dir: DataDir = None) -> None:
    """Create or change the definitions of a file. Others stay as they are. A repetition changes nothing.

    A secret that the file does not have stays as it is. A new target with such a secret is refused, and so are its campaigns. A new
    campaign is a draft: no message is sent before `starling campaigns activate`.
    """
    api, definitions = api_at(data_dir), _read(file, secrets)
    refused = []
    for one in definitions:
        try:
            print_line(f"{one.title}: {_applied(api, one)}")
        except ApiRefused as cause:
            refused.append(f"{one.title}: {cause}")
            print_line(f"{one.title}: refused")
    _fail(refused, len(definitions))


def _read(file: Path, secrets: Path | None) -> list[Definition]:
    given = {} if secrets is None else read_secrets(_text(secrets))
    if file.is_dir():
        paths = sorted(path for path in file.rglob("*") if path.suffix in {".json", ".jsonl"} and path.is_file())
        found = read_files((str(path), _text(path)) for path in paths)
    else:
        found = read_lines(_text(file))
    unused = given.keys() - {one.title for one in found}
    if unused:
        raise NotPossible(f"the secrets name {min(unused)!r}, which is not among the definitions")
    return [with_secrets(one, given) for one in found]


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
        planned = _put(api, one, dry_run=True)
    except ApiRefused as cause:
        if current is None and needs_new(cause.errors, new):
            return "new, uses new definitions", _UNKNOWN if one.kind is SEGMENT else "", ""
        raise
    if current is None:
        return "new", *_entering(api, one)
    _, status = _status_change(one, current) or ("", "")
    if portable(planned) == portable(current):
        return status or "unchanged", "", ""
    change = f"changed, {status}" if status else "changed"
    if one.kind is not SEGMENT or planned.get("where") == current.get("where"):
        return change, "", ""
    try:
        found = api.diff(one.key, one.document)
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
    current = _current(api, one)
    made = current
    # A change enables a disabled target: an equal document must not be one.
    if current is None or not is_halted(one.kind, current) or portable(_put(api, one, dry_run=True)) != portable(current):
        made = _put(api, one)
    changes = list(_changes(api, one, current, made))
    return ", ".join(changes) or "unchanged"


def _stored(api: ApiClient, kind: Kind) -> Iterator[Any]:
    """Yield the documents of a kind that are not archived."""
    if not kind.single:
        yield from api.definitions(kind.path)
    elif (found := api.definition(kind.path, None)) is not None:
        yield found


def _current(api: ApiClient, one: Definition) -> Any:
    """Return the stored document with the key of the definition; None if there is none."""
    return api.definition(one.kind.path, None if one.kind.single else one.key)


def _put(api: ApiClient, one: Definition, *, dry_run: bool = False) -> Any:
    return api.put(one.kind.path, one.document, put_creates=one.kind.put_creates, single=one.kind.single, dry_run=dry_run)


def _changes(api: ApiClient, one: Definition, current: Any, made: Any) -> Iterator[str]:
    if current is None:
        yield _created(one)
    elif portable(made) != portable(current):
        yield f"changed, version {made['version']}"
    status = _status_change(one, made)
    if status is not None:
        action, what = status
        api.act(one.kind.path.removeprefix("/v1/"), one.key, action)
        yield what


def _created(one: Definition) -> str:
    if one.kind is WEBHOOK:
        return "created, with a new secret: `GET` does not show it, rotate it to get one"
    return f"created as a draft: `starling campaigns activate {one.key}` starts it" if one.kind is CAMPAIGN else "created"


def _status_change(one: Definition, current: Any) -> tuple[str, str] | None:
    """Return the action for a definition whose status differs from that of the file, and what it makes of it, such as `paused`."""
    halt = one.kind.halt
    if halt is None or one.halted == is_halted(one.kind, current):
        return None
    return (halt.action, halt.status) if one.halted else (halt.undo, halt.undone)
