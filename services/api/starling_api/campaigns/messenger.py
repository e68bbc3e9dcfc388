"""Adapter: which definitions the messenger has, as it reports in `messenger.progress`. Thread-safe."""

import time
from typing import Final

from confluent_kafka import OFFSET_END, KafkaException

from starling_api.http.errors import MessengerBehind
from starling_common.kafka.clients import BrokerUnavailable, offsets
from starling_common.kafka.followed_topic import FollowedTopic
from starling_common.kafka.topic_range import range_consumer
from starling_common.kafka.topics import DELIVERY_DEFINITIONS, MESSENGER_PROGRESS
from starling_common.wire import Codec, Registry
from starling_messages.positions import Positions, behind_of, fold_positions

_ANSWER_SECONDS: Final = 5.0
_WAIT_SECONDS: Final = 10.0
_POLL_SECONDS: Final = 0.05


class MessengerProgress:
    """Follows the messenger from `followed.start` on."""

    def __init__(self, brokers: str, registry: Registry, partitions: int) -> None:
        """`partitions`: how many the messenger has."""
        self._brokers = brokers
        self._registry = registry
        self._partitions = partitions
        self.followed = FollowedTopic[Positions]((brokers, MESSENGER_PROGRESS), self._codec, dict, fold_positions)

    def is_present(self) -> bool:
        """Return whether a messenger has ever run. Raises: BrokerUnavailable."""
        return bool(self.followed.value() or self.followed.refresh(_ANSWER_SECONDS))

    def await_definitions(self) -> None:
        """Return once every partition has the definitions that are written now. Raises: MessengerBehind, BrokerUnavailable."""
        end, deadline = self._end(), time.monotonic() + _WAIT_SECONDS
        while behind := behind_of(self.followed.refresh(_ANSWER_SECONDS), self._partitions, end):
            if time.monotonic() > deadline:
                raise MessengerBehind(behind)
            time.sleep(_POLL_SECONDS)

    def _end(self) -> int:
        consumer = range_consumer(self._brokers, f"follow-{DELIVERY_DEFINITIONS}", log_level=0)
        try:
            return offsets(consumer, [(DELIVERY_DEFINITIONS, 0)], OFFSET_END, _ANSWER_SECONDS)[DELIVERY_DEFINITIONS, 0]
        except KafkaException as error:
            raise BrokerUnavailable(f"{DELIVERY_DEFINITIONS}: {error}") from error
        finally:
            consumer.close()

    def _codec(self) -> Codec:
        return self._registry.codec(MESSENGER_PROGRESS, "SegmenterProgress")
