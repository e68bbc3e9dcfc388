"""Adapter: publish the records of one request to the broker; one future completes when all of them are acknowledged.

The producer is polled on the event loop, every millisecond while records are in flight. A polling thread would compete with the
event loop for the interpreter lock: each delivery report is a Python call, and there are thousands in a second.
"""

import asyncio
import logging
from bisect import insort
from collections.abc import Sequence
from contextlib import suppress
from itertools import islice
from typing import Final

from confluent_kafka import KafkaError, KafkaException, Message, Producer

from starling_common.headers import Headers
from starling_common.kafka.clients import BrokerUnavailable, producer_config
from starling_common.telemetry.logs import log
from starling_common.time.instants import LONGEST_APPEND_MS, wall_clock_micros
from starling_ingest.publishing.intake import Outgoing, QueueFull
from starling_ingest.publishing.shares import Share, Shares

_POLL_SECONDS: Final = 0.001
_IDLE_POLL_SECONDS: Final = 0.5
_DOUBT_MICROS: Final = (LONGEST_APPEND_MS + 500) * 1000
"""How long the watermark waits for a record without an answer. A record that is appended later is ordered by the append."""
_IN_DOUBT: Final = frozenset(
    {
        KafkaError._MSG_TIMED_OUT,  # noqa: SLF001 - the library's public constants
        KafkaError._TIMED_OUT,  # noqa: SLF001
        KafkaError._TRANSPORT,  # noqa: SLF001
        KafkaError.REQUEST_TIMED_OUT,
        KafkaError.NOT_ENOUGH_REPLICAS_AFTER_APPEND,
    }
)
"""Errors of records that were sent without an answer. A slow broker may still append them."""
_LINGER_MS: Final = 5.0
"""The longest time that a record waits for its batch to fill. Every response waits for it too."""


class Publisher:
    """A Kafka producer with one future per request, done when all in-sync replicas have its records. For one event loop only."""

    def __init__(self, brokers: str, *, ack_timeout_ms: int, high_water_records: int, high_water_bytes: int) -> None:
        """Create the producer without blocking: the client connects in the background."""
        config = producer_config(
            brokers,
            **{
                "linger.ms": _LINGER_MS,
                "message.timeout.ms": ack_timeout_ms,
                "request.timeout.ms": ack_timeout_ms,
                # Twice the high-water marks, so that `publish` refuses a request (429) before the client's own queue is full.
                "queue.buffering.max.messages": high_water_records * 2,
                "queue.buffering.max.kbytes": high_water_bytes // 1024 * 2,
                "error_cb": self._failed,
                "client.id": "starling-ingest",
            },
        )
        self._producer = Producer(config, logger=logging.getLogger("librdkafka"))
        self._shares = Shares(high_water_records, high_water_bytes)
        self._open: dict[_Request, int] = {}
        """The requests with unacknowledged records, in the order of their first `received_at`, which is the value."""
        self._begun: asyncio.Future[None] | None = None
        """Completed by the next request, if something waits for it."""
        self._finished: asyncio.Future[None] | None = None
        """Completed when no request has an unacknowledged record, if something waits for it."""
        self._in_doubt: list[int] = []
        """The first `received_at` of the requests whose records the broker may still append, ascending."""
        self._loop: asyncio.AbstractEventLoop | None = None
        self._polling: asyncio.TimerHandle | None = None
        self._drained: asyncio.Event | None = None
        self.fatal = asyncio.Event()
        self.problem: str | None = None

    @property
    def records_in_flight(self) -> int:
        """Records that are handed to the producer and not yet acknowledged."""
        return self._shares.records

    def oldest(self) -> int | None:
        """Return the first `received_at` whose record may be appended yet; None if every record is acknowledged or too late."""
        if self._in_doubt:
            self._in_doubt = [one for one in self._in_doubt if one > wall_clock_micros() - _DOUBT_MICROS]
        return min([*self._in_doubt[:1], *islice(self._open.values(), 1)], default=None)

    async def begun(self, timeout_seconds: float) -> None:
        """Return when a request is published, or after the timeout."""
        self._begun = asyncio.get_running_loop().create_future()
        await asyncio.wait((self._begun,), timeout=timeout_seconds)
        self._begun = None

    async def finished(self, timeout_seconds: float) -> None:
        """Return when no request has an unacknowledged record, or after the timeout."""
        if not self._open:
            return
        self._finished = asyncio.get_running_loop().create_future()
        await asyncio.wait((self._finished,), timeout=timeout_seconds)
        self._finished = None

    def topics(self, timeout_seconds: float) -> set[str]:
        """Return the names of all topics. Blocks. Raises: BrokerUnavailable."""
        try:
            return set(self._producer.list_topics(timeout=timeout_seconds).topics)
        except KafkaException as cause:
            raise BrokerUnavailable(f"the broker does not answer: {cause.args[0].str()}") from cause

    def publish(self, workspace: str, records: Sequence[Outgoing], headers: Headers, received_at: int = 0) -> asyncio.Future[None]:
        """Publish all records in order; return a future that completes when all are acknowledged.

        `received_at`: the first of the records, not less than that of the request before. Raises: QueueFull at once, with
        nothing written, if the workspace's share of the queue is used up. The future raises BrokerUnavailable if a record was not
        acknowledged in time. Other records of the request may be written; the sender can retry safely with the same message ids.
        """
        count = len(records)
        size = len(records[0].value) if count == 1 else sum([len(record.value) for record in records])
        share = self._shares.take(workspace, count, size)
        if share is None:
            message = f"the workspace's share of the queue is used up, {self._shares.records} records wait for the broker"
            raise QueueFull(f"{message}: send the request again after Retry-After")
        # Kept, because `get_running_loop` is a system call in this Python.
        loop = self._loop = self._loop or asyncio.get_running_loop()
        request = _Request(self, loop.create_future(), share, count, size)
        self._open[request] = received_at
        if self._begun is not None and not self._begun.done():
            self._begun.set_result(None)
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

    def settled(self, request: "_Request", share: Share, count: int, size: int) -> None:
        """Remove a request from the queue. Called once per request, after its last record is acknowledged or has failed."""
        received_at = self._open.pop(request)
        if request.error is not None and request.error.code() in _IN_DOUBT:
            insort(self._in_doubt, received_at)
        self._shares.give_back(share, count, size)
        if self._finished is not None and not self._open and not self._finished.done():
            self._finished.set_result(None)
        if self._drained is not None and not self._shares.records:
            self._drained.set()

    async def watch(self) -> None:
        """Serve the client's events (errors, logs) while no records are sent. Runs until cancelled."""
        while True:
            self._producer.poll(0)
            await asyncio.sleep(_IDLE_POLL_SECONDS)

    async def close(self, timeout_seconds: float) -> int:
        """Wait for the records in flight; return the number that is still not acknowledged after the timeout."""
        self._drained = asyncio.Event()
        if self._shares.records:
            with suppress(TimeoutError):
                await asyncio.wait_for(self._drained.wait(), timeout_seconds)
        if self._polling is not None:
            self._polling.cancel()
        return self._shares.records

    def _poll(self) -> None:
        self._producer.poll(0)
        if self._shares.records:
            self._polling = asyncio.get_running_loop().call_later(_POLL_SECONDS, self._poll)
        else:
            self._polling = None

    def _failed(self, error: KafkaError) -> None:
        if not error.fatal():
            log(__name__).warning("broker_error", error=error.str())
            return
        self.problem = error.str()
        self.fatal.set()


class _Request:
    """The records in flight of one HTTP request, with one future for all of them."""

    __slots__ = ("_count", "_left", "_publisher", "_share", "_size", "acknowledged", "error", "sent")

    def __init__(self, publisher: Publisher, acknowledged: asyncio.Future[None], share: Share, count: int, size: int) -> None:
        self.acknowledged = acknowledged
        self.error: KafkaError | None = None
        self.sent = 0
        self._publisher = publisher
        self._share = share
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
        """Fail the request after the client refused a record; the future still waits for the records that were sent."""
        full = isinstance(cause, BufferError)
        self.error = KafkaError(KafkaError._QUEUE_FULL) if full else cause.args[0]  # noqa: SLF001 - the library's public constant
        self._left -= self._count - self.sent
        if self._left == 0:
            self._finish()

    def _finish(self) -> None:
        self._publisher.settled(self, self._share, self._count, self._size)
        if self.acknowledged.done():
            return  # the waiting task was cancelled
        if self.error is None:
            self.acknowledged.set_result(None)
        else:
            self.acknowledged.set_exception(BrokerUnavailable(self.error.str()))
