"""Edge: `reprocess`: event tables made anew from the raw items of the lake, after a rule of the normalizer changed."""

from typing import Annotated

import typer

from starling_local.commands.common import DataDir, instance_at, say
from starling_local.errors import NotPossible
from starling_local.instance import Instance
from starling_local.stack.jobs import run_job

reprocess_app = typer.Typer(
    invoke_without_command=True, help="Event tables of the lake made anew by the normalizer's rules of today."
)

_NAME = "reprocess"
_MODULE = "starling_spark.jobs.reprocess"
_DIFFERENT = 1

Name = Annotated[str, typer.Argument(metavar="NAME")]


@reprocess_app.callback()
def reprocess(
    context: typer.Context,
    into: Annotated[str | None, typer.Option("--into", help="What it is to be called; one that was killed goes on.")] = None,
    catalog: Annotated[str, typer.Option("--catalog", help="Products as they were (then) or as they are (now).")] = "then",
    overwrite: Annotated[bool, typer.Option("--overwrite", help="Replace the one of that name.")] = False,
    data_dir: DataDir = None,
) -> None:
    """Run the normalizer's stages over all items in the lake, into tables of their own; nothing live is touched."""
    if context.invoked_subcommand is not None:
        return
    if into is None:
        raise NotPossible("say --into NAME (or `starling reprocess list`, `diff NAME`, `switch NAME`, `remove NAME`)")
    instance = _with_lake(data_dir)
    say(f"reprocessing (log: {instance.log_file(_NAME)})")
    words = ["run", "--into", into, "--catalog", catalog, *(["--overwrite"] if overwrite else [])]
    run_job(instance, _NAME, _MODULE, words)


@reprocess_app.command("diff")
def diff(name: Name, data_dir: DataDir = None) -> None:
    """What differs from the events as they were made live; exit 0 when nothing, else 1."""
    if run_job(_with_lake(data_dir), _NAME, _MODULE, ["diff", name], done=(0, _DIFFERENT)):
        raise typer.Exit(_DIFFERENT)


@reprocess_app.command("switch")
def switch(
    name: Annotated[str | None, typer.Argument(metavar="NAME")] = None,
    live: Annotated[bool, typer.Option("--live", help="The events as they were made live.")] = False,
    data_dir: DataDir = None,
) -> None:
    """Put the tables of one in force, or with --live the lake's own again: one commit."""
    if (name is None) is not live:
        raise NotPossible("say one: a NAME, or --live")
    run_job(_with_lake(data_dir), _NAME, _MODULE, ["switch", *(["--live"] if name is None else [name])])


@reprocess_app.command("list")
def listed(data_dir: DataDir = None) -> None:
    """Those that there are, and which is in force."""
    run_job(_with_lake(data_dir), _NAME, _MODULE, ["list"])


@reprocess_app.command("remove")
def remove(name: Name, data_dir: DataDir = None) -> None:
    """Delete one that is not in force."""
    run_job(_with_lake(data_dir), _NAME, _MODULE, ["remove", name])


def _with_lake(data_dir: DataDir) -> Instance:
    instance = instance_at(data_dir)
    if not instance.options().lake:
        raise NotPossible("there is no lake: start with `starling up --lake`")
    return instance
