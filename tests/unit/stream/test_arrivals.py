"""The merge by watermarks: it releases in the order of arrival, however the records of several sources lie in the logs."""

from collections.abc import Sequence
from typing import Final

import pytest
from hypothesis import given
from hypothesis import strategies as st

from starling_common.wire import Codec
from starling_normalizer.testing import received
from starling_stream.fold.arrivals import ArrivalMerge, Horizon, arrival_key
from starling_stream.fold.merge import Arrival
from starling_stream.fold.read_ahead import LogAhead
from starling_stream.model.processor import Inbound

TOPICS: Final = ("a", "b")
NOW: Final = Arrival(1_000_000)


def _record(topic: str, offset: int, received_at: int) -> Inbound:
    return Inbound(topic, 0, offset, b"k", None, received_at, None, (), b"")


def _log(topic: str, times: Sequence[int]) -> list[Inbound]:
    return [_record(topic, offset, at) for offset, at in enumerate(times)]


def _ordered(logs: dict[str, list[Inbound]]) -> list[Inbound]:
    return sorted((record for log in logs.values() for record in log), key=lambda r: (r.received_at, r.topic, r.offset))


def _merge(logs: dict[str, list[Inbound]]) -> ArrivalMerge:
    merge = ArrivalMerge(TOPICS)
    for topic, log in logs.items():
        merge.add(topic, log, NOW)
        merge.set_reached(topic, len(log))
    return merge


logs_of = st.tuples(*[st.lists(st.integers(0, 60), max_size=25)] * 2).map(
    lambda columns: {topic: _log(topic, times) for topic, times in zip(TOPICS, columns, strict=True)}
)


@given(logs_of, st.data())
def test_any_fetches_bounds_and_limits_give_the_order_of_arrival(logs: dict[str, list[Inbound]], data: st.DataObject) -> None:
    merge, read, out = ArrivalMerge(TOPICS), dict.fromkeys(TOPICS, 0), list[Inbound]()
    while any(read[topic] < len(log) for topic, log in logs.items()):
        topic = data.draw(st.sampled_from([topic for topic, log in logs.items() if read[topic] < len(log)]))
        count = data.draw(st.integers(1, len(logs[topic]) - read[topic]))
        merge.add(topic, logs[topic][read[topic] : read[topic] + count], NOW)
        read[topic] += count
        merge.set_reached(topic, read[topic])
        # A bound promises that later records are not below it, and the ends are those at that time or after.
        bound = min([record.received_at for other, log in logs.items() for record in log[read[other] :]], default=100)
        behind = data.draw(st.integers(0, 10))
        merge.note_bound(bound - behind, {other: data.draw(st.integers(read[other], len(log))) for other, log in logs.items()})
        taken = merge.take(data.draw(st.integers(1, 8)), 0)
        if data.draw(st.booleans()):
            merge.put_back(taken)
        else:
            out += taken
    merge.note_bound(1_000, {topic: len(log) for topic, log in logs.items()})
    while taken := merge.take(7, 0):
        out += taken
    assert out == _ordered(logs)


def test_a_record_waits_for_the_ends_that_belong_to_the_bound() -> None:
    merge = _merge({"a": _log("a", [10]), "b": []})
    assert merge.take(10, 10**15) == []
    merge.note_bound(20, {"a": 1, "b": 1})
    assert merge.take(10, 10**15) == [], "a record of the other topic below the bound is not read yet"
    merge.add("b", [_record("b", 0, 5)], NOW)
    merge.set_reached("b", 1)
    assert [record.received_at for record in merge.take(10, 0)] == [5, 10]


def test_a_record_at_the_bound_waits() -> None:
    merge = _merge({"a": _log("a", [10, 20]), "b": []})
    merge.note_bound(20, {"a": 2, "b": 0})
    assert [record.received_at for record in merge.take(10, 0)] == [10]


def test_a_record_of_a_stalled_source_goes_before_those_that_overtook_it() -> None:
    merge = _merge({"a": _log("a", [200, 300, 100]), "b": _log("b", [101, 250])})
    merge.note_bound(1_000, {"a": 3, "b": 2})
    assert [record.received_at for record in merge.take(1, 0)] == [100]
    assert (merge.first_offset("a"), merge.first_offset("b")) == (0, 0)
    assert [record.received_at for record in merge.take(10, 0)] == [101, 200, 250, 300]


def test_a_backlog_is_released_as_far_as_no_unread_record_can_precede() -> None:
    merge = _merge({"a": _log("a", range(2_000)), "b": []})
    ends = {"a": 1_000_000, "b": 0}
    merge.note_bound(10**9, ends)
    assert merge.take(10_000, 0) == [], "nothing is known of the unread records"
    merge.set_horizons({"a": Horizon((1_500, 2_000), (900, 1_700), 3_000, 5_000), "b": Horizon((), (), 0, 10**9)})
    assert [record.received_at for record in merge.take(10_000, 0)] == list(range(1_700))
    assert merge.is_needed("a"), "the record 1,700 of the second block is next"
    merge.add("a", [_record("a", 2_000, 1_700)], NOW)
    merge.set_reached("a", 3_000)
    assert not merge.is_needed("a")
    assert [record.offset for record in merge.take(10_000, 0)][:3] == [1_700, 2_000, 1_701]


def test_a_task_lags_while_records_wait_for_unread_ones() -> None:
    merge = _merge({"a": _log("a", range(2_000)), "b": []})
    assert [merge.is_lagging({"a": end, "b": 0}) for end in (2_000, 2_001)] == [False, True]
    assert not _merge({"a": _log("a", range(900)), "b": []}).is_lagging({"a": 2_001, "b": 0})


def test_a_replayed_record_and_one_with_a_wrong_instant_are_ordered_by_their_appends() -> None:
    day_ms = 86_400_000
    merge = ArrivalMerge(TOPICS)
    received_ms = [5 * day_ms, day_ms, 5 * day_ms + 1_500, 999 * day_ms, 5 * day_ms + 3_000]
    appended_ms = [5 * day_ms + 10, 5 * day_ms + 20, 5 * day_ms + 1_510, 5 * day_ms + 1_520, 5 * day_ms + 3_010]
    merge.add_appended("a", [_record("a", n, at * 1_000) for n, at in enumerate(received_ms)], appended_ms)
    merge.set_reached("a", 5)
    merge.note_bound(6 * day_ms * 1_000, {"a": 5, "b": 0})
    assert [record.offset for record in merge.take(100, 0)] == [0, 1, 2, 3, 4]


@pytest.mark.parametrize(("delay_ms", "is_late"), [(-10_000, False), (-10_001, True), (12_000, False), (12_001, True)])
def test_the_key_of_a_record_is_its_receipt_unless_it_was_appended_much_later_or_earlier(delay_ms: int, *, is_late: bool) -> None:
    appended_ms = 1_000_000
    received_at = (appended_ms - delay_ms) * 1_000
    assert arrival_key(received_at, appended_ms) == (1_001_000_000 if is_late else received_at)
    assert arrival_key(received_at, 0) == received_at


def test_records_that_are_put_back_come_first_in_their_order() -> None:
    merge = _merge({"a": _log("a", [10, 30]), "b": _log("b", [20, 40])})
    merge.note_bound(100, {"a": 2, "b": 2})
    first, second = merge.take(2, 0), merge.take(2, 0)
    merge.put_back(second)
    merge.put_back(first)
    assert [record.received_at for record in merge.take(10, 0)] == [10, 20, 30, 40]


# Logs of two topics as sources with delays write them: each record is read ahead before it is received.
delays_ms = st.lists(st.tuples(st.sampled_from(TOPICS), st.integers(0, 12_000), st.booleans()), min_size=1, max_size=80)


@given(delays_ms, st.data())
def test_a_backlog_is_released_in_the_order_of_arrival_without_the_ends(
    sent: Sequence[tuple[str, int, bool]], data: st.DataObject
) -> None:
    codec = Codec("IngestReceived", 1, lambda _id: "")
    logs: dict[str, list[tuple[Inbound, int]]] = {topic: [] for topic in TOPICS}
    by_append = sorted(
        (1_000_000 + number * 100 + (delay if slow else 0), number, topic) for number, (topic, delay, slow) in enumerate(sent)
    )
    for appended_ms, number, topic in by_append:
        record = _record(topic, len(logs[topic]), (1_000_000 + number * 100) * 1_000)
        logs[topic].append((record, appended_ms))
    ends, out = {topic: len(log) for topic, log in logs.items()}, list[Inbound]()
    merge, ahead, read = ArrivalMerge(TOPICS), {topic: LogAhead(0) for topic in TOPICS}, dict.fromkeys(TOPICS, 0)
    bound = 10**15
    while any(read[topic] < ends[topic] for topic in TOPICS):
        topic = data.draw(st.sampled_from([topic for topic in TOPICS if read[topic] < ends[topic]]))
        if data.draw(st.booleans()):
            place = ahead[topic].until
            some = logs[topic][place : place + data.draw(st.integers(1, 9))]
            ahead[topic].add(
                [(r.offset, at, codec.encode({**received("track", "{}"), "received_at": r.received_at})) for r, at in some]
            )
        else:
            some = logs[topic][read[topic] : read[topic] + data.draw(st.integers(1, 9))]
            merge.add_appended(topic, [record for record, _ in some], [at for _, at in some])
            read[topic] += len(some)
            merge.set_reached(topic, read[topic])
        merge.set_horizons({topic: ahead[topic].horizon(read[topic], ends[topic], bound) for topic in TOPICS})
        out += merge.take(data.draw(st.integers(1, 20)), 0)
    merge.note_bound(bound, ends)
    out += merge.take(1_000, 0)
    assert out == sorted(out, key=lambda record: record.received_at)
    assert len(out) == len(sent)


def test_records_before_an_offset_are_dropped() -> None:
    merge = _merge({"a": _log("a", [10, 30, 20]), "b": []})
    merge.drop_before({"a": 2})
    assert (merge.size("a"), merge.first_offset("a"), merge.first_offset("b")) == (1, 2, None)
    merge.note_bound(50, {"a": 3, "b": 0})
    assert [record.received_at for record in merge.take(10, 0)] == [20]
