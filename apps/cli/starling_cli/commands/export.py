"""Edge: `export`: writes tables of the lake, memberships, profiles and computed traits to other systems."""

from typing import Annotated

import typer

from starling_cli.commands.common import DataDir, instance_with_lake, print_line
from starling_local.stack.jobs import run_job

export_app = typer.Typer(
    no_args_is_help=True, help="Export from the lake to PostgreSQL, Kafka, Parquet and CSV (STARLING_EXPORTS)."
)

_NAME = "exports"
_MODULE = "starling_spark.jobs.exports"
_FAILED = 1

Names = Annotated[list[str] | None, typer.Argument(metavar="[NAME]...", help="Names in STARLING_EXPORTS. Default: all.")]


@export_app.command("run")
def run(
    names: Names = None,
    from_start: Annotated[bool, typer.Option("--from-start", help="Export all records, also those that were exported.")] = False,
    data_dir: DataDir = None,
) -> None:
    """Export what is new since the last run, and print the runs; exit 1 if one has failed."""
    instance = instance_with_lake(data_dir)
    print_line(f"exporting (log: {instance.log_file(_NAME)})")
    arguments = ["run", *(names or []), *(["--from-start"] if from_start else [])]
    if run_job(instance, _NAME, _MODULE, arguments, success_codes=(0, _FAILED)):
        raise typer.Exit(_FAILED)


@export_app.command("status")
def status(names: Names = None, data_dir: DataDir = None) -> None:
    """Print the runs, the newest first."""
    run_job(instance_with_lake(data_dir), _NAME, _MODULE, ["status", *(names or [])])


@export_app.command("rejects")
def rejects(name: Annotated[str, typer.Argument(metavar="NAME", help="Name of the export.")], data_dir: DataDir = None) -> None:
    """Print the rows that the sink did not accept, with reason and cure."""
    run_job(instance_with_lake(data_dir), _NAME, _MODULE, ["rejects", name])
