"""Membership changes by events, profiles, time and definitions, and the content of their records."""

import json

from starling_common.kafka.topics import MEMBERSHIP, MEMBERSHIP_STATE
from starling_common.outcome import Refused
from starling_common.settings import Clock
from starling_common.values import deterministic_id
from tests.unit.segmenter.segmenting import NOW_MICROS, FeedEntry, MemorySegmenter

DAY_MS = 86_400_000
BUYERS = {"event": "Order Completed"}
TWICE_A_DAY = {"event": "Order Completed", "op": "gte", "value": 2, "within": "1d"}
NOT_BUYERS = {"not": BUYERS}


def test_an_event_causes_an_entry_and_time_an_exit_at_the_exact_instants() -> None:
    segmenter = MemorySegmenter()
    segmenter.define("keen", TWICE_A_DAY)
    segmenter.track("u1", "Order Completed", 1000)
    segmenter.track("u1", "Order Completed", 2000)
    assert segmenter.changes() == [FeedEntry("u1", "keen", "ENTERED", 1, 2000, "EVENT")]
    segmenter.clock(DAY_MS + 999)
    assert segmenter.changes() == []
    segmenter.clock(DAY_MS + 1000)
    assert segmenter.changes() == [FeedEntry("u1", "keen", "EXITED", 2, DAY_MS + 1000, "TIMER")]


def test_a_users_timers_fire_before_the_next_event_each_at_its_own_instant() -> None:
    segmenter = MemorySegmenter()
    segmenter.define("today", {"event": "Order Completed", "within": "1d"})
    segmenter.track("u1", "Order Completed", 1000)
    segmenter.track("u1", "Order Completed", 3 * DAY_MS)
    assert segmenter.changes() == [
        FeedEntry("u1", "today", "ENTERED", 1, 1000, "EVENT"),
        FeedEntry("u1", "today", "EXITED", 2, DAY_MS + 1000, "TIMER"),
        FeedEntry("u1", "today", "ENTERED", 3, 3 * DAY_MS, "EVENT"),
    ]


def test_an_event_advances_stream_time_for_all_users() -> None:
    segmenter = MemorySegmenter()
    segmenter.define("today", {"event": "Order Completed", "within": "1d"})
    segmenter.track("u1", "Order Completed", 1000)
    segmenter.track("u2", "Page Viewed", 3 * DAY_MS)
    assert segmenter.changes()[1:] == [FeedEntry("u1", "today", "EXITED", 2, DAY_MS + 1000, "TIMER")]


def test_profile_changes_cause_entries_and_exits() -> None:
    segmenter = MemorySegmenter()
    segmenter.define("pro", {"trait": "plan", "op": "eq", "value": "pro"})
    segmenter.identify("u1", {"plan": "pro"}, 1000)
    segmenter.identify("u1", {"plan": "free"}, 2000, change="COMPUTED")
    assert segmenter.changes() == [
        FeedEntry("u1", "pro", "ENTERED", 1, 1000, "EVENT"),
        FeedEntry("u1", "pro", "EXITED", 2, 2000, "EVENT"),
    ]


def test_any_event_creates_a_profile() -> None:
    segmenter = MemorySegmenter()
    segmenter.define("all", {"everyone": True})
    segmenter.define("never-bought", NOT_BUYERS)
    segmenter.track("u1", "Page Viewed", 1000)
    assert {(entry.segment, entry.status) for entry in segmenter.changes()} == {("all", "ENTERED"), ("never-bought", "ENTERED")}


def test_a_computed_trait_and_a_nested_segment() -> None:
    segmenter = MemorySegmenter()
    segmenter.define("vip", {"trait": "computed.spent", "op": "gte", "value": 100})
    segmenter.define("active-vip", {"all": [{"segment": "vip"}, {"event": "Page Viewed", "within": "1d"}]})
    segmenter.track("u1", "Page Viewed", 1000)
    segmenter.identify("u1", {"computed": {"spent": 120}}, 2000)
    assert [entry.segment for entry in segmenter.changes()] == ["vip", "active-vip"]


def test_the_content_of_a_record() -> None:
    segmenter = MemorySegmenter()
    segmenter.define("buyers", BUYERS, version=3, name="People who bought")
    segmenter.define("all", {"everyone": True})
    segmenter.identify("u1", {"plan": "pro"}, 500, anonymous_ids=["a1"], message_id="m-identify")
    segmenter.track("u1", "Order Completed", 1000, {"revenue": 5}, message_id="m-1", anonymous_ids=["a1", "a2"])
    entered = next(record for record in segmenter.records() if record["segment_key"] == "buyers")
    assert json.loads(entered.pop("traits")) == {"plan": "pro"}
    assert entered == {
        "event_id": deterministic_id("default", "u1", "buyers", 1),
        "workspace": "default",
        "user_id": "u1",
        "anonymous_ids": ["a1", "a2"],
        "segment_key": "buyers",
        "segment_name": "People who bought",
        "segment_version": 3,
        "status": "ENTERED",
        "sequence": 1,
        "effective_at": 1000,
        "decided_at": NOW_MICROS // 1000,
        "cause": {"kind": "EVENT", "message_id": "m-1", "event_name": "Order Completed"},
        "correlation_id": "request-2",
        "memberships": ["all", "buyers"],
        "received_at": NOW_MICROS + 2,
    }


def test_the_feed_and_the_state_topic_contain_the_same_values_and_headers() -> None:
    segmenter = MemorySegmenter()
    segmenter.define("buyers", BUYERS)
    segmenter.track("u/1", "Order Completed", 1000)
    (feed,) = segmenter.task.take_outputs(MEMBERSHIP)
    (state,) = segmenter.task.take_outputs(MEMBERSHIP_STATE)
    assert (feed.key, state.key) == (b"default/u/1", b"default/u/1/buyers")
    assert feed.value == state.value
    assert feed.received_at == NOW_MICROS + 1
    headers = dict(feed.headers)
    assert headers == dict(state.headers)
    assert headers == {"correlation_id": b"request-1", "traceparent": b"trace-of-request-1", "produced_by": b"segmenter"}


def test_the_memberships_are_those_after_each_change() -> None:
    segmenter = MemorySegmenter()
    segmenter.define("today", {"event": "Order Completed", "within": "1d"})
    segmenter.define("ever", BUYERS)
    segmenter.define("lapsed", {"all": [{"segment": "ever"}, {"not": {"segment": "today"}}]})
    segmenter.track("u1", "Order Completed", 1000)
    segmenter.records()
    segmenter.track("u1", "Order Completed", 3 * DAY_MS)
    changes = [(record["segment_key"], record["status"], record["memberships"]) for record in segmenter.records()]
    assert changes == [
        ("today", "EXITED", ["ever"]),
        ("lapsed", "ENTERED", ["ever", "lapsed"]),
        ("today", "ENTERED", ["ever", "lapsed", "today"]),
        ("lapsed", "EXITED", ["ever", "today"]),
    ]


def test_a_change_by_a_timer_has_no_message_and_its_own_correlation_id() -> None:
    segmenter = MemorySegmenter()
    segmenter.define("today", {"event": "Order Completed", "within": "1d"})
    segmenter.track("u1", "Order Completed", 1000)
    segmenter.records()
    segmenter.track("u1", "Page Viewed", 3 * DAY_MS)
    (outputs,) = segmenter.task.take_outputs(MEMBERSHIP_STATE)[1:]
    (exited,) = segmenter.records()
    assert exited["cause"] == {"kind": "TIMER", "message_id": None, "event_name": None}
    assert exited["correlation_id"] == deterministic_id("timer", "default", "u1", DAY_MS + 1000)
    assert dict(outputs.headers)["traceparent"] != b"trace-of-request-3"


def test_a_profile_without_a_correlation_id_changes_memberships() -> None:
    segmenter = MemorySegmenter()
    segmenter.define("pro", {"trait": "plan", "op": "eq", "value": "pro"})
    segmenter.identify("u1", {"plan": "pro"}, 1000, correlation_id="")
    [output] = segmenter.task.take_outputs(MEMBERSHIP_STATE)
    assert dict(output.headers)["correlation_id"] == b""
    assert segmenter.changes() == [FeedEntry("u1", "pro", "ENTERED", 1, 1000, "EVENT")]


def test_under_the_wall_clock_an_event_from_the_future_counts_when_its_time_comes() -> None:
    segmenter = MemorySegmenter(Clock.WALL)
    segmenter.define("today", {"event": "Order Completed", "within": "1d"})
    now_ms = NOW_MICROS // 1000
    segmenter.track("u1", "Order Completed", now_ms + 60_000)
    assert segmenter.changes() == []
    segmenter.task.advance(now_ms + 60_000)
    assert segmenter.changes() == [FeedEntry("u1", "today", "ENTERED", 1, now_ms + 60_000, "TIMER")]


def test_workspaces_share_nothing() -> None:
    segmenter = MemorySegmenter()
    segmenter.define("buyers", BUYERS)
    segmenter.workspace = "other"
    segmenter.define("buyers", NOT_BUYERS, name="The others")
    segmenter.track("u1", "Order Completed", 1000)
    assert segmenter.changes() == []
    segmenter.track("u2", "Page Viewed", 1000)
    (entered,) = segmenter.records()
    assert (entered["workspace"], entered["segment_name"]) == ("other", "The others")


def test_invalid_json_is_refused_before_anything_is_folded() -> None:
    segmenter = MemorySegmenter()
    segmenter.define("shoes", {"event": "Viewed", "where": {"property": "kind", "op": "eq", "value": "shoes"}})
    segmenter.define("app", {"event": "Opened", "where": {"context": "app.name", "op": "eq", "value": "x"}})
    segmenter.track("u1", "Viewed", 1000, "{")
    segmenter.track("u1", "Viewed", 1000, "[]")
    segmenter.track("u1", "Opened", 1000, context="nothing")
    segmenter.identify("u1", "[]", 1000)
    assert [refusal.code for refusal in segmenter.task.refusals] == ["bad_json"] * 4
    assert segmenter.task.states() == {}
    segmenter.track("u1", "Viewed", 2000, {"kind": "shoes"})
    assert [entry.segment for entry in segmenter.changes()] == ["shoes"]


def test_json_that_no_segment_reads_is_never_parsed() -> None:
    segmenter = MemorySegmenter()
    segmenter.define("all", {"everyone": True})
    segmenter.track("u1", "Viewed", 1000, "{")
    assert [entry.segment for entry in segmenter.changes()] == ["all"]


def test_merges_and_erasures_are_refused_as_not_yet() -> None:
    segmenter = MemorySegmenter()
    segmenter.identify("u1", {}, 1000, change="MERGED")
    segmenter.identify("u1", {}, 1000, change="ERASED")
    assert [refusal.code for refusal in segmenter.task.refusals] == ["not_yet", "not_yet"]


def test_undecodable_bytes_become_a_dead_letter_and_the_next_record_counts() -> None:
    segmenter = MemorySegmenter()
    segmenter.define("buyers", BUYERS)
    segmenter.task.feed("events.behaviour", b"default/u1", b"\x00\x00\x00\x00\x01broken")
    segmenter.track("u1", "Order Completed", 1000)
    assert [refusal.code for refusal in segmenter.task.refusals] == ["broken_avro"]
    assert [entry.status for entry in segmenter.changes()] == ["ENTERED"]
    assert segmenter.refused == list[Refused]()


def test_a_restart_changes_nothing() -> None:
    plain, restarted = MemorySegmenter(), MemorySegmenter()
    feeds: dict[MemorySegmenter, list[FeedEntry]] = {plain: [], restarted: []}
    for segmenter in feeds:
        segmenter.define("keen", TWICE_A_DAY)
        segmenter.define("never", NOT_BUYERS)
        for user, at_ms in (("u1", 1000), ("u2", 1500), ("u1", 2000), ("u2", DAY_MS + 1200), ("u1", 3 * DAY_MS)):
            segmenter.track(user, "Order Completed", at_ms)
            feeds[segmenter] += segmenter.changes()
            if segmenter is restarted:
                segmenter.restart()
    assert feeds[restarted] == feeds[plain] != []
    assert plain.task.states() == restarted.task.states()
