"""Adapter: the topics in batches; offsets are committed when their effect is in the database, markers at the end included."""

import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TypeAlias, TypeVar

from confluent_kafka import OFFSET_END, Consumer, KafkaError, KafkaException, Message, TopicPartition

from starling_common.kafka import PARTITION_EOF, BrokerUnavailable, committed, consumer_config, offsets
from starling_common.logs import log

T = TypeVar("T")

Partition: TypeAlias = tuple[str, int]
"""Topic and number."""

_NO_ANSWER_SECONDS = 10.0
_PATIENCE_MS = 900_000
"""How long the database may be away before the broker gives our partitions to another projector, which is harmless."""

_SILENCE_MS = 10_000
"""How long after a crash our partitions wait for the next projector; a restart of the process takes about as long."""


class ClientFailed(Exception):
    """The broker answers a new client, but not the one of this process. A new process has a new client."""


@dataclass(slots=True)
class Taken:
    """What one look at the topics brought. `reassigned`: whatever was remembered of the partitions must be forgotten."""

    messages: list[Message] = field(default_factory=list)
    reassigned: bool = False


class Source:
    """A consumer that reads committed records only. One thread uses it."""

    def __init__(self, brokers: str, group: str, topics: Sequence[str], client_failure_seconds: float) -> None:
        """Opens nothing; `start` does. After `client_failure_seconds` without an answer a new client sends the same request."""
        more = {"enable.partition.eof": True, "max.poll.interval.ms": _PATIENCE_MS, "session.timeout.ms": _SILENCE_MS}
        self._config = consumer_config(brokers, group, **more)
        self._uncommitted_config = self._config | {"isolation.level": "read_uncommitted"}
        self._client_failure_seconds = client_failure_seconds
        self._unanswered_since: float | None = None
        self._topics = list(topics)
        self._taken: dict[Partition, int] = {}
        self._committed: dict[Partition, int] = {}
        self._reassigned = False
        self.problem: str | None = "not started"
        self.client_failure: str | None = None

    def start(self) -> None:
        """Join the group."""
        self._consumer = Consumer(self._config)
        self._uncommitted = Consumer(self._uncommitted_config)  # never joins the group
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
        """Where the whole group stands, other projectors included. Raises: BrokerUnavailable, ClientFailed."""
        wanted = [TopicPartition(topic, number) for number in numbers]

        def request(consumer: Consumer) -> dict[int, int]:
            return {part.partition: part.offset for part in committed(consumer, wanted, _NO_ANSWER_SECONDS)}

        return self._answer(topic, self._consumer, request)

    def ends(self, topic: str, numbers: Iterable[int]) -> dict[int, int]:
        """The offset after the last record, open transactions included. Raises: BrokerUnavailable, ClientFailed."""
        wanted = [(topic, number) for number in numbers]

        def request(consumer: Consumer) -> dict[int, int]:
            return {number: end for (_, number), end in offsets(consumer, wanted, OFFSET_END, _NO_ANSWER_SECONDS).items()}

        return self._answer(topic, self._uncommitted, request)

    def close(self) -> None:
        """Leave the group; what was not committed is read again by whoever comes next."""
        self._consumer.close()
        self._uncommitted.close()

    def _answer(self, topic: str, consumer: Consumer, request: Callable[[Consumer], T]) -> T:
        try:
            answer = request(consumer)
        except KafkaException as cause:
            self._compare_with_new_client(topic, request)
            raise BrokerUnavailable(f"{topic}: {cause}") from cause
        self._unanswered_since = None
        return answer

    def _compare_with_new_client(self, topic: str, request: Callable[[Consumer], object]) -> None:
        """Raises: ClientFailed when a new client gets the answer that this one did not get for too long."""
        now = time.monotonic()
        if self._unanswered_since is None:
            self._unanswered_since = now
        unanswered_seconds = now - self._unanswered_since
        if unanswered_seconds < self._client_failure_seconds:
            return
        other = Consumer(self._uncommitted_config)
        try:
            request(other)
        except KafkaException:
            return
        finally:
            other.close()
        self.client_failure = f"{topic}: no answer for {unanswered_seconds:.0f} s, but a new client has one: restart this process"
        raise ClientFailed(self.client_failure)

    def _is_record(self, message: Message) -> bool:
        error = message.error()
        part = (message.topic() or "", message.partition() or 0)
        if error is None:
            self._taken[part] = (message.offset() or 0) + 1
        elif error.code() == PARTITION_EOF:
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
