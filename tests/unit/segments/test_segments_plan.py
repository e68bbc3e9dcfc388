"""Plan and evaluator: shared leaf nodes, order of segments, routes, history, explain, panes and serialisation."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import msgspec
import pytest

from starling_segments import (
    AccountTally,
    Evaluator,
    InvalidPlan,
    Known,
    Membership,
    UnknownStateFormat,
    UserState,
    compile_plan,
    decode_state,
    encode_state,
    parse_segment,
)  # fmt: skip
from starling_segments.aggregates.lifetime import EXACT, Tally
from starling_segments.aggregates.sliding import SlidingCount, SlidingSum
from starling_segments.engine.serialisation import PackedLeaves

DAY = 86_400_000
KEYS = Known({key: frozenset() for key in "abcdefgh"})


def evaluator_of(**conditions: dict[str, Any]) -> Evaluator:
    return Evaluator(
        compile_plan([parse_segment({"key": key, "name": key, "where": where}, KEYS) for key, where in conditions.items()])
    )


def event(name: str, time_ms: int, **properties: Any) -> Any:
    return SimpleNamespace(name=name, time_ms=time_ms, properties=properties, context={})


def count(op: str, value: int, within: str = "30d") -> dict[str, Any]:
    return {"event": "Buy", "op": op, "value": value, "within": within}


def test_leaves_that_differ_in_threshold_only_are_one() -> None:
    assert len(evaluator_of(a=count("gte", 3), b=count("lt", 10)).plan.leaves) == 1


def test_leaves_that_differ_in_window_event_where_or_measure_are_others() -> None:
    where = {"property": "k", "op": "eq", "value": 1}
    conditions: list[dict[str, Any]] = [
        count("gte", 3),
        count("gte", 3, "31d"),
        {"event": "Buy"},
        {"event": "Buy", "where": where},
        {"event": "Buy", "where": {**where, "value": True}},
        {"event": "Buy", "measure": {"sum": "v"}, "op": "gte", "value": 3},
        {"event": "Buy", "measure": {"sum": "w"}, "op": "gte", "value": 3},
        {"first_time": {"event": "Buy"}, "within": "1d"},
    ]
    assert len(evaluator_of(**dict(zip("abcdefgh", conditions, strict=True))).plan.leaves) == len(conditions)


def test_an_identity_is_the_same_in_every_process() -> None:
    """Stored accumulators are keyed by the id: a changed id would lose all of them."""
    where = {"all": [{"property": "k", "op": "eq", "value": "x"}, {"property": "d", "op": "on", "value": "2026-03-01"}]}
    assert evaluator_of(a={"event": "Buy", "where": where, "within": "30d"}).plan.leaves == ("OWBaLPi2",)


def test_order_inside_a_group_does_not_make_another_leaf() -> None:
    one, two = {"property": "k", "op": "eq", "value": 1}, {"property": "v", "op": "exists"}
    both = evaluator_of(a={"event": "Buy", "where": {"all": [one, two]}}, b={"event": "Buy", "where": {"all": [two, one]}})
    assert len(both.plan.leaves) == 1


def test_dates_of_another_timezone_are_another_leaf() -> None:
    where = {"event": "Buy", "where": {"property": "d", "op": "on", "value": "2026-03-01"}}
    segments = [
        parse_segment({"key": key, "name": key, "timezone": zone, "where": where}, KEYS)
        for key, zone in (("a", "UTC"), ("b", "Asia/Tokyo"))
    ]
    assert len(compile_plan(segments).leaves) == 2


def test_segments_that_do_not_fit_together_make_no_plan() -> None:
    with pytest.raises(InvalidPlan, match="a → b → a"):
        evaluator_of(a={"segment": "b"}, b={"segment": "a"})
    with pytest.raises(InvalidPlan, match="'a' uses 'b'"):
        evaluator_of(a={"segment": "b"})


def test_touches() -> None:
    evaluator = evaluator_of(a={"event": "Buy"}, b={"event": "Email *"})
    assert [evaluator.plan.touches(name) for name in ("Buy", "Email Opened", "Email", "Look")] == [True, True, False, False]


def test_an_event_finds_its_leaves_by_the_text_of_a_property() -> None:
    def about(text: str) -> dict[str, Any]:
        where = [{"property": "k", "op": "eq", "value": text}, {"property": "v", "op": "gt", "value": 0}]
        return {"event": "Buy", "where": {"all": where}}

    either = {"event": "Buy", "where": {"property": "k", "op": "in", "value": ["x", "z"]}}
    evaluator = evaluator_of(a=about("x"), b=about("y"), c=either, d={"event": "Buy"})
    routes = evaluator.plan.routes("Buy")
    assert [len(routes.of({"k": text})) for text in ("x", "y", "z", "other", 1, None)] == [3, 2, 2, 1, 1, 1]
    state = UserState()
    entered = [change.segment_key for change in evaluator.on_event(state, event("Buy", DAY, k="x", v=0), DAY)]
    assert sorted(entered) == ["c", "d"]
    entered = [change.segment_key for change in evaluator.on_event(state, event("Buy", DAY, k="x", v=1), DAY)]
    assert entered == ["a"]


def test_leaves_of_today_and_yesterday_are_one_and_so_are_percentiles_of_one_rank() -> None:
    def when(name: str) -> dict[str, Any]:
        return {"event": "Buy", "calendar": name}

    assert len(evaluator_of(a=when("today"), b=when("yesterday"), c=when("this_week"), d=when("last_week")).plan.leaves) == 2
    rank = {"event": "Buy", "measure": {"percentile": "v", "q": 0.5}, "op": "gt", "value": 1}
    assert len(evaluator_of(a=rank, b={**rank, "value": 2}, c={**rank, "measure": {"percentile": "v", "q": 0.9}}).plan.leaves) == 2
    first = {"event": "Buy", "measure": "first_time", "op": "before", "value": "2026-01-01"}
    assert len(evaluator_of(a=first, b={"first_time": {"event": "Buy"}}).plan.leaves) == 1
    held = {"trait": "p", "op": "exists", "held_for": "1d"}
    assert (
        len(
            evaluator_of(a=held, b={**held, "held_for": "2d"}, c={"trait": "p", "op": "exists", "held_less_than": "3d"}).plan.leaves
        )
        == 1
    )


def test_properties_are_not_read_when_no_leaf_needs_them() -> None:
    class Sealed:
        name, time_ms = "Buy", DAY

        @property
        def properties(self) -> dict[str, Any]:
            raise AssertionError("read")

        context = properties

    state = UserState()
    evaluator = evaluator_of(a=count("gte", 1), b={"event": "Look", "where": {"property": "v", "op": "exists"}})
    assert [change.segment_key for change in evaluator.on_event(state, Sealed(), DAY)] == ["a"]


def test_history_goes_to_the_leaves_asked_for_and_nowhere_else() -> None:
    old, new = evaluator_of(a=count("gte", 2)), evaluator_of(a=count("gte", 2), b=count("gte", 2, "60d"))
    state = UserState()
    past = [event("Buy", day * DAY) for day in (1, 35)]
    for seen in past:
        old.on_event(state, seen, seen.time_ms)
    fresh = set(new.plan.leaves) - set(old.plan.leaves)
    history, remembered = Evaluator(new.plan.restricted_to(fresh)), UserState()
    for seen in past:
        history.on_event(remembered, seen, seen.time_ms)
    assert set(remembered.accumulators) == fresh
    state.accumulators.take_over(remembered.accumulators)
    changes = new.on_definition(state, 40 * DAY, old)
    assert [(change.segment_key, change.status, change.cause, change.effective_at) for change in changes] == [
        ("b", "ENTERED", "DEFINITION", 40 * DAY)
    ]
    assert new.next_due(state) == 61 * DAY


def test_a_state_of_history_alone_changes_only_present_memberships() -> None:
    evaluator, state = evaluator_of(a=count("gte", 1)), UserState()
    history = Evaluator(evaluator.plan.restricted_to(evaluator.plan.leaves))
    for day in (1, 50, 99):
        history.on_event(state, event("Buy", day * DAY), day * DAY)
    changes = evaluator.on_definition(state, 100 * DAY, None)
    assert [(change.status, change.effective_at) for change in changes] == [("ENTERED", 100 * DAY)]
    assert evaluator.next_due(state) == 129 * DAY


def test_archiving_emits_the_exit_once() -> None:
    evaluator, state = evaluator_of(a={"everyone": True}, b={"event": "Buy"}), UserState()
    evaluator.on_event(state, event("Look", DAY), DAY)
    empty = evaluator_of()
    exits = empty.on_definition(state, 2 * DAY, evaluator)
    assert [(change.segment_key, change.status, change.sequence, change.cause) for change in exits] == [
        ("a", "EXITED", 2, "DEFINITION")
    ]
    assert empty.on_definition(state, 3 * DAY, empty) == []


def test_an_unknown_user_is_a_member_of_no_segment() -> None:
    evaluator, state = evaluator_of(a={"everyone": True}), UserState()
    assert evaluator.on_definition(state, DAY, None) == []
    assert evaluator.on_timer(state, 2 * DAY) == []


def test_time_does_not_go_back() -> None:
    evaluator, state = evaluator_of(a=count("gte", 1)), UserState()
    evaluator.on_event(state, event("Look", 5 * DAY), 5 * DAY)
    changes = evaluator.on_event(state, event("Buy", 4 * DAY), 4 * DAY)
    assert [change.effective_at for change in changes] == [5 * DAY]


def test_a_timer_call_with_nothing_due_leaves_the_state_as_it_is() -> None:
    evaluator, state = evaluator_of(a=count("gte", 1)), UserState()
    evaluator.on_event(state, event("Buy", DAY), DAY)
    before = encode_state(state)
    assert evaluator.on_timer(state, 2 * DAY) == []
    assert encode_state(state) == before


def test_timers_are_set_for_what_can_change_only() -> None:
    """Five matches, three required: the third-last determines the exit, not the first."""
    evaluator, state = evaluator_of(a=count("gte", 3)), UserState()
    for day in range(1, 6):
        evaluator.on_event(state, event("Buy", day * DAY), day * DAY)
    assert evaluator.next_due(state) == 33 * DAY


def test_explain() -> None:
    evaluator = evaluator_of(
        a={"all": [count("gte", 2), {"not": {"segment": "b"}}]}, b={"trait": "plan", "op": "eq", "value": "pro"}
    )
    state = UserState()
    evaluator.on_profile(state, {"plan": "free"}, [], 0)
    for day in (1, 2):
        evaluator.on_event(state, event("Buy", day * DAY), day * DAY)
    before = encode_state(state)
    assert evaluator.explain(state, "a", 3 * DAY) == {
        "member": True,
        "as_of": 3 * DAY,
        "tree": {
            "node": "/where", "kind": "all", "truth": True, "observed": None, "next_change_at": 31 * DAY,
            "children": [
                {"node": "/where/all/0", "kind": "event", "truth": True, "observed": 2, "next_change_at": 31 * DAY, "children": []},
                {
                    "node": "/where/all/1", "kind": "not", "truth": True, "observed": None, "next_change_at": None,
                    "children": [
                        {
                            "node": "/where/all/1/not", "kind": "segment", "truth": False, "observed": "b", "next_change_at": None,
                            "children": [],
                        }
                    ],
                },
            ],
        },
    }  # fmt: skip
    assert evaluator.explain(state, "a", 31 * DAY)["member"] is False
    assert encode_state(state) == before
    with pytest.raises(KeyError):
        evaluator.explain(state, "c", 3 * DAY)


@pytest.mark.parametrize("kind", [SlidingCount, SlidingSum])
def test_above_256_matches_a_window_is_late_by_less_than_a_pane(kind: type[SlidingCount | SlidingSum]) -> None:
    window, kept, pane = 256_000, kind(), 256_000 // EXACT
    times = [i * 97 for i in range(2_000)]
    for time in times:
        kept.add(time, 1.0, pane)
    assert len(kept.times) == EXACT
    assert 0 < len(kept.panes) <= EXACT
    for now in range(times[-1], times[-1] + window + 2 * pane, 333):
        kept.forget(now - window)
        exact = sum(now - window < time for time in times)
        at_most = sum(now - window - pane < time for time in times)
        assert exact <= (kept.value() or 0) <= at_most
        if exact <= EXACT:
            assert (kept.value() or 0) == exact
    assert not kept.value()


def test_a_late_match_among_panes_counts() -> None:
    kept = SlidingCount()
    for time in range(0, 600_000, 1_000):
        kept.add(time, None, 4_000)
    kept.add(1_500, None, 4_000)
    kept.add(599_500, None, 4_000)
    assert kept.value() == 602
    assert kept.times == sorted(kept.times)
    assert kept.panes == sorted(kept.panes)


def test_bytes_of_another_format_are_refused() -> None:
    data = encode_state(UserState())
    assert data[0] == 8
    for broken in (b"", b"\x09" + data[1:], data[:-1], data + b"x"):
        with pytest.raises(UnknownStateFormat):
            decode_state(broken)


def test_a_state_of_format_1_is_read() -> None:
    """Bytes of the first release: traits in MessagePack, a leaf node with one match, a membership and its timer."""
    evaluator = evaluator_of(a={"event": "Buy"})
    (leaf,) = evaluator.plan.leaves
    stored = [True, 1_000, {"plan": "pro", "n": 1.5}, ["a1"], {leaf: [1, 1]}, {"a": [True, 1, 1, 1_000]}, {}, []]
    state = decode_state(b"\x01" + msgspec.msgpack.encode(stored))
    assert state.traits == {"plan": "pro", "n": 1.5}
    assert (state.known, state.clock, state.anonymous_ids) == (True, 1_000, ["a1"])
    assert state.accumulators.get(leaf) == Tally(1)
    assert state.memberships["a"].member
    assert decode_state(encode_state(state)).traits == state.traits


def test_what_no_event_touched_passes_through_as_bytes() -> None:
    evaluator = evaluator_of(a={"event": "Buy"}, b={"event": "Look"})
    state = UserState()
    evaluator.on_event(state, event("Buy", 1_000), 1_000)
    evaluator.on_event(state, event("Look", 2_000), 2_000)
    again = decode_state(encode_state(state))
    ids, lengths, kept = again.accumulators.packed()
    again.accumulators = PackedLeaves(ids, lengths, b"\xc1\xc1" + kept[2:])  # bytes of the other accumulator that cannot be decoded
    evaluator.on_event(again, event("Look", 3_000), 3_000)
    assert again.accumulators.packed()[2].startswith(b"\xc1\xc1")
    assert decode_state(encode_state(again)).accumulators.get(evaluator.plan.leaves[1]) == Tally(2)


def test_256_matches_are_kept_one_by_one() -> None:
    kept = SlidingCount()
    for time in range(256):
        kept.add(time, None, 1)
    assert (len(kept.times), kept.panes) == (256, [])
    kept.add(256, None, 1)
    assert (len(kept.times), kept.panes) == (256, [(0, 1)])


FIRST_SEEN: dict[str, dict[str, Any]] = {
    "a": {"everyone": True},
    "b": {"event": "Buy", "within": "30d"},
    "c": {"trait": "plan", "op": "exists"},
    "d": {"trait": "plan", "op": "missing", "held_for": "1d"},
    "e": {"trait": "plan", "op": "missing", "held_less_than": "1d"},
    "f": {"bucket": {"salt": "s", "from": 0, "to": 50}},
    "g": {"list": "vips"},
    "h": {"account": {"match": "none", "where": {"event": "Buy"}}},
    "i": {"regularly": {"event": "Buy"}, "every": "1d", "at_least": 1, "of": 2},
    "j": {"all": [{"segment": "a"}, {"not": {"segment": "b"}}]},
}


@pytest.mark.parametrize("user", ["user-1", "user-3"])
@pytest.mark.parametrize(
    "meet",
    [
        lambda evaluator, state: evaluator.on_event(state, event("Buy", 5 * DAY), 5 * DAY),
        lambda evaluator, state: evaluator.on_event(state, event("Look", 5 * DAY), 5 * DAY),
        lambda evaluator, state: evaluator.on_profile(state, {}, [], 5 * DAY),
        lambda evaluator, state: evaluator.on_profile(state, {"plan": "pro"}, [], 5 * DAY),
        lambda evaluator, state: evaluator.on_list(state, "vips", True, 5 * DAY),
        lambda evaluator, state: evaluator.on_account(state, AccountTally("acme"), 5 * DAY),
    ],
)
def test_a_new_user_enters_the_same_segments_as_after_a_full_evaluation(meet: Any, user: str) -> None:
    known = Known({key: frozenset() for key in FIRST_SEEN}, lists=frozenset({"vips"}), accounts=True)
    conditions = FIRST_SEEN | {f"not-{key}": {"not": where} for key, where in FIRST_SEEN.items()}
    evaluator = Evaluator(
        compile_plan([parse_segment({"key": key, "name": key, "where": where}, known) for key, where in conditions.items()])
    )
    new_user, listed_user = UserState(user_id=user), UserState(user_id=user, lists=["another"])
    assert meet(evaluator, new_user) == meet(evaluator, listed_user)
    assert new_user.memberships == listed_user.memberships
    assert {key for key in conditions if new_user.memberships.get(key, Membership()).member} == {
        compiled.segment.key for compiled in evaluator.plan.segments if compiled.holds(new_user, 5 * DAY)
    }


def test_of_whom_something_was_kept_before_they_were_seen_all_segments_are_asked() -> None:
    evaluator = Evaluator(
        compile_plan([parse_segment({"key": "a", "name": "a", "where": {"list": "vips"}}, Known(lists=frozenset({"vips"})))])
    )
    state = UserState(user_id="user-1", lists=["vips"])
    (entered,) = evaluator.on_event(state, event("Look", 5 * DAY), 5 * DAY)
    assert (entered.segment_key, entered.status) == ("a", "ENTERED")
