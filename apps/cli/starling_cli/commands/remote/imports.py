"""Edge: `import`: files and databases that the Spark job `imports` reads, and history files through the ingest API."""

import json
import shutil
import sys
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any, Final, Literal

import typer
from rich.console import Console
from rich.table import Table
from typer.core import TyperGroup

from starling_cli.api_client import ApiClient
from starling_cli.commands.common import REMOTE, DataDir, Remote, api_at, instance_at, print_line, print_table, remote_target
from starling_cli.commands.flow import parse_seconds
from starling_cli.commands.load import import_file
from starling_cli.imports import (
    columns_of,
    copied,
    database_of,
    default_key,
    differing_field,
    file_document,
    format_of,
    new_schedule,
    version_of,
)
from starling_local.errors import FAILED, NotPossible, UserError
from starling_local.stack.parts.services import imports_dir

_POLL_SECONDS: Final = 1.0
_ENDED: Final = frozenset({"done", "failed", "cancelled"})
_HISTORY: Final = "file"


class ImportGroup(TyperGroup):
    """`starling import FILE …` is `starling import file FILE …`, unless FILE is the name of a command."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """Parse the arguments of the group."""
        is_command = not args or args[0] in self.commands or args[0] in ctx.help_option_names
        return super().parse_args(ctx, args if is_command else [_HISTORY, *args])


imports_app = typer.Typer(
    cls=ImportGroup,
    no_args_is_help=True,
    help="Import files, databases and Iceberg tables. `run` and the commands beside it use the Spark job, on the local instance or "
    "the installation of --url or --context. `starling import FILE --format …` sends a history file to the ingest API of the "
    "local instance.",
)
imports_app.command(_HISTORY)(import_file)

Key = Annotated[str, typer.Argument(metavar="ID", help="Key of the import, as `run` and `list` print it.")]
Wait = Annotated[bool, typer.Option("--wait", help="Wait until the import has ended; exit 1 if it failed or rejected rows.")]
Timeout = Annotated[str | None, typer.Option("--timeout", help="With --wait: time to wait, such as 60s or 30m. Default: no limit.")]
AsJson = Annotated[bool, typer.Option("--json", help="Print JSON.")]
Source = Annotated[
    str,
    typer.Argument(
        metavar="FILE|URI", help="File or directory of this machine (local instance), or a URI: file://, s3a://, gs://."
    ),
]
Kind = Annotated[Literal["events", "traits", "accounts", "lists", "catalog"], typer.Option(help="What a row is.")]
UserColumn = Annotated[
    str | None, typer.Option(metavar="COLUMN", help="Column with the user id. Default: user_id; products have none.")
]
ProductColumn = Annotated[
    str | None, typer.Option(metavar="COLUMN", help="With catalog: column with the product id. Default: product_id.")
]
AccountColumn = Annotated[str | None, typer.Option(metavar="COLUMN", help="With accounts: column with the account id.")]
ListKey = Annotated[
    str | None, typer.Option("--list", metavar="KEY", help="With lists: key of the list to which the users are added.")
]
Event = Annotated[str | None, typer.Option(metavar="NAME", help="Name of all events.")]
EventColumn = Annotated[str | None, typer.Option(metavar="COLUMN", help="Column with the name of the event.")]
TimeColumn = Annotated[
    str | None, typer.Option(metavar="COLUMN", help="Column with the time, in ISO 8601. Default: the time of the import.")
]
IdColumn = Annotated[
    str | None, typer.Option(metavar="COLUMN", help="Column whose text identifies a row, so that it is imported once.")
]
Mappings = Annotated[
    list[str] | None,
    typer.Option(
        metavar="COLUMN=FIELD", help="properties.NAME, traits.NAME or product.NAME. Repeatable. Default: all, by their names."
    ),
]
Form = Annotated[Literal["csv", "parquet", "jsonl"] | None, typer.Option("--format", help="Default: by the ending of the file.")]
Delimiter = Annotated[str | None, typer.Option(metavar="CHARACTER", help="Delimiter of a CSV file. Default: a comma.")]
MaxRejects = Annotated[
    int | None, typer.Option(metavar="N", help="Rejected rows of a file above which it is stopped. Default: 10,000.")
]
NewKey = Annotated[
    str | None, typer.Option(metavar="ID", help="Key of the import. Default: the same for the same file and options.")
]
Description = Annotated[
    Path,
    typer.Argument(metavar="FILE", help="JSON file with the import, as the body of POST /v1/imports. - reads standard input."),
]
PasswordFile = Annotated[
    Path | None,
    typer.Option("--password-file", metavar="FILE", help="File with the password, without a line break at its end."),
]
AnyDeletions = Annotated[
    bool,
    typer.Option("--any-deletions", help="Let this run delete traits, members or products of any number of rows that are gone."),
]


@imports_app.command("run")
def run_import(  # noqa: PLR0913, PLR0917 - the command line: each option is an argument
    source: Source,
    kind: Kind = "events",
    user_column: UserColumn = None,
    product_column: ProductColumn = None,
    account_column: AccountColumn = None,
    list_key: ListKey = None,
    event: Event = None,
    event_column: EventColumn = None,
    time_column: TimeColumn = None,
    id_column: IdColumn = None,
    mapping: Mappings = None,
    form: Form = None,
    delimiter: Delimiter = None,
    max_rejects: MaxRejects = None,
    key: NewKey = None,
    wait: Wait = False,
    timeout: Timeout = None,
    data_dir: DataDir = None,
) -> None:
    """Import a file of events, traits, accounts, members of a list or products with the Spark job. Prints the id of the import."""
    read_as = format_of(source, form)
    subjects = {
        "user_column": user_column,
        "product_column": product_column,
        "account_column": account_column,
        "list_key": list_key,
    }
    events = {"event": event, "event_column": event_column, "time_column": time_column, "id_column": id_column}
    parsing = {"columns": columns_of(mapping or []), "delimiter": delimiter, "max_rejects": max_rejects}
    document = file_document({"kind": kind, "format": read_as, **subjects, **events, **parsing})
    seconds = _seconds(timeout, wait=wait)
    file = None if "://" in source else _local_file(source, data_dir)
    api = api_at(data_dir)
    name = key or default_key(str(file or source), document, "" if file is None else version_of(file))
    _create_file_import(api, name, document, file or source, data_dir)
    print_line(name)
    if wait:
        _wait(api, name, seconds, data_dir)


def _create_file_import(api: ApiClient, key: str, document: Mapping[str, Any], source: Path | str, data_dir: Path | None) -> None:
    """Create the import of a URI, or of a file of this machine, which is copied first. Raises: UserError."""
    if api.definition("/v1/imports", key) is not None:
        raise UserError(f"there is an import {key!r} already: see `starling import status {key}`, or give another --key")
    copy = _copies(data_dir) / key
    uri = source if isinstance(source, str) else copied(source, copy).as_uri()
    try:
        api.create("/v1/imports", {"key": key, "uri": uri, **document})
    except UserError:
        if isinstance(source, Path):
            shutil.rmtree(copy, ignore_errors=True)
        raise


@imports_app.command("database")
def import_database(
    description: Description,
    password: PasswordFile = None,
    any_deletions: AnyDeletions = False,
    wait: Wait = False,
    timeout: Timeout = None,
    data_dir: DataDir = None,
) -> None:
    """Import a table or a query of a database by JDBC, or an Iceberg table. The same command later imports what is new or changed
    since then, and sets the schedule that the file then has.

    The password of the first time is stored encrypted; a later one replaces it.
    """
    seconds = _seconds(timeout, wait=wait)
    text = sys.stdin.read() if str(description) == "-" else _text_of(description)
    secret = None if password is None else _text_of(password).rstrip("\r\n")
    document = database_of(text, str(description), secret)
    api, key = api_at(data_dir), document["key"]
    stored = api.definition("/v1/imports", key)
    if stored is None:
        api.create("/v1/imports", document)
    elif (differs := differing_field(document, stored)) is not None:
        raise UserError(f"the import {key!r} has another {differs}: give this one another key, which reads all rows again")
    else:
        if (schedule := new_schedule(document, stored)) is not None:
            api.schedule_import(key, schedule)
        api.repeat_import(key, document.get("jdbc", {}).get("password"), any_deletions=any_deletions)
    print_line(key)
    if wait:
        _wait(api, key, seconds, data_dir)


@imports_app.command("list")
def list_imports(data_dir: DataDir = None) -> None:
    """List every import with its state."""
    table = Table("id", "state", "kind", "created", "next run", "uri", "message", box=None, pad_edge=False)
    for one in api_at(data_dir).definitions("/v1/imports"):
        table.add_row(
            one["key"], one["state"], one["kind"], one["created_at"], one.get("next_run_at") or "", one["uri"], one["message"] or ""
        )
    print_table(table)


@imports_app.command("status")
def show_import(key: Key, wait: Wait = False, timeout: Timeout = None, as_json: AsJson = False, data_dir: DataDir = None) -> None:
    """Print the state and the progress of an import: the rows read, sent and rejected, by file."""
    seconds = _seconds(timeout, wait=wait)
    api = api_at(data_dir)
    if wait:
        _wait(api, key, seconds, data_dir)
        return
    found = _found(api, key, data_dir)
    if as_json:
        print_line(json.dumps(found, indent=2, ensure_ascii=False))
        return
    print_line(_summary(found))
    table = Table("file", "read", "sent", "rejected", "state", box=None, pad_edge=False)
    for one in found["files"]:
        state = one["message"] or ("complete" if one["complete"] else "")
        table.add_row(one["file"], f"{one['rows_done']:,}", f"{one['accepted']:,}", f"{one['rejected']:,}", state)
    if found["files"]:
        print_table(table)


@imports_app.command("rejects")
def list_rejects(key: Key, as_json: AsJson = False, data_dir: DataDir = None) -> None:
    """Print the rows that were not imported, with the reason and the cure. With --json, an object a line."""
    found = api_at(data_dir).import_rejects(key)
    if as_json:
        for one in found:
            print_line(json.dumps(one, ensure_ascii=False))
        return
    table = Table("file", "row", "column", "code", "reason", "cure", box=None, pad_edge=False)
    for one in found:
        table.add_row(one["file"], str(one["row"]), one["column"] or "", one["code"], one["reason"], one["cure"])
    print_table(table)


@imports_app.command("cancel")
def cancel_import(key: Key, data_dir: DataDir = None) -> None:
    """Cancel an import: no further batch is sent. Rows that were sent stay. A schedule rests until the import is run again."""
    api_at(data_dir).cancel_import(key)
    print_line(_summary(_found(api_at(data_dir), key, data_dir)))


def _text_of(file: Path) -> str:
    """Return the text of a file. Raises: NotPossible."""
    try:
        return file.read_text()
    except (OSError, UnicodeDecodeError) as error:
        raise NotPossible(f"{file}: cannot be read: {error}") from error


def _local_file(source: str, data_dir: Path | None) -> Path:
    """Return the absolute path of a file or directory. Raises: NotPossible."""
    if remote_target(REMOTE.get() or Remote(), data_dir) is not None:
        raise NotPossible(
            f"{source} is on this machine, and the installation reads it from a URI, such as s3a://bucket/path: give one"
        )
    file = Path(source).absolute()
    if not file.exists():
        raise NotPossible(f"{source}: there is no such file or directory")
    return file


def _copies(data_dir: Path | None) -> Path:
    return imports_dir(instance_at(data_dir).data_dir)


def _seconds(timeout: str | None, *, wait: bool) -> float | None:
    if timeout is not None and not wait:
        raise NotPossible("--timeout is for --wait: give both")
    return None if timeout is None else parse_seconds(timeout)


def _found(api: ApiClient, key: str, data_dir: Path | None) -> Mapping[str, Any]:
    """Return an import. The copy of its file is deleted once it has ended. Raises: UserError."""
    found = api.definition("/v1/imports", key)
    if found is None:
        raise UserError(f"there is no import {key!r}: see `starling import list`")
    is_local = remote_target(REMOTE.get() or Remote(), data_dir) is None
    if is_local and found["state"] in _ENDED and found["uri"].startswith(f"{(_copies(data_dir) / key).as_uri()}/"):
        shutil.rmtree(_copies(data_dir) / key, ignore_errors=True)
    return found


def _wait(api: ApiClient, key: str, seconds: float | None, data_dir: Path | None) -> None:
    """Wait until the import has ended, and print its result. Raises: UserError at the time-out, typer.Exit if rows are missing."""
    deadline = None if seconds is None else time.monotonic() + seconds
    with Console(stderr=True).status(key) as shown:
        while (found := _found(api, key, data_dir))["state"] not in _ENDED:
            if deadline is not None and time.monotonic() >= deadline:
                raise UserError(f"{_summary(found)}: it goes on; see `starling import status {key}`")
            shown.update(_summary(found))
            time.sleep(_POLL_SECONDS)
    print_line(_summary(found))
    if found["rejected"]:
        print_line(f"see `starling import rejects {key}`")
    if found["state"] != "done" or found["rejected"]:
        raise typer.Exit(FAILED)


def _summary(found: Mapping[str, Any]) -> str:
    counts = f"rows read {found['rows_done']:,}, sent {found['accepted']:,}, rejected {found['rejected']:,}"
    if found.get("format") in {"jdbc", "iceberg"}:
        counts += f", unchanged {found['rows_done'] - found['accepted'] - found['rejected']:,}"
    if found.get("next_run_at") is not None:
        counts += f", next run {found['next_run_at']}"
    message = f": {found['message']}" if found["message"] else ""
    return f"{found['key']} is {found['state']}, {counts}{message}"
