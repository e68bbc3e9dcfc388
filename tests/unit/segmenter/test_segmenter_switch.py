"""Changes of definitions: history first, the net difference is emitted, an interrupted switch can be repeated."""

import json
from collections.abc import Iterable
from types import SimpleNamespace
from typing import cast

import pytest
from msgspec.structs import replace

from starling_common.failpoints.raising import Raising
from starling_common.kafka.topics import PROGRESS
from starling_common.records.dead_letters import SWITCH_ORIGIN
from starling_common.settings import Clock
from starling_common.time.instants import LATEST_MS
from starling_rules.definitions import Definitions
from starling_rules.history import PAST
from starling_segmenter.handlers import HANDLERS
from starling_segmenter.records.progress import ProgressReporter
from starling_segmenter.state.states import State
from starling_segmenter.switching.definition_log import DefinitionLog, DefinitionsLost
from starling_segments import LEAVES, Known, compile_plan, encode_state, parse_segment
from starling_stream.model.processor import Unit
from starling_stream.testing import MemoryTask
from tests.unit.segmenter.segmenting import CODECS, NOW_MICROS, FeedEntry, MemorySegmenter

DAY_MS = 86_400_000
BUYERS = {"event": "Order Completed"}
TWICE = {"event": "Order Completed", "op": "gte", "value": 2}
TODAY = {"event": "Order Completed", "within": "1d"}


def _bought(segmenter: MemorySegmenter, *orders: tuple[str, int]) -> None:
    for user, at_ms in orders:
        segmenter.track(user, "Order Completed", at_ms, {"revenue": 10})


def _set_plan(segmenter: MemorySegmenter, name: bytes) -> None:
    fold = segmenter.task._fold
    fold.reset(replace(fold.meta, plan=name))


def test_a_new_segment_counts_what_happened_before_it() -> None:
    segmenter = MemorySegmenter()
    _bought(segmenter, ("u1", 1000), ("u2", 2000), ("u1", 3000))
    segmenter.define("twice", TWICE)
    segmenter.define("spent", {"event": "Order Completed", "measure": {"sum": "revenue"}, "op": "gte", "value": 20})
    assert segmenter.changes() == [
        FeedEntry("u1", "twice", "ENTERED", 1, 3000, "DEFINITION"),
        FeedEntry("u1", "spent", "ENTERED", 1, 3000, "DEFINITION"),
    ]
    _bought(segmenter, ("u2", 4000))
    assert [entry[:4] for entry in segmenter.changes()] == [("u2", "twice", "ENTERED", 1), ("u2", "spent", "ENTERED", 1)]


@pytest.mark.parametrize("where", [TWICE, {**TWICE, "within": "1d"}], ids=["events", "all topics"])
def test_a_record_that_makes_the_fold_raise_is_left_out_of_the_history_alone(where: object) -> None:
    segmenter = MemorySegmenter(armed=Raising("fold", b"default/u1 events.behaviour 1", ValueError))
    _bought(segmenter, ("u1", 1000), ("u1", 2000), ("u1", 3000), ("u2", 4000), ("u2", 5000))
    segmenter.define("twice", where)
    assert segmenter.members("twice") == {"u1", "u2"}
    [letter] = segmenter.task.refusals
    assert (letter.code, letter.record.topic, letter.record.key) == ("poison", SWITCH_ORIGIN, b"default/u1")
    assert letter.message.startswith("events.behaviour 0@1 is left out of the history of new segments: ValueError: failpoint fold")
    segmenter.define("thrice", {"event": "Order Completed", "op": "gte", "value": 3})
    assert segmenter.members("thrice") == set()


def test_a_definition_concerns_the_users_of_its_own_workspace() -> None:
    segmenter = MemorySegmenter()
    segmenter.define("buyers", BUYERS)
    _bought(segmenter, ("u1", 1000))
    segmenter.workspace = "other"
    _bought(segmenter, ("u1", 1000))
    processor = segmenter.task.service.processor
    segmenter.record_definition("buyers", json.dumps({"key": "buyers", "name": "Buyers", "where": BUYERS}))
    processor.adopt_plan()
    processor.before_switch(segmenter.task.history())
    assert processor.switched_prefixes(segmenter.task.partition) == [b"other/"]
    segmenter.task.settle()
    assert [(record["workspace"], record["user_id"]) for record in segmenter.records()] == [("default", "u1"), ("other", "u1")]


def test_a_new_window_ends_for_events_before_it() -> None:
    segmenter = MemorySegmenter()
    _bought(segmenter, ("u1", 1000))
    segmenter.define("today", TODAY)
    segmenter.clock(5 * DAY_MS)
    assert segmenter.changes() == [
        FeedEntry("u1", "today", "ENTERED", 1, 1000, "DEFINITION"),
        FeedEntry("u1", "today", "EXITED", 2, DAY_MS + 1000, "TIMER"),
    ]


def test_earlier_events_outside_the_window_do_not_count() -> None:
    segmenter = MemorySegmenter()
    _bought(segmenter, ("u1", 1000), ("u2", 3 * DAY_MS))
    segmenter.define("today", TODAY)
    assert segmenter.changes() == [FeedEntry("u2", "today", "ENTERED", 1, 3 * DAY_MS, "DEFINITION")]


def test_a_future_event_is_stored_once_however_often_the_switch_is_repeated() -> None:
    segmenter = MemorySegmenter(Clock.WALL)
    now_ms = NOW_MICROS // 1000
    _bought(segmenter, ("u1", now_ms + 60_000), ("u1", now_ms - 1000))
    segmenter.define("today-twice", {**TWICE, "within": "1d"})
    _set_plan(segmenter, Definitions().name)
    segmenter.task.settle()
    assert segmenter.changes() == []
    segmenter.task.advance(now_ms + 60_000)
    assert segmenter.changes() == [FeedEntry("u1", "today-twice", "ENTERED", 1, now_ms + 60_000, "TIMER")]
    state = segmenter.user_states()[b"default/u1"]
    assert state.waiting == []
    (kept,) = state.accumulators.by_leaf().values()
    assert kept is not None
    assert kept.value() == 2


def test_members_of_both_versions_have_no_changes() -> None:
    segmenter = MemorySegmenter()
    segmenter.define("keen", BUYERS)
    _bought(segmenter, ("u1", 1000), ("u1", 2000), ("u2", 3000))
    segmenter.changes()
    segmenter.define("keen", TWICE, version=2, action="REVISED")
    assert segmenter.changes() == [FeedEntry("u2", "keen", "EXITED", 2, 3000, "DEFINITION")]
    _bought(segmenter, ("u2", 4000))
    (entered,) = segmenter.records()
    assert (entered["sequence"], entered["segment_version"]) == (3, 2)


def test_a_task_that_waits_for_its_switch_keeps_the_rules_before() -> None:
    segmenter = MemorySegmenter()
    segmenter.define("keen", BUYERS)
    waiting = segmenter.task
    segmenter.task = MemoryTask(waiting.service, 1)
    definition = json.dumps({"key": "keen", "name": "Keen", "where": TWICE})
    segmenter.record_definition("keen", definition, version=2, action="REVISED")
    _bought(segmenter, ("u1", 1000))
    assert segmenter.changes() == []

    processor = waiting.service.processor
    assert processor.has_plan(waiting.plan)
    settle, waiting.settle = waiting.settle, lambda: None  # type: ignore[method-assign]
    segmenter.task = waiting
    _bought(segmenter, ("u2", 1000))
    assert [(record["user_id"], record["status"], record["segment_version"]) for record in segmenter.records()] == [
        ("u2", "ENTERED", 1)
    ]
    assert [record["definitions"] for record in segmenter.records(PROGRESS)][-1] == {"default/keen": 1}
    settle()
    assert segmenter.changes() == [FeedEntry("u2", "keen", "EXITED", 2, 1000, "DEFINITION")]
    segmenter.record_definition("keen", definition, version=3, action="REVISED")
    processor.adopt_plan()
    assert [processor.has_plan(plan) for plan in (waiting.plan, processor.adopt_plan(), b"")] == [True, True, False]


def test_a_new_name_alone_switches_nothing_and_is_in_the_next_record() -> None:
    segmenter = MemorySegmenter()
    segmenter.define("keen", BUYERS, name="Keen")
    plan = segmenter.task.plan
    segmenter.define("keen", BUYERS, name="Very keen", action="REVISED")
    assert segmenter.task.plan == plan
    _bought(segmenter, ("u1", 1000))
    assert [record["segment_name"] for record in segmenter.records()] == ["Very keen"]


def test_archiving_emits_an_exit_for_every_member_with_the_requests_id() -> None:
    segmenter = MemorySegmenter()
    segmenter.define("keen", BUYERS, name="Keen")
    _bought(segmenter, ("u1", 1000), ("u2", 2000))
    segmenter.changes()
    segmenter.archive("keen")
    exits = segmenter.records()
    assert [(exit_["user_id"], exit_["status"], exit_["sequence"], exit_["cause"]["kind"]) for exit_ in exits] == [
        ("u1", "EXITED", 2, "DEFINITION"),
        ("u2", "EXITED", 2, "DEFINITION"),
    ]
    assert {exit_["correlation_id"] for exit_ in exits} == {"definition-keen-1-ARCHIVED"}
    assert {exit_["segment_name"] for exit_ in exits} == {"Keen"}
    assert [exit_["memberships"] for exit_ in exits] == [[], []]
    assert segmenter.members("keen") == set()


def test_timers_of_the_old_rules_that_fell_due_before_the_switch_fire_first() -> None:
    segmenter = MemorySegmenter()
    segmenter.define("today", TODAY)
    _bought(segmenter, ("u1", 1000))
    segmenter.changes()
    # As after a kill: stream time was committed, and the timers that it made due have not fired.
    fold = segmenter.task._fold
    fold.reset(replace(fold.meta, stream_time_ms=3 * DAY_MS))
    segmenter.define("today", BUYERS, version=2, action="REVISED")
    assert segmenter.changes() == [
        FeedEntry("u1", "today", "EXITED", 2, DAY_MS + 1000, "TIMER"),
        FeedEntry("u1", "today", "ENTERED", 3, 3 * DAY_MS, "DEFINITION"),
    ]


def test_progress_names_the_versions_in_force_after_a_switch_and_the_clocks_instant() -> None:
    segmenter = MemorySegmenter()
    _bought(segmenter, ("u1", 1000))
    segmenter.records(PROGRESS)
    segmenter.define("keen", BUYERS, version=4)
    segmenter.clock(DAY_MS)
    reports = [(record["partition"], record["stream_time"], record["definitions"]) for record in segmenter.records(PROGRESS)]
    assert reports == [(0, 1000, {"default/keen": 4}), (0, DAY_MS, {"default/keen": 4})]


def test_under_the_wall_clock_a_partition_reports_about_once_a_second() -> None:
    reported: list[tuple[int, int]] = []
    now_ms = [0]
    reporter = ProgressReporter(CODECS[PROGRESS], Clock.WALL, lambda: now_ms[0] * 1000)

    def at(wall_ms: int, partition: int, stream_time_ms: int) -> None:
        now_ms[0] = wall_ms
        unit = SimpleNamespace(partition=partition, emit=lambda *record: reported.append((partition, record[3] // 1000)))
        reporter.report_if_due(stream_time_ms, {}, cast("Unit[State]", unit))

    at(10_000, partition=0, stream_time_ms=5000)
    at(10_999, partition=0, stream_time_ms=5500)
    at(60_000, partition=0, stream_time_ms=5000)
    at(11_000, partition=0, stream_time_ms=5500)
    at(10_001, partition=1, stream_time_ms=5500)
    assert reported == [(0, 10_000), (0, 11_000), (1, 10_001)]


def test_the_handlers_process_records_of_one_instant_in_the_order_of_history() -> None:
    assert tuple(HANDLERS)[: len(PAST)] == PAST


def test_an_interrupted_switch_is_repeated_with_the_same_result() -> None:
    segmenter, interrupted = MemorySegmenter(), MemorySegmenter()
    for each in (segmenter, interrupted):
        _bought(each, ("u1", 1000), ("u1", 2000), ("u2", 3000))
        each.define("twice", TWICE)
    committed = segmenter.user_states()
    # As a task that committed slices of a switch and was killed before the last: the rows are new, the plan is not.
    _set_plan(interrupted, Definitions().name)
    interrupted.changes()
    interrupted.restart()
    interrupted.task.settle()
    assert interrupted.changes() == []
    assert interrupted.task.states() == committed
    assert interrupted.task.plan == segmenter.task.plan


def test_after_an_unknown_plan_all_history_is_folded_again() -> None:
    segmenter = MemorySegmenter()
    segmenter.define("twice", TWICE)
    _bought(segmenter, ("u1", 1000), ("u1", 2000), ("u2", 3000))
    segmenter.changes()
    members, kept = segmenter.members("twice"), [state.accumulators for state in segmenter.user_states().values()]
    _set_plan(segmenter, b"of another life")
    segmenter.task.settle()
    assert segmenter.changes() == []
    assert segmenter.members("twice") == members == {"u1"}
    assert [state.accumulators for state in segmenter.user_states().values()] == kept


def _run_a_release_with_other_leaves(segmenter: MemorySegmenter, monkeypatch: pytest.MonkeyPatch, renamed: Iterable[str]) -> None:
    """Give the leaf nodes other ids in the states, as an earlier release would; remove all but the last two past records."""
    rows = segmenter.task._rows.stored
    for key, state in segmenter.user_states().items():
        for leaf in renamed:
            if leaf in state.accumulators:
                state.accumulators.put(leaf[::-1], state.accumulators.get(leaf))
                state.accumulators.drop(leaf)
        rows[key] = rows[key][:16] + encode_state(state)
    processed = segmenter.task._processed
    monkeypatch.setattr("starling_rules.definitions.LEAVES", LEAVES + 1)
    records, segmenter.log = segmenter.log._records, DefinitionLog()
    for record in records:
        segmenter.log.append(record)
    segmenter.restart()
    segmenter.task._processed = processed[-2:]


def test_a_release_with_other_leaf_ids_folds_history_into_those_that_states_lack(monkeypatch: pytest.MonkeyPatch) -> None:
    segmenter = MemorySegmenter()
    segmenter.define("twice", TWICE)
    segmenter.define("today", TODAY)
    ever, today = (leaf_of(where) for where in (TWICE, TODAY))
    _bought(segmenter, ("u1", 1000), ("u1", 2000), ("u2", 3000), ("u1", 4000), ("u2", 5000))
    segmenter.changes()
    plan, members = segmenter.task.plan, segmenter.members("today")
    _run_a_release_with_other_leaves(segmenter, monkeypatch, [today])
    segmenter.task.settle()
    assert segmenter.task.plan.startswith(plan)
    assert segmenter.task.plan != plan
    assert segmenter.changes() == []
    assert segmenter.members("today") == members == {"u1", "u2"}
    kept = {key.decode()[-2:]: state.accumulators.by_leaf() for key, state in segmenter.user_states().items()}
    assert [kept[user][ever].value() for user in ("u1", "u2")] == [3, 2]  # more than the topics still contain
    assert [kept[user][today].times for user in ("u1", "u2")] == [[4000], [5000]]
    assert all(set(leaves) == {ever, today} for leaves in kept.values())
    segmenter.clock(2 * DAY_MS)
    assert [entry[:4] for entry in segmenter.changes()] == [("u1", "today", "EXITED", 2), ("u2", "today", "EXITED", 2)]


def test_an_interrupted_switch_after_a_release_is_repeated_with_the_same_result(monkeypatch: pytest.MonkeyPatch) -> None:
    segmenter = MemorySegmenter()
    segmenter.define("twice", TWICE)
    _bought(segmenter, ("u1", 1000), ("u1", 2000), ("u1", 3000))
    before = segmenter.task.plan
    _run_a_release_with_other_leaves(segmenter, monkeypatch, [leaf_of(TWICE)])
    segmenter.task.settle()
    committed, after = segmenter.user_states(), segmenter.task.plan
    _set_plan(segmenter, before)
    segmenter.task.settle()
    assert (segmenter.user_states(), segmenter.task.plan) == (committed, after)
    _bought(segmenter, ("u1", 4000))
    (state,) = segmenter.user_states().values()
    assert state.accumulators.get(leaf_of(TWICE)).value() == 3  # the two in the topic, and one more


def leaf_of(where: object) -> str:
    (leaf,) = compile_plan([parse_segment({"key": "s", "name": "s", "where": where}, Known())]).leaves
    return leaf


def test_a_refused_event_is_no_history() -> None:
    segmenter = MemorySegmenter()
    segmenter.define("shoes", {"event": "Viewed", "where": {"property": "kind", "op": "eq", "value": "shoes"}})
    segmenter.track("u1", "Viewed", 1000, "{")
    segmenter.track("u1", "Viewed", 2000, {"kind": "shoes"})
    segmenter.task.feed("events.behaviour", b"default/u1", b"broken")
    segmenter.define("views", {"event": "Viewed", "op": "gte", "value": 2})
    assert "u1" not in segmenter.members("views")
    segmenter.track("u1", "Viewed", 3000, {})
    assert "u1" in segmenter.members("views")


def test_after_an_invalid_definition_the_last_valid_one_stays_in_force() -> None:
    segmenter = MemorySegmenter()
    segmenter.define("keen", BUYERS)
    segmenter.define("keen", {"event": "Order Completed", "op": "of_the_future"}, version=2, action="REVISED")
    segmenter.record_definition("keen", "{", version=3, action="REVISED")
    _bought(segmenter, ("u1", 1000))
    assert [refused.code for refused in segmenter.refused] == ["definition_refused", "definition_not_json"]
    assert [record["definitions"] for record in segmenter.records(PROGRESS)][-1] == {"default/keen": 1}
    assert [record["segment_version"] for record in segmenter.records()] == [1]


@pytest.mark.parametrize(
    "value",
    ["1" + "0" * 400, "9" * 5_000, "1e400", '"\\ud800"', "[" * 5_000 + "]" * 5_000, '"' + "x" * 262_144 + '"'],
    ids=["400 digits", "5,000 digits", "no double", "half a character", "nested", "large"],
)
def test_a_definition_out_of_bounds_is_refused_and_the_others_take_effect(value: str) -> None:
    segmenter = MemorySegmenter()
    where = f'{{"event": "Order Completed", "where": {{"property": "v", "op": "in", "value": [{value}, 0]}}}}'
    segmenter.record_definition("huge", f'{{"key": "huge", "name": "Huge", "where": {where}}}')
    segmenter.define("keen", BUYERS)
    segmenter.track("u1", "Order Completed", 1000, {"v": 1.5})
    segmenter.identify("u1", {"v": 1.5}, at_ms=2000)
    assert [refused.code for refused in segmenter.refused] == ["definition_refused"]
    assert segmenter.members("keen") == {"u1"}


def test_an_event_at_the_end_of_time_stops_nothing() -> None:
    segmenter = MemorySegmenter()
    for period in ("today", "yesterday", "last_week", "this_month", "this_year"):
        segmenter.define(period, {"event": "Order Completed", "calendar": period}, timezone="Pacific/Kiritimati")
    segmenter.track("u1", "Order Completed", LATEST_MS)
    assert {one for one in ("today", "this_month", "this_year") if "u1" in segmenter.members(one)} == {
        "today",
        "this_month",
        "this_year",
    }
    assert "u1" not in segmenter.members("yesterday")


def test_a_task_stops_when_definitions_can_no_longer_be_read() -> None:
    segmenter = MemorySegmenter()
    segmenter.log.problem = lambda: "the broker is gone"
    with pytest.raises(DefinitionsLost, match="the broker is gone"):
        _bought(segmenter, ("u1", 1000))


def test_metrics_count_segments_and_changes() -> None:
    segmenter = MemorySegmenter()
    segmenter.define("keen", BUYERS)
    segmenter.define("twice", TWICE)
    _bought(segmenter, ("u1", 1000))
    value = segmenter.metrics.registry.get_sample_value
    assert value("starling_segmenter_segments") == 2
    assert value("starling_segmenter_changes_total", {"status": "ENTERED", "cause": "EVENT"}) == 1
