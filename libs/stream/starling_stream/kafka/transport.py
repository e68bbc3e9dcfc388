"""Edge: Faust's transport, in whole fetches. Used through `broker="batched://host:port"`.

Differences from the aiokafka transport it extends: a message is a partition's fetch (its value is a `Fetched`), only committed
records are read, partitions of one number meet on one worker, and nothing is ever committed from here:
offsets go through the worker's transactions.
"""

import asyncio
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Mapping, Sequence
from concurrent.futures import Future
from typing import Any, Final, NamedTuple, cast

import aiokafka
from aiokafka.consumer.fetcher import FetchResult, PartitionRecords
from aiokafka.coordinator.assignors.range import RangePartitionAssignor
from faust.transport.drivers import aiokafka as driver
from faust.types import TP, ConsumerMessage
from mode.threads import WorkerThread

from starling_stream.kafka.assignor import StickyAssignor
from starling_stream.model.records import ClientRecord, RawRecord

Assignment = object
"""Stands for one assignment of partitions; compared by identity. A generation would not do: it can stay over a rejoin."""


_RECORDS_PER_TURN: Final = 10_000
"""A compressed fetch can unpack to hundreds of thousands; taken at once they would stall the loop and fill the memory."""


_WAITS_UNTIL_STALE: Final = 5
"""A healthy broker says where a partition ends at the latest after one wait of an idle fetch; silence of so many is an outage."""


class Fetched(NamedTuple):
    """What one fetch brought of one partition, when the broker gave it (epoch ms), and the assignment it was read under.

    `after`: the last offset of the partition's batch before it; None for the first of the assignment, or after a seek back.
    """

    assignment: Assignment
    records: Sequence[RawRecord]
    told_ms: int
    after: int | None


class End(NamedTuple):
    """How far a partition is read. Both are offsets of next records; None while not known. Markers of transactions count.

    `told_ms`: when the broker last answered for this partition; it answers for several at once.
    """

    position: int | None
    last_stable_offset: int | None
    told_ms: int


class Fetch(NamedTuple):
    """One turn of the consumer's thread: records by partition, and the ends as of the same instant. `after`: as in `Fetched`."""

    assignment: Assignment
    records: Mapping[TP, Sequence[RawRecord]]
    ends: Mapping[TP, End]
    after: Mapping[TP, int | None]


class HandedOut:
    """Where the last batch of each partition ended, so that whoever takes the next can tell whether one is missing between."""

    def __init__(self) -> None:
        self._assignment: Any = None
        self._last: dict[TP, int] = {}

    def before(self, assignment: Any) -> None:
        """Records are about to be taken: forget what a new assignment, or a seek back, makes worthless."""
        if assignment is not self._assignment or assignment is None:
            self._assignment, self._last = assignment, {}
            return
        for tp in list(self._last):
            state = assignment.state_value(tp)
            if state is None or not state.has_valid_position or state.position <= self._last[tp]:
                del self._last[tp]

    def taken(self, assignment: Assignment, records: Mapping[TP, Sequence[RawRecord]]) -> dict[TP, int | None]:
        """These were taken; for each partition, the last offset before."""
        if assignment is not self._assignment:
            self._assignment, self._last = assignment, {}
        after = {tp: self._last.get(tp) for tp in records}
        self._last.update({tp: batch[-1].offset for tp, batch in records.items()})
        return after


class Membership(NamedTuple):
    """Who this worker is in its group; fences what it commits."""

    group: str
    generation: int
    member_id: str
    instance_id: str | None


OnFetch = Callable[[Fetch], Awaitable[bool]]
"""Told of each fetch; False refuses it, because it was read under an assignment that is over."""


class _Daemon(WorkerThread):
    """Keeps no process alive: its loop may wait for the group, or for a broker that is away, long after all else is done."""

    def __init__(self, service: Any, **more: Any) -> None:
        super().__init__(service, **more)
        self.daemon = True


class ConsumerThread(driver.AIOKafkaConsumerThread):
    """Owns the aiokafka consumer, on a loop of its own, so that heartbeats never wait for processing."""

    Worker = _Daemon

    def _create_worker_consumer(self, transport: Any) -> aiokafka.AIOKafkaConsumer:
        conf = self.app.conf
        self._fetch_wait_ms = transport.fetch_wait_ms()
        self._handed_out = HandedOut()
        assignor = cast("Consumer", self.consumer).assignor
        return aiokafka.AIOKafkaConsumer(
            client_id=conf.broker_client_id,
            group_id=conf.id,
            group_instance_id=conf.consumer_group_instance_id,
            bootstrap_servers=driver.server_list(transport.url, transport.default_port),
            # Tasks are partition numbers: every topic's partitions of one number must meet on one worker. Both do that. Never two
            # of them: aiokafka 0.14 joins once for each, and each time is a rebalance for all. Workers that start together can
            # then keep interrupting one another for ever, one at its first joining while the other is at its second.
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
        )

    def fetch(self, active: frozenset[TP], timeout_seconds: float) -> "Future[Fetch]":
        """Ask the thread for records of the active partitions; it answers at the latest after the time-out."""
        return asyncio.run_coroutine_threadsafe(self._fetch(active, timeout_seconds), self.thread_loop)

    def membership(self) -> Membership:
        """As of the last time the group was joined."""
        coordinator = self._ensure_consumer()._coordinator  # noqa: SLF001 - aiokafka shows it nowhere else
        instance_id = self.app.conf.consumer_group_instance_id
        return Membership(self.app.conf.id, coordinator.generation, coordinator.member_id, instance_id)

    def leave(self) -> "Future[None]":
        """Leave the group for good: no other member waits for this one to come back. Nothing is joined or fetched after it."""
        return asyncio.run_coroutine_threadsafe(self._leave(), self.thread_loop)

    async def _leave(self) -> None:
        coordinator = self._ensure_consumer()._coordinator  # noqa: SLF001 - the client leaves on closing, but for static members
        coordinator._group_instance_id = None  # noqa: SLF001
        await coordinator.close()

    async def _fetch(self, active: frozenset[TP], timeout_seconds: float) -> Fetch:
        consumer = self._ensure_consumer()
        consumer._coordinator.check_errors()  # noqa: SLF001
        _hand_out_as_parsed(consumer._fetcher._records)  # noqa: SLF001
        self._handed_out.before(self.assignment_held())
        records = await self._fetch_records(consumer, set(active), timeout=timeout_seconds, max_records=_RECORDS_PER_TURN)
        # Nothing is awaited from here on: assignment, records and ends belong together.
        assignment = self.assignment_held()
        after = self._handed_out.taken(assignment, records)
        return Fetch(assignment, records, _ends(assignment, time.time() * 1000 - self._stale_ms()), after)

    def _stale_ms(self) -> float:
        return float(self._fetch_wait_ms * _WAITS_UNTIL_STALE)

    def assignment_held(self) -> Assignment:
        """The assignment in force; None before the first."""
        subscription = self._ensure_consumer()._subscription.subscription  # noqa: SLF001
        return None if subscription is None else subscription.assignment


class ParsedRecords:
    """A fetch's records as aiokafka's parser made them; stands in for the client's own `PartitionRecords`.

    That one makes another object of each record, with topic, partition and sizes, and hands it on through two calls: 1.0 us
    a record, 0.5 without. Batches, aborted transactions and offsets stay its business.
    """

    def __init__(self, records: PartitionRecords) -> None:
        """`records`: as fetched; what was taken of them before stays taken."""
        records._consumer_record = _as_parsed  # noqa: SLF001 - of this one object; nobody else asks it
        self._records = records

    @property
    def next_fetch_offset(self) -> int:
        """What was taken ends here."""
        return int(self._records.next_fetch_offset)

    def __iter__(self) -> Iterator[ClientRecord]:
        """What is left of them."""
        return self._records._records_iterator  # type: ignore[no-any-return] # noqa: SLF001


def _as_parsed(_tp: Any, record: ClientRecord) -> ClientRecord:
    return record


def _hand_out_as_parsed(fetched: Mapping[TP, Any]) -> None:
    for result in fetched.values():
        if isinstance(result, FetchResult) and isinstance(result._partition_records, PartitionRecords):  # noqa: SLF001
            result._partition_records = ParsedRecords(result._partition_records)  # noqa: SLF001


def _ends(assignment: Any, since_ms: float) -> dict[TP, End]:
    """What the broker said before `since_ms` is no end any more.

    After an outage one topic's partition can be read again before another's: records of the one must not overtake what
    waits unread in the other.
    """
    if assignment is None:
        return {}
    states = ((tp, assignment.state_value(tp)) for tp in assignment.tps)
    return {tp: _end(state, since_ms) for tp, state in states}


def _end(state: Any, since_ms: float) -> End:
    told = state.timestamp is not None and state.timestamp >= since_ms
    return End(state.position if state.has_valid_position else None, state.lso if told else None, state.timestamp or 0)


class Consumer(driver.Consumer):
    """Yields whole fetches. `on_fetch` hears of every fetch, also of empty ones, before its messages are delivered."""

    POLL_SECONDS = 0.025
    """How old the ends may get while nothing comes: a sibling topic's record waits for them."""

    on_fetch: OnFetch | None = None
    assignor: StickyAssignor | None = None
    """How the group's partitions are dealt; without it by range."""
    _thread: ConsumerThread

    def _new_consumer_thread(self) -> ConsumerThread:
        return ConsumerThread(self, loop=self.loop, beacon=self.beacon)

    async def getmany(self, timeout: float) -> AsyncIterator[tuple[TP, Any]]:  # noqa: ARG002, ASYNC109 - the framework's signature
        """One message for each partition that has records."""
        if not self.flow_active:
            await self.wait(self.can_resume_flow)  # type: ignore[arg-type] # anything with wait() will do
        active = frozenset(self._get_active_partitions())
        if not active or self.should_stop:
            await self.sleep(self.POLL_SECONDS)
            return
        fetch = await asyncio.wrap_future(self._thread.fetch(active, self.POLL_SECONDS))
        if self.should_stop or self.on_fetch is None or not await self.on_fetch(fetch):
            return
        for tp, records in fetch.records.items():
            # Faust leaves out what ends before the offset that it noted last. A drain that is interrupted by a rebalance notes it
            # once more after it was forgotten, so it may be of the assignment before. The task knows what it had.
            self._read_offset[tp] = None
            fetched = Fetched(fetch.assignment, records, fetch.ends[tp].told_ms, fetch.after[tp])
            yield tp, self._message_of(tp, records[-1], fetched)

    def _message_of(self, tp: TP, last: RawRecord, fetched: Fetched) -> ConsumerMessage:
        at, value = last.timestamp / 1000.0, cast("bytes", fetched)  # passed through as it is
        generation = self.app.consumer_generation_id
        return ConsumerMessage(tp.topic, tp.partition, last.offset, at, 0, [], None, value, None, tp=tp, generation_id=generation)

    def membership(self) -> Membership:
        """Who this worker is in its group."""
        return self._thread.membership()

    async def leave(self) -> None:
        """Leave the group for good."""
        await asyncio.wrap_future(self._thread.leave())

    def assignment_held(self) -> Assignment:
        """The assignment in force."""
        return self._thread.assignment_held()


class Transport(driver.Transport):
    """`batched://host:port?fetch_wait_ms=100`; the wait is how long an idle fetch stays at the broker."""

    Consumer = Consumer

    def fetch_wait_ms(self) -> int:
        """Faust itself would wait 1500 ms."""
        return int(self.url[0].query.get("fetch_wait_ms", 100))
