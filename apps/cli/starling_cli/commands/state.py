"""Edge: `state`: inspects a user's state in every store, compares the stores, rebuilds a partition."""

import os
import subprocess
import sys
from pathlib import Path
from typing import Annotated, Final

import typer

from starling_cli.commands.common import DataDir, instance_at, running_options
from starling_local.errors import NotPossible
from starling_local.stack.parts.services import shared_env

state_app = typer.Typer(no_args_is_help=True, help="Inspect, verify and rebuild the state stores: disk, Cassandra and changelog.")

STAGES: Final = ("normalizer", "segmenter")

Stage = Annotated[str, typer.Option("--stage", help=f"One of {', '.join(STAGES)}.")]


@state_app.command("inspect")
def inspect_user(
    user: Annotated[str, typer.Argument(metavar="USER", help="A user id, or workspace/id.")],
    stage: Stage = "segmenter",
    data_dir: DataDir = None,
) -> None:
    """Print the state of a user in every store as JSON: version, next timer and content."""
    _operate_states(data_dir, stage, "inspect", user)


@state_app.command("verify")
def verify_stores(
    stage: Stage = "segmenter",
    partition: Annotated[int | None, typer.Option("--partition", min=0, help="Verify only this partition.")] = None,
    data_dir: DataDir = None,
) -> None:
    """Compare disk and Cassandra with the changelog; exit 1 if an entry is missing, differs or should not exist."""
    _operate_states(data_dir, stage, "verify", *(() if partition is None else ("--partition", str(partition))))


@state_app.command("rebuild")
def rebuild_partition(
    partition: Annotated[str, typer.Argument(metavar="PARTITION", help="A number, or `all`.")],
    stage: Stage = "segmenter",
    data_dir: DataDir = None,
) -> None:
    """Delete a partition on disk and in Cassandra; its worker restarts and rebuilds both from the changelog."""
    if partition != "all" and not partition.isdigit():
        raise NotPossible(f"{partition} is not a partition: write a number, or `all`")
    _operate_states(data_dir, stage, "rebuild", partition)


def _operate_states(data_dir: Path | None, stage: str, *arguments: str) -> None:
    if stage not in STAGES:
        raise NotPossible(f"the stage {stage} has no state; the stages with state are {', '.join(STAGES)}")
    operate(data_dir, stage, *arguments)


def operate(data_dir: Path | None, stage: str, *arguments: str) -> None:
    """Run an operation of the stream layer in a separate process, because this package must not import that layer."""
    instance = instance_at(data_dir)
    options = running_options(instance)
    workers = [instance.data_dir / "state" / f"{stage}-{number}" for number in range(options.workers(stage))]
    disks = [word for path in workers if path.is_dir() for word in ("--disk", str(path))]
    command = [sys.executable, "-m", "starling_stream.inspect.operations", "--stage", stage, *disks, *arguments]
    environment = {**os.environ, **shared_env(options)}
    code = subprocess.run(command, env=environment, check=False).returncode
    if code:
        raise typer.Exit(code)
