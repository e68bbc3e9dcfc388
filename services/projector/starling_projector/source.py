"""Adapter: the topics in batches; offsets are committed when their effect is in the database, markers at the end included."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TypeAlias

from confluent_kafka import Consumer, IsolationLevel, KafkaError, KafkaException, Message, TopicPartition
from confluent_kafka.admin import AdminClient, OffsetSpec  # type: ignore[attr-defined]  # public in its documentation

from starling_common.kafka import BrokerUnavailable, consumer_config
from starling_common.logs import log

Partition: TypeAlias = tuple[str, int]
"""Topic and number."""

_NO_ANSWER_SECONDS = 10.0
_PATIENCE_MS = 900_000
"""How long the database may be away before the broker gives our partitions to another projector, which is harmless."""

_SILENCE_MS = 10_000
"""How long after a crash our partitions wait for the next projector; a restart of the process takes about as long."""


@dataclass(slots=True)
class Taken:
    """What one look at the topics brought. `reassigned`: whatever was remembered of the partitions must be forgotten."""

    messages: list[Message] = field(default_factory=list)
    reassigned: bool = False


class Source:
    """A consumer that reads committed records only. One thread uses it."""

    def __init__(self, brokers: str, group: str, topics: Sequence[str]) -> None:
        """Opens nothing; `start` does."""
        more = {"enable.partition.eof": True, "max.poll.interval.ms": _PATIENCE_MS, "session.timeout.ms": _SILENCE_MS}
        self._config = consumer_config(brokers, group, **more)
        self._brokers = brokers
        self._topics = list(topics)
        self._taken: dict[Partition, int] = {}
        self._committed: dict[Partition, int] = {}
        self._reassigned = False
        self.problem: str | None = "not started"

    def start(self) -> None:
        """Join the group."""
        self._consumer = Consumer(self._config)
        self._admin = AdminClient({"bootstrap.servers": self._brokers})
        self.problem = "no partitions yet"
        self._consumer.subscribe(self._topics, on_assign=self._assigned, on_revoke=self._forget, on_lost=self._forget)

    def take(self, wait_seconds: float, most: int) -> Taken:
        """Waits for the first record, then takes what else is there. Raises: KafkaException when the consumer is broken."""
        first = self._consumer.poll(wait_seconds)
        found = [] if first is None else [first, *self._consumer.consume(most - 1, 0)]
        taken = Taken([message for message in found if self._is_record(message)], self._reassigned)
        self._reassigned = False
        return taken

    def commit(self, limits: Mapping[Partition, int]) -> None:
        """Everything taken is in the database, but for the partitions in `limits`, which are done up to there.

        A commit that fails is tried again with the next: what is read twice changes nothing.
        """
        wanted = {part: min(offset, limits.get(part, offset)) for part, offset in self._taken.items()}
        moved = {part: offset for part, offset in wanted.items() if offset > self._committed.get(part, -1)}
        if not moved:
            return
        try:
            self._consumer.commit(offsets=[TopicPartition(*part, offset) for part, offset in moved.items()], asynchronous=False)
        except KafkaException as error:
            log(__name__).warning("commit_failed", error=str(error))
            self.problem = f"offsets are not committed: {error.args[0].str()}"
            return
        self._committed |= moved

    def committed(self, topic: str, numbers: Iterable[int]) -> dict[int, int]:
        """Where the whole group stands, other projectors included. Raises: BrokerUnavailable."""
        wanted = [TopicPartition(topic, number) for number in numbers]
        try:
            return {part.partition: part.offset for part in self._consumer.committed(wanted, timeout=_NO_ANSWER_SECONDS)}
        except KafkaException as cause:
            raise BrokerUnavailable(f"{topic}: {cause}") from cause

    def ends(self, topic: str, numbers: Iterable[int]) -> dict[int, int]:
        """The offset after the last record, transactions that are being closed included. Raises: BrokerUnavailable."""
        wanted = {TopicPartition(topic, number): OffsetSpec.latest() for number in numbers}  # type: ignore[no-untyped-call]
        if not wanted:
            return {}
        try:
            answers = self._admin.list_offsets(wanted, isolation_level=IsolationLevel.READ_UNCOMMITTED)
            return {part.partition: int(answer.result(_NO_ANSWER_SECONDS).offset) for part, answer in answers.items()}
        except (KafkaException, TimeoutError) as cause:
            raise BrokerUnavailable(f"{topic}: {cause}") from cause

    def close(self) -> None:
        """Leave the group; what was not committed is read again by whoever comes next."""
        self._consumer.close()

    def _is_record(self, message: Message) -> bool:
        error = message.error()
        part = (message.topic() or "", message.partition() or 0)
        if error is None:
            self._taken[part] = (message.offset() or 0) + 1
        elif error.code() == KafkaError._PARTITION_EOF:  # noqa: SLF001 - the library's public constant
            # The offset of the next record, beyond the markers that transactions leave behind.
            self._taken[part] = message.offset() or 0
        else:
            return self._trouble(error)
        self.problem = None
        return error is None

    def _trouble(self, error: KafkaError) -> bool:
        if error.fatal():
            raise KafkaException(error)
        self.problem = f"the broker: {error.str()}"
        log(__name__).warning("broker_trouble", error=error.str())
        return False

    def _assigned(self, _consumer: Consumer, parts: list[TopicPartition]) -> None:
        self._forget(_consumer, parts)
        self.problem = None

    def _forget(self, _consumer: Consumer, _parts: list[TopicPartition]) -> None:
        self._taken.clear()
        self._committed.clear()
        self._reassigned = True
