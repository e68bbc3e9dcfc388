"""Edge: `settle` and `clock advance`."""

from typing import Annotated

import typer

from starling_cli.commands.common import DataDir, instance_at, pipeline_of, print_line, running_options
from starling_cli.settle.settle import settle as wait_until_settled
from starling_cli.stream_clock import StreamClock, parse_point
from starling_common.time.instants import format_instant
from starling_local.errors import NotPossible
from starling_local.stack.parts.jvm_registry import registry_url

clock_app = typer.Typer(no_args_is_help=True, help="Advance the stream time of an instance with --clock event.")

Instant = Annotated[str, typer.Argument(metavar="INSTANT", help="ISO 8601 or epoch milliseconds.")]
Timeout = Annotated[str, typer.Option("--timeout", help="Time to wait, such as 60s, 500ms or 2m.")]


def settle(data_dir: DataDir = None, timeout: Timeout = "60s") -> None:
    """Wait until every stage has processed all events accepted so far, and the read models show them."""
    seconds = parse_seconds(timeout)
    with pipeline_of(instance_at(data_dir)) as pipeline:
        wait_until_settled(pipeline, seconds)
    print_line("settled")


@clock_app.command("advance")
def advance(instant: Instant, data_dir: DataDir = None, timeout: Timeout = "60s") -> None:
    """Advance the stream time of every partition to INSTANT (ISO 8601 or epoch milliseconds) and wait for its timers."""
    seconds = parse_seconds(timeout)
    target = parse_point(instant)
    instance = instance_at(data_dir)
    options = running_options(instance)
    if options.clock != "event":
        raise NotPossible(
            "this instance runs on the wall clock: create another one with `starling up --clock event --data-dir DIR`"
        )
    clock = StreamClock(options.ports.address("kafka"), registry_url(options.ports))
    with pipeline_of(instance) as pipeline:
        wait_until_settled(pipeline, seconds)
        reached = clock.reached()
        if reached is not None and target <= reached:
            print_line(f"the clock is at {format_instant(reached)} already: nothing to do")
            return
        clock.advance(target)
        wait_until_settled(pipeline, seconds)
    print_line(f"stream time is {format_instant(target)}")


_UNITS = {"ms": 0.001, "s": 1.0, "m": 60.0, "h": 3600.0}


def parse_seconds(text: str) -> float:
    """Return `60s`, `500ms`, `2m` or a bare number of seconds as seconds. Raises NotPossible."""
    number = text.rstrip("mhs")
    unit = _UNITS.get(text[len(number) :] or "s")
    try:
        seconds = float(number) * (unit or 0.0)
    except ValueError:
        seconds = -1.0
    if unit is None or not 0 <= seconds < float("inf"):
        raise NotPossible(f"--timeout {text}: write a duration such as 60s, 500ms or 2m")
    return seconds
