"""Edge: the consumer loop. One agent reads membership changes, another one retries; both offer their messages to the dispatcher."""

import asyncio
import time
from collections import deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial
from typing import Final, NamedTuple, Protocol

from confluent_kafka import Consumer, KafkaError, KafkaException, Message, TopicPartition

from starling_common.headers import header, headers_of
from starling_common.kafka.clients import committed, watermarks
from starling_common.kafka.lost_input import InputLost, lost_range
from starling_common.outcome import Refused
from starling_common.telemetry.logs import log
from starling_common.time.instants import wall_clock_ms
from starling_common.wire import Record
from starling_delivery.item import Item
from starling_delivery.poison import tried_twice
from starling_delivery.policy import Request, requests_for
from starling_delivery.progress import Origin, Place, Positions, Progress
from starling_delivery.sending.dispatch import Dispatcher
from starling_delivery.sending.routing import Routed
from starling_delivery.targets import Targets

_POLL_SECONDS: Final = 0.05
_HELD_SECONDS: Final = 0.02
"""The longest poll while a message is held: its lane has room again before it is empty."""
_COMMIT_SECONDS: Final = 0.2
_CHECK_SECONDS: Final = 5.0
_OFFER_SECONDS: Final = 0.01
"""How long requests are offered at a time. Attempts in progress wait meanwhile."""

_TURN_SECONDS: Final = 0.002
"""Pause between two of these, without a poll: attempts in progress go on, which need several turns of the event loop."""

_MOST_READ: Final = 500
"""Maximum of records in one poll."""
_MOST_WAITING: Final = 8_000
"""A partition is paused at its share of so many waiting records, 500 at least. A paused one is fetched again from there."""

_REBALANCING: Final = frozenset({KafkaError.ILLEGAL_GENERATION, KafkaError.UNKNOWN_MEMBER_ID, KafkaError.REBALANCE_IN_PROGRESS})
"""Errors of a commit during a rebalance. The next commit has the partitions of the new assignment."""


class Due(NamedTuple):
    """A request to send at a time. `tier`: the position of its tier; None for a request from outside of the tiers.

    `bulk`: whether it is of a broadcast. `message_id`: the receiver's idempotency key, if it is known.
    """

    request: Request
    due_ms: int
    tier: int | None
    bulk: bool = False
    message_id: str | None = None


class Writer(Protocol):
    """Publishes what becomes of records."""

    def bury(self, message: Message, why: Refused, origin: Origin) -> None:
        """Publish a record that cannot be decoded to the dead letters, unchanged, and complete it."""

    def flush(self) -> None:
        """Wait until everything is stored. Raises: BrokerUnavailable."""


class Input(Protocol):
    """The topics of an agent, and the requests of their records."""

    @property
    def topics(self) -> Sequence[str]:
        """The topics to read, or a pattern of them."""

    def requests(self, message: Message) -> list[Due]:
        """Return the requests of a record. An exception makes the record a dead letter."""


@dataclass(frozen=True)
class MembershipInput:
    """Membership changes: a request for each webhook that subscribes to the change."""

    topics: Sequence[str]
    decode: Callable[[bytes], Record]
    targets: Targets
    channel: str

    def requests(self, message: Message) -> list[Due]:
        """Return the requests of a membership change."""
        now_ms, change = wall_clock_ms(), self.decode(message.value() or b"")
        requests = requests_for(change, self.targets, self.channel, now_ms)
        return [Due(request, now_ms, None, message_id=change["event_id"]) for request in requests]


@dataclass(frozen=True)
class RetryInput:
    """Requests to send again. The channels share the topics; the process of another channel sends its retries.

    `is_wanted`: whether a request is of this process.
    `tiers`: topic -> position of its tier. Other topics contain records from outside, such as replayed dead letters.
    `longest_ms`: position -> the longest time that a record of that tier waits after it was read, whatever it asks for.
    """

    topics: Sequence[str]
    decode: Callable[[bytes], Record]
    is_wanted: Callable[[Request], bool]
    tiers: Mapping[str, int]
    longest_ms: Callable[[int], int]

    def requests(self, message: Message) -> list[Due]:
        """Return the request of a record, if it is of this process."""
        request = self.decode(message.value() or b"")
        if not self.is_wanted(request):
            return []
        tier, due_ms = self.tiers.get(message.topic() or ""), request["not_before"]
        if tier is not None:
            due_ms = min(due_ms, wall_clock_ms() + self.longest_ms(tier))
        return [Due(request, due_ms, tier)]


@dataclass
class _Partition:
    """The records of a partition that are read and not offered yet, in order."""

    messages: deque[Message] = field(default_factory=deque)
    items: deque[Item] = field(default_factory=deque)
    """The requests of the first record."""
    paused: bool = False


@dataclass
class Agent:
    """Reads records continuously. Offsets are committed up to the first record whose messages are not stored or delivered."""

    input: Input
    consumer: Consumer
    dispatcher: Dispatcher | Routed
    outbox: Writer
    check: Callable[[], None] = lambda: None
    """Raises InputLost if the group would skip records. Called before the group is joined."""
    on_partitions: Callable[[int], None] = lambda _count: None
    """Called with the number of assigned partitions after each change of it."""
    assigned: bool = False
    problem: str | None = None
    """Why no record is read until an operator has acted."""
    positions: Positions = field(default_factory=Positions)
    commits: bool = True
    """Whether the agent commits the offsets; otherwise the writer does, in its transactions."""
    traced: bool = False
    """Whether the trace contexts of records are read."""
    _partitions: dict[Place, _Partition] = field(default_factory=dict)
    _committed_at: float = 0.0
    _polled_at: float = 0.0
    _holds: bool = False
    """Whether a lane without room has held a message at the last offers."""

    async def run(self, stopping: asyncio.Event) -> None:
        """Run until `stopping` is set. Raises: BrokerUnavailable, KafkaException, InputLost; uncommitted records are read again."""
        while not await self._is_complete() and not stopping.is_set():
            with suppress(TimeoutError):
                await asyncio.wait_for(stopping.wait(), _CHECK_SECONDS)
        self.consumer.subscribe(list(self.input.topics), on_assign=self._on_assign, on_revoke=self._on_revoke)
        seconds = _POLL_SECONDS
        while not stopping.is_set():
            if self._has_enough(seconds):
                await asyncio.sleep(_TURN_SECONDS)
            else:
                for message in _records(await asyncio.to_thread(self._poll, seconds)):
                    self._take(message)
                self._polled_at = time.monotonic()
            seconds = self._offer()
            if time.monotonic() - self._committed_at > _COMMIT_SECONDS:
                await asyncio.to_thread(self._commit)
        await self.dispatcher.drained()
        await asyncio.to_thread(self.outbox.flush)
        await asyncio.to_thread(self._commit)
        await asyncio.to_thread(self.consumer.close)

    def _has_enough(self, seconds: float) -> bool:
        """Return whether the next offers need no poll, which costs as much as several messages: a thread has to wake up."""
        if seconds or time.monotonic() - self._polled_at > _POLL_SECONDS:
            return False
        return sum(len(partition.messages) for partition in self._partitions.values()) > _MOST_READ

    async def _is_complete(self) -> bool:
        """Return whether no record was lost before the group read it; otherwise an operator has to accept the loss."""
        try:
            await asyncio.to_thread(self.check)
        except InputLost as lost:
            if self.problem != str(lost):
                log(__name__).error("input_lost", error=str(lost))
            self.problem = str(lost)
            return False
        self.problem = None
        return True

    def _poll(self, seconds: float) -> list[Message]:
        # `consume` alone waits for the full number or the timeout, which would delay a single record.
        first = self.consumer.poll(seconds)
        return [] if first is None else [first, *self.consumer.consume(_MOST_READ - 1, 0)]

    def _take(self, message: Message) -> None:
        place = (message.topic() or "", message.partition() or 0)
        partition = self._partitions.get(place)
        if partition is None or not self.positions.read(place, message.offset() or 0):
            return
        partition.messages.append(message)
        if len(partition.messages) >= self._most_waiting and not partition.paused:
            self.consumer.pause([TopicPartition(*place)])
            partition.paused = True

    def _offer(self) -> float:
        """Offer the requests of each partition in order, up to one that is not due or is held.

        Return the seconds for which the next poll may wait for a record.
        """
        until = time.monotonic() + _OFFER_SECONDS
        self._holds = False
        for place in list(self._partitions):
            partition = self._partitions.pop(place)
            self._partitions[place] = partition  # the first one is the last of the next turn
            while self._offer_next(place, partition):
                if time.monotonic() > until:
                    return 0.0
            if partition.paused and len(partition.messages) < self._most_waiting // 2:
                self.consumer.resume([TopicPartition(*place)])
                partition.paused = False
        return _HELD_SECONDS if self._holds else _POLL_SECONDS

    @property
    def _most_waiting(self) -> int:
        return max(_MOST_READ, _MOST_WAITING // max(1, len(self._partitions)))

    def _offer_next(self, place: Place, partition: _Partition) -> bool:
        if not partition.items:
            if not partition.messages or self.positions.is_full(place):
                return False
            partition.items.extend(self._items(place, partition.messages.popleft()))
            return True
        item = partition.items[0]
        if item.due_ms > wall_clock_ms():
            if item.tier is not None:
                return False
            self.dispatcher.delay(item)
        elif not self.dispatcher.offer(item):
            self._holds = True
            return False
        partition.items.popleft()
        return True

    def _items(self, place: Place, message: Message) -> list[Item]:
        origin = Origin(self.positions, place, message.offset() or 0)
        finish = partial(self.positions.finish, place, origin.offset)
        requests = tried_twice(lambda: self.input.requests(message))
        if isinstance(requests, Refused):
            self.outbox.bury(message, requests, origin)
            return []
        if not requests:
            finish()
        settled = _after(len(requests), finish)
        traceparent = header(headers_of(message), "traceparent") if self.traced else None
        return [
            Item(
                one.request,
                settled,
                one.tier,
                one.due_ms,
                origin=origin,
                bulk=one.bulk,
                traceparent=traceparent,
                message_id=one.message_id,
            )
            for one in requests
        ]

    def _commit(self) -> None:
        self._committed_at = time.monotonic()
        if not self.commits:
            return
        offsets = [TopicPartition(*place, position, metadata) for place, position, metadata in self.positions.take_changes()]
        if not offsets:
            return
        try:
            self.consumer.commit(offsets=offsets, asynchronous=False)
        except KafkaException as error:
            if error.args[0].code() not in _REBALANCING:
                raise
            log(__name__).warning("commit_during_rebalance", error=str(error))
            self.positions.mark_changed()

    def _on_assign(self, consumer: Consumer, partitions: list[TopicPartition]) -> None:
        for found in committed(consumer, partitions, 30):
            low, _ = watermarks(consumer, found.topic, found.partition, 30)
            if 0 <= found.offset < low:
                raise InputLost(lost_range(found.topic, found.partition, found.offset, low))
            place = (found.topic, found.partition)
            self.positions.open(place, Progress.restored(max(found.offset, low), found.metadata or ""))
            self._partitions[place] = _Partition()
        self.assigned = True
        self.on_partitions(len(self._partitions))

    def _on_revoke(self, _consumer: Consumer, partitions: list[TopicPartition]) -> None:
        self._commit()
        for partition in partitions:
            self.positions.close((partition.topic, partition.partition))
            self._partitions.pop((partition.topic, partition.partition), None)
        self.on_partitions(len(self._partitions))


def _after(count: int, finish: Callable[[], None]) -> Callable[[], None]:
    """Return a function that calls `finish` at its last of `count` calls."""
    left = count

    def settled() -> None:
        nonlocal left
        left -= 1
        if not left:
            finish()

    return settled


def _records(messages: Iterable[Message]) -> list[Message]:
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
