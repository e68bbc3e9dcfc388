"""Edge: `segments`, the segment API for people at a terminal."""

import json
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.table import Table

from starling_local.api_client import ApiClient
from starling_local.commands.common import DataDir, api_of, instance_at, running_options, say, show_table
from starling_local.errors import NotPossible

segments_app = typer.Typer(no_args_is_help=True, help="Define and look at segments.")
backfill_app = typer.Typer(no_args_is_help=True, help="The runs of Spark that gather the past of new segments.")
segments_app.add_typer(backfill_app, name="backfill")


@segments_app.command("list")
def list_segments(data_dir: DataDir = None) -> None:
    """Every segment with its version and status."""
    table = Table("key", "version", "status", "name", box=None, pad_edge=False)
    for segment in _api(data_dir).segments():
        table.add_row(segment["key"], str(segment.get("version", "")), str(segment.get("status", "")), str(segment.get("name", "")))
    show_table(table)


@segments_app.command("show")
def show_segment(key: str, data_dir: DataDir = None) -> None:
    """One segment's definition, as JSON."""
    _print_json(_api(data_dir).segment(key))


@segments_app.command("apply")
def apply_segments(file: Annotated[Path, typer.Argument(exists=True, dir_okay=False)], data_dir: DataDir = None) -> None:
    """Define the segment of a JSON file, or each of a list of them; one that is there already gets a new version."""
    api = _api(data_dir)
    for definition in definitions(file.read_text(encoding="utf-8")):
        made = api.apply(definition)
        say(f"{made.get('key', definition.get('key'))} is at version {made.get('version', '?')}, {made.get('status', '?')}")


@segments_app.command("members")
def list_members(key: str, data_dir: DataDir = None) -> None:
    """Who is in the segment, one user id a line."""
    for member in _api(data_dir).members(key):
        say(str(member["user_id"]))


@segments_app.command("explain")
def explain_membership(user: str, key: str, data_dir: DataDir = None) -> None:
    """Why a user is in a segment or not, as JSON."""
    _print_json(_api(data_dir).explain(user, key))


@segments_app.command("pause")
def pause_segment(key: str, data_dir: DataDir = None) -> None:
    """Stop evaluating a segment; its members stay as they are."""
    say(f"{key} is {_api(data_dir).turn(key, 'pause')['status']}")


@segments_app.command("resume")
def resume_segment(key: str, data_dir: DataDir = None) -> None:
    """Go on evaluating a paused segment; it catches up."""
    say(f"{key} is {_api(data_dir).turn(key, 'resume')['status']}")


@backfill_app.command("list")
def list_backfills(data_dir: DataDir = None) -> None:
    """Every run, and how far it is."""
    table = Table("run", "state", "percent", "segments", "estimated end", box=None, pad_edge=False)
    for run in _api(data_dir).backfills():
        segments = ", ".join(f"{key} {version}" for key, version in run["segments"].items())
        table.add_row(run["run"], run["state"], str(run["percent"]), segments, run["estimated_end"] or "")
    show_table(table)


@backfill_app.command("pause")
def pause_backfill(run: str, data_dir: DataDir = None) -> None:
    """Rest after the partitions at hand."""
    _turn_backfill(run, "pause", data_dir)


@backfill_app.command("resume")
def resume_backfill(run: str, data_dir: DataDir = None) -> None:
    """Go on; a cancelled one begins anew."""
    _turn_backfill(run, "resume", data_dir)


@backfill_app.command("cancel")
def cancel_backfill(run: str, data_dir: DataDir = None) -> None:
    """Give up; its segments go on waiting, and those in force stay so."""
    _turn_backfill(run, "cancel", data_dir)


def _turn_backfill(run: str, way: str, data_dir: Path | None) -> None:
    turned = _api(data_dir).turn_backfill(run, way)
    say(f"{run} is {turned['state']}, asked to be {turned['asked']}")


def definitions(text: str) -> list[dict[str, Any]]:
    """The segments of a file: one object, or a list of them. Raises NotPossible."""
    try:
        found = json.loads(text)
    except ValueError as error:
        raise NotPossible(f"the file is not JSON: {error}") from error
    listed = found if isinstance(found, list) else [found]
    if not all(isinstance(one, dict) for one in listed):
        raise NotPossible("the file must hold a segment (a JSON object) or a list of them")
    return listed


def _api(data_dir: Path | None) -> ApiClient:
    return api_of(running_options(instance_at(data_dir)))


def _print_json(document: object) -> None:
    say(json.dumps(document, indent=2, ensure_ascii=False))
