"""The well-behaved workspace: sends events, and measures when each membership change can be read from the feed.

A process of its own, so that an attack in the parent cannot delay it: `python -m tests.fuzz.probe --help`. Each line on
the standard output is one event. `delay_ms` is the longest time meanwhile for which this machine did not run a thread
that only slept.
"""

import argparse
import json
import sys
import threading
import time
import uuid
from collections import deque
from dataclasses import asdict, dataclass

import httpx
from confluent_kafka import Consumer, TopicPartition

from starling_common.kafka.clients import consumer_config
from starling_common.kafka.topics import MEMBERSHIP
from starling_common.wire import Registry

PATIENCE_SECONDS = 60.0
_TICK_SECONDS = 0.02


@dataclass(frozen=True)
class Sample:
    """One event: when it was sent (epoch seconds), and the time until its change was read; None if it never came."""

    sent_at: float
    ms: float | None
    delay_ms: float


class Machine:
    """The delays of a thread that only sleeps: how long this machine had no processor for a process that needs none."""

    def __init__(self) -> None:
        self._delays: deque[tuple[float, float]] = deque(maxlen=50_000)
        threading.Thread(target=self._tick, daemon=True).start()

    def _tick(self) -> None:
        while True:
            began = time.monotonic()
            time.sleep(_TICK_SECONDS)  # sleep: what is measured
            self._delays.append((began, time.monotonic() - began - _TICK_SECONDS))

    def longest(self, since: float, until: float) -> float:
        """Return the longest delay (seconds) that began in that time (monotonic)."""
        return max((delay for began, delay in list(self._delays) if since - delay <= began <= until), default=0.0)


class Feed:
    """Reads the membership feed in a thread: user -> when the record was read (monotonic)."""

    def __init__(self, brokers: str, registry_url: str, segment: str) -> None:
        codec = Registry(registry_url).codec(MEMBERSHIP, "SegmentMembershipChanged")
        consumer = Consumer(consumer_config(brokers, f"probe-{segment}", **{"fetch.wait.max.ms": 50}))
        places = [
            TopicPartition(MEMBERSHIP, number)
            for number in consumer.list_topics(MEMBERSHIP, timeout=30).topics[MEMBERSHIP].partitions
        ]
        for place in places:
            place.offset = consumer.get_watermark_offsets(place, timeout=30)[1]
        consumer.assign(places)
        self.at: dict[str, float] = {}
        self.problem: Exception | None = None

        def read() -> None:
            try:
                while True:
                    for message in consumer.consume(500, 0.02):
                        if message.error() is None and segment.encode() in (value := message.value() or b""):
                            self.at.setdefault(codec.decode(value)["user_id"], time.monotonic())
            except Exception as cause:  # noqa: BLE001 - raised in the main thread
                self.problem = cause

        threading.Thread(target=read, daemon=True).start()


def define(api_url: str, token: str, segment: str) -> None:
    """Define the segment that every event enters, and return when it is in force."""
    with httpx.Client(base_url=api_url, headers={"Authorization": f"Bearer {token}"}, timeout=60, trust_env=False) as api:
        api.post("/v1/segments", json={"key": segment, "name": segment, "where": {"event": segment}}).raise_for_status()
        deadline = time.monotonic() + PATIENCE_SECONDS
        while api.get(f"/v1/segments/{segment}").raise_for_status().json()["status"] != "active":
            if time.monotonic() > deadline:
                raise TimeoutError(f"{segment} was not active within {PATIENCE_SECONDS:g} s")
            time.sleep(0.1)  # sleep: between two requests


def measure(arguments: argparse.Namespace) -> None:
    """Send the events, and print a line for each once its change was read."""
    segment = f"probe_{uuid.uuid4().hex[:8]}"
    define(arguments.api, arguments.token, segment)
    feed, machine = Feed(arguments.brokers, arguments.registry, segment), Machine()
    open_events: dict[str, tuple[float, float]] = {}
    over = threading.Event()

    def report() -> None:
        while open_events or not over.is_set():
            now = time.monotonic()
            for user, (sent, sent_at) in list(open_events.items()):
                read = feed.at.get(user)
                if read is not None or now - sent > PATIENCE_SECONDS:
                    del open_events[user]
                    ms = None if read is None else (read - sent) * 1000
                    delay = machine.longest(sent, read or now) * 1000
                    sys.stdout.write(json.dumps(asdict(Sample(sent_at, ms, delay))) + "\n")
                    sys.stdout.flush()
            time.sleep(0.02)  # sleep: between two looks

    reporter = threading.Thread(target=report)
    reporter.start()
    send(arguments, segment, open_events)
    over.set()
    reporter.join()
    if feed.problem is not None:
        raise feed.problem


def send(arguments: argparse.Namespace, segment: str, open_events: dict[str, tuple[float, float]]) -> None:
    """Send one event of a new user at each interval until the time is up or the standard input closes."""
    over = threading.Event()

    def wait() -> None:
        sys.stdin.read()
        over.set()

    threading.Thread(target=wait, daemon=True).start()
    with httpx.Client(base_url=arguments.ingest, auth=(arguments.write_key, ""), timeout=60, trust_env=False) as ingest:
        began, number = time.monotonic(), 0
        while not over.wait(max(0.0, began + number / arguments.rate - time.monotonic())):
            user = f"{segment}-{number}"
            open_events[user] = (time.monotonic(), time.time())
            ingest.post("/v1/track", json={"userId": user, "event": segment, "messageId": user}).raise_for_status()
            number += 1


def main() -> int:
    """Run until the standard input closes. Exit code 1 if a request of the workspace was refused."""
    arguments = argparse.ArgumentParser(description=__doc__)
    for name in ("ingest", "api", "brokers", "registry", "write-key", "token"):
        arguments.add_argument(f"--{name}", required=True)
    arguments.add_argument("--rate", type=float, default=1.0, help="events a second")
    measure(arguments.parse_args())
    return 0


if __name__ == "__main__":
    sys.exit(main())
