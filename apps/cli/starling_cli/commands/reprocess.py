"""Edge: `reprocess`: recomputes event tables from the raw items in the lake, after a rule of the normalizer changed."""

from typing import Annotated

import typer

from starling_cli.commands.common import DataDir, instance_with_lake, print_line
from starling_local.errors import NotPossible
from starling_local.stack.jobs import run_job

reprocess_app = typer.Typer(
    invoke_without_command=True, help="Recompute event tables of the lake with the current rules of the normalizer."
)

_NAME = "reprocess"
_MODULE = "starling_spark.jobs.reprocess"
_DIFFERENT = 1

Name = Annotated[str, typer.Argument(metavar="NAME", help="Name of the result.")]


@reprocess_app.callback()
def reprocess(
    context: typer.Context,
    into: Annotated[
        str | None, typer.Option("--into", help="Name of the result. The same name resumes an interrupted run.")
    ] = None,
    catalog: Annotated[str, typer.Option("--catalog", help="Products as of each event (then) or as of today (now).")] = "then",
    overwrite: Annotated[bool, typer.Option("--overwrite", help="Replace the result of that name.")] = False,
    data_dir: DataDir = None,
) -> None:
    """Run the normalizer's stages over all items in the lake into separate tables; live data is not changed."""
    if context.invoked_subcommand is not None:
        return
    if into is None:
        raise NotPossible("`starling reprocess` needs --into NAME, or one of list, diff NAME, switch NAME, remove NAME")
    instance = instance_with_lake(data_dir)
    print_line(f"reprocessing (log: {instance.log_file(_NAME)})")
    arguments = ["run", "--into", into, "--catalog", catalog, *(["--overwrite"] if overwrite else [])]
    run_job(instance, _NAME, _MODULE, arguments)


@reprocess_app.command("diff")
def diff(name: Name, data_dir: DataDir = None) -> None:
    """Print the events that differ from the live ones; exit 0 if none, else 1."""
    if run_job(instance_with_lake(data_dir), _NAME, _MODULE, ["diff", name], success_codes=(0, _DIFFERENT)):
        raise typer.Exit(_DIFFERENT)


@reprocess_app.command("switch")
def switch(
    name: Annotated[str | None, typer.Argument(metavar="NAME", help="Name of the result.")] = None,
    live: Annotated[bool, typer.Option("--live", help="Use the live events again.")] = False,
    data_dir: DataDir = None,
) -> None:
    """Put the tables of a result in force, or with --live those of the live events, in one commit."""
    if (name is None) is not live:
        raise NotPossible("`starling reprocess switch` needs either a NAME or --live")
    run_job(instance_with_lake(data_dir), _NAME, _MODULE, ["switch", *(["--live"] if name is None else [name])])


@reprocess_app.command("list")
def listed(data_dir: DataDir = None) -> None:
    """List the results, and which one is in force."""
    run_job(instance_with_lake(data_dir), _NAME, _MODULE, ["list"])


@reprocess_app.command("remove")
def remove(name: Name, data_dir: DataDir = None) -> None:
    """Delete a result that is not in force."""
    run_job(instance_with_lake(data_dir), _NAME, _MODULE, ["remove", name])
