"""Adapter: whether a consumer group would skip records without notice, because its offsets lie outside its topics."""

from collections.abc import Sequence

from confluent_kafka import OFFSET_BEGINNING, OFFSET_END, Consumer, TopicPartition

from starling_common.kafka.clients import committed, offsets, partitions_of


class InputLost(Exception):
    """Records were deleted before the group read them, or its topic was created again; the message contains the cure."""


def check_input(consumer: Consumer, stage: str, topics: Sequence[str], timeout_seconds: float) -> None:
    """Compare the committed offsets of the consumer's group with its topics. Called before the group is joined.

    The cure needs a group without members. Raises: InputLost, KafkaException.
    """
    parts = [(topic, number) for topic in topics for number in partitions_of(consumer, topic, timeout_seconds)]
    starts = offsets(consumer, parts, OFFSET_BEGINNING, timeout_seconds)
    ends = offsets(consumer, parts, OFFSET_END, timeout_seconds)
    lost = []
    for one in committed(consumer, [TopicPartition(*part) for part in parts], timeout_seconds):
        place = (one.topic, one.partition)
        if 0 <= one.offset < starts[place]:
            lost.append(lost_range(one.topic, one.partition, one.offset, starts[place]))
        elif one.offset > ends[place]:
            lost.append(f"{one.topic} {one.partition}: the committed offset {one.offset} is after the end, {ends[place]}")
    if lost:
        raise InputLost(f"{'; '.join(lost)}. {cure(stage)}")


def cure(stage: str) -> str:
    """Return the two commands with which an operator continues a stage."""
    return (
        f"Run `starling stage resume {stage}` to continue where its states end, or, where that is refused, "
        f"`starling stage accept-loss {stage}` to continue with the records that exist"
    )


def lost_range(topic: str, partition: int, offset: int, start: int) -> str:
    """Return the description of records that were deleted between the committed offset and the start of the log."""
    return f"{topic} {partition}: offsets {offset} to {start} expired before they were processed"
