"""Edge: `demo`. Imports `starling_local.demo` only when the command runs, because it loads pandas."""

import importlib

import typer

from starling_local.commands.common import DataDir, instance_at


def demo(data_dir: DataDir = None) -> None:
    """Run the demo: send real purchases, and compare the memberships with a pandas computation; exit 0 if all are equal."""
    code: int = importlib.import_module("starling_local.demo").run(instance_at(data_dir))
    raise typer.Exit(code)
