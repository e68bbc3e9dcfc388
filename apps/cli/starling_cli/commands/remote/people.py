"""Edge: `users`, `feed` and `audit`: what an installation knows of a user, and its changes in sequence."""

import json
import time
from typing import Annotated, Final

import typer

from starling_cli.commands.common import DataDir, api_at, print_line
from starling_cli.commands.remote.output import AsJson, print_document, print_items

_POLL_SECONDS: Final = 1.0

users_app = typer.Typer(
    no_args_is_help=True,
    help="Inspect users of the local instance, or of the installation of --url or --context.",
)

User = Annotated[str, typer.Argument(metavar="USER", help="User id.")]


@users_app.command("show")
def show_user(user: User, data_dir: DataDir = None) -> None:
    """Print the profile of a user as JSON."""
    print_document(api_at(data_dir).document("users", user))


@users_app.command("segments")
def list_segments(user: User, as_json: AsJson = False, data_dir: DataDir = None) -> None:
    """List the segments of a user."""
    found = api_at(data_dir).items("users", user, "segments")
    print_items(found, ("segment", "version", "entered_at"), as_json=as_json)


@users_app.command("events")
def list_events(user: User, as_json: AsJson = False, data_dir: DataDir = None) -> None:
    """List the latest events of a user, the newest first."""
    print_items(api_at(data_dir).items("users", user, "events"), ("time", "kind", "name", "event_id"), as_json=as_json)


@users_app.command("messages")
def list_messages(user: User, as_json: AsJson = False, data_dir: DataDir = None) -> None:
    """List the messages of campaigns to a user."""
    columns = ("due_at", "campaign", "variant", "status", "reason", "delivery_id")
    print_items(api_at(data_dir).items("users", user, "messages"), columns, as_json=as_json)


@users_app.command("consent")
def show_consent(user: User, data_dir: DataDir = None) -> None:
    """Print the consent of a user by channel and purpose, as JSON."""
    print_document(api_at(data_dir).document("users", user, "consent"))


@users_app.command("explain")
def explain_user(
    user: User, key: Annotated[str, typer.Argument(metavar="KEY", help="Key of the segment.")], data_dir: DataDir = None
) -> None:
    """Explain the membership of a user in a segment, as JSON."""
    print_document(api_at(data_dir).explain(user, key))


@users_app.command("export")
def export_user(user: User, data_dir: DataDir = None) -> None:
    """Print all data of a user as JSON: profile, memberships, lists, state and events. Needs the role admin."""
    print_document(api_at(data_dir).document("users", user, "export"))


def feed(
    segment: Annotated[
        list[str] | None, typer.Option(metavar="KEY", help="Only changes of this segment. Repeatable. Default: of all.")
    ] = None,
    after: Annotated[
        str | None,
        typer.Option(metavar="CURSOR", help="Begin after this cursor, or at the end (latest). Default: the oldest change."),
    ] = None,
    follow: Annotated[bool, typer.Option("--follow", help="Wait for further changes, until Ctrl-C.")] = False,
    data_dir: DataDir = None,
) -> None:
    """Print membership changes as JSON, one a line, each exactly once. The last line of standard error is the cursor after them."""
    api = api_at(data_dir)
    cursor = after
    try:
        while True:
            page = api.feed(cursor, segment or ())
            for change in page["items"]:
                print_line(json.dumps(change, ensure_ascii=False))
            cursor = page["cursor"]
            if page["next_cursor"] is None:
                if not follow:
                    return
                time.sleep(_POLL_SECONDS)
    finally:
        typer.echo(f"cursor: {cursor}", err=True)


def audit(
    actor: Annotated[str | None, typer.Option(metavar="ID", help="Only changes by this token.")] = None,
    resource: Annotated[str | None, typer.Option(metavar="NAME", help="Only of this collection, such as segments.")] = None,
    key: Annotated[str | None, typer.Option(metavar="KEY", help="Only of the resource with this key or id.")] = None,
    since: Annotated[str | None, typer.Option(metavar="INSTANT", help="Only changes then or later. Default: 30 days ago.")] = None,
    as_json: AsJson = False,
    data_dir: DataDir = None,
) -> None:
    """List who changed what, the oldest change first. Needs the role admin."""
    wanted = {"actor": actor, "resource": resource, "resource_key": key, "since": since}
    found = api_at(data_dir).items("audit", **{name: value for name, value in wanted.items() if value is not None})
    print_items(found, ("recorded_at", "actor", "role", "method", "path", "revision_after"), as_json=as_json)
