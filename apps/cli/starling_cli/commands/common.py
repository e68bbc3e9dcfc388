"""Edge: shared by all commands: the data directory option, output, and access to the running instance."""

import os
import sys
from collections.abc import Iterator, Sequence
from contextlib import closing, contextmanager
from contextvars import ContextVar
from dataclasses import replace
from pathlib import Path
from typing import Annotated, Final, NamedTuple

import typer
from rich.console import Console
from rich.table import Table

from starling_cli.api_client import ApiClient
from starling_cli.contexts import Target, checked_url, contexts_file, read_contexts
from starling_cli.settle.audiences import unsent
from starling_cli.settle.broadcasts import is_unfinished
from starling_cli.settle.broker import Offsetter
from starling_cli.settle.progress import stages_of
from starling_cli.settle.settle import Pipeline
from starling_cli.status import service_of
from starling_common.kafka.topics import PROGRESS, SEGMENT_CLOCK, Stage, load_catalogue
from starling_local.errors import NotPossible
from starling_local.instance import Clock, Instance, Options, default_data_dir
from starling_local.stack.launch import running_report
from starling_local.stack.parts.services import API_TOKEN, WORKSPACE

DataDir = Annotated[
    Path | None,
    typer.Option("--data-dir", help="Directory of the instance. Default: $STARLING_DATA_DIR, else .starling"),
]

REMOTE_URL: Final = "STARLING_REMOTE_API_URL"
REMOTE_TOKEN: Final = "STARLING_REMOTE_API_TOKEN"  # noqa: S105 - a name
"""Environment variables of an installation that is not a local instance."""

_TICKING: Final = frozenset({PROGRESS, SEGMENT_CLOCK})
_NO_SCREEN_COLUMNS: Final = 100_000


def instance_at(data_dir: Path | None) -> Instance:
    """Return the instance in the directory, or in the default directory."""
    return Instance((data_dir or default_data_dir()).absolute())


def instance_with_lake(data_dir: Path | None) -> Instance:
    """Return the instance in the directory, or in the default directory. Raises: NotPossible if it has no lake."""
    instance = instance_at(data_dir)
    if not instance.options().lake:
        raise NotPossible("the instance has no lake: run `starling up --lake`")
    return instance


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


class Remote(NamedTuple):
    """The installation that the options before a command name. None: not given."""

    url: str | None = None
    token: str | None = None
    context: str | None = None


REMOTE: Final[ContextVar[Remote | None]] = ContextVar("REMOTE", default=None)
"""The installation of the present command; None outside of one."""


def api_at(data_dir: Path | None) -> ApiClient:
    """Return a client of the API that the options name, else the environment, else the context in use, else of the local instance.

    Raises: NotPossible for an address without a token, an unknown context or contradicting options, StackError, NoInstanceError.
    """
    target = remote_target(REMOTE.get() or Remote(), data_dir)
    return api_of(running_options(instance_at(data_dir))) if target is None else ApiClient(*target)


def remote_target(remote: Remote, data_dir: Path | None) -> Target | None:
    """Return the installation to work with; None for the local instance. Raises: NotPossible."""
    if remote != Remote() and data_dir is not None:
        raise NotPossible("--data-dir names a local instance, and --url, --token and --context an installation: give one of them")
    if remote.context is not None:
        if remote.url is not None:
            raise NotPossible("--url and --context name two installations: give one of them")
        target = read_contexts(contexts_file()).target(remote.context)
        return target._replace(token=remote.token or target.token)
    url = remote.url or os.environ.get(REMOTE_URL)
    if data_dir is not None or not url:
        current = None if data_dir is not None else _current()
        if remote.token is not None and current is None:
            raise NotPossible("--token is given without --url: name the installation by --url or --context")
        return current if current is None or remote.token is None else current._replace(token=remote.token)
    token = remote.token or os.environ.get(REMOTE_TOKEN)
    if not token:
        named = "--url is given" if remote.url else f"{REMOTE_URL} is set"
        raise NotPossible(f"{named} without a token: give --token, set {REMOTE_TOKEN}, or name an instance by --data-dir")
    return Target(checked_url(url), token)


def _current() -> Target | None:
    known = read_contexts(contexts_file())
    return None if known.current is None else known.target(known.current)


@contextmanager
def pipeline_of(instance: Instance) -> Iterator[Pipeline]:
    """Yield the pipeline of a running instance. Raises StackError or NoInstanceError."""
    report = running_report(instance)
    options = instance.options()
    services = sorted({service_of(part.name) for part in report.parts})
    with closing(api_of(options)) as api, pipeline_at(api, options.ports.address("kafka"), services, options.clock) as found:
        yield found


@contextmanager
def pipeline_at(api: ApiClient, brokers: str, services: Sequence[str], clock: Clock) -> Iterator[Pipeline]:
    """Yield the pipeline of an installation. `services`: those that run, by their names in a local instance."""

    def unfinished() -> list[str]:
        if "api" not in services:
            return []
        found = [segment for segment in api.segments() if segment.get("status") == "backfilling"]
        return [
            *(f"segment {segment['key']} is backfilling" for segment in found),
            *(f"campaign {key} is being broadcast" for key in (_broadcasts(api) if "broadcaster" in services else ())),
            *(unsent(offsets, WORKSPACE, api.definitions("/v1/targets")) if "audience" in services else ()),
        ]

    with Offsetter(brokers) as offsets:
        yield Pipeline(_settling(stages_of(load_catalogue().stages, services), clock), offsets, unfinished)


def _broadcasts(api: ApiClient) -> list[str]:
    """Return the keys of the broadcasts whose members are not all written although their instant has come."""
    keys = [str(one["key"]) for one in api.definitions("/v1/campaigns") if "broadcast" in one["trigger"]]
    found = [api.definition("/v1/campaigns", key) for key in keys]
    return [str(one["key"]) for one in found if one is not None and is_unfinished(one)]


def _settling(stages: Sequence[Stage], clock: Clock) -> Sequence[Stage]:
    """Return the stages, under the wall clock without the topics to which the segmenter publishes every second."""
    if clock == "event":
        return stages
    return [replace(stage, inputs=tuple(topic for topic in stage.inputs if topic not in _TICKING)) for stage in stages]
