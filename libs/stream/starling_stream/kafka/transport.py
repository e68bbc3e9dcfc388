"""Edge: Faust's transport in whole fetches, selected by `broker="batched://host:port"`.

Differences from the aiokafka transport that it extends: a message is a partition's fetch (its value is a `Fetched`), only committed
records are read, partitions of one number are assigned to one worker, partitions that stay with a worker do not stop for a
rebalance, and no offset is committed here: the worker's transactions commit them.
"""

import asyncio
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Collection, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import Future
from typing import Any, Final, NamedTuple, Protocol, cast

import aiokafka
from aiokafka.consumer.fetcher import FetchResult, PartitionRecords
from aiokafka.coordinator.assignors.range import RangePartitionAssignor
from aiokafka.structs import TopicPartition
from faust.transport.drivers import aiokafka as driver
from faust.types import TP, ConsumerMessage
from mode.threads import WorkerThread

from starling_common.kafka.security import aiokafka_security, kafka_security
from starling_stream.kafka.assignor import StickyAssignor
from starling_stream.kafka.membership import Membership
from starling_stream.kafka.subscription import CooperativeSubscription
from starling_stream.model.records import ClientRecord, RawRecord

Assignment = object
"""Identifies the assignment of one partition, which lasts as long as the partition stays with the worker; compared by identity."""


_RECORDS_PER_TURN: Final = 10_000
"""A compressed fetch can contain hundreds of thousands of records, which would stall the loop and fill the memory at once."""


_FETCH_SECONDS: Final = 0.01
"""The interval of fetches under load. The client fetches again once records are taken, and each fetch names every partition."""


_WAITS_UNTIL_STALE: Final = 5
"""A healthy broker reports the end of a partition after one wait of an idle fetch. No report for this many waits is an outage."""


class Fetched(NamedTuple):
    """The records of one fetch of one partition, when the broker returned it (epoch ms), and the partition's assignment.

    `after`: the last offset of the partition's fetch before it; None for the first of the assignment, or after a seek back.
    """

    assignment: Assignment
    records: Sequence[RawRecord]
    answered_ms: int
    after: int | None


class End(NamedTuple):
    """The read position and two ends of a partition: next offsets, transaction markers included; None while unknown.

    The last stable offset is the first one of an open transaction, or else the high watermark.
    `answered_ms`: when the broker last responded for this partition; one response covers several.
    """

    position: int | None
    last_stable_offset: int | None
    high_watermark: int | None
    answered_ms: int


class Fetch(NamedTuple):
    """One turn of the consumer's thread, by partition: records, ends at the same instant, and last offsets before (`after`).

    `assignments`: of each partition assigned at that instant.
    """

    assignments: Mapping[TP, Assignment]
    records: Mapping[TP, Sequence[RawRecord]]
    ends: Mapping[TP, End]
    after: Mapping[TP, int | None]


class DeliveredOffsets:
    """The last offset of the last fetch of each partition, from which the receiver detects a missing fetch."""

    def __init__(self) -> None:
        self._last: dict[TP, tuple[Any, int]] = {}

    def forget_stale(self, assignments: Mapping[TP, Any]) -> None:
        """Forget offsets that another assignment, or a seek back, has made invalid. Called before records are taken."""
        for tp, (state, last) in list(self._last.items()):
            is_same = assignments.get(tp) is state
            if not is_same or not state.has_valid_position or state.position <= last:
                del self._last[tp]

    def deliver(self, assignments: Mapping[TP, Assignment], records: Mapping[TP, Sequence[RawRecord]]) -> dict[TP, int | None]:
        """Note these records as delivered; return the last offset before them for each partition."""
        after: dict[TP, int | None] = {}
        for tp, batch in records.items():
            assignment, last = self._last.get(tp, (None, None))
            after[tp] = last if assignment is assignments[tp] else None
            self._last[tp] = assignments[tp], batch[-1].offset
        return after


OnFetch = Callable[[Fetch], Awaitable[Collection[TP]]]
"""Called with each fetch; returns the partitions whose records to deliver. The assignments of the others are over."""


class Rebalances(Protocol):
    """The receiver of the rebalances that follow the start of Faust's streams. Called on the main event loop."""

    def rejoining(self) -> None:
        """The members join again; this worker's tasks continue meanwhile."""

    async def lost(self) -> None:
        """The group has removed this worker: all its partitions may belong to others."""

    async def reassigned(self, tps: Collection[TP], *, continued: bool) -> None:
        """Take the partitions of the new generation. `continued`: those that were assigned before belonged to no other worker."""


class _Daemon(WorkerThread):
    """A thread that keeps no process alive: its loop may wait for the group or the broker long after the worker has ended."""

    def __init__(self, service: Any, **more: Any) -> None:
        super().__init__(service, **more)
        self.daemon = True


class RebalanceListener(driver.ConsumerRebalanceListener):
    """Called by aiokafka in the consumer's thread. Faust takes part in the rebalances until it has started its streams."""

    def on_partitions_revoked(self, revoked: Iterable[TopicPartition]) -> Awaitable[None]:
        """Called before the worker joins the group again."""
        thread = cast("ConsumerThread", self._thread)
        if thread.subscription.is_of_framework:
            return super().on_partitions_revoked(revoked)
        return thread.on_partitions_revoked({TP(*tp) for tp in revoked})

    async def on_partitions_assigned(self, assigned: Iterable[TopicPartition]) -> None:
        """Called with the partitions of the new generation."""
        thread = cast("ConsumerThread", self._thread)
        if thread.subscription.is_of_framework:
            await super().on_partitions_assigned(assigned)
        else:
            await thread.on_partitions_assigned({TP(*tp) for tp in assigned})


class ConsumerThread(driver.AIOKafkaConsumerThread):
    """Owns the aiokafka consumer, on a loop of its own, so that heartbeats never wait for processing."""

    Worker = _Daemon
    subscription: CooperativeSubscription
    """Present once the consumer is created."""

    def _create_worker_consumer(self, transport: Any) -> aiokafka.AIOKafkaConsumer:
        conf = self.app.conf
        self._fetch_wait_ms = transport.fetch_wait_ms()
        self._delivered = DeliveredOffsets()
        self._next_at = 0.0
        assignor = cast("Consumer", self.consumer).assignor
        consumer = aiokafka.AIOKafkaConsumer(
            client_id=conf.broker_client_id,
            group_id=conf.id,
            group_instance_id=conf.consumer_group_instance_id,
            bootstrap_servers=driver.server_list(transport.url, transport.default_port),
            # Tasks are partition numbers, so the partitions of one number of every topic must be assigned to one worker. Both
            # assignors do that. Only one may be configured: aiokafka 0.14 joins once for each, and each join is a rebalance for all
            # members. Workers that start together could then interrupt one another endlessly, one at its first join while the other
            # is at its second.
            partition_assignment_strategy=[assignor or RangePartitionAssignor],
            enable_auto_commit=False,
            auto_offset_reset=conf.consumer_auto_offset_reset,
            isolation_level="read_committed",
            max_poll_interval_ms=int(conf.broker_max_poll_interval * 1000),
            max_partition_fetch_bytes=conf.consumer_max_fetch_size,
            fetch_max_wait_ms=self._fetch_wait_ms,
            request_timeout_ms=int(conf.broker_request_timeout * 1000),
            session_timeout_ms=int(conf.broker_session_timeout * 1000),
            rebalance_timeout_ms=int(conf.broker_rebalance_timeout * 1000),
            heartbeat_interval_ms=int(conf.broker_heartbeat_interval * 1000),
            check_crcs=conf.broker_check_crcs,
            metadata_max_age_ms=conf.consumer_metadata_max_age_ms,
            connections_max_idle_ms=conf.consumer_connections_max_idle_ms,
            **aiokafka_security(kafka_security()),
        )
        # The consumer passes it to its coordinator and its fetcher when it is started.
        self.subscription = consumer._subscription = CooperativeSubscription(self.membership, self._is_faust_started)  # noqa: SLF001
        return consumer

    def _is_faust_started(self) -> bool:
        """Return whether the first assignment is complete: the fetcher runs, and Faust seeks no partition any more."""
        return self.app.rebalancing_count > 0 and not self.app.rebalancing and self.consumer.flow_active

    def fetch(self, active: frozenset[TP], timeout_seconds: float) -> "Future[Fetch]":
        """Request records of the active partitions from the thread; it returns at the latest after the time-out."""
        return asyncio.run_coroutine_threadsafe(self._fetch(active, timeout_seconds), self.thread_loop)

    def membership(self) -> Membership:
        """Return the membership of the last join."""
        coordinator = self._ensure_consumer()._coordinator  # noqa: SLF001 - aiokafka exposes it nowhere else
        instance_id = self.app.conf.consumer_group_instance_id
        return Membership(self.app.conf.id, coordinator.generation, coordinator.member_id, instance_id)

    def leave(self) -> "Future[None]":
        """Leave the group permanently: no other member waits for this one. It joins and fetches no more."""
        return asyncio.run_coroutine_threadsafe(self._leave(), self.thread_loop)

    async def _leave(self) -> None:
        coordinator = self._ensure_consumer()._coordinator  # noqa: SLF001 - the client leaves on closing, but for static members
        coordinator._group_instance_id = None  # noqa: SLF001
        await coordinator.close()

    async def _fetch(self, active: frozenset[TP], timeout_seconds: float) -> Fetch:
        await asyncio.sleep(max(0.0, self._next_at - time.monotonic()))
        consumer = self._ensure_consumer()
        consumer._coordinator.check_errors()  # noqa: SLF001
        _use_parsed_records(consumer._fetcher._records)  # noqa: SLF001
        self._delivered.forget_stale(self.subscription.assignments)
        records = await self._fetch_records(consumer, set(active), timeout=timeout_seconds, max_records=_RECORDS_PER_TURN)
        self._next_at = time.monotonic() + _FETCH_SECONDS if records else 0.0
        # No await follows, so assignments, records and ends belong together.
        assignments = self.subscription.assignments
        after = self._delivered.deliver(assignments, records)
        return Fetch(assignments, records, _ends(assignments, time.time() * 1000 - self._stale_ms()), after)

    def _stale_ms(self) -> float:
        return float(self._fetch_wait_ms * _WAITS_UNTIL_STALE)


class ParsedRecords:
    """A fetch's records as aiokafka's parser returns them; replaces the client's own `PartitionRecords`.

    The client's class creates another object for each record, with topic, partition and sizes, and passes it through two calls: 1.0
    us a record, 0.5 without. It still handles batches, aborted transactions and offsets.
    """

    def __init__(self, records: PartitionRecords) -> None:
        """`records`: as fetched; records already taken stay taken."""
        records._consumer_record = _as_parsed  # noqa: SLF001 - of this one object, which has no other reader
        self._records = records

    @property
    def next_fetch_offset(self) -> int:
        """Return the offset after the records taken."""
        return int(self._records.next_fetch_offset)

    def __iter__(self) -> Iterator[ClientRecord]:
        """Return the records not taken yet."""
        return self._records._records_iterator  # type: ignore[no-any-return] # noqa: SLF001


def _as_parsed(_tp: Any, record: ClientRecord) -> ClientRecord:
    return record


def _use_parsed_records(fetched: Mapping[TP, Any]) -> None:
    for result in fetched.values():
        if isinstance(result, FetchResult) and isinstance(result._partition_records, PartitionRecords):  # noqa: SLF001
            result._partition_records = ParsedRecords(result._partition_records)  # noqa: SLF001


def _ends(assignments: Mapping[TP, Any], since_ms: float) -> dict[TP, End]:
    """Return the ends; a response before `since_ms` does not count.

    After an outage one topic's partition can be readable before another's: its records must not overtake the unread records of the
    other.
    """
    return {tp: _end(state, since_ms) for tp, state in assignments.items()}


def _end(state: Any, since_ms: float) -> End:
    answered = state.timestamp is not None and state.timestamp >= since_ms
    position = state.position if state.has_valid_position else None
    return End(position, state.lso if answered else None, state.highwater if answered else None, state.timestamp or 0)


class Consumer(driver.Consumer):
    """Yields whole fetches. `on_fetch` is called with every fetch, also with empty ones, before its messages are delivered."""

    POLL_SECONDS = 0.025
    """The greatest age of the ends while no record arrives: records of the other topics wait for them."""

    RebalanceListener = RebalanceListener
    on_fetch: OnFetch | None = None
    rebalances: Rebalances
    """Set before the start."""
    assignor: StickyAssignor | None = None
    """The group's assignor; without it partitions are assigned by range."""
    _thread: ConsumerThread

    def _new_consumer_thread(self) -> ConsumerThread:
        return ConsumerThread(self, loop=self.loop, beacon=self.beacon)

    async def getmany(self, timeout: float) -> AsyncIterator[tuple[TP, Any]]:  # noqa: ARG002, ASYNC109 - the framework's signature
        """Yield one message for each partition that has records."""
        if not self.flow_active:
            await self.wait(self.can_resume_flow)  # type: ignore[arg-type] # anything with wait() will do
        active = frozenset(self._get_active_partitions())
        if not active or self.should_stop:
            await self.sleep(self.POLL_SECONDS)
            return
        fetch = await asyncio.wrap_future(self._thread.fetch(active, self.POLL_SECONDS))
        if self.should_stop or self.on_fetch is None:
            return
        for tp in await self.on_fetch(fetch):
            records = fetch.records[tp]
            # Faust skips messages before the offset that it noted last. A drain that a rebalance interrupts notes it again after it
            # was cleared, so it may belong to the last assignment. The task tracks its own offsets.
            self._read_offset[tp] = None
            fetched = Fetched(fetch.assignments[tp], records, fetch.ends[tp].answered_ms, fetch.after[tp])
            yield tp, self._message_of(tp, records[-1], fetched)

    def _message_of(self, tp: TP, last: RawRecord, fetched: Fetched) -> ConsumerMessage:
        at, value = last.timestamp / 1000.0, cast("bytes", fetched)  # passed through as it is
        generation = self.app.consumer_generation_id
        return ConsumerMessage(tp.topic, tp.partition, last.offset, at, 0, [], None, value, None, tp=tp, generation_id=generation)

    def membership(self) -> Membership:
        """Return this worker's membership."""
        return self._thread.membership()

    async def leave(self) -> None:
        """Leave the group permanently."""
        await asyncio.wrap_future(self._thread.leave())

    def assignments(self) -> Mapping[TP, Assignment]:
        """Return the assignment of each partition that is assigned now."""
        return self._thread.subscription.assignments

    async def on_partitions_revoked(self, revoked: set[TP]) -> None:
        """Called before the worker joins the group again; it joins when this returns."""
        subscription = self._thread.subscription
        if subscription.is_of_framework:
            await super().on_partitions_revoked(revoked)
        elif not self.app.should_stop:
            try:
                if subscription.is_lost:
                    await self.rebalances.lost()
                else:
                    self.rebalances.rejoining()
            except Exception as cause:  # noqa: BLE001 - aiokafka would log it and continue
                await self.app.crash(cause)

    async def on_partitions_assigned(self, assigned: set[TP], generation_id: int = 0) -> None:
        """Called with the partitions of the new generation; the worker sends no heartbeats until this returns."""
        subscription = self._thread.subscription
        if subscription.is_of_framework:
            await super().on_partitions_assigned(assigned, generation_id)
        elif not self.app.should_stop:
            try:
                await self.app.topics.on_partitions_assigned(assigned)  # the agent receives these partitions
                await self.rebalances.reassigned(assigned, continued=subscription.has_continued)
                self._paused_partitions.intersection_update(assigned if subscription.has_continued else ())
                self._set_active_tps(assigned)  # last: records of a new partition follow its task
            except Exception as cause:  # noqa: BLE001 - as above
                await self.app.crash(cause)


class Transport(driver.Transport):
    """`batched://host:port?fetch_wait_ms=100`; the wait bounds how long an idle fetch stays at the broker."""

    Consumer = Consumer

    def fetch_wait_ms(self) -> int:
        """Return the wait; Faust's own default is 1500 ms."""
        return int(self.url[0].query.get("fetch_wait_ms", 100))
