"""Adapter: publishes the low watermark of this process, so that normalizers release records in the order of arrival.

One watermark is in flight at a time: when all records are acknowledged, at most every 10 ms; every 20 ms while more requests come;
every 50 ms otherwise. An idle process must publish too, for the records of all others wait for it. A request ends its pause, so its
own records do not wait for it. The producer is its own, so a watermark waits neither for batches to fill nor behind them.
"""

import asyncio
import logging
from time import monotonic
from typing import Any, Final

from confluent_kafka import KafkaError, KafkaException, Message, Producer

from starling_common.headers import record_headers
from starling_common.kafka.clients import BrokerUnavailable, produce_and_wait, producer_config
from starling_common.kafka.source_watermarks import LATEST_MS, ImplausibleWatermark, check_watermark, recent_watermarks
from starling_common.kafka.topics import WATERMARKS
from starling_common.telemetry.logs import log
from starling_common.time.instants import LONGEST_APPEND_MS
from starling_common.wire import Codec, DecodeError, RegistryUnavailable
from starling_ingest.publishing.intake import ArrivalClock
from starling_ingest.publishing.publish import Publisher

_LEAST_SECONDS: Final = 0.01
_WORK_SECONDS: Final = 0.02
_IDLE_SECONDS: Final = 0.05
_MARGIN_MS: Final = 5_000
"""The difference between the lease and the time after which the producer gives a record up."""
_CLOCKS_MS: Final = 1_000
"""The difference between the lease and the longest time to an append: a record that is appended later is ordered by the append."""
_JOIN_SECONDS: Final = 10.0
_CLIENT_FAILURE_SECONDS: Final = 60.0
"""Time without an acknowledged watermark after which a new client repeats the request."""
_MOST_AHEAD_MICROS: Final = 5_000_000
"""The clocks of ingest processes must agree within five seconds; a process does not follow one that is further ahead."""


def plausible_low(codec: Codec, value: bytes) -> int:
    """Return the watermark of a record, in microseconds; 0 for bytes that no ingest process writes.

    Raises: BrokerUnavailable if another release wrote the record and the registry does not answer.
    """
    try:
        record = codec.decode(value)
        check_watermark(record["low"], record["lease_ms"])
    except (DecodeError, ImplausibleWatermark) as cause:
        log(__name__).error("watermark_refused", reason=str(cause))
        return 0
    except RegistryUnavailable as cause:
        raise BrokerUnavailable(f"the schema of a watermark is unknown: {cause}") from cause
    low: int = record["low"]
    return low


class Watermarks:
    """The low watermark of one process. For one event loop only."""

    def __init__(self, brokers: str, edge: str, ack_timeout_ms: int, clock: ArrivalClock, publisher: Publisher) -> None:
        """Create the producer without blocking. Its name identifies `edge` and this start."""
        config = {"linger.ms": 0, "message.timeout.ms": _MARGIN_MS, "client.id": "starling-ingest-watermarks"}
        self._brokers = brokers
        self._producer = Producer(producer_config(brokers, **config), logger=logging.getLogger("librdkafka"))
        self._clock = clock
        self._publisher = publisher
        self._started_at = clock.next()
        self._edge = edge
        self._key = f"{edge}/{self._started_at}".encode()
        self._lease_ms = max(ack_timeout_ms + _MARGIN_MS, LONGEST_APPEND_MS + _CLOCKS_MS)
        self._headers = record_headers(f"{edge}-{self._started_at}", "ingest")
        self._joined: Codec | None = None
        """The codec of the watermarks; None before the first one is acknowledged."""
        self._in_flight = False
        self._acknowledged_at: float | None = None
        """When the last acknowledged watermark was computed; None before `join`, or after a lapse."""
        self._lapsed_at = 0.0
        self._other_answered = False
        """Whether a new client had an answer since the lapse. The next request of this one then decides."""
        self.client_failure: str | None = None
        """Why only a restart of the process helps: the broker acknowledges a new client's watermark, but not those of this one."""

    def check(self) -> None:
        """Raise BrokerUnavailable unless a record that is taken now is given up before the lease ends.

        After that end normalizers no longer wait for this process: a record could arrive behind younger ones.
        """
        if self._has_lapsed():
            raise BrokerUnavailable(f"the broker did not acknowledge a watermark for {_MARGIN_MS // 1000} s")

    def _has_lapsed(self) -> bool:
        at = self._acknowledged_at
        if at is not None and monotonic() - at > _MARGIN_MS / 1000:
            self._acknowledged_at, self._lapsed_at, at = None, monotonic(), None
            log(__name__).warning("watermark_lapsed", seconds=_MARGIN_MS // 1000)
        return at is None

    async def join(self, codec: Codec) -> None:
        """Publish a watermark, and take no `received_at` below those that others published before it.

        A normalizer that has not read this watermark yet may have released records up to those. Raises: BrokerUnavailable.
        """
        computed_at = monotonic()
        latest = await asyncio.to_thread(self._emit_and_read, codec, self._encode(codec))
        self._clock.advance(min(latest, self._clock.next() + _MOST_AHEAD_MICROS))
        self._acknowledged_at, self._joined, self._other_answered = computed_at, codec, False

    def _emit_and_read(self, codec: Codec, value: bytes) -> int:
        """Publish a watermark, and return the greatest recent one of all processes. Blocks."""
        produce_and_wait(self._producer, WATERMARKS, key=self._key, value=value, headers=self._headers)
        found = [message.value() for message in recent_watermarks(self._brokers, LATEST_MS, _JOIN_SECONDS)]
        return max((plausible_low(codec, value) for value in found if value), default=0)

    async def run(self) -> None:
        """Publish until cancelled. After a lapse the process joins again."""
        while True:
            self._producer.poll(0)
            began, due = monotonic(), True
            if self._joined is not None:
                due = await self._renew(self._joined)
            if due and self._publisher.oldest() is None:
                await self._publisher.begun(_IDLE_SECONDS)
            await self._publisher.finished(_WORK_SECONDS)
            await asyncio.sleep(max(0.0, began + _LEAST_SECONDS - monotonic()))

    def retire(self) -> None:
        """Publish the final watermark: normalizers stop to wait for this process. Blocks for two seconds at most.

        While a record may be appended yet, the last watermark stays in force for its lease.
        """
        if self._joined is not None and self._publisher.oldest() is None:
            self._producer.produce(WATERMARKS, None, self._key, headers=self._headers)
            self._producer.flush(2)

    async def _renew(self, codec: Codec) -> bool:
        """Publish a watermark. Return False if it has to wait because one is in flight."""
        if self._has_lapsed():
            try:
                await self.join(codec)
            except BrokerUnavailable as cause:
                log(__name__).warning("not_joined", reason=str(cause))
                await asyncio.to_thread(self._compare_with_new_client, self._encode(codec))
            else:
                log(__name__).info("group_rejoined")
        elif self._in_flight:
            return False
        else:
            self._publish(codec)
        return True

    def _compare_with_new_client(self, value: bytes) -> None:
        silent_seconds = monotonic() - self._lapsed_at
        if silent_seconds < _CLIENT_FAILURE_SECONDS:
            return
        if self._other_answered:
            self.client_failure = (
                f"no watermark acknowledged for {silent_seconds:.0f} s, but a new client's was: restart this process"
            )
            return
        try:
            produce_and_wait(
                Producer(producer_config(self._brokers)), WATERMARKS, key=self._key, value=value, headers=self._headers
            )
        except (BrokerUnavailable, KafkaException, BufferError):
            return
        self._other_answered = True  # the broker may have come back after this client's request

    def _publish(self, codec: Codec) -> None:
        computed_at = monotonic()

        def delivered(error: KafkaError | None, _message: Message) -> None:
            self._in_flight = False
            if error is None and self._acknowledged_at is not None:
                self._acknowledged_at = computed_at

        try:
            self._producer.produce(WATERMARKS, self._encode(codec), self._key, on_delivery=delivered, headers=self._headers)
            self._in_flight = True
        except (BufferError, KafkaException) as cause:
            log(__name__).warning("watermark_not_published", reason=str(cause))

    def _encode(self, codec: Codec) -> bytes:
        oldest = self._publisher.oldest()
        low = self._clock.next() if oldest is None else oldest
        record: dict[str, Any] = {"low": low, "edge": self._edge, "started_at": self._started_at, "lease_ms": self._lease_ms}
        return codec.encode(record)
