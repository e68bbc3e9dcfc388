"""A steady load on every partition, and the pauses of the outputs that it causes."""

import threading
import time
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from itertools import pairwise

from confluent_kafka import OFFSET_BEGINNING, Consumer, Producer, TopicPartition

from starling_common.kafka.clients import consumer_config, producer_config
from tests.integration.stream.rig import Rig
from tests.unit.stream.counting import event

_INTERVAL_SECONDS = 0.01
_USERS = 8
"""Users of each partition."""


@dataclass
class Load:
    """Sends an event to each partition every 10 ms, and notes when its output is visible to a reader of committed records."""

    rig: Rig
    sent: list[tuple[str, bytes, bytes]] = field(default_factory=list)
    arrivals: dict[int, list[float]] = field(default_factory=dict)
    """Partition -> when outputs arrived, in monotonic seconds."""
    _stopping: threading.Event = field(default_factory=threading.Event)

    def send(self) -> None:
        producer, topic = Producer(producer_config(self.rig.brokers, **{"linger.ms": 0})), self.rig.inputs[0]
        count = 0
        while not self._stopping.wait(_INTERVAL_SECONDS):
            for number in range(self.rig.partitions):
                record = topic, b"default/p%d-%d" % (number, count % _USERS), event(int(time.time() * 1e6), count)
                producer.produce(topic, record[2], record[1], number)
                self.sent.append(record)
            producer.poll(0)
            count += 1
        assert producer.flush(30) == 0

    def read(self) -> None:
        topic = f"{self.rig.stage}.out"
        consumer = Consumer(consumer_config(self.rig.brokers, f"load-{uuid.uuid4().hex}", **{"fetch.wait.max.ms": 5}))
        consumer.assign([TopicPartition(topic, number, OFFSET_BEGINNING) for number in range(self.rig.partitions)])
        while not self._stopping.is_set():
            message = consumer.poll(0.01)
            if message is not None and message.error() is None:
                self.arrivals.setdefault(message.partition() or 0, []).append(time.monotonic())
        consumer.close()

    def stop(self) -> None:
        self._stopping.set()

    def longest_pause_ms(self, partition: int, since: float) -> float:
        """Return the longest time without an output of the partition after an instant of the monotonic clock."""
        found = [at for at in self.arrivals.get(partition, []) if at >= since]
        return max((after - before for before, after in pairwise(found)), default=0.0) * 1000


@contextmanager
def load(rig: Rig) -> Iterator[Load]:
    made = Load(rig)
    threads = [threading.Thread(target=run, daemon=True) for run in (made.send, made.read)]
    for thread in threads:
        thread.start()
    try:
        yield made
    finally:
        made.stop()
        for thread in threads:
            thread.join()
