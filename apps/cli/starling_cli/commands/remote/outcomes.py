"""Edge: `outcomes`: what became of items, on the command line."""

import json
from typing import Annotated

import typer
from rich.table import Table

from starling_cli.commands.common import DataDir, api_at, print_line, print_table


def outcomes(
    message_id: Annotated[str | None, typer.Option(metavar="ID", help="Only the item with this message id.")] = None,
    user: Annotated[str | None, typer.Option(metavar="USER", help="Only items of this user id, or of this anonymous id.")] = None,
    outcome: Annotated[str | None, typer.Option(metavar="OUTCOME", help="ACCEPTED, DUPLICATE or REFUSED.")] = None,
    since: Annotated[
        str | None,
        typer.Option(metavar="INSTANT", help="Only items received then or later. Default: an hour ago."),
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print a JSON object a line.")] = False,
    data_dir: DataDir = None,
) -> None:
    """Print what became of the items that were sent: accepted, duplicate, or refused with the reason."""
    wanted = {"message_id": message_id, "user_id": user, "outcome": None if outcome is None else outcome.upper(), "since": since}
    found = api_at(data_dir).outcomes({name: value for name, value in wanted.items() if value is not None})
    if as_json:
        for one in found:
            print_line(json.dumps(one, ensure_ascii=False))
        return
    table = Table("received", "message", "user", "outcome", "event or reason", box=None, pad_edge=False)
    for one in found:
        reason = one["event_id"] or (f"{one['code']}: {one['message']}" if one["code"] else "")
        table.add_row(one["received_at"], one["message_id"], one["user_id"] or "", one["outcome"], reason)
    print_table(table)
