"""Edge: `new`: writes what an extension of Starling begins with into a checkout."""

from pathlib import Path
from typing import Annotated

import typer

from starling_cli.commands.common import print_line
from starling_cli.scaffold import checkout_of, new_channel

new_app = typer.Typer(no_args_is_help=True, help="Begin an extension in a checkout.")

Name = Annotated[str, typer.Argument(metavar="NAME", help="The name of the channel, such as ntfy.")]
Into = Annotated[Path | None, typer.Option("--into", help="A directory of the checkout. Default: the current one.")]


@new_app.command("channel")
def channel(name: Name, into: Into = None) -> None:
    """Write a channel of campaigns: its class, topic, settings, fields of targets, and a test that passes."""
    root = checkout_of((into or Path.cwd()).resolve())
    files = new_channel(root, name)
    for path, text in files.items():
        path.write_text(text)
        print_line(str(path.relative_to(root)))
    print_line("")
    print_line(f"Test it: python -m pytest tests/contract/delivery/test_{name}_channel.py")
    print_line("Then: make settings-reference chart-schema, and docs/how-to/channel-author.md")
