"""Edge: `context`: the installations that this user works with."""

import os
import sys
from typing import Annotated

import typer
from rich.table import Table

from starling_cli.commands.common import REMOTE_TOKEN, print_line, print_table
from starling_cli.contexts import Contexts, Target, checked_url, contexts_file, read_contexts, write_contexts
from starling_local.errors import NotPossible

context_app = typer.Typer(
    no_args_is_help=True,
    help="Name installations, and choose the one with which `segments`, `definitions` and the other commands of the API work.",
)

Name = Annotated[str, typer.Argument(metavar="NAME", help="Name of the context.")]


@context_app.command("add")
def add_context(
    name: Name,
    url: Annotated[str, typer.Option("--url", metavar="URL", help="Address of the API, such as https://starling.example.com.")],
    token: Annotated[
        str | None,
        typer.Option("--token", metavar="TOKEN", help=f"Token of the API. Default: ${REMOTE_TOKEN}, else it is asked for."),
    ] = None,
) -> None:
    """Add or replace a context. The file with the tokens is readable by this user alone."""
    secret = token or os.environ.get(REMOTE_TOKEN) or _asked()
    _change(read_contexts(contexts_file()).added(name, Target(checked_url(url), secret)))
    print_line(f"added {name}: use it by `starling context use {name}`, or once by --context {name}")


@context_app.command("use")
def use_context(
    name: Annotated[str | None, typer.Argument(metavar="[NAME]", help="Name of the context; none: the local instance.")] = None,
) -> None:
    """Choose the installation of the following commands."""
    _change(read_contexts(contexts_file()).using(name))
    print_line("using the local instance" if name is None else f"using {name}")


@context_app.command("list")
def list_contexts() -> None:
    """List the contexts. The one in use has a star."""
    known = read_contexts(contexts_file())
    table = Table("", "name", "url", box=None, pad_edge=False)
    for name in sorted(known.targets):
        table.add_row("*" if name == known.current else "", name, known.targets[name].url)
    print_table(table)


@context_app.command("remove")
def remove_context(name: Name) -> None:
    """Remove a context and its token."""
    _change(read_contexts(contexts_file()).removed(name))
    print_line(f"removed {name}")


def _change(contexts: Contexts) -> None:
    write_contexts(contexts_file(), contexts)


def _asked() -> str:
    """Return the token that the user types, or the first line of a pipe. Raises: NotPossible if it is empty."""
    found: str = typer.prompt("token", hide_input=True) if sys.stdin.isatty() else sys.stdin.readline().strip()
    if not found:
        raise NotPossible(f"the token is missing: give --token, set {REMOTE_TOKEN}, or pipe it to standard input")
    return found
