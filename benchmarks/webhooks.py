"""Delivery with and without batches: one process, a broker and a registry of its own, and an endpoint that answers at once.

    python benchmarks/webhooks.py [--changes 16000] [--rounds 2] [--write]

A process reads the same backlog of membership changes in each round: with one change a request, then with up to 100, in turn. The
endpoint verifies no signature. `--write` writes `benchmarks/results/webhooks.json`.
"""

import argparse
import json
import os
import statistics
import sys
import tempfile
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final

from common.bench import Progress, Stack, Watched, keep, stack, steady_rate, write
from confluent_kafka import Producer
from delivery_parts import records
from delivery_parts.receivers import receiving

from starling_common.kafka.clients import produce_and_wait, producer_config
from starling_common.kafka.topics import MEMBERSHIP, WEBHOOK_DEFINITIONS
from starling_common.testing import free_port
from starling_common.values import record_key
from starling_common.wire import Registry

USERS: Final = 20_000
WARM_UP: Final = 0.3
BATCHES: Final = {"1": None, "100": {"max_items": 100, "max_wait_ms": 200}}


def changes(count: int, registry: Registry) -> Iterator[tuple[bytes, bytes]]:
    codec = registry.codec(MEMBERSHIP, "SegmentMembershipChanged")
    return ((key, codec.encode(change)) for key, change in records.changes(count, USERS))


def define(made: Stack, url: str, version: int, batch: dict[str, int] | None) -> None:
    document = {"key": "sink", "url": url, "secret": records.SIGNING}
    record = {
        "recorded_at": version,
        "event_id": f"definition-{version}",
        "workspace": "default",
        "kind": "webhook",
        "key": "sink",
        "version": version,
        "action": "DEFINED" if version == 1 else "REVISED",
        "document": json.dumps(document | ({"batch": batch} if batch else {})),
        "actor": "benchmark",
        "correlation_id": "c",
    }
    value = Registry(made.registry_url).codec(WEBHOOK_DEFINITIONS, "DefinitionChanged").encode(record)
    producer = Producer(producer_config(made.brokers))
    produce_and_wait(producer, WEBHOOK_DEFINITIONS, key=record_key("default", "sink"), value=value, headers=[])


def run(made: Stack, directory: Path, group: str, count: int) -> dict[str, float]:
    """One process over the whole backlog."""
    own = {
        "STARLING_GROUP": group,
        "STARLING_INSTANCE_ID": group,
        "STARLING_HTTP__PORT": str(free_port()),
        "STARLING_ALLOW_PRIVATE_ADDRESSES": "true",
    }
    process = Watched((sys.executable, "-m", "starling_delivery"), made.environment() | own, directory / f"{group}.log")
    progress = Progress(made.brokers, group, MEMBERSHIP)
    try:
        rate = steady_rate(process, progress, int(count * WARM_UP), int(count * 0.95), patience_seconds=150)
        progress.wait(count, process, 60)
        return {"changes_per_second": rate.per_second, "cpu_us_per_change": rate.cpu_seconds / rate.events * 1e6}
    finally:
        progress.close()
        process.stop()


def measure(count: int, rounds: int) -> dict[str, Any]:
    runs: dict[str, list[dict[str, float]]] = {name: [] for name in BATCHES}
    with (
        tempfile.TemporaryDirectory() as name,
        receiving("http") as port,
        stack(Path(name) / "stack") as made,
    ):
        url = f"http://127.0.0.1:{port}/hook"
        write(made.brokers, MEMBERSHIP, changes(count, Registry(made.registry_url)))
        for number in range(rounds):
            for size, batch in BATCHES.items():
                define(made, url, number * len(BATCHES) + int(size != "1") + 1, batch)
                runs[size].append(run(made, Path(name), f"bench-{size}-{number}", count))
                print(size, runs[size][-1], flush=True)
    median = {size: {field: statistics.median(one[field] for one in found) for field in found[0]} for size, found in runs.items()}
    one, many = median["1"], median["100"]
    ratio = {
        "changes_per_second": many["changes_per_second"] / one["changes_per_second"],
        "cpu_us_per_change": one["cpu_us_per_change"] / many["cpu_us_per_change"],
    }
    setting = {"changes": count, "users": USERS, "rounds": rounds, "processors": os.cpu_count()}
    load = {"load_average_5m": os.getloadavg()[1], "at": datetime.now(UTC).isoformat(timespec="seconds")}
    return {"setting": setting | load, "median": median, "ratio_of_100_to_1": ratio, "runs": runs}


def main() -> int:
    parser = argparse.ArgumentParser()
    parser.add_argument("--changes", type=int, default=16_000)
    parser.add_argument("--rounds", type=int, default=2)
    parser.add_argument("--write", action="store_true")
    chosen = parser.parse_args()
    found = measure(chosen.changes, chosen.rounds)
    print(json.dumps(found, indent=1))
    if chosen.write:
        keep("webhooks", found)
    return 0


if __name__ == "__main__":
    sys.exit(main())
