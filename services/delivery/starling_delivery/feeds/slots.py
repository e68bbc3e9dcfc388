"""Adapter: the share of the targets that this process serves, by the partitions that the group assigns to it."""

from collections.abc import Callable, Collection, Mapping
from typing import Any, Final

from confluent_kafka import Consumer, KafkaError, KafkaException, TopicPartition

from starling_common.kafka.clients import consumer_config, partitions_of
from starling_common.partitioning import partition_of
from starling_common.telemetry.logs import log
from starling_common.values import record_key
from starling_delivery.feeds.targets import TargetPlace

_ANSWER_SECONDS: Final = 30.0
_REBALANCING: Final = frozenset({KafkaError.ILLEGAL_GENERATION, KafkaError.UNKNOWN_MEMBER_ID, KafkaError.REBALANCE_IN_PROGRESS})


class Slots:
    """A member of the group of the feeds. For one thread.

    Each target belongs to one partition of the feed, by its key, and to the process that has this partition. The process reads
    every partition for it: a target has one digest an interval, and not one for each process. The member itself reads no record.
    The offsets of the group are those up to which the targets of its members are done, for the figures of the lag alone.
    """

    def __init__(self, brokers: str, group: str, topic: str, instance: str, on_revoke: Callable[[], None]) -> None:
        """`on_revoke` is called before partitions go to another process; it stops the lanes."""
        more: dict[str, Any] = {
            "session.timeout.ms": 30_000,
            # Static membership: a restarted process continues immediately, without a rebalance.
            "group.instance.id": instance,
        }
        self._consumer = Consumer(consumer_config(brokers, group, **more))
        self._topic = topic
        self._on_revoke = on_revoke
        self._count = 0
        self._committed: dict[int, int] = {}
        self.owned: Collection[int] = frozenset()
        self.is_assigned = False

    def join(self) -> None:
        """Join the group. Raises: KafkaException."""
        self._count = len(partitions_of(self._consumer, self._topic, _ANSWER_SECONDS))
        self._consumer.subscribe([self._topic], on_assign=self._assigned, on_revoke=self._revoked, on_lost=self._revoked)

    def turn(self, seconds: float) -> None:
        """Take part in the group for that time. Raises: KafkaException for an error that the client cannot correct."""
        message = self._consumer.poll(seconds)
        error = None if message is None else message.error()
        if error is not None and error.fatal():
            raise KafkaException(error)

    def has(self, place: TargetPlace) -> bool:
        """Return whether this process serves the target."""
        return self._count > 0 and partition_of(record_key(*place), self._count) in self.owned

    def commit(self, positions: Mapping[int, int]) -> None:
        """Commit up to where the targets are done, for the assigned partitions. Raises: KafkaException."""
        changed = {number: positions[number] for number in self.owned if self._committed.get(number) != positions.get(number, -1)}
        found = [TopicPartition(self._topic, number, offset) for number, offset in changed.items() if offset >= 0]
        if not found:
            return
        try:
            self._consumer.commit(offsets=found, asynchronous=False)
        except KafkaException as error:
            if error.args[0].code() not in _REBALANCING:
                raise
            log(__name__).warning("commit_during_rebalance", error=str(error))
        else:
            self._committed |= changed

    def leave(self) -> None:
        """Leave the group."""
        self._consumer.close()

    def _assigned(self, consumer: Consumer, partitions: list[TopicPartition]) -> None:
        consumer.assign(partitions)
        consumer.pause(partitions)
        self.owned = frozenset(one.partition for one in partitions)
        self._committed = {}
        self.is_assigned = True
        log(__name__).info("slots_assigned", partitions=sorted(self.owned))

    def _revoked(self, _consumer: Consumer, _partitions: list[TopicPartition]) -> None:
        self.owned = frozenset()
        self._on_revoke()
