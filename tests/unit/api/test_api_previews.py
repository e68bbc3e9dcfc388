"""Preview, diff and explain over states of the real segmenter, with stores in memory."""

import json
import random
from collections.abc import Sequence
from typing import Any

import pytest

from starling_api.ports import Day, MemberRow, PastEvent, ReportedProgress
from starling_api.preview.estimates import Estimate
from starling_api.preview.sampling import Candidate, CandidateEvaluator, Sampler
from starling_common.settings import Clock
from starling_segments import Known, UserState, compile_preview, encode_state, parse_segment, required_history
from tests.unit.api.calls import call
from tests.unit.api.memory import World
from tests.unit.api.memory_states import MemoryPasts
from tests.unit.api.shop import BUYERS, DAY_MS, NOW_MS, Site, shop


def test_aggregates_of_running_segments_come_from_the_states() -> None:
    site = shop(buyers=BUYERS)
    found = site.preview({"event": "Buy", "op": "gte", "value": 2, "within": "7d"})
    assert (found["estimate"], found["low"], found["high"]) == (3, 3, 3)  # 1, 3 and 5 days ago
    assert found["sample"] == ["u1", "u3", "u5"]
    assert found["as_of"] == "1970-04-11T00:00:00.000Z"
    assert (found["exact"], found["users"], found["asked"], found["limits"]) == (True, 40, 40, [])
    assert found["took_ms"] >= 0
    assert site.world.pasts.asked == 0


def test_other_aggregates_are_computed_from_events() -> None:
    site = shop()
    found = site.preview({"event": "Buy", "where": {"property": "price", "op": "gte", "value": 2}, "within": "7d"})
    assert (found["estimate"], found["sample"]) == (5, ["u2", "u3", "u4", "u5", "u6"])
    assert (found["exact"], found["limits"]) == (True, [])
    assert site.world.pasts.asked == 40


def test_outcomes_are_dated_by_the_event_before_them() -> None:
    """Under the event clock, what stream time was when it came is known to the segmenter alone."""
    site = shop()
    for number in range(10):
        site.report(f"u{number}", "DELIVERED", 50_000 * DAY_MS)
    site.show()
    found = site.preview({"event": "Message Delivered", "within": "7d"})
    assert (found["sample"], found["exact"]) == ([f"u{number}" for number in range(7)], False)
    assert "delivery outcomes" in found["limits"][0]
    found = site.preview({"event": "Buy", "within": "7d"})
    assert (found["estimate"], found["exact"]) == (7, True)


def test_under_the_wall_clock_outcomes_count_at_their_report() -> None:
    segment = parse_segment({"key": "a", "name": "a", "where": {"event": "Message Opened", "within": "7d"}}, Known())
    trial, pasts = compile_preview(segment, {}, None, frozenset()), MemoryPasts()
    past = required_history(trial, (), NOW_MS)
    for user, days_ago in (("new", 6), ("old", 7), ("later", -1)):
        came_ms = NOW_MS - days_ago * DAY_MS
        pasts.events[user] = [PastEvent("Message Opened", came_ms, {}, {}, came_ms * 1000, is_outcome=True)]
    evaluator = CandidateEvaluator("acme", trial, {0: NOW_MS}, {0: past}, pasts, Clock.WALL)
    state = encode_state(UserState(True, NOW_MS))
    evaluated = evaluator.evaluate([Candidate(user, 0, state) for user in pasts.events])
    results = [(user, found.after, limits) for user, found, limits in evaluated]
    assert results == [("new", True, []), ("old", False, []), ("later", False, [])]


def test_a_window_beyond_the_retention_is_a_limitation() -> None:
    found = shop().preview({"event": "Buy", "op": "gte", "value": 2})
    assert (found["estimate"], found["low"], found["high"], found["exact"]) == (20, 20, 20, False)
    assert "30 days" in found["limits"][0]


def test_events_beyond_the_limit_of_a_user_are_a_limitation() -> None:
    site = shop()
    site.world.pasts.most = 2
    found = site.preview({"event": "Buy", "within": "7d", "op": "gte", "value": 2})
    assert found["exact"] is False
    assert "only the newest" in found["limits"][0]


def test_a_preview_fires_the_timers_since_the_last_flush() -> None:
    """A preview fires the timers that are due at its `as_of`, even if the flushed state is older."""
    site = shop(buyers=BUYERS)
    site.world.audience.reported = {0: ReportedProgress(NOW_MS + 4 * DAY_MS, {"acme/buyers": 1})}
    found = site.preview({"segment": "buyers"})
    assert (found["as_of"], found["sample"]) == ("1970-04-15T00:00:00.000Z", ["u0", "u1", "u2"])


def test_during_a_switch_only_reported_versions_count_as_applied() -> None:
    site = shop(buyers=BUYERS)
    site.world.states.progress = site.world.states.progress._replace(plan=b"another")
    site.preview(BUYERS)
    assert site.world.pasts.asked == 40  # no aggregate of the states is guaranteed, so the events are evaluated
    site.world.audience.reported = {0: ReportedProgress(NOW_MS, {"acme/buyers": 1})}
    site.preview(BUYERS)
    assert site.world.pasts.asked == 40
    site.world.states.progress = site.world.states.progress._replace(whole=False)
    site.preview(BUYERS)
    assert site.world.pasts.asked == 80


def test_many_users_are_sampled(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("starling_api.preview.sampling.ALL_USERS_LIMIT", {False: 10, True: 10})
    monkeypatch.setattr("starling_api.preview.sampling._READ_LIMIT", {False: 100, True: 100})
    site = shop(600, buyers=BUYERS)
    site.world.states.buckets = 64
    found = site.preview({"any": [{"segment": "buyers"}, {"bucket": {"salt": "x", "from": 0, "to": 50}}]})
    assert found["exact"] is False
    assert 100 <= found["asked"] < 400
    assert found["low"] <= 304 <= found["high"]
    assert found["low"] < found["estimate"] < found["high"]
    assert len(found["sample"]) == 20


def test_another_workspace_is_not_seen() -> None:
    site = shop()
    site.world.states.users_of["other"] = site.world.states.users_of["acme"]
    site.world.states.users_of["acme"] = {}
    assert site.preview({"everyone": True})["estimate"] == 0


def test_without_states_there_are_no_users() -> None:
    site = Site()
    site.world.states.never_kept = True
    found = site.preview({"everyone": True})
    assert (found["estimate"], found["high"], found["sample"], found["as_of"], found["exact"]) == (0, 0, [], None, True)


@pytest.mark.parametrize(
    ("body", "pointers"),
    [
        ([], [""]),
        ({}, [""]),
        ({"where": {"event": "A", "op": "nope"}, "timezone": "Mars/Olympus", "when": 1}, ["/when", "/timezone", "/where/op"]),
        ({"where": {"all": [{"trait": "a", "op": "gt"}, {"segment": "none"}]}}, ["/where/all/0", "/where/all/1/segment"]),
    ],
)
def test_all_errors_are_reported_together(body: Any, pointers: Sequence[str]) -> None:
    answer = call(World(), "POST", "/v1/segments/preview", json=body)
    assert answer.status_code == 422
    assert [fault["pointer"] for fault in answer.json()["errors"]] == pointers


def test_a_segments_own_document_can_be_previewed() -> None:
    site = shop(asked=BUYERS)
    document = call(site.world, "GET", "/v1/segments/asked").json()
    assert call(site.world, "POST", "/v1/segments/preview", json=document).json()["estimate"] == 7
    assert site.preview({"segment": "asked"})["estimate"] == 7


def test_accounts_without_evaluated_users_are_a_limitation() -> None:
    site, account = shop(buyers=BUYERS), {"account": {"match": "any", "where": BUYERS}}
    found = site.preview(account)
    assert found["exact"] is False
    assert "accounts" in found["limits"][0]
    site.define("colleagues", account)
    site.show()
    assert (site.preview(account)["exact"], site.preview(account)["limits"]) == (True, [])
    assert site.explain("u1", "colleagues")["member"] is False  # without an account


def test_a_list_condition_can_be_previewed() -> None:
    site = shop()
    call(site.world, "PUT", "/v1/lists/vips", json={})
    states = site.world.states.users_of["acme"]
    states["u4"] = encode_state(UserState(True, NOW_MS, user_id="u4", lists=["vips"]))
    assert site.preview({"list": "vips"})["sample"] == ["u4"]
    assert site.ask("/v1/segments/preview", {"list": "none"}, 422)["errors"][0]["code"] == "unknown_list"


def test_a_diff_counts_entries_exits_and_stays() -> None:
    site = shop(buyers=BUYERS)
    found = site.ask("/v1/segments/buyers/diff", {"event": "Buy", "between_ago": ["9d", "3d"]})
    assert found["key"] == "buyers"
    assert found["enter"] == {"estimate": 2, "low": 2, "high": 2, "sample": ["u7", "u8"]}
    assert found["leave"] == {"estimate": 3, "low": 3, "high": 3, "sample": ["u0", "u1", "u2"]}
    assert found["stay"]["estimate"] == 4
    assert (found["exact"], found["limits"]) == (True, [])
    nothing = site.ask("/v1/segments/buyers/diff", BUYERS)
    assert (nothing["enter"]["estimate"], nothing["leave"]["estimate"], nothing["stay"]["estimate"]) == (0, 0, 7)


def test_all_members_of_a_small_segment_are_evaluated_for_exits(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("starling_api.preview.sampling.ALL_USERS_LIMIT", {False: 30, True: 30})
    monkeypatch.setattr("starling_api.preview.previews.ALL_USERS_LIMIT", {False: 30, True: 30})
    monkeypatch.setattr("starling_api.preview.sampling._READ_LIMIT", {False: 40, True: 40})
    site = shop(300, buyers=BUYERS)
    site.world.audience.day_rows = [Day(0, 9, 2)]
    site.world.audience.member_rows = [MemberRow(0, f"u{number}", 0, 1) for number in range(7)]
    found = site.ask("/v1/segments/buyers/diff", {"event": "Buy", "within": "3d"})
    assert found["exact"] is False
    assert found["leave"] == {"estimate": 4, "low": 4, "high": 4, "sample": ["u3", "u4", "u5", "u6"]}
    assert found["stay"]["estimate"] == 3


def test_a_diff_of_an_unknown_segment_or_of_itself_is_refused() -> None:
    site = shop(buyers=BUYERS, loyal={"all": [{"segment": "buyers"}]})
    assert site.ask("/v1/segments/none/diff", BUYERS, 404)["code"] == "unknown_segment"
    faults = site.ask("/v1/segments/buyers/diff", {"segment": "loyal"}, 422)["errors"]
    assert [(fault["pointer"], fault["code"]) for fault in faults] == [("/where/segment", "cycle")]
    call(site.world, "DELETE", "/v1/segments/loyal")
    assert site.ask("/v1/segments/loyal/diff", BUYERS, 409)["code"] == "archived"


def test_each_condition_has_its_observed_value_and_next_change() -> None:
    where = {"all": [BUYERS, {"not": {"first_time": {"event": "Buy"}, "within": "1d"}}, {"segment": "other"}]}
    site = shop(other={"everyone": True}, buyers=where)
    explained = site.explain("u5", "buyers")
    assert (explained["member"], explained["as_of"]) == (True, "1970-04-11T00:00:00.000Z")
    tree = explained["tree"]
    assert (tree["node"], tree["kind"], tree["truth"], tree["next_change_at"]) == (
        "/where",
        "all",
        True,
        "1970-04-13T00:00:00.000Z",
    )
    count, negated, nested = tree["children"]
    assert (count["node"], count["observed"], count["next_change_at"]) == ("/where/all/0", 2, "1970-04-13T00:00:00.000Z")
    assert (negated["kind"], negated["truth"]) == ("not", True)
    assert negated["children"][0]["observed"] == "1970-04-06T00:00:00.000Z"
    assert (nested["kind"], nested["observed"], nested["truth"]) == ("segment", "other", True)
    assert site.explain("u9", "buyers")["member"] is False
    assert json.dumps(site.explain("u0", "buyers"))


def test_an_explanation_needs_a_known_user_and_a_segment_in_force() -> None:
    site = shop(buyers=BUYERS)
    assert site.explain("unknown", "buyers", 404)["code"] == "unknown_user"
    assert site.explain("u1", "none", 404)["code"] == "unknown_segment"
    call(site.world, "POST", "/v1/segments", json={"key": "new", "name": "new", "where": {"event": "Buy"}})
    assert site.explain("u1", "new", 503)["code"] == "backfilling"


def test_an_explanation_of_a_paused_segment_has_the_stored_membership() -> None:
    site = shop(buyers=BUYERS)
    assert site.explain("u1", "buyers")["paused"] is False
    call(site.world, "POST", "/v1/segments/buyers/pause")
    site.segmenter.define("buyers", BUYERS, action="PAUSED")
    site.show(NOW_MS + 20 * DAY_MS)
    explained = site.explain("u1", "buyers")
    assert (explained["paused"], explained["member"], explained["tree"]["truth"]) == (True, True, False)
    assert site.preview({"segment": "buyers"})["estimate"] == 7


def test_users_are_evaluated_in_random_order() -> None:
    """Users come out of a slice by id: to ask the first of them would be to ask the oldest customers."""
    site = Site()
    for number in range(6_000):
        site.world.states.users_of.setdefault("acme", {})[f"u{number:05}"] = encode_state(
            UserState(True, NOW_MS, f'{{"n":{number}}}', user_id=f"u{number:05}")
        )
    snapshot = site.world.states
    snapshot.buckets = 1
    segment = parse_segment({"key": "a", "name": "a", "where": {"trait": "n", "op": "lt", "value": 3_000}}, Known())
    preview = compile_preview(segment, {}, None, frozenset())
    evaluator = CandidateEvaluator("acme", preview, {0: NOW_MS}, {0: None}, site.world.pasts, Clock.EVENT)
    late = iter([0.0, 0.0, 9.0])
    found = Sampler(snapshot, evaluator, random.Random(5), lambda: next(late)).sample()
    assert (found.size.share, found.size.read, found.size.evaluated) == (1, 6_000, 125)
    estimate = found.size.of(len(found.users(lambda answer: answer.after)))
    assert estimate.low <= 3_000 <= estimate.high
    assert found.size.users == Estimate(6_000, 6_000, 6_000)
