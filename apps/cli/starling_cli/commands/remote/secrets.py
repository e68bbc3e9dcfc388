"""Edge: `secrets`: the keys that encrypt stored secrets, and their rotation."""

import json
from datetime import UTC, datetime
from typing import Annotated

import typer

from starling_cli.commands.common import DataDir, api_at, print_error, print_line
from starling_common.security.sealing import new_key
from starling_local.errors import FAILED, NotPossible

secrets_app = typer.Typer(
    no_args_is_help=True, help="The keys that encrypt the secrets of webhooks and the credentials of targets in topics and tables."
)


@secrets_app.command("new-key")
def print_new_key(
    name: Annotated[
        str | None, typer.Option("--id", metavar="ID", help="Id of the key. Default: the date, such as 2027-01-31.")
    ] = None,
) -> None:
    """Print a new random key, as STARLING_SECRETS__KEYS takes it. It is stored nowhere."""
    try:
        print_line(new_key(name or datetime.now(UTC).date().isoformat()))
    except ValueError as error:
        raise NotPossible(str(error)) from error


@secrets_app.command("rotate")
def rotate(
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Print what would be encrypted again, and change nothing.")] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON document an answer of the API.")] = False,
    data_dir: DataDir = None,
) -> None:
    """Encrypt every secret of the token's workspace with the first key of the API, also those of earlier versions.

    Exits with 1 if a secret cannot be decrypted.
    """
    api = api_at(data_dir)
    unreadable = 0
    complete = False
    while not complete:
        found = api.rotate_secrets(dry_run=dry_run)
        complete, unreadable = found["complete"] or dry_run, len(found["unreadable"])
        if as_json:
            print_line(json.dumps(found))
            continue
        for one in found["rewritten"]:
            print_line(f"{one['kind']} {one['key']}: {'would be' if dry_run else 'is'} encrypted with the key {found['key_id']}")
        for one in found["unreadable"]:
            print_error(f"{one['kind']} {one['key']}: {one['reason']}")
        if complete and not found["rewritten"] and not unreadable:
            print_line(f"every secret is encrypted with the key {found['key_id']}")
    if unreadable:
        raise typer.Exit(FAILED)
