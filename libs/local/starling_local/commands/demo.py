"""Edge: `demo`; what it does lives in `starling_local.demo`, which is imported only when it is asked for."""

import importlib

import typer

from starling_local.commands.common import DataDir, instance_at


def demo(data_dir: DataDir = None) -> None:
    """The main job on real data: purchases in, people entering and leaving segments out."""
    code: int = importlib.import_module("starling_local.demo").run(instance_at(data_dir))
    raise typer.Exit(code)
