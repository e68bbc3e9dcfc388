"""The end of a partition needs a recent response of the broker. Parsed records equal those of the client."""

import asyncio
from concurrent.futures import Future
from types import SimpleNamespace

from aiokafka.consumer.fetcher import READ_COMMITTED, PartitionRecords
from aiokafka.record.default_records import DefaultRecordBatchBuilder
from aiokafka.record.memory_records import MemoryRecords
from faust.types import TP

from starling_stream.kafka.transport import Consumer, DeliveredOffsets, End, Fetch, ParsedRecords, _ends

QUIET, SILENT, NEW = TP("a", 0), TP("b", 0), TP("c", 0)


def test_an_end_without_a_recent_response_is_none() -> None:
    states = {
        QUIET: SimpleNamespace(has_valid_position=True, position=7, lso=7, highwater=8, timestamp=2_000),
        SILENT: SimpleNamespace(has_valid_position=True, position=9, lso=9, highwater=9, timestamp=900),
        NEW: SimpleNamespace(has_valid_position=False, lso=None, highwater=None, timestamp=None),
    }
    assert _ends(states, 1_000.0) == {
        QUIET: End(7, 7, 8, 2_000),
        SILENT: End(9, None, None, 900),
        NEW: End(None, None, None, 0),
    }


def _at(position: int) -> SimpleNamespace:
    return SimpleNamespace(has_valid_position=True, position=position)


def test_each_fetch_has_the_last_offset_of_the_one_before_it() -> None:
    delivered, quiet, silent = DeliveredOffsets(), _at(8), _at(8)
    five, seven = [SimpleNamespace(offset=5)], [SimpleNamespace(offset=7)]
    first = {QUIET: quiet, SILENT: silent}
    delivered.forget_stale(first)
    assert delivered.deliver(first, {QUIET: five}) == {QUIET: None}
    delivered.forget_stale(first)
    assert delivered.deliver(first, {QUIET: seven, SILENT: five}) == {QUIET: 5, SILENT: None}
    second = {QUIET: _at(6), SILENT: silent}  # only one of them was assigned again
    delivered.forget_stale(second)
    assert delivered.deliver(second, {QUIET: five, SILENT: seven}) == {QUIET: None, SILENT: 5}
    second[QUIET].position = 4
    delivered.forget_stale(second)
    assert delivered.deliver(second, {QUIET: five}) == {QUIET: None}  # sought back


def test_a_fetch_during_which_the_partition_was_assigned_again_follows_no_other() -> None:
    delivered, five = DeliveredOffsets(), [SimpleNamespace(offset=5)]
    delivered.deliver({QUIET: _at(6)}, {QUIET: five})
    assert delivered.deliver({QUIET: _at(9)}, {QUIET: [SimpleNamespace(offset=8)]}) == {QUIET: None}


def test_no_fetch_is_skipped_because_of_an_offset_noted_before() -> None:
    ends = {QUIET: End(6, 6, 6, 2_000)}
    handed: Future[Fetch] = Future()
    records = {QUIET: [SimpleNamespace(offset=5)], SILENT: [SimpleNamespace(offset=6)]}
    handed.set_result(Fetch({QUIET: 1, SILENT: 2}, records, ends, {QUIET: None, SILENT: None}))

    async def accept(_fetch: Fetch) -> set[TP]:
        return {QUIET}

    async def drained() -> list[str]:
        consumer = SimpleNamespace(
            flow_active=True,
            should_stop=False,
            POLL_SECONDS=1.0,
            on_fetch=accept,
            _get_active_partitions=lambda: {QUIET},
            _thread=SimpleNamespace(fetch=lambda _active, _seconds: handed),
            _message_of=lambda _tp, _last, fetched: f"up to {fetched.records[-1].offset}",
            _read_offset={QUIET: 99},
        )
        # Faust passes on no message before the offset that it noted.
        return [
            message async for tp, message in Consumer.getmany(consumer, 1.0)  # type: ignore[arg-type]
            if (noted := consumer._read_offset[tp]) is None or noted <= 5
        ]  # fmt: skip

    assert asyncio.run(drained()) == ["up to 5"]


def _batch(first: int, count: int, producer: int) -> bytes:
    """One batch of a transaction, its first offset written in as a broker does."""
    made = DefaultRecordBatchBuilder(
        magic=2, compression_type=0, is_transactional=1, producer_id=producer, producer_epoch=0, base_sequence=0, batch_size=1 << 20
    )
    for number in range(count):
        made.append(number, timestamp=1_000 + number, key=b"k%d" % number, value=b"v" * number, headers=[("h", b"%d" % number)])
    return first.to_bytes(8, "big") + bytes(made.build())[8:]


def _fetched() -> PartitionRecords:
    # The second batch was aborted; the fetch begins inside the first.
    data = _batch(10, 5, producer=1) + _batch(15, 4, producer=2) + _batch(19, 3, producer=1)
    return PartitionRecords(TP("a", 0), MemoryRecords(data), [(2, 15)], 12, None, None, False, READ_COMMITTED)


def test_parsed_records_equal_those_of_the_client() -> None:
    theirs, ours = _fetched(), ParsedRecords(_fetched())
    expected = [(r.offset, r.timestamp, r.key, r.value, tuple(r.headers)) for r in theirs]
    assert [offset for offset, *_ in expected] == [12, 13, 14, 19, 20, 21]
    deliver = iter(ours)
    first = next(deliver)
    assert (first.offset, ours.next_fetch_offset) == (12, 13)
    found = [(r.offset, r.timestamp, r.key, r.value, tuple(r.headers)) for r in (first, *deliver)]
    assert found == expected
    assert ours.next_fetch_offset == theirs.next_fetch_offset == 22


class _Receiver:
    """Lists the calls."""

    def __init__(self) -> None:
        self.calls: list[object] = []

    def rejoining(self) -> None:
        self.calls.append("rejoining")

    async def lost(self) -> None:
        self.calls.append("lost")

    async def reassigned(self, tps: set[TP], *, continued: bool) -> None:
        self.calls.append((tps, continued))


def _consumer(receiver: _Receiver, subscription: SimpleNamespace) -> SimpleNamespace:
    async def nothing(*_: object) -> None:
        """No topic."""

    def crash(cause: Exception) -> None:
        raise cause

    consumer = SimpleNamespace(
        _thread=SimpleNamespace(subscription=subscription),
        app=SimpleNamespace(should_stop=False, topics=SimpleNamespace(on_partitions_assigned=nothing), crash=crash),
        rebalances=receiver,
        _paused_partitions={QUIET, SILENT},
        active=None,
    )
    consumer._set_active_tps = lambda tps: setattr(consumer, "active", (tps, set(consumer._paused_partitions)))
    return consumer


def test_a_member_that_joins_again_is_not_stopped_and_a_removed_one_is() -> None:
    receiver, subscription = _Receiver(), SimpleNamespace(is_of_framework=False, is_lost=False)
    consumer = _consumer(receiver, subscription)
    asyncio.run(Consumer.on_partitions_revoked(consumer, {QUIET}))  # type: ignore[arg-type]
    subscription.is_lost = True
    asyncio.run(Consumer.on_partitions_revoked(consumer, {QUIET}))  # type: ignore[arg-type]
    assert receiver.calls == ["rejoining", "lost"]


def test_only_partitions_that_continued_stay_paused() -> None:
    for continued, paused in ((True, {QUIET}), (False, set())):
        receiver = _Receiver()
        consumer = _consumer(receiver, SimpleNamespace(is_of_framework=False, has_continued=continued))
        asyncio.run(Consumer.on_partitions_assigned(consumer, {QUIET, NEW}, 7))  # type: ignore[arg-type]
        assert receiver.calls == [({QUIET, NEW}, continued)]
        assert consumer.active == ({QUIET, NEW}, paused)
