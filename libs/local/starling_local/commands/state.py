"""Edge: `state`: one user's state in every tier, whether the tiers agree, and a partition built anew."""

import os
import subprocess
import sys
from pathlib import Path
from typing import Annotated, Final

import typer

from starling_local.commands.common import DataDir, instance_at, running_options
from starling_local.errors import NotPossible
from starling_local.stack.services import shared_env

state_app = typer.Typer(no_args_is_help=True, help="States of the normalizer and the segmenter: disk, Cassandra, changelog.")

STAGES: Final = ("normalizer", "segmenter")

Stage = Annotated[str, typer.Option("--stage", help=f"One of {', '.join(STAGES)}.")]


@state_app.command("inspect")
def inspect_user(
    user: Annotated[str, typer.Argument(metavar="USER", help="A user id, or workspace/id.")],
    stage: Stage = "segmenter",
    data_dir: DataDir = None,
) -> None:
    """One user's state in every tier, as JSON: version, due, and what it holds."""
    _operate(data_dir, stage, "inspect", user)


@state_app.command("verify")
def verify_tiers(
    stage: Stage = "segmenter",
    partition: Annotated[int | None, typer.Option("--partition", min=0, help="Only this one.")] = None,
    data_dir: DataDir = None,
) -> None:
    """Compare the tiers with the changelog, which is the truth; exit 1 if one holds what it must not, or lacks what it must."""
    _operate(data_dir, stage, "verify", *(() if partition is None else ("--partition", str(partition))))


@state_app.command("rebuild")
def rebuild_partition(
    partition: Annotated[str, typer.Argument(metavar="PARTITION", help="A number, or `all`.")],
    stage: Stage = "segmenter",
    data_dir: DataDir = None,
) -> None:
    """Throw away what disk and Cassandra hold of a partition; its worker starts anew and rebuilds both from the changelog."""
    if partition != "all" and not partition.isdigit():
        raise NotPossible(f"{partition} is no partition: a number, or `all`")
    _operate(data_dir, stage, "rebuild", partition)


def _operate(data_dir: Path | None, stage: str, *words: str) -> None:
    """The stream layer's own operations, in a process of their own: this command knows the stack, not what runs on it."""
    if stage not in STAGES:
        raise NotPossible(f"{stage} keeps no states; there are {', '.join(STAGES)}")
    instance = instance_at(data_dir)
    options = running_options(instance)
    workers = [instance.data_dir / "state" / f"{stage}-{number}" for number in range(options.workers(stage))]
    disks = [word for path in workers if path.is_dir() for word in ("--disk", str(path))]
    command = [sys.executable, "-m", "starling_stream.inspect.operations", "--stage", stage, *disks, *words]
    environment = {**os.environ, **shared_env(options.ports, options.clock)}
    code = subprocess.run(command, env=environment, check=False).returncode
    if code:
        raise typer.Exit(code)
