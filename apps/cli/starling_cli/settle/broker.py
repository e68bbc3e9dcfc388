"""Adapter: reads the offsets of topics and the committed offsets of consumer groups, with few requests to the broker."""

from collections.abc import Iterable, Mapping
from types import TracebackType
from typing import Self

from confluent_kafka import OFFSET_BEGINNING, OFFSET_END, Consumer, KafkaException, TopicPartition
from confluent_kafka.admin import AdminClient

from starling_cli.settle.progress import Offsets, Partition
from starling_common.kafka.clients import PARTITION_EOF, BrokerUnavailable, committed, consumer_config, offsets
from starling_common.kafka.security import connection_config

_TIMEOUT_SECONDS = 10.0

_PROBE_GROUP = "starling-local-probe"
"""Named because a consumer must be; it never joins and never commits."""


class Offsetter:
    """A view on the broker's offsets. Raises BrokerUnavailable when it does not answer in time."""

    def __init__(self, brokers: str) -> None:
        """Opens no connection before the first question."""
        self._admin = AdminClient({**connection_config(brokers), "log_level": 0})
        self._brokers = brokers
        self._consumer = self._member(_PROBE_GROUP)
        self._sees_open = self._member(_PROBE_GROUP, **{"isolation.level": "read_uncommitted"})
        self._groups: dict[str, Consumer] = {}

    def __enter__(self) -> Self:
        return self

    def __exit__(self, _kind: type[BaseException] | None, _error: BaseException | None, _trace: TracebackType | None) -> None:
        for consumer in (self._consumer, self._sees_open, *self._groups.values()):
            consumer.close()

    def partitions(self, topics: Iterable[str]) -> list[Partition]:
        """Return every partition of those topics that exist."""
        try:
            known = self._admin.list_topics(timeout=_TIMEOUT_SECONDS).topics
        except KafkaException as cause:
            raise BrokerUnavailable(f"the broker does not answer: {cause.args[0].str()}") from cause
        return [(name, number) for name in sorted(set(topics)) if name in known for number in sorted(known[name].partitions)]

    def starts(self, partitions: Iterable[Partition]) -> Offsets:
        """Return the first offset that the broker has, by partition."""
        return self._offsets(self._consumer, partitions, OFFSET_BEGINNING)

    def ends(self, partitions: Iterable[Partition]) -> Offsets:
        """Return the last stable offset by partition: after every committed record, before every open transaction."""
        return self._offsets(self._consumer, partitions, OFFSET_END)

    def high_watermarks(self, partitions: Iterable[Partition]) -> Offsets:
        """Return the offset after the last record by partition, records of open transactions included."""
        return self._offsets(self._sees_open, partitions, OFFSET_END)

    def committed(self, group: str, partitions: Iterable[Partition]) -> Offsets:
        """Return the committed offsets of the group; a partition without one is absent.

        A consumer with that group id reads them and never joins the group: the admin client's own question makes librdkafka
        end the process when the group's coordinator is just moving or loading (librdkafka issue 5040).
        """
        return {(entry.topic, entry.partition): entry.offset for entry in self._committed(group, partitions)}

    def metadata(self, group: str, partitions: Iterable[Partition]) -> Mapping[Partition, str]:
        """Return the metadata of the committed offsets of the group; a partition without an offset is absent."""
        return {(entry.topic, entry.partition): entry.metadata or "" for entry in self._committed(group, partitions)}

    def _committed(self, group: str, partitions: Iterable[Partition]) -> list[TopicPartition]:
        wanted = [TopicPartition(topic, number) for topic, number in partitions]
        if not wanted:
            return []
        try:
            found = committed(self._group(group), wanted, _TIMEOUT_SECONDS)
        except KafkaException as cause:
            raise BrokerUnavailable(f"the broker does not return the offsets of {group}: {cause}") from cause
        return [entry for entry in found if entry.offset >= 0]

    def holding_records(self, positions: Offsets) -> set[Partition]:
        """Return the partitions with at least one committed record at or after their position."""
        if not positions:
            return set()
        unknown, found = set(positions), set()
        self._consumer.assign([TopicPartition(topic, number, offset) for (topic, number), offset in positions.items()])
        while unknown:
            message = self._consumer.poll(_TIMEOUT_SECONDS)
            if message is None:
                raise BrokerUnavailable("the broker did not return records in time")
            part, error = (message.topic() or "", message.partition() or 0), message.error()
            if error is None:
                found.add(part)
            elif error.code() != PARTITION_EOF:
                raise BrokerUnavailable(error.str())
            if part in unknown:  # one record is enough: the rest of a long backlog stays with the broker
                unknown.remove(part)
                self._consumer.incremental_unassign([TopicPartition(*part)])
        return found

    def _offsets(self, consumer: Consumer, partitions: Iterable[Partition], which: int) -> Offsets:
        try:
            return offsets(consumer, partitions, which, _TIMEOUT_SECONDS)
        except KafkaException as cause:
            raise BrokerUnavailable(f"the broker does not return its offsets: {cause}") from cause

    def _group(self, group: str) -> Consumer:
        if group not in self._groups:
            # A consumer of committed records would wait until no transaction holds offsets of the group: under load, endlessly.
            self._groups[group] = self._member(group, **{"isolation.level": "read_uncommitted"})
        return self._groups[group]

    def _member(self, group: str, **more: str) -> Consumer:
        return Consumer(consumer_config(self._brokers, group, **{"enable.partition.eof": True, "log_level": 0}, **more))
