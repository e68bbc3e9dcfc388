"""Job 1: counts each user's events by name, with Starling, Kafka Streams, Quix Streams and stock Faust.

All contenders read one topic of `BehaviourEvent`s of one broker, with state in RocksDB and its changelog in Kafka. In each round
every worker runs once, alone, from the topic's start without state, and is measured from its first commit after the warm-up to its
last in mid-run. `python benchmarks/stream.py --only counter` runs it; this file run as a program is Starling's worker.
"""

import os
import sys
import uuid
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import msgspec
from common import shop
from common.bench import (
    HERE,
    PARTITIONS,
    Progress,
    Rate,
    Stack,
    Watched,
    add_topics,
    medians,
    remove_topics,
    steady_rate,
    write,
)
from peers import prepare

from starling_common.schemas import schema_directory
from starling_common.settings import Clock
from starling_common.testing import free_port
from starling_common.wire import FieldReader, Registry
from starling_stream.model.processor import Decoded, History, Inbound, Service, Unit
from starling_stream.model.settings import StreamSettings
from starling_stream.worker.run import run_service

TOPIC: Final = "bench-events"
READ_AHEAD: Final = 250_000
"""More records than any worker reads ahead (ours 20,000 a partition), after the measured ones. Without them a part of the measured
records would be read before the measurement, and none towards its end."""
_FIELDS: Final = ("received_at", "event_time", "name")


class Counts(msgspec.Struct, array_like=True):
    by_name: dict[str, int]
    last_ms: int = 0


class PerUser:
    """A `Processor` without optimisations."""

    def __init__(self, read: Callable[[bytes], tuple[Any, ...]]) -> None:
        self._read = read
        self.decode_state = msgspec.msgpack.Decoder(Counts).decode
        self.encode_state = msgspec.msgpack.Encoder().encode

    def decode(self, topic: str, value: bytes) -> Decoded:  # noqa: ARG002
        received_at, event_time, name = self._read(value)
        return Decoded(name, received_at, event_time)

    def process(self, record: Inbound, unit: Unit[Counts]) -> None:
        counts = unit.get(record.key)
        if counts is None:
            counts = Counts({})
        counts.by_name[record.value] = counts.by_name.get(record.value, 0) + 1
        counts.last_ms = max(counts.last_ms, record.event_time_ms or 0)
        unit.put(record.key, counts, None)

    def fire(self, key: bytes, unit: Unit[Counts]) -> None:
        raise NotImplementedError

    def adopt_plan(self) -> bytes:
        return b""

    def has_plan(self, plan: bytes) -> bool:
        return plan == self.adopt_plan()

    def before_switch(self, history: History) -> None: ...
    def switched_prefixes(self, partition: int) -> None: ...
    def switch(self, key: bytes, state: Counts, unit: Unit[Counts]) -> None: ...
    def after_switch(self, unit: Unit[Counts]) -> None: ...


def serve(stage: str) -> int:
    """Run Starling's worker."""
    settings = StreamSettings()
    read = FieldReader(Registry(settings.registry.url).codec(TOPIC, "BehaviourEvent"), _FIELDS)
    service = Service(stage=stage, inputs=(TOPIC,), processor=PerUser(read), hold_ms=20, clock=Clock.EVENT)
    return run_service(service, settings)


@dataclass(frozen=True)
class Contender:
    """One system. `start` starts its process with the stack, a unique name and a directory of its own.

    `group` returns its consumer group for that name; `events` limits its part of the topic, since the slow ones would take hours.
    """

    start: Callable[[Stack, str, Path], Watched]
    group: Callable[[str], str]
    events: int


def _ours(stack: Stack, name: str, directory: Path) -> Watched:
    add_topics(stack.brokers, {f"{name}-state-changelog": PARTITIONS}, {"cleanup.policy": "compact"})
    add_topics(stack.brokers, {f"{name}.dlq": 1})
    registry = Registry(stack.registry_url)
    registry.register(f"{name}-state-changelog-value", "StateChanged", "FULL_TRANSITIVE")
    registry.register(f"{name}.dlq-value", "DeadLetter", "FULL_TRANSITIVE")
    environment = stack.environment() | {
        "BENCH_STAGE": name,
        "STARLING_HTTP__PORT": str(free_port()),
        "STARLING_INSTANCE_ID": "bench",
        "STARLING_STATE_DIR": str(directory / "state"),
        "STARLING_LOG_LEVEL": "WARNING",
        "PYTHONPATH": str(HERE),
    }
    return Watched([sys.executable, "-m", "stream_parts.counter"], environment, directory / "worker.log")


def _peer(command: list[str], more: Mapping[str, str]) -> Callable[[Stack, str, Path], Watched]:
    def start(stack: Stack, name: str, directory: Path) -> Watched:
        environment = {**os.environ, **more} | {
            "PEER_BROKERS": stack.brokers,
            "PEER_REGISTRY": stack.registry_url,
            "PEER_INPUT": TOPIC,
            "PEER_GROUP": name,
            "PEER_STATE_DIR": str(directory / "state"),
            "PEER_SCHEMA": str(schema_directory() / "BehaviourEvent.avsc"),
        }
        return Watched(command, environment, directory / "worker.log")

    return start


def contenders(events: int, peer_events: int) -> dict[str, Contender]:
    """Return all contenders, the fastest first. Raises: PeerUnavailable."""
    quiet = "-Dorg.slf4j.simpleLogger.defaultLogLevel=warn"
    streams = ["java", "-Xmx1g", quiet, "-cp", prepare.kafka_streams(), "peer.Counter"]
    quix = [prepare.quix_streams(), str(HERE / "peers" / "quix_streams" / "counter.py")]
    faust = [sys.executable, str(HERE / "peers" / "stock_faust" / "counter.py"), "worker", "--without-web", "-l", "error"]
    # At least once, Kafka Streams commits every 30 s by default, which is too seldom to measure progress.
    once_a_second = {"PEER_GUARANTEE": "at_least_once", "PEER_COMMIT_INTERVAL_MS": "1000"}

    def of(name: str) -> str:
        return name

    return {
        "ours_exactly_once": Contender(_ours, lambda name: f"starling-{name}", events),
        "kafka_streams_exactly_once": Contender(_peer(streams, {"PEER_GUARANTEE": "exactly_once_v2"}), of, events),
        "kafka_streams_at_least_once": Contender(_peer(streams, once_a_second), of, events),
        "quix_exactly_once": Contender(_peer(quix, {"PEER_GUARANTEE": "exactly-once"}), of, min(events, 5 * peer_events)),
        "quix_at_least_once": Contender(_peer(quix, {"PEER_GUARANTEE": "at-least-once"}), of, min(events, 5 * peer_events)),
        "stock_faust_at_least_once": Contender(_peer(faust, {}), of, min(events, peer_events)),
    }


def load(stack: Stack, events: int, users: int) -> None:
    """Write the topic that all contenders read, longer than the measured part."""
    add_topics(stack.brokers, {TOPIC: PARTITIONS})
    registry = Registry(stack.registry_url)
    registry.register(f"{TOPIC}-value", "BehaviourEvent", "FULL_TRANSITIVE")
    encode = registry.codec(TOPIC, "BehaviourEvent").encode
    shop.USERS = users

    def records() -> Iterator[tuple[bytes, bytes]]:
        for key, record in shop.behaviour(events + READ_AHEAD, 1, shop.FIRST_MS, shop.DAY_MS):
            yield key, encode(record)

    write(stack.brokers, TOPIC, records())


def once(stack: Stack, contender: Contender, directory: Path, warm_up: float) -> Rate:
    """Run one contender once; return its rate."""
    name = f"bench-{uuid.uuid4().hex[:8]}"
    progress = Progress(stack.brokers, contender.group(name), TOPIC)
    process = contender.start(stack, name, directory / name)
    try:
        return steady_rate(process, progress, int(contender.events * warm_up), contender.events)
    finally:
        process.stop()
        progress.close()
        remove_topics(stack.brokers, lambda topic: topic.startswith(name))


def compare(stack: Stack, directory: Path, rounds: int, chosen: Mapping[str, Contender], warm_up: float) -> dict[str, Any]:
    """Return each contender's medians, and Starling's as a multiple of each."""
    rates: dict[str, list[Rate]] = {name: [] for name in chosen}
    for number in range(rounds):
        for name, contender in chosen.items():
            rates[name].append(once(stack, contender, directory, warm_up))
            latest = rates[name][-1]
            print(f"  round {number + 1} {name}: {latest.per_second:,.0f}/s, {latest.per_cpu_second:,.0f}/CPU-s", file=sys.stderr)
    found = {name: medians(runs) for name, runs in rates.items()}
    ours = found.get("ours_exactly_once")
    if ours is not None:
        for theirs in found.values():
            theirs["ours_is_times_per_second"] = round(ours["events_per_second"] / theirs["events_per_second"], 2)
            theirs["ours_is_times_per_cpu_second"] = round(ours["events_per_cpu_second"] / theirs["events_per_cpu_second"], 2)
    return found


if __name__ == "__main__":
    sys.exit(serve(os.environ["BENCH_STAGE"]))
