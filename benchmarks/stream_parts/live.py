"""Adapter: live traffic and probes. How long after its append at the broker an event's membership record can be read.

A probe is an event that makes exactly one new entry, of a user without other events; the rest of the traffic is drawn from
a pool that is encoded beforehand. The clock starts at the broker (the event topic keeps the time of append) and stops
when a `read_committed` consumer has the membership record in hand, in milliseconds.
"""

import itertools
import threading
import time
from collections.abc import Callable, Iterator
from typing import Any, Final

from common import shop
from common.bench import Stack, percentile
from confluent_kafka import Consumer, KafkaError, Message, Producer, TopicPartition
from confluent_kafka.admin import AdminClient
from confluent_kafka.admin._config import AlterConfigOpType, ConfigEntry, ConfigResource
from confluent_kafka.admin._resource import ResourceType

from starling_common.headers import record_headers
from starling_common.kafka.clients import consumer_config, producer_config
from starling_common.kafka.topics import BEHAVIOUR, MEMBERSHIP, load_catalogue
from starling_common.values import record_key
from starling_common.wire import Registry, long_bytes

PROBE_SEGMENT: Final = "latency-probe"
PROBE_EVENT: Final = "Latency Probe"
PROBE: Final[dict[str, Any]] = {"event": PROBE_EVENT}
"""The condition of the segment that probes enter."""

_HEADER_BYTES: Final = 5
_TICK_SECONDS: Final = 0.005
_POOL: Final = 50_000


def keep_append_time(stack: Stack, topic: str = BEHAVIOUR) -> None:
    """From now on the topic's timestamps are the broker's."""
    entry = ConfigEntry("message.timestamp.type", "LogAppendTime", incremental_operation=AlterConfigOpType.SET)
    resource = ConfigResource(ResourceType.TOPIC, topic, incremental_configs=[entry])
    admin = AdminClient({"bootstrap.servers": stack.brokers})  # held while the answer comes: its end would end the request
    for future in admin.incremental_alter_configs([resource]).values():
        future.result()


def from_now_on(stack: Stack, topic: str, group: str) -> Consumer:
    """A reader of what is written to the topic from now on."""
    consumer = Consumer(consumer_config(stack.brokers, group, **{"fetch.wait.max.ms": 20}))
    places = [TopicPartition(topic, number) for number in consumer.list_topics(topic, timeout=30).topics[topic].partitions]
    for place in places:
        place.offset = consumer.get_watermark_offsets(place, timeout=30)[1]
    consumer.assign(places)
    return consumer


class Feed:
    """Reads the membership feed from now on in a thread: user of each probe -> when its record was in hand (epoch ms)."""

    def __init__(self, stack: Stack) -> None:
        self._codec = Registry(stack.registry_url).codec(MEMBERSHIP, load_catalogue().topics[MEMBERSHIP].schema)
        self._consumer = from_now_on(stack, MEMBERSHIP, "bench-feed")
        self.probes: dict[str, float] = {}
        self.others = 0
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._read, daemon=True)
        self._thread.start()

    def _read(self) -> None:
        mark = PROBE_SEGMENT.encode()
        while not self._stopping.is_set():
            messages, now_ms = self._consumer.consume(2_000, 0.02), time.time() * 1000
            for message in messages:
                value = message.value() or b""
                if message.error() is not None:
                    continue
                record = self._codec.decode(value) if mark in value else None
                if record is not None and record["segment_key"] == PROBE_SEGMENT:
                    self.probes.setdefault(record["user_id"], now_ms)
                else:
                    self.others += 1

    def wait_for(self, users: Callable[[], set[str]], patience_seconds: float) -> None:
        """Until every probe's record is here. Raises: TimeoutError."""
        deadline = time.monotonic() + patience_seconds
        while missing := users() - self.probes.keys():
            if time.monotonic() > deadline:
                raise TimeoutError(f"{len(missing)} probes made no entry within {patience_seconds} s")
            time.sleep(0.1)

    def stop(self) -> None:
        self._stopping.set()
        self._thread.join(10)
        self._consumer.close()


class Traffic:
    """Sends events and probes at a steady rate in a thread. `appended`: user of each probe -> time of append (epoch ms)."""

    def __init__(self, stack: Stack, per_second: int, probes_per_second: int, run: str) -> None:
        self._encode = Registry(stack.registry_url).codec(BEHAVIOUR, "BehaviourEvent").encode
        config = {"linger.ms": 2, "queue.buffering.max.messages": 1_000_000}
        self._producer = Producer(producer_config(stack.brokers, **config))
        self._rates = (per_second, probes_per_second)
        self._headers = record_headers("benchmark", "benchmark")
        self._run = run
        self._pool = self._encoded_pool() if per_second else []
        self.appended: dict[str, float] = {}
        self.sent = 0
        self.behind_seconds = 0.0
        """How far the sender itself fell behind its plan at worst: above some tenths it could not keep the rate."""
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._send, daemon=True)

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        """All that was sent is at the broker afterwards."""
        self._stopping.set()
        self._thread.join(60)
        assert self._producer.flush(60) == 0

    def _encoded_pool(self) -> list[tuple[bytes, bytes]]:
        """Keys, and values without their header and first field (`received_at`), which each copy gets again."""
        now_ms = int(time.time() * 1000)
        first = _HEADER_BYTES + len(long_bytes(shop.FIRST_MS * 1000))
        return [(key, self._encode(record)[first:]) for key, record in self.pool(now_ms)]

    def pool(self, now_ms: int) -> Iterator[tuple[bytes, dict[str, Any]]]:
        """The events, which are sent again and again."""
        return shop.behaviour(_POOL, 900, now_ms, 1000, (shop.WIDE_NAMES, shop.WIDE_WEIGHTS))

    def _send(self) -> None:
        header = self._encode(_probe("header", 0))[:_HEADER_BYTES]
        pool, began = itertools.cycle(self._pool), time.monotonic()
        per_second, probes_per_second = self._rates
        probes, produce = 0, self._producer.produce
        while not self._stopping.is_set():
            elapsed = time.monotonic() - began
            while probes < elapsed * probes_per_second:
                self._probe(probes)
                probes += 1
            due = int(elapsed * per_second) - self.sent
            self.behind_seconds = max(self.behind_seconds, due / max(1, per_second))
            for key, rest in itertools.islice(pool, due):
                produce(BEHAVIOUR, header + long_bytes(time.time_ns() // 1000) + rest, key, headers=self._headers)
            self.sent += due
            self._producer.poll(0)
            self._stopping.wait(_TICK_SECONDS)

    def _probe(self, number: int) -> None:
        user = f"probe-{self._run}-{number}"

        def delivered(error: KafkaError | None, message: Message) -> None:
            if error is None:
                self.appended[user] = float(message.timestamp()[1])

        value = self._encode(_probe(user, time.time_ns() // 1000))
        self._producer.produce(BEHAVIOUR, value, record_key("default", user), on_delivery=delivered, headers=self._headers)


def _probe(user: str, now_micros: int) -> dict[str, Any]:
    ((_, event),) = shop.behaviour(1, 901, now_micros // 1000, 1)
    return event | {"user_id": user, "name": PROBE_EVENT, "received_at": now_micros, "message_id": user}


def latencies(traffic: Traffic, feed: Feed, since_ms: float, until_ms: float) -> list[float]:
    """Sorted, of the probes appended in that stretch of time; never less than nothing, for the broker's clock has whole ms."""
    taken = ((at, feed.probes[user]) for user, at in traffic.appended.items() if since_ms <= at < until_ms)
    return sorted(max(0.0, read - at) for at, read in taken)


def percentiles(values: list[float]) -> dict[str, Any]:
    """What a table shows of them."""
    if not values:
        return {"probes": 0}
    ranks = {"p50_ms": percentile(values, 0.5), "p99_ms": percentile(values, 0.99), "max_ms": values[-1]}
    return {"probes": len(values), **{name: round(value, 1) for name, value in ranks.items()}}


def wave(count: int, at_ms: int) -> Iterator[tuple[bytes, dict[str, Any]]]:
    """One event for each of `count` users, all within the second that begins at `at_ms`."""
    for number in range(count):
        user = f"wave-{number}"
        ((_, event),) = shop.behaviour(1, 902, at_ms + 1000 * number // count, 1)
        received_at = shop.FIRST_MS * 1000 + number
        yield record_key("default", user), event | {"user_id": user, "name": "Wave", "received_at": received_at, "message_id": user}
