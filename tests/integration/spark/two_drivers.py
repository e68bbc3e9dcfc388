"""A driver of the job `profiles` that is suspended, replaced and then goes on."""

import json
import signal
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import psutil

from starling_common.outcome import Done
from starling_common.testing import free_port
from starling_items.computed import fold_computed
from starling_items.profile import Profile
from tests.integration.spark.instance import Instance, wait_for

START_MS = 1_700_000_000_000
PATIENT = "spark.network.timeout 900s\nspark.executor.heartbeatInterval 60s\n"
"""A driver that was suspended for minutes does not give its own executor up."""


def assert_that_a_suspended_driver_changes_no_profile(instance: Instance) -> None:
    """Suspend the driver before it publishes, let another one go on, and resume the former."""
    instance.define("orders", {"event": "Order Completed"})
    (instance.directory / "patient").mkdir()
    (instance.directory / "patient" / "spark-defaults.conf").write_text(PATIENT)
    instance.start(SPARK_CONF_DIR=str(instance.directory / "patient"))
    orders = _order(instance, 1)
    with _suspended_before_it_publishes(instance) as (former, sent):
        orders = _order(instance, orders + sent + 1)
        orders = _order(instance, orders + 1)
        before = instance.read("aggregates")
        _signal(former, signal.SIGCONT)
        wait_for(lambda: former.poll() is not None or None, 300, instance.log_tail)
    late = instance.read("aggregates")[len(before) :]
    assert {one.record["epoch"] for one in late} < {one.record["epoch"] for one in before}, "it published nothing: no test"
    orders = _order(instance, orders + 1)
    assert _changes(instance) == [("ann", count) for count in range(1, orders + 1)]
    assert former.returncode == 1
    assert instance.stop() == 0


@contextmanager
def _suspended_before_it_publishes(instance: Instance) -> Iterator[tuple[subprocess.Popen[bytes], int]]:
    """Suspend the driver in a micro-batch, and start another one. Yield the former one, and the number of orders sent for that."""
    former, (checkpoint,) = instance.process, (instance.directory / "checkpoints" / "profiles").iterdir()
    assert former is not None
    sent = 0
    while True:
        published, planned = len(instance.read("aggregates")), _last(checkpoint / "offsets")
        instance.event("ann", START_MS)
        sent += 1
        while former.poll() is None and _last(checkpoint / "offsets") == planned:
            time.sleep(0.002)  # sleep: a moment after which the micro-batch is published does not suffice
        _signal(former, signal.SIGSTOP)
        if len(instance.read("aggregates")) == published:
            break
        _signal(former, signal.SIGCONT)
        instance.settle()
    try:
        instance.port = free_port()
        instance.start()
        yield former, sent
    finally:
        if former.poll() is None:
            _signal(former, signal.SIGCONT)
        former.kill()
        former.wait(timeout=60)


def _order(instance: Instance, total: int) -> int:
    """Send the order that is the last one of so many, and wait for the value; return the number."""
    instance.event("ann", START_MS)
    instance.settle()
    assert instance.values()["ann", "orders"] == total
    return total


def _last(directory: Path) -> int:
    return max((int(path.name) for path in directory.iterdir() if path.name.isdecimal()), default=-1)


def _signal(process: subprocess.Popen[bytes], number: signal.Signals) -> None:
    """Send a signal to a driver with its JVM and its workers."""
    driver = psutil.Process(process.pid)
    for one in (driver, *driver.children(recursive=True)):
        with suppress(psutil.NoSuchProcess):  # a worker may end meanwhile
            one.send_signal(number)


def _changes(instance: Instance) -> list[tuple[str, Any]]:
    """Return (user, value) of each change of a profile, as the normalizer makes it of the published values."""
    profiles: dict[bytes, Profile] = {}
    changes: list[tuple[str, Any]] = []
    for one in instance.read("aggregates"):
        outcome = fold_computed(one.record, one.key, profiles.setdefault(one.key, Profile()))
        if isinstance(outcome, Done) and outcome.value is not None:
            changes.append((one.record["user_id"], json.loads(one.record["value"] or "null")))
    return changes
