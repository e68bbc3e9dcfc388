"""Adapter: the topic of the low watermarks, in which each ingest process is a source.

A normalizer releases a record once the watermarks of all live sources have passed it. A process must therefore publish its first
watermark before its first record, and assign no `received_at` below a watermark that was published before its own.
"""

from collections.abc import Iterator
from typing import Final

from confluent_kafka import OFFSET_END, Consumer, KafkaException, Message, TopicPartition

from starling_common.kafka.clients import BrokerUnavailable
from starling_common.kafka.topic_range import range_consumer, read_range
from starling_common.kafka.topics import WATERMARKS
from starling_common.time.instants import MAX_EDGE_AHEAD_MS, wall_clock_ms

LONGEST_LEASE_MS: Final = 180_000
"""Older watermarks are not in force."""

LATEST_MS: Final = 10_000
"""The watermarks of the last seconds contain the greatest, as long as the clocks of the sources differ by less."""

_FURTHEST_MS: Final = LONGEST_LEASE_MS + MAX_EDGE_AHEAD_MS
"""The most by which a watermark in force can differ from a reader's clock: its lease, and the difference of the clocks."""


class ImplausibleWatermark(ValueError):
    """A watermark that no ingest process publishes. In force, it would stop all records until its lease ends."""


def check_watermark(low: int, lease_ms: int) -> None:
    """Raise ImplausibleWatermark for a lease, or for a watermark (microseconds), that no ingest process can have."""
    if not 0 <= lease_ms <= LONGEST_LEASE_MS:
        raise ImplausibleWatermark(f"lease_ms {lease_ms} is not from 0 to {LONGEST_LEASE_MS}")
    seconds = (low // 1000 - wall_clock_ms()) / 1000
    if abs(seconds) > _FURTHEST_MS / 1000:
        raise ImplausibleWatermark(
            f"low {low} differs from the reader's clock by {seconds:.0f} s, more than {_FURTHEST_MS // 1000} s"
        )


def recent_offset(consumer: Consumer, recent_ms: int, timeout_seconds: float) -> int:
    """Return the offset of the first watermark of that time, or OFFSET_END. Raises: KafkaException."""
    (found,) = consumer.offsets_for_times([TopicPartition(WATERMARKS, 0, wall_clock_ms() - recent_ms)], timeout=timeout_seconds)
    if found.error is not None:
        raise KafkaException(found.error)
    return OFFSET_END if found.offset < 0 else int(found.offset)


def recent_watermarks(brokers: str, recent_ms: int, timeout_seconds: float) -> Iterator[Message]:
    """Yield the records of that time, up to the present end of the topic, in order. Raises: BrokerUnavailable."""
    consumer = range_consumer(brokers, "starling-watermarks", log_level=0)
    try:
        start = recent_offset(consumer, recent_ms, timeout_seconds)
        if start != OFFSET_END:
            for messages in read_range(consumer, {(WATERMARKS, 0): start}, silence_seconds=timeout_seconds):
                yield from messages
    except KafkaException as cause:
        raise BrokerUnavailable(f"{WATERMARKS}: {cause.args[0].str()}") from cause
    finally:
        consumer.close()
