"""Adapter: whether a consumer receives nothing although a new client receives records, which only a restart corrects."""

import time
from collections.abc import Callable
from typing import Any, Final

from confluent_kafka import OFFSET_BEGINNING, OFFSET_END, Consumer, KafkaException, Message, TopicPartition

from starling_common.kafka.clients import PARTITION_EOF, committed, offsets
from starling_common.telemetry.logs import log

_ANSWER_SECONDS: Final = 10.0


class Starvation:
    """Called by the thread of the consumer after each poll; other threads may read `problem`.

    The position of a consumer may stay before the end of a partition, at the control record of a transaction. The comparison
    therefore reads a record with a new client.
    """

    def __init__(
        self,
        config: dict[str, Any],
        most_seconds: float,
        *,
        clock: Callable[[], float] = time.monotonic,
        new_client: Callable[[dict[str, Any]], Consumer] = Consumer,
    ) -> None:
        """`config`: that of the consumer. `most_seconds`: time without a record after which a new client compares."""
        self._config = config | {"enable.partition.eof": True}
        self._most_seconds = most_seconds
        self._clock = clock
        self._new_client = new_client
        self._since: float | None = None
        self.problem: str | None = None

    def polled(self, consumer: Consumer, *, received: bool) -> None:
        """Note the result of a poll. Blocks while a new client compares, at most once in `most_seconds`."""
        now = self._clock()
        if received or self._since is None:
            self._since, self.problem = now, None
        elif now - self._since >= self._most_seconds:
            silent_seconds, self._since = now - self._since, now
            self.problem = self._compared(consumer, silent_seconds)

    def _compared(self, consumer: Consumer, silent_seconds: float) -> str | None:
        places = [(part.topic, part.partition) for part in consumer.assignment()]
        if not places:
            return None
        client = self._new_client(self._config)
        try:
            ends = offsets(client, places, OFFSET_END, _ANSWER_SECONDS)
            for part in self._positions(consumer, client, places):
                if part.offset < ends[part.topic, part.partition] and self._has_record(client, part):
                    problem = f"{part.topic} {part.partition}: no record for {silent_seconds:.0f} s, but a new client has one"
                    log(__name__).error("consumer_starved", problem=problem)
                    return f"{problem}: restart this process"
        except KafkaException:
            return None  # the broker does not answer a new client either
        finally:
            client.close()
        return None

    @staticmethod
    def _positions(consumer: Consumer, client: Consumer, places: list[tuple[str, int]]) -> list[TopicPartition]:
        """Return the positions of the consumer. A partition that it never began to fetch has the committed offset."""
        found = consumer.position([TopicPartition(*place) for place in places])
        begun = [part for part in found if part.offset >= 0]
        others = [TopicPartition(part.topic, part.partition) for part in found if part.offset < 0]
        stored = committed(client, others, _ANSWER_SECONDS) if others else []
        return begun + [TopicPartition(p.topic, p.partition, p.offset if p.offset >= 0 else OFFSET_BEGINNING) for p in stored]

    def _has_record(self, client: Consumer, part: TopicPartition) -> bool:
        client.assign([TopicPartition(part.topic, part.partition, part.offset)])
        deadline = time.monotonic() + _ANSWER_SECONDS
        while time.monotonic() < deadline:
            message: Message | None = client.poll(1.0)
            if message is None:
                continue
            error = message.error()
            if error is None or error.code() == PARTITION_EOF:
                return error is None
        return False
