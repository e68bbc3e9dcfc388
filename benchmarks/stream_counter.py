"""A per-user counter on one stream worker, exactly once: real broker, changelog, RocksDB. Prints one JSON object.

    STARLING_KAFKA__BROKERS=… STARLING_REGISTRY__URL=… python benchmarks/stream_counter.py [--events 400000] [--users 100000]

The events are written first; the worker is then started, and the rate is measured from its first committed round to its last.
"""

import argparse
import json
import os
import struct
import subprocess
import sys
import tempfile
import time
import uuid
from pathlib import Path

import msgspec
from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic

from starling_common.kafka import consumer_config, producer_config
from starling_common.settings import Clock
from starling_common.wire import DecodeError, Registry
from starling_stream.processor import Decoded, History, Inbound, Service, Unit
from starling_stream.settings import StreamSettings
from starling_stream.worker import run_service

PARTITIONS = 8
EVENT = struct.Struct(">qq")
PAYLOAD = b"x" * 180  # about what an event of ours weighs


class Count(msgspec.Struct, array_like=True):
    total: int = 0
    last_ms: int = 0


class PerUser:
    def __init__(self) -> None:
        self._decode = msgspec.msgpack.Decoder(Count).decode
        self.encode_state = msgspec.msgpack.Encoder().encode

    def decode(self, topic: str, value: bytes) -> Decoded:  # noqa: ARG002
        if len(value) < EVENT.size:
            raise DecodeError("short", "too short")
        received_at, at_ms = EVENT.unpack_from(value)
        return Decoded(at_ms, received_at, at_ms)

    def decode_state(self, data: bytes) -> Count:
        return self._decode(data)

    def process(self, record: Inbound, unit: Unit[Count]) -> None:
        state = unit.get(record.key) or Count()
        state.total += 1
        state.last_ms = record.value
        unit.put(record.key, state, None)

    def fire(self, key: bytes, unit: Unit[Count]) -> None:
        raise NotImplementedError

    def adopt_plan(self) -> bytes:
        return b""

    def before_switch(self, history: History) -> None: ...
    def switch(self, key: bytes, state: Count, unit: Unit[Count]) -> None: ...
    def after_switch(self, unit: Unit[Count]) -> None: ...


def serve(stage: str) -> int:
    service = Service(stage=stage, inputs=(f"{stage}.in",), processor=PerUser(), hold_ms=20, clock=Clock.EVENT)
    return run_service(service, StreamSettings())


def create(brokers: str, registry_url: str, stage: str) -> None:
    admin = AdminClient({"bootstrap.servers": brokers})
    names = [NewTopic(name, PARTITIONS, 1) for name in (f"{stage}.in", f"{stage}-state-changelog")]
    for future in admin.create_topics([*names, NewTopic(f"{stage}.dlq", 1, 1)]).values():
        future.result()
    registry = Registry(registry_url)
    registry.register(f"{stage}-state-changelog-value", "StateChanged", "FULL_TRANSITIVE")
    registry.register(f"{stage}.dlq-value", "DeadLetter", "FULL_TRANSITIVE")


def load(brokers: str, stage: str, events: int, users: int) -> None:
    producer = Producer(producer_config(brokers, **{"queue.buffering.max.messages": 2_000_000, "batch.size": 1_000_000}))
    began = int(time.time() * 1e6) - 10_000_000
    for number in range(events):
        key = b"default/u%d" % (number * 7919 % users)
        producer.produce(f"{stage}.in", EVENT.pack(began + number, number) + PAYLOAD, key)
        if number % 10_000 == 0:
            producer.poll(0)
    assert producer.flush(60) == 0


def cpu_seconds(pid: int) -> float:
    times = Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()
    return (int(times[11]) + int(times[12])) / os.sysconf("SC_CLK_TCK")


def watch(brokers: str, stage: str, events: int, process: "subprocess.Popen[bytes]") -> tuple[float, float]:
    """Seconds, and the worker's CPU seconds, from the first committed round to the last, scaled to all events."""
    consumer = Consumer(consumer_config(brokers, f"starling-{stage}"))
    parts = [TopicPartition(f"{stage}.in", number) for number in range(PARTITIONS)]
    first: tuple[float, int, float] | None = None
    while True:
        if process.poll() is not None:
            raise RuntimeError("the worker stopped")
        done = sum(max(0, at.offset) for at in consumer.committed(parts, timeout=30))
        now = time.monotonic()
        if done and first is None:
            first = (now, done, cpu_seconds(process.pid))
        if first is not None and done >= events:
            consumer.close()
            scale = events / max(1, done - first[1])
            return (now - first[0]) * scale, (cpu_seconds(process.pid) - first[2]) * scale
        time.sleep(0.02)


def main() -> int:
    arguments = argparse.ArgumentParser()
    arguments.add_argument("--events", type=int, default=400_000)
    arguments.add_argument("--users", type=int, default=100_000)
    arguments.add_argument("--profile", default="")
    chosen = arguments.parse_args()
    if os.environ.get("BENCH_STAGE"):
        return serve(os.environ["BENCH_STAGE"])
    brokers, stage = os.environ["STARLING_KAFKA__BROKERS"], f"bench{uuid.uuid4().hex[:8]}"
    create(brokers, os.environ["STARLING_REGISTRY__URL"], stage)
    load(brokers, stage, chosen.events, chosen.users)
    with tempfile.TemporaryDirectory() as directory:
        environment = os.environ | {
            "BENCH_STAGE": stage,
            "STARLING_HTTP__PORT": os.environ.get("STARLING_HTTP__PORT", "19899"),
            "STARLING_INSTANCE_ID": "bench",
            "STARLING_STATE_DIR": directory,
            "STARLING_LOG_LEVEL": "WARNING",
        }
        wrap = ["-m", "cProfile", "-o", chosen.profile] if chosen.profile else []
        process = subprocess.Popen([sys.executable, *wrap, str(Path(__file__).resolve())], env=environment)
        try:
            seconds, busy = watch(brokers, stage, chosen.events, process)
        finally:
            process.terminate()
            process.wait()
    admin = AdminClient({"bootstrap.servers": brokers})
    for future in admin.delete_topics([f"{stage}.in", f"{stage}-state-changelog", f"{stage}.dlq"]).values():
        future.result()
    result = {
        "benchmark": "stream_counter",
        "events": chosen.events,
        "users": chosen.users,
        "partitions": PARTITIONS,
        "seconds": round(seconds, 2),
        "events_per_second": round(chosen.events / seconds),
        "worker_cpu_seconds": round(busy, 2),
        "events_per_cpu_second": round(chosen.events / busy),
        "load_average_1m": round(os.getloadavg()[0], 2),
    }
    print(json.dumps(result))
    return 0


if __name__ == "__main__":
    sys.exit(main())
