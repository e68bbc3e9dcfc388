"""Edge: `starling demo`, which the command finds through its entry point in `pyproject.toml`.

The other modules of the demo are imported only when the command runs, because they load pandas.
"""

import importlib

import typer

from starling_cli.commands.common import DataDir, instance_at


def demo(data_dir: DataDir = None) -> None:
    """Run the demo: send real purchases, and compare the memberships with a pandas computation; exit 0 if all are equal."""
    code: int = importlib.import_module("starling_demo.run").run(instance_at(data_dir))
    raise typer.Exit(code)
