"""Adapter: the offsets between which targets are read."""

from collections.abc import Mapping, Sequence
from threading import Lock
from typing import Final

from confluent_kafka import OFFSET_BEGINNING, OFFSET_END, Consumer, KafkaException

from starling_audience.positions import FOLLOWED, TOPICS, Ends
from starling_common.kafka.clients import BrokerUnavailable, consumer_config, offsets
from starling_common.kafka.topics import MEMBERSHIP_STATE

_GROUP: Final = "starling-reader"
"""Named because a consumer must be. It is never joined."""
_ANSWER_SECONDS: Final = 30.0


class Probe:
    """Reads offsets. Thread-safe."""

    def __init__(self, brokers: str) -> None:
        """Open no connection; the first request does."""
        self._brokers = brokers
        self._consumers: tuple[Consumer, Consumer] | None = None
        self._lock = Lock()

    def ends(self, numbers: Sequence[int]) -> Mapping[int, Ends]:
        """Return the offsets of each partition number. Raises: BrokerUnavailable.

        The end of the state is read last, and includes open transactions: a change before the stable end of the feed is before it,
        although the marker of its transaction may not be in the state yet.
        """
        with self._lock:
            committed, uncommitted = self._opened()
            places = [(topic, number) for topic in TOPICS for number in numbers]
            try:
                first = offsets(committed, places, OFFSET_BEGINNING, _ANSWER_SECONDS)
                stable = offsets(committed, [place for place in places if place[0] in FOLLOWED], OFFSET_END, _ANSWER_SECONDS)
                state = offsets(uncommitted, [(MEMBERSHIP_STATE, number) for number in numbers], OFFSET_END, _ANSWER_SECONDS)
            except KafkaException as cause:
                raise BrokerUnavailable(f"the offsets of the feed could not be read: {cause.args[0].str()}") from cause
        return {
            number: Ends(
                {topic: first[topic, number] for topic in TOPICS},
                {topic: stable[topic, number] for topic in FOLLOWED},
                state[MEMBERSHIP_STATE, number],
            )
            for number in numbers
        }

    def close(self) -> None:
        """Close the connections."""
        with self._lock:
            for consumer in self._consumers or ():
                consumer.close()
            self._consumers = None

    def _opened(self) -> tuple[Consumer, Consumer]:
        if self._consumers is None:
            committed = Consumer(consumer_config(self._brokers, _GROUP, log_level=0))
            own = {"isolation.level": "read_uncommitted", "log_level": 0}
            uncommitted = Consumer(consumer_config(self._brokers, _GROUP, **own))
            self._consumers = committed, uncommitted
        return self._consumers
