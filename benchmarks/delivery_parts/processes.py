"""The real processes of delivery on a benchmark's own stack, and how they compare with bare loops."""

import json
import os
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final, NamedTuple

import httpx
from common.bench import HERE, Rate, Stack, Watched, medians

from starling_common.testing import free_port

WARM_UP: Final = 0.3
"""The share of the records that is not measured."""
_END: Final = 0.95
_WARM_UP_SECONDS: Final = 3.0
_MEASURED_SECONDS: Final = 10.0
"""A process is measured for so long, from so long after its first outcome, if its backlog lasts."""
_LOOK_SECONDS: Final = 0.3
"""Between two looks at the process's counter, each of which costs it a few milliseconds."""
_READY_SECONDS: Final = 120.0
_RUN_SECONDS: Final = 300.0
MESSAGES: Final = {
    "STARLING_CHANNEL": "email",
    "STARLING_CHANNELS": '["email"]',
    "STARLING_EMAIL__UNSUBSCRIBE_URL": "https://mail.example.com/u",
    "STARLING_EMAIL__HOSTNAME": "localhost",
}
"""The settings of the process of campaigns with the channel `email` alone."""


class Service:
    """One process, and its metrics."""

    def __init__(self, made: Stack, directory: Path, name: str, command: Sequence[str], settings: Mapping[str, str]) -> None:
        self._port = free_port()
        own = {
            "STARLING_HTTP__PORT": str(self._port),
            "STARLING_INSTANCE_ID": name,
            "STARLING_STATE_DIR": str(directory / name),
            "STARLING_CLOCK": "wall",
            "STARLING_ALLOW_PRIVATE_ADDRESSES": "true",
            "PYTHONPATH": str(HERE),
        }
        self.process = Watched(
            (sys.executable, "-m", *command), {**made.environment(), **own, **settings}, directory / f"{name}.log"
        )

    def wait_ready(self) -> None:
        """Raises: RuntimeError when the process ends, TimeoutError."""
        deadline = time.monotonic() + _READY_SECONDS
        while self._get("readyz") is None:
            self.process.check()
            if time.monotonic() > deadline:
                raise TimeoutError(f"not ready within {_READY_SECONDS} s: see {self.process.log}")
            time.sleep(0.1)

    def count(self, metric: str, **labels: str) -> float:
        """Return the value of a counter; 0 before it exists."""
        wanted = metric + "{" + ",".join(f'{name}="{value}"' for name, value in labels.items()) + "} "
        found = (line for line in (self._get("metrics") or "").splitlines() if line.startswith(wanted))
        return float(next(found, "x 0").rpartition(" ")[2])

    def total(self, metric: str) -> float:
        """Return the sum of a counter over all labels."""
        found = (line for line in (self._get("metrics") or "").splitlines() if line.startswith(metric + "{"))
        return sum(float(line.rpartition(" ")[2]) for line in found)

    def _get(self, path: str) -> str | None:
        try:
            answer = httpx.get(f"http://127.0.0.1:{self._port}/{path}", timeout=15, trust_env=False)
        except httpx.TransportError:
            return None
        return answer.text if answer.is_success else None


@contextmanager
def running(made: Stack, directory: Path, name: str, *command: str, **settings: str) -> Iterator[Service]:
    """Run `python -m` with the command; yield when it is ready."""
    service = Service(made, directory, name, command, settings)
    try:
        service.wait_ready()
        yield service
    finally:
        service.process.stop()


class Backlog(NamedTuple):
    """What a process has to send. `outcome`: that of each message, `channel`: as its metric names it."""

    channel: str
    outcome: str
    messages: int


def rate_of(made: Stack, directory: Path, name: str, command: Sequence[str], backlog: Backlog, settings: Mapping[str, str]) -> Rate:
    """Return the rate at which a new process sends a backlog from its begin.

    Its own counter of outcomes is compared. Committed offsets are too coarse: they do not pass the oldest message in progress.
    """
    own = {"STARLING_GROUP": name, "STARLING_TRANSACTIONAL_ID": name}
    service = Service(made, directory, name, command, {**own, **settings})
    try:
        found = sent_rate(
            service.process,
            lambda: service.count("starling_delivery_attempts_total", channel=backlog.channel, outcome=backlog.outcome),
            backlog.messages,
        )
        if postponed := service.total("starling_delivery_postponed_total"):
            print(f"  {name}: {postponed:,.0f} messages were postponed, so the load was not steady", flush=True)
        return found
    finally:
        service.process.stop()


def sent_rate(process: Watched, sent: Callable[[], float], count: int) -> Rate:
    """Return the rate of a process that is busy all the while: without its start, and without the end of its backlog.

    `sent`: the messages sent so far. Raises: RuntimeError when the process ends or the backlog is too short, TimeoutError.
    """
    marks: list[tuple[float, float, float]] = []
    """Messages, monotonic seconds, and CPU seconds, from the end of the warm-up."""
    first_at, deadline = 0.0, time.monotonic() + _RUN_SECONDS
    while True:
        process.check()
        done, now = sent(), time.monotonic()
        if now > deadline:
            raise TimeoutError(f"{done:,.0f} of {count:,} messages within {_RUN_SECONDS:g} s: see {process.log}")
        if done > count * _END:
            break
        first_at = first_at or (now if done else 0.0)
        if first_at and (now - first_at >= _WARM_UP_SECONDS or done >= count * WARM_UP):
            marks.append((done, now, process.cpu_seconds()))
            if now - marks[0][1] >= _MEASURED_SECONDS:
                break
        time.sleep(_LOOK_SECONDS)
    if len(marks) < 2 or marks[-1][0] == marks[0][0]:
        raise RuntimeError(f"{count:,} messages are too few to measure, or none was sent: see {process.log}")
    (first, began, cpu_before), (last, ended, cpu_after) = marks[0], marks[-1]
    return Rate(round(last - first), ended - began, cpu_after - cpu_before)


def bare_loop(made: Stack | None, *words: str) -> Rate:
    """Run a loop of `clients.py` in a process of its own. Raises: RuntimeError with its output."""
    environment = {**(os.environ if made is None else made.environment()), "PYTHONPATH": str(HERE)}
    command = (sys.executable, "-m", "delivery_parts.clients", *words)
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False, timeout=_RUN_SECONDS)
    if done.returncode != 0:
        raise RuntimeError(f"clients.py {' '.join(words)}: {done.stdout}{done.stderr}")
    return Rate(*json.loads(done.stdout.splitlines()[-1]))


def compared(runs: Mapping[str, Sequence[Rate]], yardstick: str) -> dict[str, Any]:
    """Return the medians of each contender, with the ratios to the yardstick: by the clock and by CPU seconds."""
    base = runs[yardstick]
    found: dict[str, Any] = {}
    for name, rates in runs.items():
        # Few of them, in a short run, make a rate meaningless.
        found[name] = {**medians(rates), "each_events_measured": [rate.events for rate in rates]}
        if name != yardstick:
            found[name] |= {
                "of_yardstick_by_clock": _ratio([rate.per_second for rate in rates], [rate.per_second for rate in base]),
                "of_yardstick_by_cpu": _ratio([rate.per_cpu_second for rate in rates], [rate.per_cpu_second for rate in base]),
            }
    return {"yardstick": yardstick, "contenders": found}


def _ratio(values: Sequence[float], base: Sequence[float]) -> float:
    return round(statistics.median(values) / statistics.median(base), 3)
