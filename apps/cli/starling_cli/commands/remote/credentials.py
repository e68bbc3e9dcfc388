"""Edge: `tokens` and `write-keys`: the credentials of the people and programs of a workspace."""

from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any

import typer

from starling_cli.commands.common import DataDir, api_at, print_line
from starling_cli.commands.remote.output import AsJson, print_document, print_items

Id = Annotated[str, typer.Argument(metavar="ID", help="Id, as `list` prints it.")]
Name = Annotated[str, typer.Argument(metavar="NAME", help="What it is for, such as `release pipeline`.")]
Expires = Annotated[str | None, typer.Option("--expires", metavar="INSTANT", help="When it ends, in ISO 8601. Default: never.")]


def credential_app(plural: str, title: str, more: str) -> typer.Typer:
    """Return the commands of one kind of credential, without `create`. `more`: the field of its rights."""
    app = typer.Typer(
        no_args_is_help=True,
        help=f"Create, rotate and revoke {title}s of the local instance, or of the installation of --url or --context. Each "
        "command needs the role admin.",
    )

    @app.command("list", help=f"List every {title} without its secret, revoked ones too. Those of the settings are not listed.")
    def listed(as_json: AsJson = False, data_dir: DataDir = None) -> None:
        print_items(api_at(data_dir).items(plural), ("id", "revoked", more, "expires_at", "name"), as_json=as_json)

    @app.command("show", help=f"Print a {title} as JSON, without its secret.")
    def show(identifier: Id, data_dir: DataDir = None) -> None:
        print_document(api_at(data_dir).document(plural, identifier))

    @app.command("rotate", help=f"Create a new secret of a {title}, and print it once. The old one works until the overlap ends.")
    def rotate(
        identifier: Id,
        overlap: Annotated[str, typer.Option(metavar="DURATION", help="How long the old secret works: 0s to 30d.")] = "24h",
        as_json: AsJson = False,
        data_dir: DataDir = None,
    ) -> None:
        _print_issued(api_at(data_dir).act(plural, identifier, "rotate", document={"overlap": overlap}), as_json=as_json)

    @app.command("revoke", help=f"Revoke a {title}: every process refuses it within five seconds. This is final.")
    def revoke(identifier: Id, data_dir: DataDir = None) -> None:
        api_at(data_dir).remove(plural, identifier)
        print_line(f"{identifier} is revoked")

    return app


tokens_app = credential_app("tokens", "token", "role")
write_keys_app = credential_app("write-keys", "write key", "scopes")


@tokens_app.command("create")
def create_token(
    name: Name,
    role: Annotated[str, typer.Option(metavar="ROLE", help="viewer, editor, approver or admin.")],
    expires: Expires = None,
    as_json: AsJson = False,
    data_dir: DataDir = None,
) -> None:
    """Create a token, and print its secret, which no later command prints."""
    _create("tokens", {"name": name, "role": role}, expires, data_dir, as_json=as_json)


@write_keys_app.command("create")
def create_write_key(
    name: Name,
    scope: Annotated[
        list[str] | None,
        typer.Option(metavar="SCOPE", help="An endpoint that the key may use, such as track. Repeatable. Default: all but import."),
    ] = None,
    expires: Expires = None,
    as_json: AsJson = False,
    data_dir: DataDir = None,
) -> None:
    """Create a write key, and print its secret, which no later command prints."""
    _create("write-keys", {"name": name} | ({"scopes": scope} if scope else {}), expires, data_dir, as_json=as_json)


def _create(plural: str, body: Mapping[str, Any], expires: str | None, data_dir: Path | None, *, as_json: bool) -> None:
    document = {**body} | ({} if expires is None else {"expires_at": expires})
    _print_issued(api_at(data_dir).act(plural, document=document), as_json=as_json)


def _print_issued(issued: Mapping[str, Any], *, as_json: bool) -> None:
    if as_json:
        print_items([issued], (), as_json=True)
        return
    print_line(f"id: {issued['id']}")
    print_line(f"secret: {issued['secret']}")
