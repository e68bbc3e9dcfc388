"""Adapter: the offsets of a stage's consumer group, for operators who continue a stage whose start was refused."""

from collections.abc import Callable, Iterator, Mapping
from typing import Final, NamedTuple

from confluent_kafka import Consumer, KafkaError, KafkaException, TopicPartition

from starling_common.kafka.clients import committed, consumer_config, partitions_of, watermarks
from starling_common.kafka.topic_range import range_consumer, read_range
from starling_common.kafka.topics import REPEATABLE_STAGES, load_catalogue
from starling_common.retries import retrying
from starling_common.wire import Registry
from starling_stream.model.meta import TaskMeta, decode_meta
from starling_stream.model.rows import META_KEY
from starling_stream.state.restore.input_offsets import ACCEPTED, InputRange, accepted_offsets, checkpoint_offsets
from starling_stream.state.restore.restore import input_ranges

_SECONDS: Final = 30.0
_FIRST_LOOK: Final = 1_000
"""The last record of a unit is the task's own row, so that it is usually among the last records of the changelog."""


class CannotMove(Exception):
    """The offsets were not changed; the message contains the cure."""


class Moved(NamedTuple):
    """One committed offset; `before` is None if there was none."""

    topic: str
    partition: int
    before: int | None
    offset: int


Choose = Callable[[TaskMeta, Mapping[str, InputRange]], dict[str, int]]
"""Returns the offset of each input of a task. Raises: ValueError."""


def resume(brokers: str, registry_url: str, stage: str, timeout_seconds: float) -> list[Moved]:
    """Commit the offsets at which the states of a stage continue.

    Raises: CannotMove, KafkaException, BrokerUnavailable, RegistryUnavailable.
    """
    return _move(brokers, registry_url, stage, checkpoint_offsets, timeout_seconds)


def accept_loss(brokers: str, registry_url: str, stage: str, timeout_seconds: float) -> list[Moved]:
    """Commit offsets at which a stage continues without records that are lost.

    Raises: CannotMove, KafkaException, BrokerUnavailable, RegistryUnavailable.
    """
    return _move(brokers, registry_url, stage, accepted_offsets, timeout_seconds)


def rewind(brokers: str, registry_url: str, stage: str, timeout_seconds: float) -> list[Moved]:
    """Commit the start of every input of a stage, which then processes all records again.

    Raises: CannotMove, also for a stage whose effects would be doubled; KafkaException, BrokerUnavailable, RegistryUnavailable.
    """
    if stage not in REPEATABLE_STAGES:
        raise CannotMove(f"{stage} would process its input twice: only {' and '.join(REPEATABLE_STAGES)} can be rewound")
    return _move(brokers, registry_url, stage, _first_offsets, timeout_seconds)


def _first_offsets(_meta: TaskMeta, inputs: Mapping[str, InputRange]) -> dict[str, int]:
    return {topic: one.start for topic, one in inputs.items()}


def _move(brokers: str, registry_url: str, stage: str, choose: Choose, timeout_seconds: float) -> list[Moved]:
    known = {one.name: one for one in load_catalogue().stages}.get(stage)
    group = f"starling-{stage}" if known is None else known.group
    consumer = Consumer(consumer_config(brokers, group, **{"isolation.level": "read_uncommitted"}))
    try:
        metas = dict(_metas(consumer, brokers, registry_url, f"{stage}-state-changelog"))
        topics = {*(() if known is None else known.inputs), *(topic for meta in metas.values() for topic in meta.offsets)}
        if not topics:
            raise CannotMove(f"there is no stage {stage} with states or a consumer group")
        if not metas and choose is checkpoint_offsets:
            raise CannotMove(f"{stage} has no states to resume from: use `starling stage accept-loss {stage}`")
        moves = _moves(consumer, topics, metas, choose)
        _commit(consumer, stage, moves, ACCEPTED if choose is accepted_offsets else "", timeout_seconds)
        return [one for one in moves if one.before != one.offset]
    finally:
        consumer.close()


def _moves(consumer: Consumer, topics: set[str], metas: Mapping[int, TaskMeta], choose: Choose) -> list[Moved]:
    parts = [TopicPartition(topic, number) for topic in sorted(topics) for number in partitions_of(consumer, topic, _SECONDS)]
    found = {
        (one.topic, one.partition): (one.offset, one.metadata or "")
        for one in committed(consumer, parts, _SECONDS)
        if one.offset >= 0
    }
    moves = []
    for number in sorted({part.partition for part in parts}):
        own = sorted({part.topic for part in parts if part.partition == number})
        ranges = input_ranges(consumer, own, number, {topic: found[topic, number] for topic in own if (topic, number) in found})
        try:
            chosen = choose(metas.get(number, TaskMeta()), ranges)
        except ValueError as cause:
            raise CannotMove(f"partition {number}: {cause}: use `accept-loss`") from cause
        moves += [Moved(topic, number, ranges[topic].committed, offset) for topic, offset in chosen.items()]
    return moves


def _commit(consumer: Consumer, stage: str, moves: list[Moved], metadata: str, timeout_seconds: float) -> None:
    """Commit for a group without members; a stopped worker stays a member until its session ends, which is awaited."""
    wanted = [TopicPartition(one.topic, one.partition, one.offset, metadata=metadata) for one in moves]
    try:
        retrying(timeout_seconds)(_has_members, lambda: consumer.commit(offsets=wanted, asynchronous=False))
    except KafkaException as cause:
        if _has_members(cause):
            raise CannotMove(f"{stage} has running workers: stop all of them, and run the command again") from cause
        raise


def _has_members(error: Exception) -> bool:
    return isinstance(error, KafkaException) and bool(error.args[0].code() == KafkaError.UNKNOWN_MEMBER_ID)


def _metas(consumer: Consumer, brokers: str, registry_url: str, changelog: str) -> Iterator[tuple[int, TaskMeta]]:
    """Yield (partition, the task's own row) of every task that has one."""
    if consumer.list_topics(timeout=_SECONDS).topics.get(changelog) is None:
        return
    codec = Registry(registry_url).codec(changelog, "StateChanged")
    reader = range_consumer(brokers, f"positions-{changelog}")
    try:
        for number in partitions_of(reader, changelog, _SECONDS):
            value = _last_own_row(reader, changelog, number)
            if value is not None:
                yield number, decode_meta((codec.decode(value)["state"] or b"")[8:])
    finally:
        reader.close()


def _last_own_row(reader: Consumer, changelog: str, partition: int) -> bytes | None:
    start, end = watermarks(reader, changelog, partition, _SECONDS)
    length, place = _FIRST_LOOK, (changelog, partition)
    while True:
        first = max(start, end - length)
        found = None
        for messages in read_range(reader, {place: first}, {place: end}, _SECONDS):
            found = next((message.value() for message in reversed(messages) if message.key() == META_KEY), found)
        if found is not None or first == start:
            return found
        length *= 8
