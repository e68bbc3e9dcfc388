"""Adapter: publishes records. Opens and clicks wait for no broker, unsubscribing and callbacks for all replicas."""

import asyncio
import logging
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final

from confluent_kafka import KafkaError, KafkaException, Message, Producer

from starling_common.kafka.clients import BrokerUnavailable, producer_config
from starling_common.kafka.topics import CONSENT, DELIVERY, SUPPRESSIONS
from starling_common.partitioning import partition_of
from starling_common.telemetry.logs import log
from starling_common.time.instants import wall_clock_ms
from starling_common.wire import Codec, Registry
from starling_messages.links import Link
from starling_tracker.records import DEAD_LETTERS, Outgoing, of_outcome

TOPICS: Final[Mapping[str, str]] = {
    DELIVERY: "DeliveryReported",
    CONSENT: "ConsentChanged",
    SUPPRESSIONS: "AddressSuppressed",
    DEAD_LETTERS: "DeadLetter",
}
"""The topics that the tracker writes, with their schemas."""

_POLL_SECONDS: Final = 0.005
_FLUSH_SHARE: Final = 0.1


class Publisher:
    """A Kafka producer. For one event loop only."""

    def __init__(self, brokers: str, *, ack_timeout_ms: int, queue_records: int, partitions: int) -> None:
        """Create the producer without blocking. `partitions`: number of partitions of the topics keyed by profile."""
        config = producer_config(
            brokers,
            **{
                "linger.ms": 5,
                "message.timeout.ms": ack_timeout_ms,
                "request.timeout.ms": ack_timeout_ms,
                "queue.buffering.max.messages": queue_records,
                "error_cb": self._failed,
                "client.id": "starling-tracker",
            },
        )
        self._producer = Producer(config, logger=logging.getLogger("librdkafka"))
        self._partitions = partitions
        self._codecs: Mapping[str, Codec] = {}
        self.fatal = asyncio.Event()
        self.problem: str | None = None

    def topics(self, timeout_seconds: float) -> set[str]:
        """Return the names of all topics. Blocks. Raises: BrokerUnavailable."""
        try:
            return set(self._producer.list_topics(timeout=timeout_seconds).topics)
        except KafkaException as cause:
            raise BrokerUnavailable(f"the broker does not answer: {cause.args[0].str()}") from cause

    def open(self, registry: Registry) -> None:
        """Look up the schemas. Blocks. Raises: RegistryUnavailable, SchemaMissing."""
        self._codecs = {topic: registry.codec(topic, schema) for topic, schema in TOPICS.items()}

    def outcome(self, link: Link, record: Mapping[str, Any], dropped: Callable[[], None]) -> None:
        """Publish an outcome in the background; call `dropped` if the broker does not acknowledge it in time."""

        def delivered(error: KafkaError | None, _message: Message) -> None:
            if error is not None:
                dropped()

        try:
            self._produce(of_outcome(link, record), delivered)
        except (BufferError, KafkaException):
            dropped()

    async def publish(self, records: Sequence[Outgoing]) -> None:
        """Publish records; return when all in-sync replicas have them. Raises: BrokerUnavailable, also if it has a part of them."""
        loop = asyncio.get_running_loop()
        acknowledged: list[asyncio.Future[None]] = []

        def reported(future: asyncio.Future[None]) -> Callable[[KafkaError | None, Message], None]:
            def delivered(error: KafkaError | None, _message: Message) -> None:
                if future.done():
                    return
                if error is None:
                    future.set_result(None)
                else:
                    future.set_exception(BrokerUnavailable(error.str()))

            return delivered

        try:
            for record in records:
                future = loop.create_future()
                acknowledged.append(future)
                self._produce(record, reported(future))
        except (BufferError, KafkaException) as cause:
            acknowledged[-1].cancel()
            await asyncio.gather(*acknowledged, return_exceptions=True)
            raise BrokerUnavailable(str(cause)) from cause
        results = await asyncio.gather(*acknowledged, return_exceptions=True)
        failed = [result for result in results if isinstance(result, BaseException)]
        if failed:
            raise failed[0]

    def _produce(self, outgoing: Outgoing, delivered: Callable[[KafkaError | None, Message], None]) -> None:
        value = self._codecs[outgoing.topic].encode(dict(outgoing.record))
        # A topic of people is partitioned by the profile, whatever its keys; the others have one partition.
        partition = 0 if outgoing.profile is None else partition_of(outgoing.profile, self._partitions)
        self._producer.produce(
            outgoing.topic, value, outgoing.key, partition, delivered, timestamp=wall_clock_ms(), headers=outgoing.headers
        )

    async def watch(self) -> None:
        """Serve the acknowledgements and the client's events. Runs until cancelled."""
        while True:
            self._producer.poll(0)
            await asyncio.sleep(_POLL_SECONDS)

    async def close(self, timeout_seconds: float) -> int:
        """Wait for the records in flight; return the number that is still not acknowledged after the timeout."""
        deadline = asyncio.get_running_loop().time() + timeout_seconds
        while len(self._producer) and asyncio.get_running_loop().time() < deadline:
            await asyncio.to_thread(self._producer.flush, _FLUSH_SHARE)
        return len(self._producer)

    def _failed(self, error: KafkaError) -> None:
        if not error.fatal():
            log(__name__).warning("broker_error", error=error.str())
            return
        self.problem = error.str()
        self.fatal.set()
