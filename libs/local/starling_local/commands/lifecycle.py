"""Edge: `up`, `status` and `down`."""

import json
import shlex
import signal
import time
from collections import Counter
from collections.abc import Mapping
from typing import Annotated, Any, Literal

import typer

from starling_common.kafka import BrokerUnavailable
from starling_common.topics import load_catalogue
from starling_local.commands.common import DataDir, complain, instance_at, running_options, say
from starling_local.errors import FAILED, INTERRUPTED, NOT_POSSIBLE
from starling_local.instance import Instance, Options, Report
from starling_local.options import Asked, first_options, next_options, parse_scale
from starling_local.preflight import faults
from starling_local.runtime import BUNDLES, fetch
from starling_local.runtime.fetching import default_runtime_dir, is_fetched
from starling_local.settle.broker import Offsetter
from starling_local.settle.progress import PART_OF_STAGE, stages_of
from starling_local.settle.settle import stage_lags
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
from starling_local.stack.services import shared_env
from starling_local.stack.wiring import needed_bundles, planned_parts
from starling_local.status import NO_INSTANCE, endpoints, service_of, status_document, stopped

_START_TIMEOUT_SECONDS = 300.0
_WATCH_SECONDS = 0.5


def up(  # noqa: PLR0913, PLR0917 - the command line: each option is an argument
    data_dir: DataDir = None,
    detach: Annotated[bool, typer.Option("--detach", help="Return when everything is ready, and leave it running.")] = False,
    clock: Annotated[
        Literal["wall", "event"] | None,
        typer.Option("--clock", help="wall: stream time is now. event: it is the highest event time seen (history, demos, tests)."),
    ] = None,
    port_base: Annotated[int | None, typer.Option("--port-base", help="Moves every port. Default: 18080.")] = None,
    spark: Annotated[bool | None, typer.Option("--spark/--no-spark", help="Whether Spark runs. Default: it does.")] = None,
    lake: Annotated[bool | None, typer.Option("--lake/--no-lake", help="Whether all events go into the lake. Default: no.")] = None,
    views: Annotated[bool | None, typer.Option("--views/--no-views", help="Whether views are computed. Default: no.")] = None,
    backfill: Annotated[
        bool | None, typer.Option("--backfill/--no-backfill", help="Whether Spark gathers the past of new segments. Default: no.")
    ] = None,
    scale: Annotated[list[str] | None, typer.Option("--scale", help="SERVICE=N, may be repeated: more workers.")] = None,
    only: Annotated[str, typer.Option("--only", help="Only these parts and what they need, comma separated.")] = "",
    timeout: Annotated[float, typer.Option("--timeout", help="Seconds to wait until all is ready.")] = _START_TIMEOUT_SECONDS,
) -> None:
    """Start the embedded stack and every service; safe to repeat: starts what is missing."""
    instance = instance_at(data_dir)
    names = tuple(name.strip() for name in only.split(",") if name.strip())
    jobs = {"spark": spark, "lake": lake, "views": views, "backfill": backfill}
    asked = Asked(clock=clock, port_base=port_base, scale=parse_scale(scale or []), only=names, **jobs)
    # A terminal closed and a TERM stop a foreground stack like Ctrl-C does; and Ctrl-C does so even where a shell had it ignored.
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, signal.default_int_handler)
    running = supervisor_of(instance) is not None
    try:
        options = _change(instance, asked) if running else _begin(instance, asked, detach=detach)
        _announce(instance, options, timeout)
        if running:
            say("(it ran already; `starling down` stops it)")
        elif not detach:
            _stay(instance)
    except KeyboardInterrupt:
        if not running:
            stop(instance, say)
        raise typer.Exit(INTERRUPTED) from None


def down(data_dir: DataDir = None) -> None:
    """Stop gracefully; the next `up` goes on where this one stopped."""
    instance = instance_at(data_dir)
    instance.options()
    say("stopped" if stop(instance, say) else "nothing was running")


def status(
    data_dir: DataDir = None,
    as_json: Annotated[bool, typer.Option("--json", help="One JSON document, whatever the state.")] = False,
) -> None:
    """Parts, addresses, process ids and the lag of each stage; exit 0 only when all are ready."""
    instance = instance_at(data_dir)
    document = _document(instance)
    say(json.dumps(document, indent=2) if as_json else _as_text(document, instance))
    if not document["ready"]:
        raise typer.Exit(FAILED)


def env(
    data_dir: DataDir = None,
    spark: Annotated[bool, typer.Option("--spark", help="Also the settings of a Spark job.")] = False,
) -> None:
    """Print the running instance's settings as shell exports, for a process started by hand: eval "$(starling env)"."""
    instance = instance_at(data_dir)
    options = running_options(instance)
    settings = environment_of_job(instance, "by-hand") if spark else shared_env(options.ports, options.clock)
    for name, value in sorted(settings.items()):
        say(f"export {name}={shlex.quote(value)}")


def _begin(instance: Instance, asked: Asked, *, detach: bool) -> Options:
    """Check the machine, bring what is missing, start the supervisor."""
    if left := clear_orphans(instance):
        say(f"ended {left} processes that a killed supervisor had left")
    options = next_options(instance.options(), asked, running=False) if instance.exists() else first_options(asked)
    parts = planned_parts(instance.data_dir, options)
    missing = [BUNDLES[name] for name in needed_bundles(options) if not is_fetched(BUNDLES[name], default_runtime_dir())]
    ports = {name: port for part in parts for name, port in part.ports.items()}
    more_jobs = options.lake + options.views + options.backfill
    found = faults(instance.data_dir, ports, fetching=bool(missing), whole_stack=not options.only, more_spark_jobs=more_jobs)
    if found:
        for fault in found:
            complain(fault)
        raise typer.Exit(NOT_POSSIBLE)
    for bundle in missing:
        fetch(bundle, default_runtime_dir(), say)
    instance.save_options(options)
    start_supervisor(instance, ends_with_us=not detach)
    return options


def _change(instance: Instance, asked: Asked) -> Options:
    """Have the running supervisor start what is newly asked for."""
    before = instance.options()
    options = next_options(before, asked, running=True)
    planned_parts(instance.data_dir, options)
    supervisor = supervisor_of(instance)
    if options is not before and supervisor:
        for name in needed_bundles(options):
            fetch(BUNDLES[name], default_runtime_dir(), say)
        instance.save_options(options)
        reload_supervisor(supervisor)
    return options


def _announce(instance: Instance, options: Options, timeout_seconds: float) -> None:
    """One line a part as it gets ready, one for each fall; at the end the addresses."""
    begun = time.monotonic()
    announced: set[str] = set()
    for part in changes(instance, options.revision, timeout_seconds):
        if part.is_ready and part.name not in announced:
            announced.add(part.name)
            say(f"  {part.name:<14} {'done' if part.is_step else 'ready'}  {time.monotonic() - begun:5.1f} s")
        if part.state == "backoff":
            complain(f"{part.name} {part.message}: {tail(instance, part.name, 1)}")
    say("ready")
    for name, address in endpoints(options, planned_parts(instance.data_dir, options)).items():
        if isinstance(address, str):
            say(f"  {name:<14} {address}")


def _stay(instance: Instance) -> None:
    say("Ctrl-C stops everything")
    while supervisor_of(instance):
        time.sleep(_WATCH_SECONDS)
    say("stopped")


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
        return f"no instance in {instance.data_dir}: `starling up` makes one"
    lines = [f"{'part':<14} {'state':<9} {'pid':>8} {'lag':>9}"]
    for part in document["parts"]:
        pid, lag = part["pid"] or "", "" if part["lag"] is None else f"{part['lag']:,}"
        lines.append(f"{part['name']:<14} {part['state']:<9} {pid:>8} {lag:>9}")
    addresses = [f"{name:<14} {address}" for name, address in document["endpoints"].items() if isinstance(address, str)]
    return "\n".join([*lines, "", *addresses, "", "ready" if document["ready"] else f"not ready; logs are in {instance.logs}"])


def _lags(options: Options, report: Report) -> dict[str, int | None]:
    """Service → lag. Nothing at all when the broker cannot be asked: no figure is better than a wrong one."""
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
