"""`segments.clock`: no membership change is effective at or before an instant that was published before it."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from starling_common.kafka.topics import MEMBERSHIP, MEMBERSHIP_STATE, SEGMENT_CLOCK
from starling_common.settings import Clock
from tests.unit.segmenter.segmenting import CODECS, NOW_MICROS, FeedEntry, MemorySegmenter

SECOND_MS = 1_000
LATELY = {"event": "Buy", "within": "2s"}
ABSENT = {"all": [{"event": "Buy"}, {"not": {"event": "Buy", "within": "3s"}}]}


def test_an_instant_is_published_after_the_changes_that_timers_cause_up_to_it() -> None:
    segmenter = MemorySegmenter()
    segmenter.define("lately", LATELY)
    segmenter.track("u1", "Buy", 10_000)
    assert [record["instant"] for record in segmenter.records(SEGMENT_CLOCK)] == [9_999]
    segmenter.clock(12_000)
    topics = [output.topic for output in segmenter.task.outputs if output.topic in {MEMBERSHIP, SEGMENT_CLOCK}]
    assert topics == [MEMBERSHIP, MEMBERSHIP, SEGMENT_CLOCK]
    assert segmenter.changes()[-1] == FeedEntry("u1", "lately", "EXITED", 2, 12_000, "TIMER")
    (output,) = segmenter.task.take_outputs(SEGMENT_CLOCK)
    record = CODECS[SEGMENT_CLOCK].decode(output.value)
    assert record["instant"] == 12_000
    assert output.key == b""
    assert output.received_at == record["received_at"] >= NOW_MICROS


def test_a_record_of_an_edge_whose_clock_is_ahead_is_not_after_the_clock_record_that_follows_it() -> None:
    """Readers merge by `received_at`; an earlier one would let the clock record overtake the membership change."""
    segmenter = MemorySegmenter()
    segmenter.define("once", {"event": "Buy"})
    ahead = NOW_MICROS + 60_000_000
    segmenter.track("u1", "Buy", 10_000, received_at=ahead)
    segmenter.restart()
    segmenter.clock(20_000)
    records = segmenter.records(SEGMENT_CLOCK)
    assert [(record["instant"], record["received_at"]) for record in records] == [(9_999, ahead), (20_000, ahead)]


@pytest.mark.parametrize("clock", Clock)
@settings(max_examples=100)
@given(data=st.data())
def test_no_change_is_effective_at_or_before_a_published_instant(clock: Clock, data: st.DataObject) -> None:
    """With late events, profiles, lists, definitions and restarts. Under the event clock an instant that it ended is excepted."""
    segmenter = MemorySegmenter(clock)
    segmenter.define("lately", LATELY)
    segmenter.define("absent", ABSENT)
    segmenter.define("pro", {"any": [{"trait": "plan", "op": "eq", "value": "pro"}, {"list": "vip"}]})
    ended = set()
    now_ms = 10 * SECOND_MS
    for version in range(2, 2 + data.draw(st.integers(1, 15))):
        now_ms += data.draw(st.integers(0, 6)) * SECOND_MS // 2
        user = data.draw(st.sampled_from(("u1", "u2", "u3")))
        at_ms = now_ms - data.draw(st.sampled_from((0, 0, 500, 4_000)))
        received = {"received_at": at_ms * SECOND_MS} if clock is Clock.WALL else {}
        match data.draw(st.sampled_from(("track", "track", "identify", "listed", "time", "define", "restart"))):
            case "track":
                segmenter.track(user, "Buy", at_ms, **received)
            case "identify":
                segmenter.identify(user, {"plan": data.draw(st.sampled_from(("pro", "free")))}, at_ms, **received)
            case "listed":
                segmenter.listed(user, "vip", is_on=data.draw(st.booleans()), **received)
            case "time" if clock is Clock.WALL:
                segmenter.task.advance(now_ms)
            case "time":
                segmenter.clock(now_ms)
                ended.add(now_ms)
            case "define":
                segmenter.define("lately", LATELY | {"within": f"{data.draw(st.integers(1, 4))}s"}, version=version)
            case _:
                segmenter.restart()
    over, changes = -1, 0
    for output in segmenter.task.outputs:
        if output.topic == SEGMENT_CLOCK:
            instant = CODECS[SEGMENT_CLOCK].decode(output.value)["instant"]
            assert instant > over
            over = instant
        elif output.topic == MEMBERSHIP_STATE:
            effective_ms = CODECS[MEMBERSHIP_STATE].decode(output.value)["effective_at"]
            assert effective_ms > over or (effective_ms == over and over in ended)
            changes += 1
    assert over >= segmenter.task.stream_time_ms - 1
