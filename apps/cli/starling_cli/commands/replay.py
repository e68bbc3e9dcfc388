"""Edge: `replay`: recomputes memberships as of an instant from history, and compares them with the live ones."""

from typing import Annotated

import typer

from starling_cli.commands.common import DataDir, instance_at, print_line
from starling_local.errors import NotPossible
from starling_local.stack.jobs import run_job

replay_app = typer.Typer(invoke_without_command=True, help="Recompute memberships as of an instant from history.")

_NAME = "replay"
_MODULE = "starling_spark.jobs.replay"
_DIFFERENT = 1


@replay_app.callback()
def replay(
    context: typer.Context,
    until: Annotated[str | None, typer.Option("--until", help="Instant of the replay in stream time, ISO 8601.")] = None,
    into: Annotated[str | None, typer.Option("--into", help="Name of the replay.")] = None,
    overwrite: Annotated[bool, typer.Option("--overwrite", help="Replace the replay of that name.")] = False,
    data_dir: DataDir = None,
) -> None:
    """Replay all events up to an instant into separate tables; live data is not changed."""
    if context.invoked_subcommand is not None:
        return
    if until is None or into is None:
        raise NotPossible("`starling replay` needs --until INSTANT and --into NAME; `starling replay diff NAME` compares a replay")
    instance = instance_at(data_dir)
    print_line(f"replaying up to {until} (log: {instance.log_file(_NAME)})")
    run_job(instance, _NAME, _MODULE, ["run", "--until", until, "--into", into, *(["--overwrite"] if overwrite else [])])


@replay_app.command("diff")
def diff(
    name: Annotated[str, typer.Argument(metavar="NAME", help="Name of the replay.")],
    memberships_only: Annotated[
        bool, typer.Option("--memberships-only", help="Compare memberships only; profiles take longer.")
    ] = False,
    data_dir: DataDir = None,
) -> None:
    """Print the memberships and profiles that differ between a replay and live data at its instant; exit 0 if none, else 1."""
    arguments = ["diff", name, *(["--memberships-only"] if memberships_only else [])]
    if run_job(instance_at(data_dir), _NAME, _MODULE, arguments, success_codes=(0, _DIFFERENT)):
        raise typer.Exit(_DIFFERENT)
