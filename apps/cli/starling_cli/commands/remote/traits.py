"""Edge: `traits`: computed traits on the command line."""

import json
from typing import Annotated

import typer
from rich.table import Table

from starling_cli.commands.common import DataDir, api_at, print_line, print_table
from starling_local.errors import UserError

traits_app = typer.Typer(
    no_args_is_help=True,
    help="Inspect computed traits of the local instance, or of the installation of --url or --context.",
)

_PATH = "/v1/computed-traits"


@traits_app.command("list")
def list_traits(data_dir: DataDir = None) -> None:
    """List every computed trait with its version and status; `bootstrapping` until its values are published over all history."""
    table = Table("key", "version", "status", "name", box=None, pad_edge=False)
    for trait in api_at(data_dir).definitions(_PATH):
        table.add_row(trait["key"], str(trait["version"]), trait["status"], trait["name"])
    print_table(table)


@traits_app.command("show")
def show_trait(
    key: Annotated[str, typer.Argument(metavar="KEY", help="Key of the computed trait.")], data_dir: DataDir = None
) -> None:
    """Print a computed trait as JSON, with its status, and its progress while it is bootstrapping."""
    found = api_at(data_dir).definition(_PATH, key)
    if found is None:
        raise UserError(f"there is no computed trait {key!r}: see `starling traits list`")
    print_line(json.dumps(found, indent=2, ensure_ascii=False))
