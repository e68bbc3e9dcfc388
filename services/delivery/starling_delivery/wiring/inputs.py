"""Edge: the input of retries, and the topics of an input."""

import re
from collections.abc import Callable, Mapping
from typing import Final

from confluent_kafka import Consumer

from starling_common.kafka.lost_input import check_input
from starling_common.wire import Record
from starling_delivery.agents import Input, RetryInput
from starling_delivery.policy import Request
from starling_delivery.settings import KitSettings
from starling_delivery.wiring.sending import schedule

_BROKER_SECONDS: Final = 30.0


def retry_input(settings: KitSettings, decode: Callable[[bytes], Record], is_wanted: Callable[[Request], bool]) -> RetryInput:
    """Return the input of messages to send again. `is_wanted`: whether a request is of this process."""
    tiers = {topic: position for position, topic in enumerate(settings.tier_topics.values())}
    return RetryInput([settings.retry_pattern], decode, is_wanted, tiers, schedule(settings).longest_ms)


def topics_of(consumer: Consumer, source: Input) -> Mapping[str, int]:
    """Return the partitions of each topic of an input."""
    existing = consumer.list_topics(timeout=_BROKER_SECONDS).topics
    matching = (topic for topic in existing if any(re.fullmatch(pattern, topic) for pattern in source.topics))
    return {topic: len(existing[topic].partitions) for topic in matching}


def check(consumer: Consumer, stage: str, source: Input) -> None:
    """Raise for records of an input that expired before they were read."""
    check_input(consumer, stage, list(topics_of(consumer, source)), _BROKER_SECONDS)
