"""Adapter: the cut: offsets at the broker, fixed at the start of a run.

The cut is what the job `profiles` has published: the committed offsets of its group. They are read first, and the ends of the
topics afterwards. So every value that follows from the records before the cut is before the end of the values; a value that
follows from later records may be there too.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from confluent_kafka import TopicPartition

from starling_common.kafka.clients import committed, partitions_of
from starling_common.kafka.topic_range import range_consumer, spans
from starling_common.kafka.topics import BEHAVIOUR, CLOCK, TRAIT_DEFINITIONS
from starling_spark.jobs.trait_verify.context import TOPICS, VerifyContext
from starling_spark.jobs.trait_verify.trait import NotVerifiable, Trait

_TIMEOUT_SECONDS: Final = 30.0
_COORDINATOR_SECONDS: Final = 60.0

Place = tuple[str, int]
"""Topic (without the prefix of the installation) and partition."""


@dataclass(frozen=True, slots=True)
class Cut:
    """`done`: the first offset that the job `profiles` has not published; `spans`: the first and the end offset of each partition.

    `read_ms`: the wall clock before both were read, and after.
    """

    done: Mapping[Place, int]
    spans: Mapping[Place, tuple[int, int]]
    read_ms: tuple[int, int]

    def of(self, topic: str) -> Mapping[int, tuple[int, int]]:
        """Return the spans of a topic by partition."""
        return {number: found for (name, number), found in self.spans.items() if name == topic}


def read_cut(context: VerifyContext) -> Cut:
    """Return the offsets of now. Raises: NotVerifiable without a committed offset, KafkaException."""
    consumer = range_consumer(context.settings.kafka.brokers, context.settings.trait_verify_profiles_group)
    began_ms = context.now_ms()
    try:
        places = [
            TopicPartition(context.topic(topic), number)
            for topic in (BEHAVIOUR, CLOCK, TRAIT_DEFINITIONS)
            for number in partitions_of(consumer, context.topic(topic), _TIMEOUT_SECONDS)
        ]
        found = committed(consumer, places, _COORDINATOR_SECONDS)
        ends = {
            (topic, number): ends
            for topic in TOPICS
            for (_, number), ends in spans(consumer, context.topic(topic), _TIMEOUT_SECONDS).items()
        }
    finally:
        consumer.close()
    prefix = len(context.topic(""))
    done = {(one.topic[prefix:], one.partition): one.offset for one in found if one.offset >= 0}
    if not any(topic == BEHAVIOUR for topic, _ in done):
        group = context.settings.trait_verify_profiles_group
        raise NotVerifiable(f"the job profiles has published nothing yet: the group {group} has no offsets of {BEHAVIOUR}")
    return Cut(done, ends, (began_ms, context.now_ms()))


def check_in_force(cut: Cut, trait: Trait) -> None:
    """Raise NotVerifiable while the job `profiles` has not published every definition over all history.

    While another definition comes into force, the values of all traits wait.
    """
    if cut.done.get((TRAIT_DEFINITIONS, 0), 0) <= trait.newest:
        raise NotVerifiable(
            "a definition is not published over all history yet: wait until `starling traits list` has no bootstrapping"
        )
