"""Edge: `up`, `status`, `down` and `env`."""

import json
import shlex
import signal
import time
from collections import Counter
from collections.abc import Mapping
from typing import Annotated, Any, Literal

import typer

from starling_cli.commands.common import DataDir, instance_at, print_error, print_line, running_options
from starling_cli.settle.broker import Offsetter
from starling_cli.settle.progress import PART_OF_STAGE, stages_of
from starling_cli.settle.settle import stage_lags
from starling_cli.status import NO_INSTANCE, endpoints, service_of, status_document, stopped
from starling_common.kafka.clients import BrokerUnavailable
from starling_common.kafka.topics import load_catalogue
from starling_local.errors import FAILED, INTERRUPTED, NOT_POSSIBLE
from starling_local.instance import Instance, Options, Report
from starling_local.options import RequestedOptions, first_options, next_options, parse_scale, parse_workspaces
from starling_local.preflight import problems
from starling_local.runtime import BUNDLES, fetch
from starling_local.runtime.fetching import default_runtime_dir, is_fetched
from starling_local.stack.jobs import environment_of_job
from starling_local.stack.launch import (
    changes,
    clear_orphans,
    reload_supervisor,
    start_supervisor,
    stop,
    supervisor_of,
    tail,
)
from starling_local.stack.parts.services import shared_env
from starling_local.stack.wiring import needed_bundles, planned_parts

_START_TIMEOUT_SECONDS = 300.0
_WATCH_SECONDS = 0.5

Detach = Annotated[bool, typer.Option("--detach", help="Return when all parts are ready, and leave them running.")]
StreamClock = Annotated[
    Literal["wall", "event"] | None,
    typer.Option(
        "--clock", help="Stream time. wall: the current time. event: the highest event time so far (for history and tests)."
    ),
]
PortBase = Annotated[
    int | None, typer.Option("--port-base", help="First port of the instance; all ports follow it. Default: 18080.")
]
Spark = Annotated[bool | None, typer.Option("--spark/--no-spark", help="Run the Spark job for computed traits. Default: yes.")]
Lake = Annotated[bool | None, typer.Option("--lake/--no-lake", help="Write all events to the lake. Default: no.")]
Views = Annotated[bool | None, typer.Option("--views/--no-views", help="Run the Spark job for views. Default: no.")]
Backfill = Annotated[bool | None, typer.Option("--backfill/--no-backfill", help="Backfill new segments with Spark. Default: no.")]
Campaigns = Annotated[
    bool | None, typer.Option("--campaigns/--no-campaigns", help="Decide about the messages of campaigns. Default: no.")
]
Scale = Annotated[list[str] | None, typer.Option("--scale", help="SERVICE=N: number of workers of a service. Repeatable.")]
Workspaces = Annotated[
    list[str] | None,
    typer.Option("--workspace", help="Name of an additional workspace, with NAME-write-key and NAME-admin-token. Repeatable."),
]
HistoryDays = Annotated[
    int | None,
    typer.Option("--history-days", min=0, max=1_095, help="Days for which events of users are readable; 0: none. Default: 30."),
]
Only = Annotated[str, typer.Option("--only", help="Start only these parts and their dependencies, comma separated.")]
StartTimeout = Annotated[float, typer.Option("--timeout", help="Seconds to wait until all parts are ready.")]


def up(  # noqa: PLR0913, PLR0917 - the command line: each option is an argument
    data_dir: DataDir = None,
    detach: Detach = False,
    clock: StreamClock = None,
    port_base: PortBase = None,
    spark: Spark = None,
    lake: Lake = None,
    views: Views = None,
    backfill: Backfill = None,
    campaigns: Campaigns = None,
    scale: Scale = None,
    workspace: Workspaces = None,
    history_days: HistoryDays = None,
    only: Only = "",
    timeout: StartTimeout = _START_TIMEOUT_SECONDS,
) -> None:
    """Start the embedded stack and every service. On a running instance: start missing parts and apply --scale."""
    instance = instance_at(data_dir)
    names = tuple(name.strip() for name in only.split(",") if name.strip())
    jobs = {"spark": spark, "lake": lake, "views": views, "backfill": backfill, "campaigns": campaigns}
    workers, workspaces = parse_scale(scale or []), parse_workspaces(workspace or [])
    requested = RequestedOptions(
        clock=clock,
        port_base=port_base,
        scale=workers,
        only=names,
        workspaces=workspaces,
        history_days=history_days,
        **jobs,
    )
    _bring_up(instance, requested, timeout, detach=detach)


def _bring_up(instance: Instance, requested: RequestedOptions, timeout_seconds: float, *, detach: bool) -> None:
    """Start or reconfigure the instance, and report its parts. In the foreground: wait until it ends. Raises: typer.Exit."""
    # TERM and HUP stop a foreground stack like Ctrl-C. A shell can start a background command with INT ignored, so INT is set too.
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, signal.default_int_handler)
    running = supervisor_of(instance) is not None
    try:
        options = _reconfigure(instance, requested) if running else _start(instance, requested, detach=detach)
        _report_start(instance, options, timeout_seconds)
        if running:
            print_line("(the instance was already running; `starling down` stops it)")
        elif not detach:
            _wait_in_foreground(instance)
    except KeyboardInterrupt:
        if not running:
            stop(instance, print_line)
        raise typer.Exit(INTERRUPTED) from None


def down(data_dir: DataDir = None) -> None:
    """Stop the instance gracefully; the next `up` resumes with its data."""
    instance = instance_at(data_dir)
    instance.options()
    print_line("stopped" if stop(instance, print_line) else "nothing was running")


def status(
    data_dir: DataDir = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON document, also if no instance runs.")] = False,
) -> None:
    """Print the parts with process ids and lags, and the addresses; exit 0 only if all parts are ready."""
    instance = instance_at(data_dir)
    document = _document(instance)
    print_line(json.dumps(document, indent=2) if as_json else _as_text(document, instance))
    if not document["ready"]:
        raise typer.Exit(FAILED)


def env(
    data_dir: DataDir = None,
    spark: Annotated[bool, typer.Option("--spark", help="Include the settings of a Spark job.")] = False,
) -> None:
    """Print the settings of the running instance as shell exports, for a process started by hand: eval "$(starling env)"."""
    instance = instance_at(data_dir)
    options = running_options(instance)
    settings = environment_of_job(instance, "by-hand") if spark else shared_env(options)
    for name, value in sorted(settings.items()):
        print_line(f"export {name}={shlex.quote(value)}")


def _start(instance: Instance, requested: RequestedOptions, *, detach: bool) -> Options:
    """Check the machine, fetch missing bundles and start the supervisor."""
    if left := clear_orphans(instance):
        print_line(f"ended {left} orphaned processes of a killed supervisor")
    options = next_options(instance.options(), requested, running=False) if instance.exists() else first_options(requested)
    parts = planned_parts(instance.data_dir, options)
    missing = [BUNDLES[name] for name in needed_bundles(options) if not is_fetched(BUNDLES[name], default_runtime_dir())]
    ports = {name: port for part in parts for name, port in part.ports.items()}
    more_jobs = options.lake + options.views + options.backfill
    found = problems(instance.data_dir, ports, fetching=bool(missing), whole_stack=not options.only, more_spark_jobs=more_jobs)
    if found:
        for problem in found:
            print_error(problem)
        raise typer.Exit(NOT_POSSIBLE)
    for bundle in missing:
        fetch(bundle, default_runtime_dir(), print_line)
    instance.save_options(options)
    start_supervisor(instance, ends_with_caller=not detach)
    return options


def _reconfigure(instance: Instance, requested: RequestedOptions) -> Options:
    """Save the changed options and make the running supervisor apply them."""
    before = instance.options()
    options = next_options(before, requested, running=True)
    planned_parts(instance.data_dir, options)
    supervisor = supervisor_of(instance)
    if options is not before and supervisor:
        for name in needed_bundles(options):
            fetch(BUNDLES[name], default_runtime_dir(), print_line)
        instance.save_options(options)
        reload_supervisor(supervisor)
    return options


def _report_start(instance: Instance, options: Options, timeout_seconds: float) -> None:
    """Print one line for each part that becomes ready and for each unexpected exit, then the addresses."""
    begun = time.monotonic()
    reported: set[str] = set()
    for part in changes(instance, options.revision, timeout_seconds):
        if part.is_ready and part.name not in reported:
            reported.add(part.name)
            print_line(f"  {part.name:<14} {'done' if part.is_step else 'ready'}  {time.monotonic() - begun:5.1f} s")
        if part.state == "backoff":
            print_error(f"{part.name} {part.message}: {tail(instance, part.name, 1)}")
    print_line("ready")
    for name, address in endpoints(options, planned_parts(instance.data_dir, options)).items():
        if isinstance(address, str):
            print_line(f"  {name:<14} {address}")


def _wait_in_foreground(instance: Instance) -> None:
    print_line("Ctrl-C stops the instance")
    while supervisor_of(instance):
        time.sleep(_WATCH_SECONDS)
    print_line("stopped")


def _document(instance: Instance) -> dict[str, Any]:
    report = instance.report()
    if not instance.exists() or report is None:
        return dict(NO_INSTANCE)
    options = instance.options()
    alive = supervisor_of(instance) is not None
    lags = _lags(options, report) if alive else {}
    return status_document(options, planned_parts(instance.data_dir, options), report if alive else stopped(report), lags)


def _as_text(document: Mapping[str, Any], instance: Instance) -> str:
    if not document["parts"]:
        return f"no instance in {instance.data_dir}: `starling up` creates one"
    lines = [f"{'part':<14} {'state':<9} {'pid':>8} {'lag':>9} {'restarts':>9}  last end"]
    for part in document["parts"]:
        pid, lag = part["pid"] or "", "" if part["lag"] is None else f"{part['lag']:,}"
        line = f"{part['name']:<14} {part['state']:<9} {pid:>8} {lag:>9} {part['restarts']:>9}  {part['last_end']}"
        lines.append(line.rstrip())
    addresses = [f"{name:<14} {address}" for name, address in document["endpoints"].items() if isinstance(address, str)]
    return "\n".join([*lines, "", *addresses, "", "ready" if document["ready"] else f"not ready; the logs are in {instance.logs}"])


def _lags(options: Options, report: Report) -> dict[str, int | None]:
    """Return service → lag; empty if the broker does not answer."""
    if not any(part.name == "kafka" and part.is_ready for part in report.parts):
        return {}
    stages = stages_of(load_catalogue().stages, [service_of(part.name) for part in report.parts])
    with Offsetter(options.ports.address("kafka")) as offsets:
        try:
            found = stage_lags(offsets, stages)
        except BrokerUnavailable:
            return {}
    lags: Counter[str] = Counter()
    for name, count in found.items():
        lags[PART_OF_STAGE.get(name, name)] += count
    return dict(lags)
