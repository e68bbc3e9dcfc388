"""Adapter: consumers that have read a range of a topic, kept for the next range."""

from collections.abc import Iterator
from contextlib import contextmanager, suppress
from time import monotonic
from typing import Final

from confluent_kafka import Consumer, KafkaException

from starling_common.kafka.clients import consumer_config

_IDLE_SECONDS: Final = 30.0
"""Consumers that are idle for longer are closed at the next use."""
_MOST_IDLE: Final = 8
_CONFIG: Final = {"enable.partition.eof": True, "fetch.wait.max.ms": 50}
"""A partition pauses during its switch, so the end of a topic is awaited briefly."""


class RangeConsumers:
    """A new consumer takes tens of milliseconds to connect, for which all records wait when a switch reads its history.

    May be used by any thread.
    """

    def __init__(self, brokers: str) -> None:
        self._brokers = brokers
        self._idle: list[tuple[float, Consumer]] = []

    @contextmanager
    def borrowed(self) -> Iterator[Consumer]:
        """Yield a consumer without partitions. One whose range was not read to its end is not used again."""
        consumer = self._take() or Consumer(consumer_config(self._brokers, "starling-history", **_CONFIG))
        try:
            yield consumer
        except BaseException:
            consumer.close()
            raise
        consumer.unassign()
        self._idle.append((monotonic(), consumer))

    def close(self) -> None:
        """Close the idle consumers."""
        while self._idle:
            _close(self._idle.pop()[1])

    def _take(self) -> Consumer | None:
        # The newest one: the others become too old, unless several ranges are read at the same time.
        found: Consumer | None = None
        with suppress(IndexError):
            at, found = self._idle.pop()
            if monotonic() - at > _IDLE_SECONDS:
                _close(found)
                found = None
        while self._idle and (len(self._idle) > _MOST_IDLE or monotonic() - self._idle[0][0] > _IDLE_SECONDS):
            with suppress(IndexError):
                _close(self._idle.pop(0)[1])
        return found


def _close(consumer: Consumer) -> None:
    with suppress(KafkaException):
        consumer.close()
