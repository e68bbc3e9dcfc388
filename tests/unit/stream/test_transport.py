"""What counts as the end of a partition: only what the broker has said lately. And that records taken as they were parsed
are those that the client itself would hand out.
"""

import asyncio
from concurrent.futures import Future
from types import SimpleNamespace

from aiokafka.consumer.fetcher import READ_COMMITTED, PartitionRecords
from aiokafka.record.default_records import DefaultRecordBatchBuilder
from aiokafka.record.memory_records import MemoryRecords
from faust.types import TP

from starling_stream.kafka.transport import Consumer, End, Fetch, HandedOut, ParsedRecords, _ends

QUIET, SILENT, NEW = TP("a", 0), TP("b", 0), TP("c", 0)


def test_an_end_that_the_broker_has_not_confirmed_lately_is_none() -> None:
    states = {
        QUIET: SimpleNamespace(has_valid_position=True, position=7, lso=7, timestamp=2_000),
        SILENT: SimpleNamespace(has_valid_position=True, position=9, lso=9, timestamp=900),
        NEW: SimpleNamespace(has_valid_position=False, lso=None, timestamp=None),
    }
    assignment = SimpleNamespace(tps=list(states), state_value=states.__getitem__)
    assert _ends(assignment, 1_000.0) == {QUIET: End(7, 7, 2_000), SILENT: End(9, None, 900), NEW: End(None, None, 0)}


def _assigned(position: int) -> SimpleNamespace:
    return SimpleNamespace(state_value=lambda _tp: SimpleNamespace(has_valid_position=True, position=position))


def test_each_batch_names_the_end_of_the_one_before_it() -> None:
    chain, first, second = HandedOut(), _assigned(8), _assigned(6)
    five, seven = [SimpleNamespace(offset=5)], [SimpleNamespace(offset=7)]
    chain.before(first)
    assert chain.taken(first, {QUIET: five}) == {QUIET: None}
    chain.before(first)
    assert chain.taken(first, {QUIET: seven, SILENT: five}) == {QUIET: 5, SILENT: None}
    chain.before(second)
    assert chain.taken(second, {QUIET: five}) == {QUIET: None}  # another assignment
    chain.before(second)
    second.state_value = lambda _tp: SimpleNamespace(has_valid_position=True, position=4)
    chain.before(second)
    assert chain.taken(second, {QUIET: five}) == {QUIET: None}  # sought back


def test_no_batch_is_left_out_for_an_offset_noted_before() -> None:
    ends = {QUIET: End(6, 6, 2_000)}
    handed: Future[Fetch] = Future()
    handed.set_result(Fetch(None, {QUIET: [SimpleNamespace(offset=5)]}, ends, {QUIET: None}))

    async def heard(_fetch: Fetch) -> bool:
        return True

    async def drained() -> list[str]:
        consumer = SimpleNamespace(
            flow_active=True,
            should_stop=False,
            POLL_SECONDS=1.0,
            on_fetch=heard,
            _get_active_partitions=lambda: {QUIET},
            _thread=SimpleNamespace(fetch=lambda _active, _seconds: handed),
            _message_of=lambda _tp, _last, fetched: f"up to {fetched.records[-1].offset}",
            _read_offset={QUIET: 99},
        )
        # As Faust does: nothing that ends before the offset noted is passed on.
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


def test_records_as_parsed_are_those_that_the_client_hands_out() -> None:
    theirs, ours = _fetched(), ParsedRecords(_fetched())
    expected = [(r.offset, r.timestamp, r.key, r.value, tuple(r.headers)) for r in theirs]
    assert [offset for offset, *_ in expected] == [12, 13, 14, 19, 20, 21]
    taken = iter(ours)
    first = next(taken)
    assert (first.offset, ours.next_fetch_offset) == (12, 13)
    found = [(r.offset, r.timestamp, r.key, r.value, tuple(r.headers)) for r in (first, *taken)]
    assert found == expected
    assert ours.next_fetch_offset == theirs.next_fetch_offset == 22
