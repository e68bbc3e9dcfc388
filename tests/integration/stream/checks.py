"""Events for the workers, and checks of their outputs, logs and stores."""

import json
import urllib.request
from collections import Counter, defaultdict
from collections.abc import Sequence
from contextlib import closing
from typing import Any

from starling_stream.inspect.audit import Audit, Source
from tests.integration.stream.rig import Rig, Worker, wait_until

USERS = 40
Sent = Sequence[tuple[str, bytes, bytes]]


def counts_by_key(rig: Rig) -> dict[bytes, list[int]]:
    found: dict[bytes, list[int]] = defaultdict(list)
    for _, key, value in rig.read(f"{rig.stage}.out"):
        if not value.startswith((b"quiet", b"v2")):
            found[key].append(int(value))
    return dict(found)


def expected_counts(sent: Sent) -> dict[bytes, list[int]]:
    return {key: list(range(1, count + 1)) for key, count in Counter(key for _, key, _ in sent).items()}


def send_events(rig: Rig, count: int) -> list[tuple[str, bytes, bytes]]:
    made = rig.events(count, USERS)
    rig.send(made)
    return made


def is_refused(worker: Worker) -> bool:
    """Return whether its generation or producer was fenced, or the broker had aborted its transaction."""
    logged = worker.log.read_bytes().lower()
    return b"fenced" in logged or b"batch_aborted" in logged


def is_dead(worker: Worker) -> bool:
    return not worker.alive()


LONG = {"STARLING_SESSION_TIMEOUT_SECONDS": "600"}
"""Longer than any test: a test that waits for the end of a session fails."""


def tasks_based_on(worker: Worker, base: str) -> int:
    """Return how many of its tasks were restored from that base."""
    lines = worker.log.read_text().splitlines()
    return sum(f'"base": "{base}"' in line and "task_running" in line for line in lines)


def audit_of(rig: Rig) -> Audit:
    assert rig.cassandra is not None
    return Audit(rig.stage, Source(rig.brokers, rig.registry_url, rig.cassandra))


def inconsistencies(rig: Rig) -> list[str]:
    """Compare Cassandra with the changelog, flushed offsets before its end included: all workers are stopped or idle."""
    with closing(audit_of(rig)) as audit:
        found = [check for number in range(rig.partitions) for check in audit.checks(number)]
    late = [
        f"{one.partition}: flushed offset {one.position} of {one.log_end}" for one in found if (one.position or 0) < one.log_end - 1
    ]
    return [*late, *(example for one in found for example in one.examples)]


COPIES = {"STARLING_STANDBY_REPLICAS": "1"}


def logged_events(worker: Worker, event: str) -> list[dict[str, Any]]:
    """Return the log records of that event, in order."""
    lines = [json.loads(line) for line in worker.log.read_text().splitlines() if line.startswith("{")]
    return [line for line in lines if line["event"] == event]


def standby_lags(worker: Worker) -> dict[int, float]:
    """Return partition -> the lag of its copy."""
    with urllib.request.urlopen(f"http://127.0.0.1:{worker.port}/metrics", timeout=10) as answer:
        lines = answer.read().decode().splitlines()
    lags = [line for line in lines if line.startswith("starling_stream_standby_lag_records{")]
    return {int(line.split('partition="')[1].split('"')[0]): float(line.rpartition(" ")[2]) for line in lags}


def wait_for_copies(workers: list[Worker], each: int) -> None:
    def there() -> bool:
        lags = [standby_lags(worker) for worker in workers]
        return all(len(found) == each and not any(found.values()) for found in lags)

    wait_until(there, f"{each} copies each, up to date", details=lambda: str([standby_lags(worker) for worker in workers]))
