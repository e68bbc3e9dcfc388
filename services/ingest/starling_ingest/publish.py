"""Adapter: records to the broker, and one answer for all records of one request once every one is acknowledged.

The producer is polled on the event loop, once in a millisecond while anything is under way, never by a thread of its own:
each delivery report needs the interpreter, and a second thread that asks for it thousands of times a second makes the
one that does the work wait.
"""

import asyncio
import logging
from collections.abc import Sequence
from contextlib import suppress
from typing import Final

from confluent_kafka import KafkaError, KafkaException, Message, Producer

from starling_common.headers import Headers
from starling_common.kafka import BrokerUnavailable, producer_config
from starling_common.logs import log
from starling_ingest.intake import Outgoing, QueueFull

_POLL_SECONDS: Final = 0.001
_IDLE_POLL_SECONDS: Final = 0.5
_LINGER_MS: Final = 5.0
"""How long a record waits for company; every answer waits for it too."""


class Publisher:
    """Used from one event loop only. A request is done when all in-sync replicas have every record of it."""

    def __init__(self, brokers: str, *, ack_timeout_ms: int, high_water_records: int, high_water_bytes: int) -> None:
        """Opens nothing that waits: the client connects in the background."""
        config = producer_config(
            brokers,
            **{
                "linger.ms": _LINGER_MS,
                "message.timeout.ms": ack_timeout_ms,
                "request.timeout.ms": ack_timeout_ms,
                # Ours are the bounds that count: they answer 429 before anything of a request is under way.
                "queue.buffering.max.messages": high_water_records * 2,
                "queue.buffering.max.kbytes": high_water_bytes // 1024 * 2,
                "error_cb": self._failed,
                "client.id": "starling-ingest",
            },
        )
        self._producer = Producer(config, logger=logging.getLogger("librdkafka"))
        self._high_water_records = high_water_records
        self._high_water_bytes = high_water_bytes
        self._records = 0
        self._bytes = 0
        self._loop: asyncio.AbstractEventLoop | None = None
        self._polling: asyncio.TimerHandle | None = None
        self._drained: asyncio.Event | None = None
        self.fatal = asyncio.Event()
        self.problem: str | None = None

    @property
    def records_under_way(self) -> int:
        """Handed over and not yet acknowledged."""
        return self._records

    def topics(self, timeout_seconds: float) -> set[str]:
        """The names of all topics. Blocks. Raises: BrokerUnavailable."""
        try:
            return set(self._producer.list_topics(timeout=timeout_seconds).topics)
        except KafkaException as cause:
            raise BrokerUnavailable(f"the broker does not answer: {cause.args[0].str()}") from cause

    def publish(self, records: Sequence[Outgoing], headers: Headers) -> asyncio.Future[None]:
        """Write all records, in order; the future is done when all are acknowledged.

        Raises: QueueFull at once, with nothing written. The future raises BrokerUnavailable when some record was not
        acknowledged in time (others may be written: the sender's retry with the same message ids is safe).
        """
        count = len(records)
        size = len(records[0].value) if count == 1 else sum([len(record.value) for record in records])
        if self._records + count > self._high_water_records or self._bytes + size > self._high_water_bytes:
            raise QueueFull(f"{self._records} records are waiting for the broker")
        # Asking for the running loop is a system call in this Python.
        loop = self._loop = self._loop or asyncio.get_running_loop()
        request = _Request(self, loop.create_future(), count, size)
        self._records += count
        self._bytes += size
        produce = self._producer.produce
        delivered = request.delivered
        try:
            for record in records:
                produce(record.topic, record.value, record.key, -1, delivered, None, record.timestamp_ms, headers)
                request.sent += 1
        except (BufferError, KafkaException) as cause:
            request.give_up(cause)
        if self._polling is None:
            self._polling = loop.call_later(_POLL_SECONDS, self._poll)
        return request.acknowledged

    def settled(self, count: int, size: int) -> None:
        """Called once a request, when its last record is acknowledged or given up."""
        self._records -= count
        self._bytes -= size
        if self._drained is not None and not self._records:
            self._drained.set()

    async def watch(self) -> None:
        """Serve the client's own events (errors, logs) while nothing is sent. Runs until cancelled."""
        while True:
            self._producer.poll(0)
            await asyncio.sleep(_IDLE_POLL_SECONDS)

    async def close(self, timeout_seconds: float) -> int:
        """Wait for what is under way; how many records were still not acknowledged."""
        self._drained = asyncio.Event()
        if self._records:
            with suppress(TimeoutError):
                await asyncio.wait_for(self._drained.wait(), timeout_seconds)
        if self._polling is not None:
            self._polling.cancel()
        return self._records

    def _poll(self) -> None:
        self._producer.poll(0)
        if self._records:
            self._polling = asyncio.get_running_loop().call_later(_POLL_SECONDS, self._poll)
        else:
            self._polling = None

    def _failed(self, error: KafkaError) -> None:
        if not error.fatal():
            log(__name__).warning("broker_trouble", error=error.str())
            return
        self.problem = error.str()
        self.fatal.set()


class _Request:
    """The records of one HTTP request on their way: one future for all of them."""

    __slots__ = ("_count", "_left", "_publisher", "_size", "acknowledged", "error", "sent")

    def __init__(self, publisher: Publisher, acknowledged: asyncio.Future[None], count: int, size: int) -> None:
        self.acknowledged = acknowledged
        self.error: KafkaError | None = None
        self.sent = 0
        self._publisher = publisher
        self._count = count
        self._size = size
        self._left = count

    def delivered(self, error: KafkaError | None, _message: Message) -> None:
        if error is not None:
            self.error = error
        self._left -= 1
        if self._left == 0:
            self._finish()

    def give_up(self, cause: Exception) -> None:
        """The rest was not taken by the client: wait only for what was."""
        full = isinstance(cause, BufferError)
        self.error = KafkaError(KafkaError._QUEUE_FULL) if full else cause.args[0]  # noqa: SLF001 - the library's public constant
        self._left -= self._count - self.sent
        if self._left == 0:
            self._finish()

    def _finish(self) -> None:
        self._publisher.settled(self._count, self._size)
        if self.acknowledged.done():
            return  # the waiting task was cancelled
        if self.error is None:
            self.acknowledged.set_result(None)
        else:
            self.acknowledged.set_exception(BrokerUnavailable(self.error.str()))
