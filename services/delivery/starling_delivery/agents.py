"""Edge: the two consumer loops. One reads membership changes, the other reads retries and sends them when they are due."""

import asyncio
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any

from confluent_kafka import Consumer, KafkaException, Message, TopicPartition

from starling_common.kafka.clients import committed, watermarks
from starling_common.kafka.lost_input import InputLost
from starling_common.outcome import Refused
from starling_common.telemetry.logs import log
from starling_common.time.instants import wall_clock_ms
from starling_common.wire import Codec
from starling_delivery.dispatch import Dispatcher
from starling_delivery.outbox import Outbox
from starling_delivery.poison import tried_twice
from starling_delivery.policy import Request, requests_for
from starling_delivery.retry_queue import Progress, RetryQueue
from starling_delivery.settings import Settings
from starling_delivery.targets import Targets

POLL_SECONDS = 0.2
CHECK_SECONDS = 5.0


@dataclass
class MembershipAgent:
    """Sends the messages of membership changes. Offsets are committed after the outcome of every message of the batch."""

    settings: Settings
    consumer: Consumer
    codec: Codec
    targets: Targets
    dispatcher: Dispatcher
    outbox: Outbox
    assigned: bool = False
    problem: str | None = None
    """Why no change is read until an operator has acted."""
    check: Callable[[], None] = lambda: None
    """Raises InputLost if the group would skip changes. Called before the group is joined."""

    async def run(self, stopping: asyncio.Event) -> None:
        """Run until `stopping` is set. Raises: BrokerUnavailable, KafkaException; uncommitted changes are then read again."""
        while not await self._is_complete() and not stopping.is_set():
            with suppress(TimeoutError):
                await asyncio.wait_for(stopping.wait(), CHECK_SECONDS)
        self.consumer.subscribe([self.settings.membership_topic], on_assign=self._on_assign)
        while not stopping.is_set():
            messages = _records(await asyncio.to_thread(self.consumer.consume, self.settings.batch_messages, POLL_SECONDS))
            if messages:
                await self._deliver(messages)
        await asyncio.to_thread(self.consumer.close)

    async def _is_complete(self) -> bool:
        """Return whether no change was lost before the group read it; otherwise an operator has to accept the loss."""
        try:
            await asyncio.to_thread(self.check)
        except InputLost as lost:
            if self.problem != str(lost):
                log(__name__).error("input_lost", error=str(lost))
            self.problem = str(lost)
            return False
        self.problem = None
        return True

    async def _deliver(self, messages: Sequence[Message]) -> None:
        requests = [request for message in messages for request in self._requests(message)]
        await self.dispatcher.send(requests, self.outbox)
        await asyncio.to_thread(self.outbox.flush)
        await asyncio.to_thread(self.consumer.commit, offsets=_next_offsets(messages), asynchronous=False)

    def _requests(self, message: Message) -> list[dict[str, Any]]:
        def read() -> list[dict[str, Any]]:
            change = self.codec.decode(message.value() or b"")
            return requests_for(change, self.targets, self.settings.channel, wall_clock_ms())

        requests = tried_twice(read)
        if isinstance(requests, Refused):
            self.outbox.bury(message, requests)
            return []
        return requests

    def _on_assign(self, _consumer: Consumer, _partitions: list[TopicPartition]) -> None:
        self.assigned = True


@dataclass
class RetryAgent:
    """Sends retries when they are due. A waiting retry blocks no other, and the consumer is polled meanwhile."""

    settings: Settings
    consumer: Consumer
    codec: Codec
    dispatcher: Dispatcher
    outbox: Outbox
    queue: RetryQueue = field(default_factory=RetryQueue)
    assigned: bool = False
    _paused: bool = False

    async def run(self, stopping: asyncio.Event) -> None:
        """Run until `stopping` is set. Raises: the errors of `MembershipAgent.run`."""
        self.consumer.subscribe([self.settings.retry_topic], on_assign=self._on_assign, on_revoke=self._on_revoke)
        while not stopping.is_set():
            self._limit_memory()
            for message in _records(await asyncio.to_thread(self.consumer.consume, self.settings.batch_messages, POLL_SECONDS)):
                self._take(message)
            await self._send_due()
        await asyncio.to_thread(self.consumer.close)

    def _take(self, message: Message) -> None:
        partition, offset = message.partition() or 0, message.offset() or 0
        request = tried_twice(lambda: self.codec.decode(message.value() or b""))
        if isinstance(request, Refused):
            self.outbox.bury(message, request)
            self.queue.add(partition, offset, None, 0)
            return
        # The channels share the topic; the process of another channel sends its retries.
        is_own = request["channel"] == self.settings.channel
        self.queue.add(partition, offset, request if is_own else None, request["not_before"] if is_own else 0)

    async def _send_due(self) -> None:
        due = self.queue.due(wall_clock_ms(), self.settings.batch_messages)
        if not due:
            return
        requests: list[Request] = [request for _, _, request in due if request is not None]
        await self.dispatcher.send(requests, self.outbox)
        await asyncio.to_thread(self.outbox.flush)
        for partition, offset, _ in due:
            self.queue.finish(partition, offset)
        await asyncio.to_thread(self._commit)

    def _commit(self) -> None:
        topic = self.settings.retry_topic
        offsets = [TopicPartition(topic, n, p.position, metadata=p.metadata()) for n, p in self.queue.progress()]
        if offsets:
            self.consumer.commit(offsets=offsets, asynchronous=False)

    def _limit_memory(self) -> None:
        full = len(self.queue) >= self.settings.waiting_messages
        if full != self._paused:
            partitions = self.consumer.assignment()
            (self.consumer.pause if full else self.consumer.resume)(partitions)
            self._paused = full

    def _on_assign(self, consumer: Consumer, partitions: list[TopicPartition]) -> None:
        for found in committed(consumer, partitions, 30):
            low, _ = watermarks(consumer, found.topic, found.partition, 30)
            position = max(found.offset, low)
            self.queue.open(found.partition, Progress.restored(position, found.metadata or ""))
        self.assigned, self._paused = True, False

    def _on_revoke(self, _consumer: Consumer, partitions: list[TopicPartition]) -> None:
        for partition in partitions:
            self.queue.close(partition.partition)


def _records(messages: list[Message]) -> list[Message]:
    records = []
    for message in messages:
        error = message.error()
        if error is None:
            records.append(message)
        elif error.fatal():
            raise KafkaException(error)
        else:
            log(__name__).warning("broker_error", error=error.str())
    return records


def _next_offsets(messages: Sequence[Message]) -> list[TopicPartition]:
    last: dict[tuple[str, int], int] = {}
    for message in messages:
        last[message.topic() or "", message.partition() or 0] = (message.offset() or 0) + 1
    return [TopicPartition(topic, partition, offset) for (topic, partition), offset in last.items()]
