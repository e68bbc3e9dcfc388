"""The merge by watermarks: it releases in the order of arrival, however the records of several sources lie in the logs."""

from collections.abc import Sequence
from typing import Final

from hypothesis import given
from hypothesis import strategies as st

from starling_stream.fold.arrivals import ArrivalMerge
from starling_stream.fold.merge import Arrival
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
            for other in TOPICS:  # committed offsets neither skip nor repeat a record
                assert sorted(r.offset for r in out if r.topic == other) == list(range(sum(r.topic == other for r in out)))
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
    assert [record.received_at for record in merge.take(1, 0)] == [100, 101, 200, 250, 300]


def test_a_backlog_is_released_without_its_end_but_for_the_last_records() -> None:
    merge = _merge({"a": _log("a", range(2_000)), "b": []})
    merge.note_bound(10_000, {"a": 1_000_000, "b": 0})
    assert len(merge.take(10_000, 0)) == 1_500
    assert merge.take(10_000, 0) == []
    merge.add("a", [_record("a", 2_000, 1_700)], NOW)
    merge.set_reached("a", 1_000_000)
    assert [record.offset for record in merge.take(10_000, 0)][199:203] == [1_699, 1_700, 2_000, 1_701]


def test_a_backlog_in_which_every_record_overtook_the_last_one_is_released() -> None:
    merge = _merge({"a": _log("a", [*range(100, 2_100), 5]), "b": []})
    merge.note_bound(10_000, {"a": 1_000_000, "b": 0})
    assert [record.received_at for record in merge.take(10, 0)] == [5, *range(100, 2_100)]


def test_a_replayed_record_and_one_with_a_wrong_instant_keep_their_places_in_the_log() -> None:
    day = 86_400_000_000
    merge = ArrivalMerge(TOPICS)
    merge.add(
        "a", [_record("a", n, at) for n, at in enumerate([5 * day, day, 5 * day + 1, 999 * day, 5 * day + 2])], Arrival(5 * day)
    )
    merge.set_reached("a", 5)
    merge.note_bound(6 * day, {"a": 5, "b": 0})
    assert [record.offset for record in merge.take(100, 0)] == [0, 1, 2, 3, 4]


def test_records_before_an_offset_are_dropped() -> None:
    merge = _merge({"a": _log("a", [10, 30, 20]), "b": []})
    merge.drop_before({"a": 2})
    assert (merge.size("a"), merge.first_offset("a"), merge.first_offset("b")) == (1, 2, None)
    merge.note_bound(50, {"a": 3, "b": 0})
    assert [record.received_at for record in merge.take(10, 0)] == [20]
