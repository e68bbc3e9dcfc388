"""Edge: shared by all commands: the data directory option, output, and access to the running instance."""

import os
import sys
from collections.abc import Iterator, Sequence
from contextlib import closing, contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Annotated, Final

import typer
from rich.console import Console
from rich.table import Table

from starling_cli.api_client import ApiClient
from starling_cli.settle.broker import Offsetter
from starling_cli.settle.progress import stages_of
from starling_cli.settle.settle import Pipeline
from starling_cli.status import service_of
from starling_common.kafka.topics import PROGRESS, Stage, load_catalogue
from starling_local.errors import NotPossible
from starling_local.instance import Instance, Options, default_data_dir
from starling_local.stack.launch import running_report
from starling_local.stack.parts.services import API_TOKEN

DataDir = Annotated[
    Path | None,
    typer.Option("--data-dir", help="Directory of the instance. Default: $STARLING_DATA_DIR, else .starling"),
]

REMOTE_URL: Final = "STARLING_REMOTE_API_URL"
REMOTE_TOKEN: Final = "STARLING_REMOTE_API_TOKEN"  # noqa: S105 - a name
"""Environment variables of an installation that is not a local instance."""

_NO_SCREEN_COLUMNS: Final = 100_000


def instance_at(data_dir: Path | None) -> Instance:
    """Return the instance in the directory, or in the default directory."""
    return Instance((data_dir or default_data_dir()).absolute())


def print_line(line: str) -> None:
    """Print one line and flush it, so that a pipe receives it at once."""
    sys.stdout.write(f"{line}\n")
    sys.stdout.flush()


def print_table(table: Table) -> None:
    """Print a table: folded to the width of a terminal; one line a row otherwise."""
    for column in table.columns:
        column.overflow = "fold"
    screen = Console()
    console = screen if screen.is_terminal else Console(width=_NO_SCREEN_COLUMNS)
    console.print(table)


def print_error(line: str) -> None:
    """Print one line to standard error."""
    sys.stderr.write(f"starling: {line}\n")
    sys.stderr.flush()


def running_options(instance: Instance) -> Options:
    """Return the options of a running instance. Raises StackError or NoInstanceError."""
    running_report(instance)
    return instance.options()


def api_of(options: Options) -> ApiClient:
    """Return a client of the instance's segment API."""
    return ApiClient(f"http://{options.ports.address('api')}", API_TOKEN)


def api_at(data_dir: Path | None) -> ApiClient:
    """Return a client of the API that the environment names, else of the running instance in the directory.

    Raises: NotPossible for an address without a token, StackError, NoInstanceError.
    """
    url = os.environ.get(REMOTE_URL)
    if not url or data_dir is not None:
        return api_of(running_options(instance_at(data_dir)))
    token = os.environ.get(REMOTE_TOKEN)
    if not token:
        raise NotPossible(
            f"{REMOTE_URL} is set without {REMOTE_TOKEN}: set it to a token of that installation, or name an instance by --data-dir"
        )
    return ApiClient(url.rstrip("/"), token)


@contextmanager
def pipeline_of(instance: Instance) -> Iterator[Pipeline]:
    """Yield the pipeline of a running instance. Raises StackError or NoInstanceError."""
    report = running_report(instance)
    options = instance.options()
    services = sorted({service_of(part.name) for part in report.parts})
    api = api_of(options)

    def backfilling() -> list[str]:
        if "api" not in services:
            return []
        found = [segment for segment in api.segments() if segment.get("status") == "backfilling"]
        return [f"segment {segment['key']} is backfilling" for segment in found]

    with closing(api), Offsetter(options.ports.address("kafka")) as offsets:
        yield Pipeline(_settling(stages_of(load_catalogue().stages, services), options), offsets, backfilling)


def _settling(stages: Sequence[Stage], options: Options) -> Sequence[Stage]:
    """Return the stages, under the wall clock without the progress topic: the segmenter publishes to it every second."""
    if options.clock == "event":
        return stages
    return [replace(stage, inputs=tuple(topic for topic in stage.inputs if topic != PROGRESS)) for stage in stages]
