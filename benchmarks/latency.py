"""From an event acknowledged by ingest to its membership record readable by a subscriber, at light load. Prints JSON, ms.

    python benchmarks/latency.py [--rate 20] [--seconds 60] [--trait] [--data-dir .starling]

Needs a running stack (`starling up --detach`) and uses nothing but the contract: the ingest API, the segment API, the
feed on Kafka read with `read_committed`. A segment of its own lets each user in by one event; every event is of a new
user, so that each makes exactly one entry. The clock starts when ingest has answered and stops when `poll` returns the
record; a change that never comes fails the run. With `--trait` a computed trait counts the events, and the segment has the users
with a value: an event goes through Spark before it changes a membership.
"""

import argparse
import json
import statistics
import subprocess
import sys
import threading
import time
import uuid
from pathlib import Path
from typing import Any

import httpx
from confluent_kafka import Consumer, TopicPartition

from starling_common.kafka.clients import consumer_config
from starling_common.wire import Registry

TOPIC, SCHEMA = "segments.membership", "SegmentMembershipChanged"
PATIENCE_SECONDS = 60.0
WARM_UP_SECONDS = 60


def endpoints(data_dir: str) -> dict[str, Any]:
    command = [sys.executable, "-m", "starling_cli", "status", "--json", "--data-dir", data_dir]
    found = subprocess.run(command, stdout=subprocess.PIPE, check=False)
    return dict(json.loads(found.stdout)["endpoints"])


class Arrivals:
    """Reads the feed in a thread of its own; user -> when the record was in hand (monotonic seconds)."""

    def __init__(self, brokers: str, registry_url: str, segment: str) -> None:
        self._codec = Registry(registry_url).codec(TOPIC, SCHEMA)
        self._segment = segment
        self._consumer = Consumer(consumer_config(brokers, f"latency-{segment}", **{"fetch.wait.max.ms": 100}))
        numbers = self._consumer.list_topics(TOPIC, timeout=30).topics[TOPIC].partitions
        places = [TopicPartition(TOPIC, number) for number in numbers]
        for place in places:
            place.offset = self._consumer.get_watermark_offsets(place, timeout=30)[1]
        self._consumer.assign(places)
        self.at: dict[str, float] = {}
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._read, daemon=True)
        self._thread.start()

    def _read(self) -> None:
        while not self._stopping.is_set():
            for message in self._consumer.consume(500, 0.02):
                if message.error() is None:
                    now = time.monotonic()
                    record = self._codec.decode(message.value() or b"")
                    if record["segment_key"] == self._segment:
                        self.at.setdefault(record["user_id"], now)

    def stop(self) -> None:
        self._stopping.set()
        self._thread.join(10)
        self._consumer.close()


def define(api_url: str, token: str, name: str, *, trait: bool) -> None:
    """A segment of this run's own, in force: of the users with an event, or with a value of a trait that counts it."""
    headers = {"Authorization": f"Bearer {token}"}
    with httpx.Client(base_url=api_url, headers=headers, timeout=30) as api:
        if trait:
            active(api, "computed-traits", {"key": name, "name": name, "event": name})
        where = {"trait": f"computed.{name}", "op": "gte", "value": 1} if trait else {"event": name}
        active(api, "segments", {"key": name, "name": name, "where": where})


def active(api: httpx.Client, kind: str, document: dict[str, Any]) -> None:
    """Create a definition, and wait until it is in force."""
    api.post(f"/v1/{kind}", json=document).raise_for_status()
    deadline = time.monotonic() + PATIENCE_SECONDS
    while api.get(f"/v1/{kind}/{document['key']}").raise_for_status().json()["status"] != "active":
        if time.monotonic() > deadline:
            raise TimeoutError(f"{document['key']} was not active within {PATIENCE_SECONDS} s")
        time.sleep(0.1)


def send(ingest_url: str, write_key: str, event: str, plan: tuple[int, float], users: str = "user") -> dict[str, float]:
    """One event for each of `count` new users, evenly spaced; user -> when its acknowledgement was in hand.

    `users`: the begin of their ids.
    """
    count, interval = plan
    acknowledged: dict[str, float] = {}
    with httpx.Client(base_url=ingest_url, auth=(write_key, ""), timeout=30) as ingest:
        began = time.monotonic()
        for number in range(count):
            time.sleep(max(0.0, began + number * interval - time.monotonic()))
            user = f"{event}-{users}-{number}"
            item = {"userId": user, "event": event, "messageId": user, "properties": {"revenue": 5}}
            ingest.post("/v1/track", json=item).raise_for_status()
            acknowledged[user] = time.monotonic()
    return acknowledged


def run(arguments: argparse.Namespace) -> dict[str, Any]:
    found = endpoints(arguments.data_dir)
    name = f"latency-{uuid.uuid4().hex[:8]}"
    define(found["api"], arguments.token, name, trait=arguments.trait)
    if arguments.trait:  # the JVM of Spark compiles most of what runs for long
        send(found["ingest"], arguments.write_key, name, (arguments.rate * WARM_UP_SECONDS, 1 / arguments.rate), "before")
    arrivals = Arrivals(found["kafka"], found["registry"], name)
    acknowledged = send(found["ingest"], arguments.write_key, name, (arguments.rate * arguments.seconds, 1 / arguments.rate))
    deadline = time.monotonic() + PATIENCE_SECONDS
    while acknowledged.keys() - arrivals.at.keys() and time.monotonic() < deadline:
        time.sleep(0.05)
    arrivals.stop()
    missing = acknowledged.keys() - arrivals.at.keys()
    if missing:
        raise RuntimeError(f"{len(missing)} of {len(acknowledged)} entries never came: {sorted(missing)[:5]}")
    # A record may be in hand before the sender has read its answer: that is no latency, and no less than none.
    taken = sorted(max(0.0, arrivals.at[user] - at) * 1000 for user, at in acknowledged.items())
    return {
        "events": len(taken),
        "rate_per_second": arguments.rate,
        "p50_ms": round(statistics.median(taken), 1),
        "p99_ms": round(taken[int(len(taken) * 0.99)], 1),
        "max_ms": round(taken[-1], 1),
    }


def main() -> int:
    arguments = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    arguments.add_argument("--rate", type=int, default=20)
    arguments.add_argument("--seconds", type=int, default=60)
    arguments.add_argument("--trait", action="store_true", help="of a segment over a computed trait")
    arguments.add_argument("--data-dir", default=".starling")
    arguments.add_argument("--write-key", default="local-write-key")
    arguments.add_argument("--token", default="local-admin-token")
    arguments.add_argument("--write", action="store_true", help="keep the result in benchmarks/results")
    parsed = arguments.parse_args()
    found = json.dumps(run(parsed), indent=2)
    print(found)
    if parsed.write:
        name = "latency_trait.json" if parsed.trait else "latency.json"
        (Path(__file__).resolve().parent / "results" / name).write_text(found + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
