"""The ordered merge: its order does not depend on how the records are fetched."""

from collections.abc import Sequence

from hypothesis import given
from hypothesis import strategies as st

from starling_stream.fold.merge import Arrival, OrderedMerge, Reach
from starling_stream.model.processor import Inbound

TOPICS = ("a", "b", "c")
LONG_AGO, NOW = 0, 10**15


def _record(topic: str, offset: int, received_at: int) -> Inbound:
    return Inbound(topic, 0, offset, b"k", None, received_at, None, (), b"")


def _logs(times: Sequence[Sequence[int]]) -> dict[str, list[Inbound]]:
    return {
        topic: [_record(topic, offset, at) for offset, at in enumerate(column)] for topic, column in zip(TOPICS, times, strict=True)
    }


def _all_at_once(logs: dict[str, list[Inbound]]) -> list[Inbound]:
    merge = OrderedMerge(TOPICS, 20)
    for topic, log in logs.items():
        merge.add(topic, log, Arrival(LONG_AGO))
    merge.set_ends(dict.fromkeys(TOPICS, 0))
    return merge.take(10**6, NOW)


columns = st.tuples(*[st.lists(st.integers(0, 40), max_size=25)] * 3)


@given(columns, st.data())
def test_any_interleaving_of_fetches_gives_the_same_order(times: tuple[list[int], ...], data: st.DataObject) -> None:
    logs = _logs(times)
    merge, left = OrderedMerge(TOPICS, 20), {topic: list(log) for topic, log in logs.items()}
    out: list[Inbound] = []
    merge.set_ends({topic: None if log else 0 for topic, log in left.items()})
    while any(left.values()):
        topic = data.draw(st.sampled_from([topic for topic, log in left.items() if log]))
        count = data.draw(st.integers(1, len(left[topic])))
        merge.add(topic, left[topic][:count], Arrival(LONG_AGO))
        del left[topic][:count]
        merge.set_ends({topic: None if left[topic] else 0})
        limit, back = data.draw(st.tuples(st.integers(0, 10), st.booleans()))
        taken = merge.take(limit, NOW)
        if back:
            merge.put_back(taken)
        else:
            out += taken
    out += merge.take(10**6, NOW)
    assert out == _all_at_once(logs)


@given(
    st.tuples(*[st.lists(st.integers(0, 2_000_000), max_size=25).map(sorted)] * 3),
    st.lists(st.integers(0, 49), min_size=75, max_size=75),
)
def test_a_live_run_with_records_within_the_hold_has_the_order_of_a_replay(
    times: tuple[list[int], ...], delays_ms: list[int]
) -> None:
    logs = _logs(times)
    delays = iter(delays_ms)
    arrivals: list[tuple[int, str, Inbound]] = []
    for topic, log in logs.items():
        latest = 0
        for record in log:
            # A partition's records arrive in their order, each within the hold.
            latest = max(latest, record.received_at + next(delays) * 1000)
            arrivals.append((latest, topic, record))
    arrivals.sort(key=lambda arrival: arrival[0])
    merge = OrderedMerge(TOPICS, 50)
    out: list[Inbound] = []
    merge.set_ends(dict.fromkeys(TOPICS, 0))
    for now, topic, record in arrivals:
        out += merge.take(10**6, now - 1)
        merge.add(topic, [record], Arrival(now))
    out += merge.take(10**6, NOW)
    assert out == _all_at_once(logs)


def test_a_topic_with_unread_records_is_waited_for() -> None:
    merge = OrderedMerge(("a", "b"), 20)
    merge.add("a", [_record("a", 0, 5)], Arrival(LONG_AGO))
    merge.set_ends({"a": 0, "b": None})
    assert merge.take(10, NOW) == []
    merge.set_ends({"b": 0})
    assert len(merge.take(10, NOW)) == 1


def test_a_record_is_held_for_the_other_topics_until_its_release() -> None:
    merge = OrderedMerge(("a", "b"), 20)
    merge.set_ends({"a": 0, "b": 0})
    merge.add("a", [_record("a", 0, 1_000_000)], Arrival(1_003_000))
    assert merge.take(10, 1_019_999) == []
    assert merge.next_release() == 1_020_000
    assert len(merge.take(10, 1_020_000)) == 1


def test_an_edge_with_a_fast_clock_delays_nothing() -> None:
    merge = OrderedMerge(("a", "b"), 20)
    merge.set_ends({"a": 0, "b": 0})
    merge.add("a", [_record("a", 0, 9_000_000_000)], Arrival(1_000_000))
    assert merge.next_release() == 1_020_000
    assert len(merge.take(10, 1_020_000)) == 1


def test_a_single_topic_is_never_held() -> None:
    merge = OrderedMerge(("a",), 20)
    merge.add("a", [_record("a", 0, 1_000_000)], Arrival(1_000_000))
    assert len(merge.take(10, 1_000_000)) == 1


def test_records_before_the_committed_offset_are_dropped() -> None:
    merge = OrderedMerge(("a",), 20)
    merge.add("a", [_record("a", offset, offset) for offset in range(5)], Arrival(LONG_AGO))
    merge.drop_before({"a": 3})
    assert [record.offset for record in merge.take(10, NOW)] == [3, 4]
    assert merge.size("a") == 0


def test_a_bulk_topic_is_released_in_slices_and_the_others_do_not_wait_for_it() -> None:
    merge = OrderedMerge(("events", "bulk"), 20, {"bulk"})
    merge.add("bulk", [_record("bulk", offset, offset) for offset in range(100)], Arrival(LONG_AGO))
    merge.add("events", [_record("events", offset, 1_000 + offset) for offset in range(5)], Arrival(LONG_AGO))
    merge.set_ends({"events": 0, "bulk": None})
    first = [(record.topic, record.offset) for record in merge.take(100, NOW)]
    assert first == [*(("bulk", offset) for offset in range(10)), *(("events", offset) for offset in range(5))]
    assert [record.topic for record in merge.take(100, NOW)] == ["bulk"] * 10
    merge.add("events", [_record("events", 5, 50)], Arrival(LONG_AGO))  # within a slice the order is kept
    assert [record.topic for record in merge.take(500, NOW)] == [*["bulk"] * 30, "events", *["bulk"] * 20]


@given(columns, st.integers(1, 30))
def test_nothing_of_a_bulk_topic_is_lost_and_the_order_within_each_topic_stays(times: tuple[list[int], ...], limit: int) -> None:
    logs = _logs(times)
    merge, out = OrderedMerge(TOPICS, 20, {"b"}), list[Inbound]()
    for topic, log in logs.items():
        merge.add(topic, log, Arrival(LONG_AGO))
    merge.set_ends(dict.fromkeys(TOPICS, 0))
    while not merge.is_idle():
        taken = merge.take(limit, NOW)
        assert 0 < len(taken) <= limit
        assert sum(record.topic == "b" for record in taken) <= max(1, limit // 10)
        out += taken
    assert {topic: [record for record in out if record.topic == topic] for topic in TOPICS} == logs
    others = [record for record in out if record.topic != "b"]
    assert others == [record for record in _all_at_once({**logs, "b": []}) if record.topic != "b"]


def test_an_end_reported_before_the_fetch_of_the_record_does_not_count() -> None:
    merge = OrderedMerge(("a", "b"), 0)
    merge.add("b", [_record("b", 0, 200)], Arrival(300, answered_ms=50))
    merge.set_ends({"a": 49, "b": 50})
    assert merge.take(10, NOW) == []
    assert merge.next_release() is None
    merge.add("a", [_record("a", 0, 40)], Arrival(310, answered_ms=60))  # delayed by the outage
    merge.set_ends({"a": 60})
    assert [record.topic for record in merge.take(10, NOW)] == ["a", "b"]


def _chained(topic: str, offset: int, order: int, previous: int) -> Inbound:
    return _record(topic, offset, order)._replace(previous_order=previous)


def _ordered() -> OrderedMerge:
    merge = OrderedMerge(("events", "profiles", "lists"), 0, ordered=("events", "profiles"))
    merge.set_ends({"events": 0, "profiles": None, "lists": 0})
    return merge


def test_a_record_whose_predecessor_was_released_waits_for_no_other_ordered_topic() -> None:
    merge = _ordered()
    merge.follows = 10
    merge.add("events", [_chained("events", 0, 11, 10), _chained("events", 1, 12, 11)], Arrival(NOW))
    assert [record.received_at for record in merge.take(10, NOW)] == [11, 12]


def test_a_record_waits_for_its_predecessor_although_the_other_topic_seems_to_be_read_to_its_end() -> None:
    merge = _ordered()
    merge.follows = 10
    merge.set_ends({"profiles": 0})
    merge.add("events", [_chained("events", 0, 11, 10), _chained("events", 1, 13, 12)], Arrival(NOW))
    assert [record.received_at for record in merge.take(10, NOW)] == [11]
    for answered_ms in range(1, 100):  # the transaction stays open: its record is below the high watermark
        merge.set_reach("profiles", Reach(5, 6, answered_ms))
        assert merge.take(10, NOW + 3_600_000_000) == []
    merge.add("profiles", [_chained("profiles", 0, 12, 11)], Arrival(NOW))
    assert [record.received_at for record in merge.take(10, NOW)] == [12, 13]


def test_a_predecessor_that_was_deleted_is_waited_for_until_its_topic_is_read() -> None:
    merge = _ordered()
    merge.set_ends({"profiles": 7, "lists": 7})
    merge.add("events", [_chained("events", 0, 13, 12)], Arrival(NOW, answered_ms=7))
    assert merge.take(10, NOW) == []  # nothing is known of the topic
    merge.set_reach("profiles", Reach(5, 5, 7))
    assert merge.take(10, NOW) == []  # that answer may be older than the record
    merge.set_reach("profiles", Reach(5, 5, 8))
    assert merge.take(10, NOW) == []  # its request may be
    merge.set_reach("profiles", None)
    assert merge.take(10, NOW) == []  # fetched records are missing
    merge.set_reach("profiles", Reach(5, 6, 9))
    assert merge.take(10, NOW) == []  # the predecessor may be at 5
    merge.set_reach("profiles", Reach(6, 8, 10))
    assert [record.received_at for record in merge.take(10, NOW)] == [13]  # the records at 6 and 7 came later


def test_records_that_are_put_back_keep_their_chain() -> None:
    merge = _ordered()
    merge.follows = 10
    merge.add("events", [_chained("events", 0, 11, 10)], Arrival(NOW))
    merge.put_back(merge.take(10, NOW))
    assert merge.follows == 10
    assert [record.received_at for record in merge.take(10, NOW)] == [11]


def test_the_first_record_of_a_chain_and_records_without_one_wait_for_nothing() -> None:
    merge = _ordered()
    merge.set_ends({"profiles": 0})
    merge.add("events", [_record("events", 0, 5), _chained("events", 1, 6, 0)], Arrival(0))
    assert [record.received_at for record in merge.take(10, NOW)] == [5, 6]
