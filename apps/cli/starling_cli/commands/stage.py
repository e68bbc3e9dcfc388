"""Edge: `stage`: continues a stage whose start was refused because its offsets do not fit its states or topics."""

from typing import Annotated, Final

import typer

from starling_cli.commands.common import DataDir
from starling_cli.commands.state import operate
from starling_common.kafka.topics import load_catalogue
from starling_local.errors import NotPossible

stage_app = typer.Typer(
    no_args_is_help=True, help="Continue a stage that refuses to start: its offsets do not fit its states, or its input expired."
)

_SPARK: Final = frozenset({"profiles", "lake"})
"""Stages whose offsets are in Spark's checkpoints."""

Stage = Annotated[str, typer.Argument(metavar="STAGE", help="A stage of `starling status`, such as segmenter.")]


@stage_app.command("resume")
def resume(stage: Stage, data_dir: DataDir = None) -> None:
    """Commit the offsets at which the states of a stage continue; nothing is processed twice. The stage must be stopped."""
    operate(data_dir, _checked(stage), "resume")


@stage_app.command("accept-loss")
def accept_loss(stage: Stage, data_dir: DataDir = None) -> None:
    """Continue a stage without input that expired, or at the start of a topic that was created again. The stage must be stopped."""
    operate(data_dir, _checked(stage), "accept-loss")


def _checked(stage: str) -> str:
    stages = [one.name for one in load_catalogue().stages if one.name not in _SPARK]
    if stage not in stages:
        raise NotPossible(f"there is no stage {stage} with a consumer group; the stages are {', '.join(stages)}")
    return stage
