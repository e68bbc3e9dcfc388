"""What the users of an account do: everybody in it hears of it, nobody of half of it."""

import json
from typing import Any

import pytest

from starling_common.settings import Clock
from starling_common.topics import ACCOUNT_ANSWERS, ACCOUNT_TALLIES, MEMBERSHIP
from starling_segmenter import accounts
from tests.unit.segmenter.segmenting import NOW_MICROS, MemorySegmenter, Seen

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


def test_everybody_enters_when_one_does_it_and_leaves_at_the_instant_it_is_too_long_ago() -> None:
    segmenter = three()
    assert segmenter.changes() == []
    segmenter.track("ada", "Buy", 2_000)
    assert sorted(segmenter.changes()) == [Seen(user, "team", "ENTERED", 1, 2_000, "EVENT") for user in ("ada", "bob", "eve")]
    segmenter.clock(60_000)
    assert sorted(segmenter.changes()) == [Seen(user, "team", "EXITED", 2, 3_000, "TIMER") for user in ("ada", "bob", "eve")]


def test_what_is_announced_says_what_the_other_did() -> None:
    segmenter = three()
    segmenter.track("ada", "Buy", 2_000, message_id="m-7", correlation_id="request-7")
    segmenter.deliver()
    told = {record["user_id"]: record for record in segmenter.records(MEMBERSHIP)}
    for user in ("ada", "bob", "eve"):
        assert told[user]["cause"] == {"kind": "EVENT", "message_id": "m-7", "event_name": "Buy"}
        assert told[user]["correlation_id"] == "request-7"


@pytest.mark.parametrize(("match", "expected"), [("all", {3}), ("any", {1, 2, 3}), ("none", {0})])
def test_any_all_and_none(match: str, expected: set[int]) -> None:
    segmenter = three(match, {"event": "Buy"})
    for count, user in enumerate(("ada", "bob", "eve")):
        segmenter.changes()
        assert (segmenter.members("team") == {"ada", "bob", "eve"}) is (count in expected)
        segmenter.track(user, "Buy", 2_000)
    segmenter.changes()
    assert (segmenter.members("team") == {"ada", "bob", "eve"}) is (3 in expected)


def test_whoever_has_no_account_does_not_match_and_neither_do_strangers() -> None:
    segmenter = three("none")
    joined(segmenter, "dan", group="other")
    segmenter.track("zoe", "Buy", 2_000)
    segmenter.changes()
    assert segmenter.members("team") == {"ada", "bob", "eve", "dan"}
    segmenter.track("dan", "Buy", 3_000)
    assert segmenter.changes() == [Seen("dan", "team", "EXITED", 2, 3_000, "EVENT")]


def test_whoever_goes_to_another_account_is_counted_there_and_never_in_between() -> None:
    segmenter = three("any", {"event": "Buy"})
    joined(segmenter, "dan", group="other")
    segmenter.track("ada", "Buy", 2_000)
    assert len(segmenter.changes()) == 3
    joined(segmenter, "bob", group="other", at_ms=3_000)
    assert segmenter.changes() == [Seen("bob", "team", "EXITED", 2, 3_000, "EVENT")]
    joined(segmenter, "ada", group="other", at_ms=4_000)
    assert sorted(segmenter.changes()) == [
        Seen("bob", "team", "ENTERED", 3, 4_000, "EVENT"),
        Seen("dan", "team", "ENTERED", 1, 4_000, "EVENT"),
        Seen("eve", "team", "EXITED", 2, 4_000, "EVENT"),
    ]
    joined(segmenter, "ada", group=None, at_ms=5_000)
    assert {seen[:3] for seen in segmenter.changes()} == {
        ("ada", "team", "EXITED"),
        ("bob", "team", "EXITED"),
        ("dan", "team", "EXITED"),
    }


def test_nothing_is_announced_before_the_account_has_answered() -> None:
    """Not even what would be true of somebody alone: the others may say otherwise."""
    segmenter = three("none", {"event": "Buy"})
    segmenter.track("ada", "Buy", 2_000)
    segmenter.changes()
    segmenter.delivers = False
    joined(segmenter, "zoe")
    segmenter.define("others", {"not": {"segment": "team"}})
    segmenter.define("quiet", account("none", {"event": "Look"}))
    assert [seen for seen in segmenter.changes() if seen.user == "zoe"] == []
    segmenter.delivers = True
    assert {seen[:3] for seen in segmenter.changes() if seen.user == "zoe"} == {
        ("zoe", "others", "ENTERED"),
        ("zoe", "quiet", "ENTERED"),
    }


def test_the_past_counts_and_what_a_definition_brings_about_says_so() -> None:
    segmenter = MemorySegmenter()
    joined(segmenter, "ada", "bob")
    segmenter.track("ada", "Buy", 2_000)
    segmenter.restart()
    segmenter.define("team", account("any", {"event": "Buy"}))
    assert sorted(segmenter.changes()) == [Seen(user, "team", "ENTERED", 1, 2_000, "DEFINITION") for user in ("ada", "bob")]
    segmenter.define("team", account("all", {"event": "Buy"}), version=2, action="REVISED")
    assert sorted(segmenter.changes()) == [Seen(user, "team", "EXITED", 2, 2_000, "DEFINITION") for user in ("ada", "bob")]
    segmenter.archive("team", version=2)
    segmenter.deliver()
    assert all(not isinstance(state, accounts.AccountState) for state in segmenter.task.states().values())


def test_a_segment_inside_that_gets_another_meaning_changes_all_at_once() -> None:
    segmenter = MemorySegmenter()
    joined(segmenter, "ada", "bob")
    segmenter.define("active", {"event": "Buy"})
    segmenter.define("team", account("any", {"segment": "active"}))
    segmenter.track("ada", "Buy", 2_000)
    segmenter.track("bob", "Look", 2_000)
    assert {seen[:3] for seen in segmenter.changes() if seen.segment == "team"} == {(u, "team", "ENTERED") for u in ("ada", "bob")}
    segmenter.define("active", {"event": "Look"}, version=2, action="REVISED")
    assert {seen.segment for seen in segmenter.changes()} == {"active"}
    segmenter.define("active", {"event": "Nothing"}, version=3, action="REVISED")
    assert {seen[:3] for seen in segmenter.changes() if seen.segment == "team"} == {(u, "team", "EXITED") for u in ("ada", "bob")}


def test_lists_and_traits_inside_and_segments_built_on_it() -> None:
    segmenter = three("any", {"any": [{"list": "vips"}, {"trait": "plan", "op": "eq", "value": "pro"}]})
    segmenter.define("rest", {"all": [{"not": {"segment": "team"}}, {"event": "Look"}]})
    segmenter.track("bob", "Look", 2_000)
    assert {seen[:3] for seen in segmenter.changes()} == {("bob", "rest", "ENTERED")}
    segmenter.listed("ada", "vips")
    assert {(*seen[:3], seen.cause) for seen in segmenter.changes()} == {
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
    assert sorted(segmenter.changes()) == [Seen(user, "team", "ENTERED", 1, 2_000, "DEFINITION") for user in ("ada", "bob", "eve")]


def test_only_those_hear_of_it_for_whom_it_makes_a_difference() -> None:
    segmenter = three("any", {"event": "Buy"})
    segmenter.delivers = False

    def told() -> list[str]:
        segmenter.records(ACCOUNT_TALLIES)
        for output in segmenter.task.take_outputs(ACCOUNT_ANSWERS):
            segmenter.task.feed(output.topic, output.key, output.value, output.headers)
        return sorted(record["user_id"] for record in segmenter.records(ACCOUNT_TALLIES))

    segmenter.track("ada", "Buy", 2_000)
    assert told() == ["bob", "eve"]
    segmenter.track("ada", "Buy", 3_000)
    assert segmenter.records(ACCOUNT_ANSWERS) == []
    segmenter.track("bob", "Buy", 4_000)  # for ada, any of the others now; for eve, all of them
    assert told() == ["ada", "eve"]


def test_an_event_of_a_user_without_account_or_without_such_a_segment_says_nothing_to_anybody() -> None:
    segmenter = MemorySegmenter()
    segmenter.delivers = False
    joined(segmenter, "ada")
    segmenter.track("ada", "Buy", 2_000)
    segmenter.define("team", account("any", {"trait": "plan", "op": "eq", "value": "pro"}))
    segmenter.records(ACCOUNT_ANSWERS)
    segmenter.track("zoe", "Buy", 3_000)
    segmenter.track("ada", "Buy", 3_000)
    assert segmenter.records(ACCOUNT_ANSWERS) == []


def test_the_news_of_an_account_that_was_left_meanwhile_is_not_heard() -> None:
    segmenter = three("any", {"event": "Buy"})
    segmenter.delivers = False
    segmenter.track("ada", "Buy", 2_000)
    joined(segmenter, "bob", group="other", at_ms=2_500)
    segmenter.delivers = True
    assert {seen[:3] for seen in segmenter.changes()} == {("ada", "team", "ENTERED"), ("eve", "team", "ENTERED")}


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
    assert sorted(segmenter.changes()) == [Seen(user, "team", "EXITED", 2, 3_000, "TIMER") for user in ("ada", "bob", "eve")]


def test_an_account_that_is_too_large_changes_nothing_any_more(monkeypatch: pytest.MonkeyPatch) -> None:
    segmenter = three("any", {"event": "Buy"})
    monkeypatch.setattr(accounts, "_MAX_BYTES", 80)
    joined(segmenter, "zoe")
    segmenter.track("ada", "Buy", 2_000)
    joined(segmenter, "max")
    assert [seen.user for seen in segmenter.changes()] == ["ada"]  # it knows of itself, and is not told of others
    assert [(refusal.code, refusal.record.key) for refusal in segmenter.task.refusals] == [("account_too_large", b"default/acme")]


def test_under_the_wall_clock_the_others_enter_at_the_same_instant() -> None:
    segmenter = MemorySegmenter(Clock.WALL)
    segmenter.define("team", account("any"))
    joined(segmenter, "ada", "bob", at_ms=NOW_MICROS // 1000)
    segmenter.deliver()
    segmenter.track("ada", "Buy", NOW_MICROS // 1000)
    instants = {seen.effective_at for seen in segmenter.changes()}
    assert len(instants) == 1


def test_what_is_built_on_what_is_not_known_yet_waits_too() -> None:
    segmenter = MemorySegmenter()
    joined(segmenter, "ada", "bob")
    segmenter.track("ada", "Buy", 2_000)
    loners = account("any", {"not": {"segment": "team"}})
    for key, where in (("team", account("any", {"event": "Buy"})), ("loners", loners)):
        segmenter.record_definition(key, json.dumps({"key": key, "name": key, "where": where}))
    segmenter.task.settle()
    assert {seen[:4] for seen in segmenter.changes()} == {(user, "team", "ENTERED", 1) for user in ("ada", "bob")}
