"""Adapter: asks the broker how far groups are, with few and large questions."""

from collections.abc import Iterable, Mapping
from concurrent.futures import Future
from types import TracebackType
from typing import Any, Self

from confluent_kafka import Consumer, ConsumerGroupTopicPartitions, IsolationLevel, KafkaError, KafkaException, TopicPartition
from confluent_kafka.admin import AdminClient, OffsetSpec  # type: ignore[attr-defined]  # left out of the library's list

from starling_common.kafka import BrokerUnavailable, consumer_config
from starling_local.settle.progress import Offsets, Partition

_TIMEOUT_SECONDS = 10.0
_PROBE_GROUP = "starling-local-probe"
"""Named because a consumer must be; it never joins and never commits."""


class Offsetter:
    """A view on the broker's offsets. Raises BrokerUnavailable when it does not answer in time."""

    def __init__(self, brokers: str) -> None:
        """Opens no connection before the first question."""
        self._admin = AdminClient({"bootstrap.servers": brokers, "log_level": 3})
        self._consumer = Consumer(consumer_config(brokers, _PROBE_GROUP, **{"enable.partition.eof": True, "log_level": 3}))

    def __enter__(self) -> Self:
        return self

    def __exit__(self, _kind: type[BaseException] | None, _error: BaseException | None, _trace: TracebackType | None) -> None:
        self._consumer.close()

    def partitions(self, topics: Iterable[str]) -> list[Partition]:
        """Every partition of those topics that exist."""
        try:
            known = self._admin.list_topics(timeout=_TIMEOUT_SECONDS).topics
        except KafkaException as cause:
            raise BrokerUnavailable(f"the broker does not answer: {cause.args[0].str()}") from cause
        return [(name, number) for name in sorted(set(topics)) if name in known for number in sorted(known[name].partitions)]

    def starts(self, partitions: Iterable[Partition]) -> Offsets:
        """The first offset still kept."""
        return self._offsets(partitions, OffsetSpec.earliest())  # type: ignore[no-untyped-call]

    def ends(self, partitions: Iterable[Partition]) -> Offsets:
        """The last stable offset: beyond every committed record, before every open transaction."""
        return self._offsets(partitions, OffsetSpec.latest())  # type: ignore[no-untyped-call]

    def committed(self, group: str, partitions: Iterable[Partition]) -> Offsets:
        """What the group committed; a partition without a commit is left out."""
        wanted = [TopicPartition(topic, number) for topic, number in partitions]
        if not wanted:
            return {}
        asked = self._admin.list_consumer_group_offsets([ConsumerGroupTopicPartitions(group, wanted)])
        found = _result(asked[group]).topic_partitions or []
        return {(entry.topic, entry.partition): entry.offset for entry in found if entry.offset >= 0}

    def holding_records(self, standing: Offsets) -> set[Partition]:
        """Those partitions that hold at least one committed record at or after the position given."""
        if not standing:
            return set()
        unknown = set(standing)
        found: set[Partition] = set()
        self._consumer.assign([TopicPartition(topic, number, offset) for (topic, number), offset in standing.items()])
        while unknown:
            messages = self._consumer.consume(500, _TIMEOUT_SECONDS)
            if not messages:
                raise BrokerUnavailable("the broker did not hand out records in time")
            for message in messages:
                part = (message.topic() or "", message.partition() or 0)
                error = message.error()
                if error is None:
                    found.add(part)
                elif error.code() != KafkaError._PARTITION_EOF:  # noqa: SLF001 - the library's public constant
                    raise BrokerUnavailable(error.str())
                unknown.discard(part)
        self._consumer.unassign()
        return found

    def _offsets(self, partitions: Iterable[Partition], spec: OffsetSpec) -> Offsets:
        asked = {TopicPartition(topic, number): spec for topic, number in partitions}
        if not asked:
            return {}
        answers: Mapping[TopicPartition, Future[Any]] = self._admin.list_offsets(
            asked, isolation_level=IsolationLevel.READ_COMMITTED, request_timeout=_TIMEOUT_SECONDS
        )
        return {(part.topic, part.partition): _result(answer).offset for part, answer in answers.items()}


def _result(answer: Future[Any]) -> Any:
    try:
        return answer.result(_TIMEOUT_SECONDS)
    except (KafkaException, TimeoutError) as cause:
        raise BrokerUnavailable(f"the broker does not answer: {cause}") from cause
