"""Adapter: reads the topics in batches and commits offsets, including the control records of transactions at the end."""

import time
from collections import deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TypeAlias, TypeVar

from confluent_kafka import OFFSET_BEGINNING, OFFSET_END, Consumer, KafkaError, KafkaException, Message, TopicPartition

from starling_common.failures import InstallationFailure
from starling_common.kafka.clients import (
    PARTITION_EOF,
    BrokerUnavailable,
    committed,
    consumer_config,
    gathering_fetches,
    offsets,
    topic_ids,
)
from starling_common.kafka.lost_input import InputLost, check_input
from starling_common.kafka.starvation import Starvation
from starling_common.telemetry.logs import log

T = TypeVar("T")

Partition: TypeAlias = tuple[str, int]
"""Topic and number."""

_TIMEOUT_SECONDS = 10.0
_MAX_POLL_INTERVAL_MS = 900_000
"""Maximum outage of the database before the group reassigns the partitions, which is harmless."""

_BUSY_RECORDS = 50
"""Buffered records from which on a poll lingers; below, records are written at once."""

_FETCH_WAIT_MS = 50

_SESSION_TIMEOUT_MS = 10_000
"""Delay after a crash before the group reassigns the partitions; a restart of the process takes about as long."""

DURABLE_SECONDS = 0.25
"""The time from a write to the commit of its record. A database with a single copy that is killed loses what it acknowledged in the
last 0.1 s, the distance between two marks of its commit log; the records of these writes must be read again.
"""


class ClientFailed(InstallationFailure):
    """The broker answers a new client but not this process's client. Only a restart of the process creates a new client."""


class TopicCreatedAgain(Exception):
    """A topic was deleted and created again, or truncated, while it was read: the process must restart, and then checks it."""


@dataclass(slots=True)
class Polled:
    """The result of one poll. `reassigned`: the assignment changed, so cached data of partitions is invalid."""

    messages: list[Message] = field(default_factory=list)
    reassigned: bool = False


class Source:
    """A consumer of committed records. Not thread-safe."""

    def __init__(self, brokers: str, group: str, topics: Sequence[str], client_failure_seconds: float) -> None:
        """`start` connects. After `client_failure_seconds` without an answer a new client repeats the request as a check."""
        more = {
            "enable.partition.eof": True,
            "max.poll.interval.ms": _MAX_POLL_INTERVAL_MS,
            "session.timeout.ms": _SESSION_TIMEOUT_MS,
            **gathering_fetches(_FETCH_WAIT_MS),
        }
        self._config = consumer_config(brokers, group, **more)
        self._uncommitted_config = self._config | {"isolation.level": "read_uncommitted"}
        self._client_failure_seconds = client_failure_seconds
        self._unanswered_since: float | None = None
        self._topics = list(topics)
        self._positions: dict[Partition, int] = {}
        self._written: deque[tuple[float, Mapping[Partition, int]]] = deque()
        """When the records before these positions were written, oldest first."""
        self._committed: dict[Partition, int] = {}
        self._reassigned = False
        self._opened: tuple[Consumer, ...] = ()
        self._starvation = Starvation(self._config, client_failure_seconds)
        self.problem: str | None = "not started"
        self.client_failure: str | None = None

    def check(self, stage: str) -> None:
        """Check before `start` that no record was lost. Raises: InputLost, BrokerUnavailable."""
        consumer = Consumer(self._uncommitted_config)
        try:
            check_input(consumer, stage, self._topics, _TIMEOUT_SECONDS)
        except InputLost as lost:
            if self.problem != str(lost):
                log(__name__).error("input_lost", error=str(lost))
            self.problem = str(lost)
            raise
        except KafkaException as cause:
            raise BrokerUnavailable(str(cause)) from cause
        finally:
            consumer.close()

    def topic_ids(self) -> dict[str, str]:
        """Return the broker's id of each topic; a topic that is created again gets another one. Raises: BrokerUnavailable."""
        try:
            return {topic: found[0] for topic, found in topic_ids(self._config["bootstrap.servers"], self._topics).items()}
        except KafkaException as cause:
            raise BrokerUnavailable(str(cause)) from cause

    def partitions(self, topic: str) -> int:
        """Return the number of partitions of a topic. Raises: BrokerUnavailable."""
        try:
            return topic_ids(self._config["bootstrap.servers"], [topic])[topic][1]
        except KafkaException as cause:
            raise BrokerUnavailable(str(cause)) from cause

    def start(self) -> None:
        """Join the group."""
        self._consumer = Consumer(self._config)
        self._uncommitted = Consumer(self._uncommitted_config)  # never joins the group
        self._opened = (self._consumer, self._uncommitted)
        self.problem = "no partitions yet"
        self._consumer.subscribe(self._topics, on_assign=self._assigned, on_revoke=self._forget, on_lost=self._forget)

    def poll(self, wait_seconds: float, most: int, linger_seconds: float = 0.0) -> Polled:
        """Wait for one record and return it with the buffered ones. Raises: TopicCreatedAgain, KafkaException if fatal.

        `linger_seconds`: time to wait for further records if many are buffered, because a row of a larger batch costs less.
        """
        first = self._consumer.poll(wait_seconds)
        found = [] if first is None else [first, *self._consumer.consume(most - 1, 0)]
        if _BUSY_RECORDS <= len(found) < most and linger_seconds > 0:
            found += self._consumer.consume(most - len(found), linger_seconds)
        self._starvation.polled(self._consumer, received=bool(found))
        polled = Polled([message for message in found if self._is_record(message)], self._reassigned)
        self._reassigned = False
        return polled

    def commit(self, limits: Mapping[Partition, int]) -> None:
        """Commit the positions of all polled records `DURABLE_SECONDS` after this call, but at most `limits` (partition -> offset).

        The next commit includes a failed one. Repeated records have no effect.
        """
        now = time.monotonic()
        self._written.append((now, {part: min(offset, limits.get(part, offset)) for part, offset in self._positions.items()}))
        while len(self._written) > 1 and self._written[1][0] <= now - DURABLE_SECONDS:
            self._written.popleft()
        written_at, positions = self._written[0]
        if written_at <= now - DURABLE_SECONDS:
            self._commit(positions)

    def rewind(self) -> None:
        """Read again from the committed positions on. Raises: BrokerUnavailable."""
        try:
            parts = committed(self._consumer, self._consumer.assignment(), _TIMEOUT_SECONDS)
            for part in parts:
                if part.offset < 0:
                    part.offset = OFFSET_BEGINNING
                self._consumer.seek(part)
        except KafkaException as cause:
            raise BrokerUnavailable(str(cause)) from cause
        self._positions.clear()
        self._written.clear()

    def _commit(self, wanted: Mapping[Partition, int]) -> None:
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
        """Return the committed offsets of the group, which all projectors share. Raises: BrokerUnavailable, ClientFailed."""
        wanted = [TopicPartition(topic, number) for number in numbers]

        def request(consumer: Consumer) -> dict[int, int]:
            return {part.partition: part.offset for part in committed(consumer, wanted, _TIMEOUT_SECONDS)}

        return self._answer(topic, self._consumer, request)

    def ends(self, topic: str, numbers: Iterable[int]) -> dict[int, int]:
        """Return the end offsets, including open transactions. Raises: BrokerUnavailable, ClientFailed."""
        wanted = [(topic, number) for number in numbers]

        def request(consumer: Consumer) -> dict[int, int]:
            return {number: end for (_, number), end in offsets(consumer, wanted, OFFSET_END, _TIMEOUT_SECONDS).items()}

        return self._answer(topic, self._uncommitted, request)

    def failure(self) -> str | None:
        """Return why only a restart of the process helps: a new client has an answer, or a record, that this one does not get."""
        return self.client_failure or self._starvation.problem

    def close(self) -> None:
        """Commit what was written, and leave the group. The next consumer of a partition reads its uncommitted records again."""
        if self._written:
            written_at, positions = self._written[-1]
            time.sleep(max(0.0, written_at + DURABLE_SECONDS - time.monotonic()))
            self._commit(positions)
        for consumer in self._opened:
            consumer.close()

    def _answer(self, topic: str, consumer: Consumer, request: Callable[[Consumer], T]) -> T:
        try:
            answer = request(consumer)
        except KafkaException as cause:
            self._compare_with_new_client(topic, request)
            raise BrokerUnavailable(f"{topic}: {cause}") from cause
        self._unanswered_since = None
        return answer

    def _compare_with_new_client(self, topic: str, request: Callable[[Consumer], object]) -> None:
        """Raise ClientFailed if a new client gets an answer that this client has not received for `client_failure_seconds`."""
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
            if (message.offset() or 0) < self._positions.get(part, 0):
                raise TopicCreatedAgain(f"{part[0]} {part[1]}: offset {message.offset()} follows {self._positions[part]}")
            self._positions[part] = (message.offset() or 0) + 1
        elif error.code() == PARTITION_EOF:
            # The position at the end of a partition lies after the control records of transactions.
            self._positions[part] = message.offset() or 0
        else:
            return self._report_error(error)
        self.problem = None
        return error is None

    def _report_error(self, error: KafkaError) -> bool:
        if error.fatal():
            raise KafkaException(error)
        self.problem = f"the broker: {error.str()}"
        log(__name__).warning("broker_error", error=error.str())
        return False

    def _assigned(self, _consumer: Consumer, parts: list[TopicPartition]) -> None:
        self._forget(_consumer, parts)
        self.problem = None

    def _forget(self, _consumer: Consumer, _parts: list[TopicPartition]) -> None:
        self._positions.clear()
        self._written.clear()
        self._committed.clear()
        self._reassigned = True
