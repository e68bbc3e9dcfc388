"""Conditions on accounts: each user of an account is evaluated with the answers of all users, or not at all."""

import json
from typing import Any

import pytest

from starling_common.kafka.topics import ACCOUNT_ANSWERS, ACCOUNT_TALLIES, MEMBERSHIP
from starling_common.settings import Clock
from starling_segmenter.state import accounts
from tests.unit.segmenter.segmenting import NOW_MICROS, FeedEntry, MemorySegmenter

BOUGHT = {"event": "Buy", "within": "1s"}


def account(match: str, where: object = None) -> dict[str, Any]:
    return {"account": {"match": match, "where": where or BOUGHT}}


def joined(segmenter: MemorySegmenter, *users: str, group: str | None = "acme", at_ms: int = 1_000) -> None:
    for user in users:
        segmenter.identify(user, {}, at_ms, change="GROUP", group_id=group)


def three(match: str = "any", where: object = None) -> MemorySegmenter:
    """Ada, bob and eve in one account, and a segment."""
    segmenter = MemorySegmenter()
    segmenter.define("team", account(match, where))
    joined(segmenter, "ada", "bob", "eve")
    segmenter.deliver()
    return segmenter


def test_all_users_enter_after_one_event_and_leave_at_the_instant_at_which_it_leaves_the_window() -> None:
    segmenter = three()
    assert segmenter.changes() == []
    segmenter.track("ada", "Buy", 2_000)
    assert sorted(segmenter.changes()) == [FeedEntry(user, "team", "ENTERED", 1, 2_000, "EVENT") for user in ("ada", "bob", "eve")]
    segmenter.clock(60_000)
    assert sorted(segmenter.changes()) == [FeedEntry(user, "team", "EXITED", 2, 3_000, "TIMER") for user in ("ada", "bob", "eve")]


def test_a_change_has_the_cause_of_the_other_user() -> None:
    segmenter = three()
    segmenter.track("ada", "Buy", 2_000, message_id="m-7", correlation_id="request-7")
    segmenter.deliver()
    changes = {record["user_id"]: record for record in segmenter.records(MEMBERSHIP)}
    for user in ("ada", "bob", "eve"):
        assert changes[user]["cause"] == {"kind": "EVENT", "message_id": "m-7", "event_name": "Buy"}
        assert changes[user]["correlation_id"] == "request-7"


@pytest.mark.parametrize(("match", "expected"), [("all", {3}), ("any", {1, 2, 3}), ("none", {0})])
def test_any_all_and_none(match: str, expected: set[int]) -> None:
    segmenter = three(match, {"event": "Buy"})
    for count, user in enumerate(("ada", "bob", "eve")):
        segmenter.changes()
        assert (segmenter.members("team") == {"ada", "bob", "eve"}) is (count in expected)
        segmenter.track(user, "Buy", 2_000)
    segmenter.changes()
    assert (segmenter.members("team") == {"ada", "bob", "eve"}) is (3 in expected)


def test_a_user_without_an_account_and_users_of_other_accounts_do_not_match() -> None:
    segmenter = three("none")
    joined(segmenter, "dan", group="other")
    segmenter.track("zoe", "Buy", 2_000)
    segmenter.changes()
    assert segmenter.members("team") == {"ada", "bob", "eve", "dan"}
    segmenter.track("dan", "Buy", 3_000)
    assert segmenter.changes() == [FeedEntry("dan", "team", "EXITED", 2, 3_000, "EVENT")]


def test_a_user_who_changes_the_account_is_counted_in_one_of_them_at_each_instant() -> None:
    segmenter = three("any", {"event": "Buy"})
    joined(segmenter, "dan", group="other")
    segmenter.track("ada", "Buy", 2_000)
    assert len(segmenter.changes()) == 3
    joined(segmenter, "bob", group="other", at_ms=3_000)
    assert segmenter.changes() == [FeedEntry("bob", "team", "EXITED", 2, 3_000, "EVENT")]
    joined(segmenter, "ada", group="other", at_ms=4_000)
    assert sorted(segmenter.changes()) == [
        FeedEntry("bob", "team", "ENTERED", 3, 4_000, "EVENT"),
        FeedEntry("dan", "team", "ENTERED", 1, 4_000, "EVENT"),
        FeedEntry("eve", "team", "EXITED", 2, 4_000, "EVENT"),
    ]
    joined(segmenter, "ada", group=None, at_ms=5_000)
    assert {entry[:3] for entry in segmenter.changes()} == {
        ("ada", "team", "EXITED"),
        ("bob", "team", "EXITED"),
        ("dan", "team", "EXITED"),
    }


def test_nothing_is_emitted_before_the_account_has_answered() -> None:
    """Not even a condition that the user fulfils alone: the others may contradict it."""
    segmenter = three("none", {"event": "Buy"})
    segmenter.track("ada", "Buy", 2_000)
    segmenter.changes()
    segmenter.delivers = False
    joined(segmenter, "zoe")
    segmenter.define("others", {"not": {"segment": "team"}})
    segmenter.define("quiet", account("none", {"event": "Look"}))
    assert [entry for entry in segmenter.changes() if entry.user == "zoe"] == []
    segmenter.delivers = True
    assert {entry[:3] for entry in segmenter.changes() if entry.user == "zoe"} == {
        ("zoe", "others", "ENTERED"),
        ("zoe", "quiet", "ENTERED"),
    }


def test_history_counts_and_a_change_of_a_definition_has_that_cause() -> None:
    segmenter = MemorySegmenter()
    joined(segmenter, "ada", "bob")
    segmenter.track("ada", "Buy", 2_000)
    segmenter.restart()
    segmenter.define("team", account("any", {"event": "Buy"}))
    assert sorted(segmenter.changes()) == [FeedEntry(user, "team", "ENTERED", 1, 2_000, "DEFINITION") for user in ("ada", "bob")]
    segmenter.define("team", account("all", {"event": "Buy"}), version=2, action="REVISED")
    assert sorted(segmenter.changes()) == [FeedEntry(user, "team", "EXITED", 2, 2_000, "DEFINITION") for user in ("ada", "bob")]
    segmenter.archive("team", version=2)
    segmenter.deliver()
    assert all(not isinstance(state, accounts.AccountState) for state in segmenter.task.states().values())


def test_a_new_version_of_a_segment_inside_the_condition_changes_all_users_at_once() -> None:
    segmenter = MemorySegmenter()
    joined(segmenter, "ada", "bob")
    segmenter.define("active", {"event": "Buy"})
    segmenter.define("team", account("any", {"segment": "active"}))
    segmenter.track("ada", "Buy", 2_000)
    segmenter.track("bob", "Look", 2_000)
    assert {entry[:3] for entry in segmenter.changes() if entry.segment == "team"} == {
        (u, "team", "ENTERED") for u in ("ada", "bob")
    }
    segmenter.define("active", {"event": "Look"}, version=2, action="REVISED")
    assert {entry.segment for entry in segmenter.changes()} == {"active"}
    segmenter.define("active", {"event": "Nothing"}, version=3, action="REVISED")
    assert {entry[:3] for entry in segmenter.changes() if entry.segment == "team"} == {
        (u, "team", "EXITED") for u in ("ada", "bob")
    }


def test_lists_and_traits_inside_and_segments_built_on_it() -> None:
    segmenter = three("any", {"any": [{"list": "vips"}, {"trait": "plan", "op": "eq", "value": "pro"}]})
    segmenter.define("rest", {"all": [{"not": {"segment": "team"}}, {"event": "Look"}]})
    segmenter.track("bob", "Look", 2_000)
    assert {entry[:3] for entry in segmenter.changes()} == {("bob", "rest", "ENTERED")}
    segmenter.listed("ada", "vips")
    assert {(*entry[:3], entry.cause) for entry in segmenter.changes()} == {
        ("ada", "team", "ENTERED", "LIST"),
        ("bob", "team", "ENTERED", "LIST"),
        ("eve", "team", "ENTERED", "LIST"),
        ("bob", "rest", "EXITED", "LIST"),
    }
    segmenter.identify("eve", {"plan": "pro"}, 3_000, group_id="acme")
    segmenter.deliver()
    segmenter.listed("ada", "vips", is_on=False)
    assert segmenter.changes() == []


def test_paused_it_stays_as_it_is() -> None:
    segmenter = three("any", {"event": "Buy"})
    segmenter.define("team", account("any", {"event": "Buy"}), action="PAUSED")
    segmenter.track("ada", "Buy", 2_000)
    assert segmenter.changes() == []
    segmenter.define("team", account("any", {"event": "Buy"}), action="RESUMED")
    assert sorted(segmenter.changes()) == [
        FeedEntry(user, "team", "ENTERED", 1, 2_000, "DEFINITION") for user in ("ada", "bob", "eve")
    ]


def test_only_users_for_whom_it_makes_a_difference_receive_a_tally() -> None:
    segmenter = three("any", {"event": "Buy"})
    segmenter.delivers = False

    def receivers() -> list[str]:
        segmenter.records(ACCOUNT_TALLIES)
        for output in segmenter.task.take_outputs(ACCOUNT_ANSWERS):
            segmenter.task.feed(output.topic, output.key, output.value, output.headers)
        return sorted(record["user_id"] for record in segmenter.records(ACCOUNT_TALLIES))

    segmenter.track("ada", "Buy", 2_000)
    assert receivers() == ["bob", "eve"]
    segmenter.track("ada", "Buy", 3_000)
    assert segmenter.records(ACCOUNT_ANSWERS) == []
    segmenter.track("bob", "Buy", 4_000)  # for ada, any of the others now; for eve, all of them
    assert receivers() == ["ada", "eve"]


def test_a_user_without_an_account_or_without_such_a_segment_sends_nothing() -> None:
    segmenter = MemorySegmenter()
    segmenter.delivers = False
    joined(segmenter, "ada")
    segmenter.track("ada", "Buy", 2_000)
    segmenter.define("team", account("any", {"trait": "plan", "op": "eq", "value": "pro"}))
    segmenter.records(ACCOUNT_ANSWERS)
    segmenter.track("zoe", "Buy", 3_000)
    segmenter.track("ada", "Buy", 3_000)
    assert segmenter.records(ACCOUNT_ANSWERS) == []


def test_a_tally_of_an_account_that_the_user_has_left_is_ignored() -> None:
    segmenter = three("any", {"event": "Buy"})
    segmenter.delivers = False
    segmenter.track("ada", "Buy", 2_000)
    joined(segmenter, "bob", group="other", at_ms=2_500)
    segmenter.delivers = True
    assert {entry[:3] for entry in segmenter.changes()} == {("ada", "team", "ENTERED"), ("eve", "team", "ENTERED")}


def test_every_step_survives_a_restart() -> None:
    segmenter = three("all", BOUGHT)
    for user in ("ada", "bob", "eve"):
        segmenter.track(user, "Buy", 2_000)
        for topic in (ACCOUNT_ANSWERS, ACCOUNT_TALLIES):
            for output in segmenter.task.take_outputs(topic):
                segmenter.restart()
                segmenter.task.feed(output.topic, output.key, output.value, output.headers)
    assert len(segmenter.changes()) == 3
    segmenter.restart()
    segmenter.clock(10_000)
    assert sorted(segmenter.changes()) == [FeedEntry(user, "team", "EXITED", 2, 3_000, "TIMER") for user in ("ada", "bob", "eve")]


def test_an_account_that_is_too_large_changes_nothing_any_more(monkeypatch: pytest.MonkeyPatch) -> None:
    segmenter = three("any", {"event": "Buy"})
    monkeypatch.setattr(accounts, "_MAX_BYTES", 80)
    joined(segmenter, "zoe")
    segmenter.track("ada", "Buy", 2_000)
    joined(segmenter, "max")
    assert [entry.user for entry in segmenter.changes()] == ["ada"]  # her own event counts; she receives no tally
    assert [(refusal.code, refusal.record.key) for refusal in segmenter.task.refusals] == [("account_too_large", b"default/acme")]


def test_under_the_wall_clock_the_others_enter_at_the_same_instant() -> None:
    segmenter = MemorySegmenter(Clock.WALL)
    segmenter.define("team", account("any"))
    joined(segmenter, "ada", "bob", at_ms=NOW_MICROS // 1000)
    segmenter.deliver()
    segmenter.track("ada", "Buy", NOW_MICROS // 1000)
    instants = {entry.effective_at for entry in segmenter.changes()}
    assert len(instants) == 1


def test_a_segment_that_uses_a_segment_with_missing_answers_waits_too() -> None:
    segmenter = MemorySegmenter()
    joined(segmenter, "ada", "bob")
    segmenter.track("ada", "Buy", 2_000)
    loners = account("any", {"not": {"segment": "team"}})
    for key, where in (("team", account("any", {"event": "Buy"})), ("loners", loners)):
        segmenter.record_definition(key, json.dumps({"key": key, "name": key, "where": where}))
    segmenter.task.settle()
    assert {entry[:4] for entry in segmenter.changes()} == {(user, "team", "ENTERED", 1) for user in ("ada", "bob")}
