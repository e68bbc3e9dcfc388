"""Edge: `webhooks`, `targets`, `campaigns`, `views` and `lists`: definitions that have no commands of their own."""

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any, Final, NamedTuple

import typer

from starling_cli.commands.common import DataDir, api_at, print_line
from starling_cli.commands.remote.output import AsJson, print_document, print_items, read_bytes
from starling_local.errors import NotPossible

Key = Annotated[str, typer.Argument(metavar="KEY", help="Key of the definition, as `list` prints it.")]
File = Annotated[Path, typer.Argument(metavar="FILE", help="Path of the file; - reads standard input.")]


class Resource(NamedTuple):
    """One kind of definition. `actions`: the last part of the path of a POST without a body -> what it does."""

    plural: str
    title: str
    columns: Sequence[str]
    actions: Mapping[str, str]


WEBHOOKS: Final = Resource(
    "webhooks",
    "webhook",
    ("key", "version", "status", "disabled_because", "url"),
    {
        "test": "Send a signed example change, and print the answer of the endpoint.",
        "enable": "Enable a webhook that its endpoint has disabled. Changes of the meantime are not sent.",
        "rotate-secret": "Create a new secret, and print the webhook with it. The old one signs too for 24 hours.",
    },
)
TARGETS: Final = Resource(
    "targets",
    "target",
    ("key", "version", "status", "channel", "adapter", "segments"),
    {
        "test": "Send an example digest, or check the topic. Audience sync has no test.",
        "enable": "Enable a target again.",
        "disable": "Disable a target: it gets no further change and no further message.",
    },
)
CAMPAIGNS: Final = Resource(
    "campaigns",
    "campaign",
    ("key", "version", "status", "channel", "target", "name"),
    {
        "activate": "Activate a campaign: its triggers create messages from now on.",
        "pause": "Pause a campaign: no further message is created.",
        "resume": "Resume a paused campaign.",
        "dry-run": "Count what the campaign would do with the changes of the last days.",
    },
)
VIEWS: Final = Resource(
    "views",
    "view",
    ("key", "version", "status", "next_run_at", "name"),
    {},
)


def resource_app(resource: Resource) -> typer.Typer:
    """Return the commands of one kind of definition."""
    title, plural = resource.title, resource.plural
    app = typer.Typer(
        no_args_is_help=True,
        help=f"Define and inspect {plural} of the local instance, or of the installation of --url or --context.",
    )

    @app.command("list", help=f"List every {title} that is not archived.")
    def listed(as_json: AsJson = False, data_dir: DataDir = None) -> None:
        print_items(api_at(data_dir).items(plural), resource.columns, as_json=as_json)

    @app.command("show", help=f"Print a {title} as JSON. Secrets are shown as ***.")
    def show(key: Key, data_dir: DataDir = None) -> None:
        print_document(api_at(data_dir).document(plural, key))

    @app.command("apply", help=f"Create the {title} of a JSON file, or change it. A repetition changes nothing.")
    def apply(
        file: File,
        dry_run: Annotated[bool, typer.Option("--dry-run", help="Print the result, and change nothing.")] = False,
        data_dir: DataDir = None,
    ) -> None:
        print_document(api_at(data_dir).put(f"/v1/{plural}", read_object(file), dry_run=dry_run))

    @app.command("archive", help=f"Archive a {title}. Its key stays taken.")
    def archive(key: Key, data_dir: DataDir = None) -> None:
        api_at(data_dir).remove(plural, key)
        print_line(f"{title} {key} is archived")

    for action, text in resource.actions.items():
        app.command(action, help=text)(_action(plural, action))
    return app


def _action(plural: str, action: str) -> Any:
    def act(key: Key, data_dir: DataDir = None) -> None:
        print_document(api_at(data_dir).act(plural, key, action))

    return act


webhooks_app: Final = resource_app(WEBHOOKS)
targets_app: Final = resource_app(TARGETS)
campaigns_app: Final = resource_app(CAMPAIGNS)
views_app: Final = resource_app(VIEWS)


@views_app.command("run")
def run_view(
    key: Key,
    full: Annotated[bool, typer.Option("--full", help="Compute all days of an incremental view.")] = False,
    data_dir: DataDir = None,
) -> None:
    """Run a view in SQL now, outside its schedule. A run that waits or runs already is not repeated."""
    print_document(api_at(data_dir).act("views", key, "run", params={"full": "true"} if full else None))


@campaigns_app.command("versions")
def list_campaign_versions(key: Key, as_json: AsJson = False, data_dir: DataDir = None) -> None:
    """List the changes of a campaign, with the token that made each."""
    found = api_at(data_dir).items("campaigns", key, "versions")
    print_items(found, ("version", "revision", "action", "actor", "recorded_at"), as_json=as_json)


@campaigns_app.command("report")
def report_campaign(key: Key, data_dir: DataDir = None) -> None:
    """Print the funnel of a campaign and its lift, as JSON."""
    print_document(api_at(data_dir).campaign_report(key))


lists_app = typer.Typer(
    no_args_is_help=True,
    help="Upload and inspect lists of the local instance, or of the installation of --url or --context.",
)


@lists_app.command("list")
def list_lists(as_json: AsJson = False, data_dir: DataDir = None) -> None:
    """List every list that is not deleted."""
    print_items(api_at(data_dir).items("lists"), ("key", "version", "size", "name"), as_json=as_json)


@lists_app.command("show")
def show_list(key: Key, data_dir: DataDir = None) -> None:
    """Print a list as JSON, without its members."""
    print_document(api_at(data_dir).document("lists", key))


@lists_app.command("members")
def list_members(key: Key, data_dir: DataDir = None) -> None:
    """Print the members of a list, one user id a line."""
    for member in api_at(data_dir).items("lists", key, "members"):
        print_line(str(member["user_id"]))


@lists_app.command("upload")
def upload_list(
    key: Key,
    file: File,
    name: Annotated[str | None, typer.Option(metavar="NAME", help="Name of a new list. Default: its key.")] = None,
    data_dir: DataDir = None,
) -> None:
    """Replace the members of a list by the ids of a file, one a line (CSV). Creates the list if there is none."""
    ids, api = read_bytes(file), api_at(data_dir)
    if api.definition("/v1/lists", key) is None:
        api.put("/v1/lists", {"key": key, "name": name or key}, put_creates=True)
    count = api.change_members("PUT", key, ids)
    print_line(f"{key} has {count:,} members")


@lists_app.command("add")
def add_members(key: Key, file: File, data_dir: DataDir = None) -> None:
    """Add the ids of a file to a list."""
    count = api_at(data_dir).change_members("POST", key, read_bytes(file))
    print_line(f"{count:,} ids are on {key}")


@lists_app.command("remove")
def remove_members(key: Key, file: File, data_dir: DataDir = None) -> None:
    """Remove the ids of a file from a list."""
    count = api_at(data_dir).change_members("DELETE", key, read_bytes(file))
    print_line(f"{count:,} ids are not on {key}")


@lists_app.command("delete")
def delete_list(key: Key, data_dir: DataDir = None) -> None:
    """Delete a list with its members. A list that a segment uses is not deleted."""
    api_at(data_dir).remove("lists", key)
    print_line(f"list {key} is deleted")


def read_object(file: Path) -> dict[str, Any]:
    """Return the JSON object of a file. Raises: NotPossible."""
    try:
        found = json.loads(read_bytes(file))
    except (ValueError, RecursionError) as error:  # bytes that are no UTF-8 are a ValueError
        raise NotPossible(f"{file} is not JSON: {error}") from error
    if not isinstance(found, dict) or not isinstance(found.get("key"), str):
        raise NotPossible(f"{file} must contain one JSON object with a key")
    return found
