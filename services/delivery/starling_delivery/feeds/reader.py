"""Adapter: reads `segments.membership` for one target, from the positions of that target."""

from collections.abc import Mapping, Sequence
from typing import Final

from confluent_kafka import OFFSET_BEGINNING, OFFSET_END, Consumer, KafkaException, Message, TopicPartition

from starling_common.kafka.clients import PARTITION_EOF, bounded_queue, consumer_config, offsets, partitions_of
from starling_common.telemetry.logs import log
from starling_delivery.feeds.progress import READER_GROUP

_ANSWER_SECONDS: Final = 30.0
_QUEUE_KBYTES: Final = 1_024
_MOST_READ: Final = 500


class FeedReader:
    """The feed, read committed. For one thread. `positions`: partition -> next offset."""

    def __init__(self, brokers: str, topic: str) -> None:
        """Open no connection."""
        self._topic = topic
        more = {"enable.partition.eof": True, **bounded_queue(_QUEUE_KBYTES)}
        self._consumer = Consumer(consumer_config(brokers, READER_GROUP, **more))
        self._goals: dict[int, int] = {}
        self.positions: dict[int, int] = {}
        self.lost_records = 0
        """Records that expired before the target had read them."""

    def open(self, stored: Mapping[int, int], since_ms: int) -> None:
        """Begin at the stored positions, or at the first record since a time, whichever is later. Raises: KafkaException."""
        places = [(self._topic, number) for number in partitions_of(self._consumer, self._topic, _ANSWER_SECONDS)]
        begun = offsets(self._consumer, places, since_ms, _ANSWER_SECONDS)
        lows = offsets(self._consumer, places, OFFSET_BEGINNING, _ANSWER_SECONDS)
        ends = offsets(self._consumer, places, OFFSET_END, _ANSWER_SECONDS)
        for place in places:
            number = place[1]
            # Without a record since that time, the broker returns its next offset, or none.
            by_time = begun[place] if begun[place] >= 0 else ends[place]
            known = stored.get(number)
            if known is not None and known < lows[place] and by_time <= lows[place]:
                self.lost_records += lows[place] - known
                log(__name__).error("feed_records_lost", topic=self._topic, partition=number, first=known, next=lows[place])
            self.positions[number] = max(by_time if known is None else max(known, by_time), lows[place])
            self._goals[number] = ends[place]
        self._assign()

    @property
    def is_current(self) -> bool:
        """Whether everything was read that was in the feed when it was opened."""
        return all(self.positions[number] >= end for number, end in self._goals.items())

    def lag(self) -> int:
        """Return the number of offsets that are not read yet, as far as the client knows the ends."""
        found = 0
        for number, position in self.positions.items():
            low_high = self._consumer.get_watermark_offsets(TopicPartition(self._topic, number), cached=True)
            found += max(0, (low_high[1] if low_high else 0) - position)
        return found

    def read(self, seconds: float) -> Sequence[Message]:
        """Return the next records, or none after that time. Raises: KafkaException for an error that the client cannot correct."""
        first = self._consumer.poll(seconds)
        found = [] if first is None else [first, *self._consumer.consume(_MOST_READ - 1, 0)]
        records = []
        for message in found:
            error, number, offset = message.error(), message.partition() or 0, message.offset() or 0
            if error is None:
                self.positions[number] = offset + 1
                records.append(message)
            elif error.code() == PARTITION_EOF:
                # Behind the markers of transactions, which are no records.
                self.positions[number] = max(self.positions[number], offset)
            elif error.fatal():
                raise KafkaException(error)
        return records

    def close(self) -> None:
        """Close the connections."""
        self._consumer.close()

    def _assign(self) -> None:
        self._consumer.assign([TopicPartition(self._topic, number, offset) for number, offset in self.positions.items()])
