"""Edge: `traits`: computed traits on the command line."""

import time
from importlib.util import find_spec
from typing import Annotated, Final

import typer

from starling_cli.commands.common import REMOTE, DataDir, Remote, api_at, instance_at, print_line, remote_target
from starling_cli.commands.flow import parse_seconds
from starling_cli.commands.remote.output import AsJson, print_document, print_items
from starling_local.errors import NotPossible, UserError
from starling_local.stack.jobs import run_job

traits_app = typer.Typer(
    no_args_is_help=True,
    help="Inspect computed traits of the local instance, or of the installation of --url or --context.",
)

_PATH: Final = "/v1/computed-traits"
_VERIFY: Final = "trait-verify"
_VERIFY_MODULE: Final = "starling_spark.jobs.trait_verify"
_POLL_SECONDS: Final = 1.0
_UNFINISHED: Final = frozenset({"waiting", "running"})


@traits_app.command("list")
def list_traits(as_json: AsJson = False, data_dir: DataDir = None) -> None:
    """List every computed trait with its version and status; `bootstrapping` until its values are published over all history.

    A trait in SQL is `waiting`, `running`, `active`, `refused` or `failed`.
    """
    print_items(api_at(data_dir).definitions(_PATH), ("key", "version", "status", "name"), as_json=as_json)


@traits_app.command("show")
def show_trait(
    key: Annotated[str, typer.Argument(metavar="KEY", help="Key of the computed trait.")], data_dir: DataDir = None
) -> None:
    """Print a computed trait as JSON: its status, its progress while it is bootstrapping, and the last and next run of SQL.

    `as_of` is the stream time up to which its values are published.
    """
    found = api_at(data_dir).definition(_PATH, key)
    if found is None:
        raise UserError(f"there is no computed trait {key!r}: see `starling traits list`")
    print_document(found)


@traits_app.command("run")
def run_trait(
    key: Annotated[str, typer.Argument(metavar="KEY", help="Key of a computed trait in SQL.")],
    wait: Annotated[bool, typer.Option("--wait", help="Wait until the run has ended; exit 1 if it was refused or failed.")] = False,
    timeout: Annotated[
        str | None, typer.Option("--timeout", help="With --wait: time to wait, such as 60s or 30m. Default: no limit.")
    ] = None,
    data_dir: DataDir = None,
) -> None:
    """Run a computed trait in SQL now, outside its schedule. A run that waits or runs already is not repeated."""
    api = api_at(data_dir)
    found = api.run_trait(key)
    deadline = None if timeout is None else time.monotonic() + parse_seconds(timeout)
    while wait and found["status"] in _UNFINISHED:
        if deadline is not None and time.monotonic() >= deadline:
            raise UserError(f"the run of {key!r} is still {found['status']}: see `starling traits show {key}`")
        time.sleep(_POLL_SECONDS)
        found = api.definition(_PATH, key) or found
    last = found["last_run"]
    print_line(f"{key}: {found['status']}" + (f": {last['message']}" if last["message"] else ""))
    if wait and found["status"] != "active":
        raise typer.Exit(1)


@traits_app.command("verify")
def verify_trait(
    key: Annotated[str, typer.Argument(metavar="KEY", help="Key of the computed trait.")],
    limit: Annotated[int, typer.Option("--limit", min=1, max=1_000_000, metavar="N", help="Differences to print.")] = 20,
    as_json: AsJson = False,
    data_dir: DataDir = None,
) -> None:
    """Compare the published values with Spark SQL over the history; exit 0 if none is wrong, 1 if one is, 2 if that is unknown."""
    if remote_target(REMOTE.get() or Remote(), data_dir) is not None:
        raise NotPossible(
            f"verification reads the topics and the lake: run `python -m {_VERIFY_MODULE} {key}` beside the installation"
        )
    if find_spec("pyspark") is None:
        raise NotPossible("the package pyspark is missing: run `make setup`")
    instance = instance_at(data_dir)
    if not as_json:
        print_line(f"verifying {key} (log: {instance.log_file(_VERIFY)})")
    arguments = [key, "--limit", str(limit), *(["--json"] if as_json else [])]
    code = run_job(instance, _VERIFY, _VERIFY_MODULE, arguments, success_codes=(0, 1, 2))
    if code:
        raise typer.Exit(code)
