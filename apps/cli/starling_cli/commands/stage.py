"""Edge: `stage`: continues a stage whose start was refused because its offsets do not fit its states or topics."""

import os
import subprocess
import sys
from pathlib import Path
from typing import Annotated, Final

import typer

from starling_cli.commands.common import DataDir, instance_at, running_options
from starling_cli.commands.state import operate
from starling_common.kafka.topics import REPEATABLE_STAGES, load_catalogue
from starling_local.errors import NotPossible
from starling_local.stack.jobs import environment_of_job

stage_app = typer.Typer(
    no_args_is_help=True, help="Continue a stage that refuses to start: its offsets do not fit its states, or its input expired."
)

_SPARK: Final = {"profiles": "spark", "lake": "lake", "views": "views"}
"""Stages whose offsets are in Spark's checkpoints -> the part of the local stack."""

Stage = Annotated[str, typer.Argument(metavar="STAGE", help="A stage of `starling status`, such as segmenter.")]


@stage_app.command("resume")
def resume(stage: Stage, data_dir: DataDir = None) -> None:
    """Commit the offsets at which the states of a stage continue; nothing is processed twice. The stage must be stopped."""
    _continue(data_dir, stage, "resume")


@stage_app.command("accept-loss")
def accept_loss(stage: Stage, data_dir: DataDir = None) -> None:
    """Continue a stage without input that expired, or at the start of a topic that was created again. The stage must be stopped."""
    _continue(data_dir, stage, "accept-loss")


@stage_app.command("rewind")
def rewind(stage: Stage, data_dir: DataDir = None) -> None:
    """Read the input of the projector from its start again, to fill tables that were lost. The stage must be stopped."""
    if stage not in REPEATABLE_STAGES:
        raise NotPossible(f"the stage {stage} would process its input twice: only {' and '.join(REPEATABLE_STAGES)} can be rewound")
    operate(data_dir, stage, "rewind")


def _continue(data_dir: Path | None, stage: str, command: str) -> None:
    stages = [one.name for one in load_catalogue().stages]
    if stage not in stages:
        raise NotPossible(f"there is no stage {stage} with a consumer group; the stages are {', '.join(stages)}")
    if stage in _SPARK:
        operate_spark(data_dir, stage, command)
    else:
        operate(data_dir, stage, command)


def operate_spark(data_dir: Path | None, stage: str, command: str) -> None:
    """Run an operation on the checkpoints of a Spark job in a separate process, because this package must not import the jobs."""
    instance = instance_at(data_dir)
    port = running_options(instance).ports.worker(_SPARK[stage], 0)
    environment = {**os.environ, **environment_of_job(instance, stage), "STARLING_HTTP__PORT": str(port)}
    words = [sys.executable, "-m", "starling_spark.lost_input", stage, command]
    code = subprocess.run(words, env=environment, check=False).returncode
    if code:
        raise typer.Exit(code)
