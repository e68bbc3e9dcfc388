"""Edge: `segments`: the segment API on the command line."""

from pathlib import Path
from typing import Annotated

import typer
from rich.table import Table

from starling_cli.commands.common import DataDir, api_at, print_line, print_table
from starling_cli.commands.remote.output import AsJson, print_document, print_items
from starling_cli.definitions import documents_in

segments_app = typer.Typer(
    no_args_is_help=True,
    help="Define and inspect segments of the local instance, or of the installation of --url or --context.",
)
backfill_app = typer.Typer(no_args_is_help=True, help="Control the Spark runs that backfill new segments.")
segments_app.add_typer(backfill_app, name="backfill")

Key = Annotated[str, typer.Argument(metavar="KEY", help="Key of the segment.")]
Run = Annotated[str, typer.Argument(metavar="RUN", help="Run from `starling segments backfill list`.")]


@segments_app.command("list")
def list_segments(as_json: AsJson = False, data_dir: DataDir = None) -> None:
    """List every segment with its version and status."""
    print_items(api_at(data_dir).segments(), ("key", "version", "status", "name"), as_json=as_json)


@segments_app.command("show")
def show_segment(key: Key, data_dir: DataDir = None) -> None:
    """Print the definition of a segment as JSON."""
    print_document(api_at(data_dir).segment(key))


@segments_app.command("apply")
def apply_segments(
    file: Annotated[Path, typer.Argument(exists=True, dir_okay=False, metavar="FILE", help="Path of the JSON file.")],
    data_dir: DataDir = None,
) -> None:
    """Create the segments of a JSON file (one or a list); an existing segment gets a new version."""
    api = api_at(data_dir)
    for definition in documents_in(file.read_bytes(), "a segment", "segments"):
        made = api.apply(definition)
        print_line(f"{made.get('key', definition.get('key'))} is at version {made.get('version', '?')}, {made.get('status', '?')}")


@segments_app.command("members")
def list_members(key: Key, data_dir: DataDir = None) -> None:
    """Print the members of a segment, one user id a line."""
    for member in api_at(data_dir).members(key):
        print_line(str(member["user_id"]))


@segments_app.command("explain")
def explain_membership(
    user: Annotated[str, typer.Argument(metavar="USER", help="User id.")], key: Key, data_dir: DataDir = None
) -> None:
    """Explain the membership of a user in a segment, as JSON."""
    print_document(api_at(data_dir).explain(user, key))


@segments_app.command("pause")
def pause_segment(key: Key, data_dir: DataDir = None) -> None:
    """Pause the evaluation of a segment; its members remain."""
    print_line(f"{key} is {api_at(data_dir).change_status(key, 'pause')['status']}")


@segments_app.command("resume")
def resume_segment(key: Key, data_dir: DataDir = None) -> None:
    """Resume the evaluation of a paused segment; its memberships catch up."""
    print_line(f"{key} is {api_at(data_dir).change_status(key, 'resume')['status']}")


@segments_app.command("history")
def list_history(key: Key, as_json: AsJson = False, data_dir: DataDir = None) -> None:
    """List the changes of a segment, with the token that made each."""
    found = api_at(data_dir).items("segments", key, "versions")
    print_items(found, ("version", "revision", "action", "actor", "recorded_at"), as_json=as_json)


@segments_app.command("archive")
def archive_segment(key: Key, data_dir: DataDir = None) -> None:
    """Archive a segment: its members leave, and its key stays taken."""
    api_at(data_dir).remove("segments", key)
    print_line(f"segment {key} is archived")


@backfill_app.command("list")
def list_backfills(data_dir: DataDir = None) -> None:
    """List every backfill run with its progress."""
    table = Table("run", "state", "percent", "segments", "estimated end", box=None, pad_edge=False)
    for run in api_at(data_dir).backfills():
        segments = ", ".join(f"{key} {version}" for key, version in run["segments"].items())
        table.add_row(run["run"], run["state"], str(run["percent"]), segments, run["estimated_end"] or "")
    print_table(table)


@backfill_app.command("pause")
def pause_backfill(run: Run, data_dir: DataDir = None) -> None:
    """Pause a run after its current partitions."""
    _change_backfill(run, "pause", data_dir)


@backfill_app.command("resume")
def resume_backfill(run: Run, data_dir: DataDir = None) -> None:
    """Resume a run; a cancelled run starts again."""
    _change_backfill(run, "resume", data_dir)


@backfill_app.command("cancel")
def cancel_backfill(run: Run, data_dir: DataDir = None) -> None:
    """Cancel a run; its segments keep waiting for a backfill, and versions in force remain in force."""
    _change_backfill(run, "cancel", data_dir)


def _change_backfill(run: str, action: str, data_dir: Path | None) -> None:
    changed = api_at(data_dir).change_backfill(run, action)
    print_line(f"{run} is {changed['state']}, requested: {changed['asked']}")
