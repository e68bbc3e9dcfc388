"""Edge: `replay`: memberships as of an instant, worked out again from history beside the live ones, and compared with them."""

from typing import Annotated

import typer

from starling_local.commands.common import DataDir, instance_at, say
from starling_local.errors import NotPossible
from starling_local.stack.jobs import run_job

replay_app = typer.Typer(invoke_without_command=True, help="Memberships as of an instant, worked out again from history.")

_NAME = "replay"
_MODULE = "starling_spark.jobs.replay"
_DIFFERENT = 1


@replay_app.callback()
def replay(
    context: typer.Context,
    until: Annotated[str | None, typer.Option("--until", help="ISO 8601, stream time: as of when.")] = None,
    into: Annotated[str | None, typer.Option("--into", help="What the replay is to be called.")] = None,
    overwrite: Annotated[bool, typer.Option("--overwrite", help="Replace the one of that name.")] = False,
    data_dir: DataDir = None,
) -> None:
    """Replay all that happened up to an instant into tables of its own; nothing live is touched."""
    if context.invoked_subcommand is not None:
        return
    if until is None or into is None:
        raise NotPossible("say both: --until INSTANT --into NAME (or `starling replay diff NAME`)")
    instance = instance_at(data_dir)
    say(f"replaying up to {until} (log: {instance.log_file(_NAME)})")
    run_job(instance, _NAME, _MODULE, ["run", "--until", until, "--into", into, *(["--overwrite"] if overwrite else [])])


@replay_app.command("diff")
def diff(
    name: Annotated[str, typer.Argument(metavar="NAME")],
    memberships_only: Annotated[bool, typer.Option("--memberships-only", help="Leave profiles out, which take longer.")] = False,
    data_dir: DataDir = None,
) -> None:
    """Who is only in the replay, who only live, and whose profiles differ, as of its instant; exit 0 when nobody, else 1."""
    words = ["diff", name, *(["--memberships-only"] if memberships_only else [])]
    if run_job(instance_at(data_dir), _NAME, _MODULE, words, done=(0, _DIFFERENT)):
        raise typer.Exit(_DIFFERENT)
