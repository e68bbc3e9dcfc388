"""Edge: `event-types`: declared properties of events on the command line."""

import json
from pathlib import Path
from typing import Annotated, Final

import typer
from rich.table import Table

from starling_cli.commands.common import DataDir, api_at, print_line, print_table
from starling_cli.definitions import documents_in
from starling_local.errors import UserError

event_types_app = typer.Typer(
    no_args_is_help=True,
    help="Declare the properties of events for SQL, in the local instance, or in the installation of --url or --context.",
)

_PATH: Final = "/v1/event-types"


@event_types_app.command("list")
def list_event_types(data_dir: DataDir = None) -> None:
    """List every event type with its version, the state of its checks, its event and its number of properties."""
    table = Table("key", "version", "status", "event", "properties", box=None, pad_edge=False)
    for one in api_at(data_dir).definitions(_PATH):
        properties = [each for each in one["properties"] if not each.get("archived")]
        table.add_row(one["key"], str(one["version"]), one["status"], one["event"], str(len(properties)))
    print_table(table)


@event_types_app.command("show")
def show_event_type(
    key: Annotated[str, typer.Argument(metavar="KEY", help="Key of the event type.")], data_dir: DataDir = None
) -> None:
    """Print an event type as JSON, with the outcome of its checks, and what reads its table."""
    found = api_at(data_dir).definition(_PATH, key)
    if found is None:
        raise UserError(f"there is no event type {key!r}: see `starling event-types list`")
    print_line(json.dumps(found, indent=2, ensure_ascii=False))


@event_types_app.command("apply")
def apply_event_types(
    file: Annotated[Path, typer.Argument(exists=True, dir_okay=False, metavar="FILE", help="Path of the JSON file.")],
    data_dir: DataDir = None,
) -> None:
    """Create or change the event types of a JSON file (one or a list). A repetition changes nothing."""
    api = api_at(data_dir)
    for document in documents_in(file.read_bytes(), "an event type", "event types"):
        made = api.put(_PATH, document)
        print_line(f"{made['key']} is at version {made['version']}; its table in SQL is event_{made['key']}")
