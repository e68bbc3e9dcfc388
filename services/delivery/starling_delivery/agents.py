"""Edge: two loops around the core. One takes membership changes, the other takes retries and lets them wait their time."""

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from confluent_kafka import Consumer, KafkaException, Message, TopicPartition

from starling_common.instants import wall_clock_ms
from starling_common.kafka import committed, watermarks
from starling_common.logs import log
from starling_common.wire import Codec, DecodeError
from starling_delivery.dispatch import Dispatcher
from starling_delivery.outbox import Outbox
from starling_delivery.policy import Request, Step, requests_for
from starling_delivery.settings import Settings
from starling_delivery.targets import Targets
from starling_delivery.waiting import Progress, WaitingRoom

POLL_SECONDS = 0.2


@dataclass
class MembershipAgent:
    """Membership changes in, messages out. Offsets are committed when every message of the batch is written down."""

    settings: Settings
    consumer: Consumer
    codec: Codec
    targets: Targets
    dispatcher: Dispatcher
    outbox: Outbox
    assigned: bool = False

    async def run(self, stopping: asyncio.Event) -> None:
        """Until told to stop. Raises: BrokerUnavailable, KafkaException when the broker refuses; nothing is lost then."""
        self.consumer.subscribe([self.settings.membership_topic], on_assign=self._on_assign)
        while not stopping.is_set():
            messages = _good(await asyncio.to_thread(self.consumer.consume, self.settings.batch_messages, POLL_SECONDS))
            if messages:
                await self._deliver(messages)
        await asyncio.to_thread(self.consumer.close)

    async def _deliver(self, messages: Sequence[Message]) -> None:
        requests = [request for message in messages for request in self._requests(message)]
        await self.dispatcher.send(requests, self.outbox.record)
        await asyncio.to_thread(self.outbox.flush)
        await asyncio.to_thread(self.consumer.commit, offsets=_after(messages), asynchronous=False)

    def _requests(self, message: Message) -> list[dict[str, Any]]:
        try:
            change = self.codec.decode(message.value() or b"")
        except DecodeError as error:
            self.outbox.bury(message, error.code, str(error))
            return []
        return requests_for(change, self.targets, self.settings.channel, wall_clock_ms())

    def _on_assign(self, _consumer: Consumer, _partitions: list[TopicPartition]) -> None:
        self.assigned = True


@dataclass
class RetryAgent:
    """Retries wait here until they are due. A waiting one blocks no other, and the consumer is polled all the while."""

    settings: Settings
    consumer: Consumer
    codec: Codec
    dispatcher: Dispatcher
    outbox: Outbox
    room: WaitingRoom = field(default_factory=WaitingRoom)
    assigned: bool = False
    _paused: bool = False

    async def run(self, stopping: asyncio.Event) -> None:
        """Until told to stop. Raises: as MembershipAgent."""
        self.consumer.subscribe([self.settings.retry_topic], on_assign=self._on_assign, on_revoke=self._on_revoke)
        while not stopping.is_set():
            self._hold_back()
            for message in _good(await asyncio.to_thread(self.consumer.consume, self.settings.batch_messages, POLL_SECONDS)):
                self._take(message)
            await self._send_due()
        await asyncio.to_thread(self.consumer.close)

    def _take(self, message: Message) -> None:
        partition, offset = message.partition() or 0, message.offset() or 0
        try:
            request = self.codec.decode(message.value() or b"")
        except DecodeError as error:
            self.outbox.bury(message, error.code, str(error))
            self.room.add(partition, offset, None, 0)
            return
        # Other channels' retries share the topic; they are theirs to send.
        mine = request["channel"] == self.settings.channel
        self.room.add(partition, offset, request if mine else None, request["not_before"] if mine else 0)

    async def _send_due(self) -> None:
        due = self.room.due(wall_clock_ms(), self.settings.batch_messages)
        if not due:
            return
        requests: list[Request] = [request for _, _, request in due if request is not None]
        await self.dispatcher.send(requests, self._record)
        await asyncio.to_thread(self.outbox.flush)
        for partition, offset, _ in due:
            self.room.finish(partition, offset)
        await asyncio.to_thread(self._commit)

    def _record(self, request: Request, step: Step) -> None:
        self.outbox.record(request, step)

    def _commit(self) -> None:
        topic = self.settings.retry_topic
        offsets = [TopicPartition(topic, n, p.position, metadata=p.metadata()) for n, p in self.room.progress()]
        if offsets:
            self.consumer.commit(offsets=offsets, asynchronous=False)

    def _hold_back(self) -> None:
        full = len(self.room) >= self.settings.waiting_messages
        if full != self._paused:
            partitions = self.consumer.assignment()
            (self.consumer.pause if full else self.consumer.resume)(partitions)
            self._paused = full

    def _on_assign(self, consumer: Consumer, partitions: list[TopicPartition]) -> None:
        for found in committed(consumer, partitions, 30):
            low, _ = watermarks(consumer, found.topic, found.partition, 30)
            position = max(found.offset, low)
            self.room.open(found.partition, Progress.restored(position, found.metadata or ""))
        self.assigned, self._paused = True, False

    def _on_revoke(self, _consumer: Consumer, partitions: list[TopicPartition]) -> None:
        for partition in partitions:
            self.room.close(partition.partition)


def _good(messages: list[Message]) -> list[Message]:
    good = []
    for message in messages:
        error = message.error()
        if error is None:
            good.append(message)
        elif error.fatal():
            raise KafkaException(error)
        else:
            log(__name__).warning("broker_error", error=error.str())
    return good


def _after(messages: Sequence[Message]) -> list[TopicPartition]:
    last: dict[tuple[str, int], int] = {}
    for message in messages:
        last[message.topic() or "", message.partition() or 0] = (message.offset() or 0) + 1
    return [TopicPartition(topic, partition, offset) for (topic, partition), offset in last.items()]
