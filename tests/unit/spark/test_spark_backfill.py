"""A segment whose past was gathered beside the live traffic has the same members as one that was there from the start."""

import pickle
import random
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import pytest

from starling_common.failpoints.raising import Raising
from starling_common.kafka.topics import BACKFILL_STATES, BEHAVIOUR, DELIVERY
from starling_common.settings import Clock
from starling_rules.backfills import Backfill, Part
from starling_rules.history import PAST, Isolation
from starling_rules.ledger import RUNNING, Run, Share
from starling_segments import UserState, decode_state, encode_state, plain
from starling_spark.jobs.backfill.folding import gathered
from starling_spark.jobs.backfill.planning import Assignment, assignments, lost, wanted, with_lake
from starling_stream.model.processor import Inbound
from tests.unit.segmenter.segmenting import NOW_MICROS, MemorySegmenter

HOUR_MS = 3_600_000
DAY_MS = 24 * HOUR_MS
BEGIN_MS = 1_800_000_000_000
USERS = [f"u{number}" for number in range(12)]
NAMES = ["Product Added", "Checkout Started", "Order Completed", "Page Viewed"]

ORDER = {"event": "Order Completed"}
WITHOUT_ORDER: dict[str, Any] = {
    "often": {**ORDER, "op": "gte", "value": 3},
    "lately": {**ORDER, "within": "2d"},
    "absent": {"not": {"event": "Page Viewed", "within": "1d"}},
    "spent": {**ORDER, "measure": {"sum": "revenue"}, "op": "gte", "value": 60, "within": "3d"},
    "between": {**ORDER, "between_ago": ["3d", "1d"]},
    "today": {**ORDER, "calendar": "today"},
    "distinct": {**ORDER, "measure": {"distinct": "sku"}, "op": "gte", "value": 2},
    "favourite": {**ORDER, "measure": {"most_frequent": "sku"}, "op": "eq", "value": "a"},
    "first": {"first_time": ORDER, "within": "2d"},
    "regular": {"regularly": {"event": "Page Viewed"}, "every": "1d", "at_least": 2, "of": 3},
    "chain": {"sequence": [{"event": "Product Added"}, {"event": "Order Completed", "within": "1d"}], "within": "4d"},
}
OUTCOMES: dict[str, Any] = {
    "reported": {"event": "Message Delivered", "op": "gte", "value": 2, "within": "2d"},
    "any": {"event": "*", "op": "gte", "value": 9, "within": "2d"},
    "never": {"not": {"event": "Message *"}},
    "answered": {"sequence": [{"event": "Message Delivered"}, {**ORDER, "within": "1d"}], "within": "4d"},
}
"""In order under the event clock alone."""
IN_ORDER: dict[str, Any] = {
    "left": {"sequence": [{"event": "Product Added"}, {"not": ORDER, "for": "6h"}], "within": "2d"},
    "held": {"trait": "plan", "op": "eq", "value": "pro", "held_for": "1d"},
    "compared": {**ORDER, "where": {"property": "sku", "op": "eq", "value": {"trait": "likes"}}},
}


def _happen(segmenter: MemorySegmenter, draw: random.Random, times: int, begin_ms: int) -> int:
    """Events of the next hours: late ones, simultaneous ones, what became of messages. Returns the last instant."""
    at_ms = begin_ms
    for number in range(0, 2 * times, 2):  # receipts are ordered strictly
        at_ms += draw.choice([0, 0, HOUR_MS // 2, 2 * HOUR_MS])
        user, name = draw.choice(USERS), draw.choice(NAMES)
        own_ms = at_ms - draw.choice([0, 0, 0, HOUR_MS, 3 * DAY_MS])
        if draw.random() < 0.1:
            traits = {"plan": draw.choice(["pro", "free"]), "likes": draw.choice("abc")}
            segmenter.identify(user, traits, own_ms, received_at=at_ms * 1000 + number)
        properties = {"revenue": draw.randrange(40), "sku": draw.choice("abc")}
        segmenter.track(user, name, own_ms, properties, received_at=at_ms * 1000 + number + 1)
        if draw.random() < 0.2:
            at_ms += 2  # reported in a separate millisecond, of an item from hours ago
            outcome, caused_ms = draw.choice(["DELIVERED", "DELIVERED", "RETRYING"]), at_ms - draw.choice([1, HOUR_MS])
            segmenter.report(draw.choice(USERS), outcome, at_ms - 1, received_at=caused_ms * 1000)
    return at_ms + 1


def _planned(segmenter: MemorySegmenter) -> Run:
    waiting = wanted(segmenter.log.current(), segmenter.stream_clock)
    assert waiting is not None
    inputs = {topic: offset for topic, offset in segmenter.task.positions().items() if topic in PAST}
    share = Share(0, "planned", inputs, segmenter.task.stream_time_ms, 0, 0)
    return Run("run-1", RUNNING, NOW_MICROS, NOW_MICROS, waiting.versions, waiting.leaves, {0: share})


def _gathered(
    segmenter: MemorySegmenter, run: Run, clock: Clock, before: tuple[Backfill, dict[bytes, UserState]] | None = None
) -> tuple[Backfill, dict[bytes, UserState]]:
    """As the job does it, but for the broker. `before`: a pass to go on from."""
    (assignment,) = assignments(run, segmenter.log.current(), clock, 1)
    assignment = replace(assignment, base=None if before is None else before[0].parts[0])

    def read(topic: str, partition: int, first: int, until: int) -> Iterator[Inbound]:
        processed = segmenter.task._processed
        return (one for one in processed if (one.topic, one.partition) == (topic, partition) and first <= one.offset < until)

    past, stream_time_ms = gathered(assignment, read, None if before is None else before[1])
    past = {key: decode_state(encode_state(state)) for key, state in past.items()}
    first = segmenter.task.positions().get(BACKFILL_STATES, 0)
    part = Part(dict(assignment.share.inputs), stream_time_ms, first, first + len(past), len(past))
    return replace(run, shares={0: replace(assignment.share, part=part)}).outcome(), past


def _members(segmenter: MemorySegmenter, keys: list[str]) -> dict[str, list[str]]:
    return {key: sorted(segmenter.members(key)) for key in keys}


@pytest.mark.parametrize("clock", [Clock.EVENT, Clock.WALL])
@pytest.mark.parametrize(
    "where",
    [WITHOUT_ORDER, OUTCOMES, IN_ORDER, WITHOUT_ORDER | OUTCOMES | IN_ORDER],
    ids=["any order", "outcomes", "in order", "all"],
)
@pytest.mark.parametrize("seed", range(4))
def test_backfilled_equals_there_from_the_start(clock: Clock, where: dict[str, Any], seed: int) -> None:
    """With odd seeds in two passes."""
    backfilled, reference = MemorySegmenter(clock), MemorySegmenter(clock)
    for key, condition in where.items():
        reference.define(key, condition)
    both = (backfilled, reference)
    (end, _) = [_happen(one, random.Random(seed), 150, BEGIN_MS) for one in both]
    for key, condition in where.items():
        backfilled.define(key, condition, awaits_backfill=True)
    run = _planned(backfilled)
    (between, _) = [_happen(one, random.Random(f"{seed} between"), 60, end) for one in both]
    assert backfilled.changes() == []
    found = _gathered(backfilled, run, clock)
    if seed % 2:
        run = _planned(backfilled)
        (between, _) = [_happen(one, random.Random(f"{seed} then"), 60, between) for one in both]
        found = _gathered(backfilled, run, clock, found)
    backfilled.backfilled(*found)
    keys = list(where)
    assert _members(backfilled, keys) == _members(reference, keys)
    assert any(_members(backfilled, keys).values())
    for one in both:
        _happen(one, random.Random(f"{seed} after"), 60, between)
    assert _members(backfilled, keys) == _members(reference, keys)
    reference.changes(), backfilled.changes()
    for one in both:
        one.task.advance(between + 40 * DAY_MS)
    assert [seen._replace(sequence=0) for seen in backfilled.changes()] == [
        seen._replace(sequence=0) for seen in reference.changes()
    ]


@pytest.mark.parametrize("where", [WITHOUT_ORDER, WITHOUT_ORDER | OUTCOMES | IN_ORDER], ids=["any order", "all"])
@pytest.mark.parametrize("text", ["default/u3 ", "default/u1", f" {BEHAVIOUR} 1", "default/u5 events.behaviour 2"])
def test_records_that_make_the_fold_raise_change_nothing_else(where: dict[str, Any], text: str) -> None:
    segmenter = MemorySegmenter()
    _happen(segmenter, random.Random(5), 150, BEGIN_MS)
    for key, condition in where.items():
        segmenter.define(key, condition, awaits_backfill=True)
    (assignment,) = assignments(_planned(segmenter), segmenter.log.current(), Clock.EVENT, 1)

    def read_all(topic: str, _partition: int, first: int, until: int, **_more: Any) -> Iterator[Inbound]:
        return (one for one in segmenter.task._processed if one.topic == topic and first <= one.offset < until)

    def is_poison(record: Inbound) -> bool:
        return text in f"{record.key.decode()} {record.topic} {record.offset}"

    def without(*place: Any) -> Iterator[Inbound]:
        # A refused record advances stream time, as live.
        return (one._replace(value=None) if is_poison(one) else one for one in read_all(*place))

    raising = Raising.of(f"raise_in_fold:{text}")
    first = Isolation(armed=raising)
    gathered(assignment, read_all, isolation=first)
    assert first.failed
    assert not first.refused, "a record is refused at its second failure"
    second = Isolation(frozenset(first.failed), armed=raising)
    found, _ = gathered(assignment, read_all, isolation=second)
    expected, _ = gathered(assignment, without)
    kept = {key: plain(state) for key, state in found.items()}
    assert kept == {key: plain(state) for key, state in expected.items()}
    assert not second.failed
    read = {(one.topic, one.offset) for topic in assignment.topics for one in read_all(topic, 0, 0, 10**6) if is_poison(one)}
    assert {(topic, offset) for topic, _, offset in second.refused} == read


def test_what_is_held_back_changes_nothing_and_the_version_before_stays_in_force() -> None:
    segmenter = MemorySegmenter()
    segmenter.define("keen", ORDER)
    segmenter.track("u1", "Order Completed", 1000)
    plan = segmenter.task.plan
    segmenter.define("keen", {**ORDER, "op": "gte", "value": 2, "within": "5d"}, version=2, action="REVISED", awaits_backfill=True)
    segmenter.track("u2", "Order Completed", 2000)
    assert segmenter.task.plan == plan
    assert [seen[:3] for seen in segmenter.changes()] == [("u1", "keen", "ENTERED"), ("u2", "keen", "ENTERED")]
    assert segmenter.log.current().versions == {"default/keen": 1}


def test_the_task_rebuilds_lost_states() -> None:
    segmenter = MemorySegmenter()
    segmenter.track("u1", "Order Completed", 1000)
    segmenter.define("keen", ORDER, awaits_backfill=True)
    backfill, _ = _gathered(segmenter, _planned(segmenter), Clock.EVENT)
    segmenter.backfilled(backfill, {})
    assert segmenter.members("keen") == {"u1"}


def test_a_leaf_that_the_run_did_not_know_is_read_by_the_task() -> None:
    segmenter = MemorySegmenter()
    segmenter.define("pages", {"event": "Page Viewed"})
    segmenter.track("u1", "Page Viewed", 1000)
    segmenter.track("u1", "Order Completed", 1000)
    segmenter.define("both", {"all": [ORDER, {"event": "Page Viewed"}]}, awaits_backfill=True)
    run = _planned(segmenter)
    assert len(run.leaves["default"]) == 1
    gathered = _gathered(segmenter, run, Clock.EVENT)
    segmenter.archive("pages")  # so that no segment maintains that leaf node
    segmenter.track("u2", "Page Viewed", 2000)
    segmenter.track("u2", "Order Completed", 2000)
    segmenter.backfilled(*gathered)
    assert segmenter.members("both") == {"u1", "u2"}


def test_a_run_for_an_older_version_lets_the_newer_wait() -> None:
    segmenter = MemorySegmenter()
    segmenter.track("u1", "Order Completed", 1000)
    segmenter.define("keen", ORDER, awaits_backfill=True)
    gathered = _gathered(segmenter, _planned(segmenter), Clock.EVENT)
    segmenter.define("keen", {**ORDER, "op": "gte", "value": 2}, version=2, action="REVISED", awaits_backfill=True)
    segmenter.backfilled(*gathered)
    assert segmenter.log.current().versions == {}
    assert segmenter.log.current().awaited() == {"default/keen": 2}


def test_what_is_built_on_one_that_waits_waits_with_it() -> None:
    segmenter = MemorySegmenter()
    segmenter.track("u1", "Order Completed", 1000)
    segmenter.define("keen", ORDER, awaits_backfill=True)
    segmenter.define("not-keen", {"not": {"segment": "keen"}})
    assert segmenter.log.current().versions == {}
    assert segmenter.refused == []
    segmenter.track("u2", "Page Viewed", 1000)
    segmenter.backfilled(*_gathered(segmenter, _planned(segmenter), Clock.EVENT))
    assert (segmenter.members("keen"), segmenter.members("not-keen")) == ({"u1"}, {"u2"})


def test_one_that_waits_can_be_archived_or_paused() -> None:
    segmenter = MemorySegmenter()
    segmenter.define("keen", ORDER)
    segmenter.track("u1", "Order Completed", 1000)
    segmenter.define("keen", {**ORDER, "within": "9d"}, version=2, action="REVISED", awaits_backfill=True)
    segmenter.define("keen", {**ORDER, "within": "9d"}, version=2, action="PAUSED")
    segmenter.track("u2", "Order Completed", 2000)
    assert segmenter.members("keen") == {"u1"}
    assert segmenter.log.current().awaited() == {"default/keen": 2}
    segmenter.define("keen", {**ORDER, "within": "9d"}, version=2, action="RESUMED")
    assert segmenter.members("keen") == {"u1", "u2"}
    segmenter.archive("keen", version=2)
    assert segmenter.members("keen") == set()
    assert (segmenter.log.current().awaited(), segmenter.log.current().versions) == ({}, {})


def test_a_restart_repeats_no_output() -> None:
    segmenter = MemorySegmenter()
    segmenter.track("u1", "Order Completed", 1000)
    segmenter.define("keen", ORDER, awaits_backfill=True)
    segmenter.restart()
    segmenter.backfilled(*_gathered(segmenter, _planned(segmenter), Clock.EVENT))
    segmenter.restart()
    segmenter.task.settle()
    assert [seen[:4] for seen in segmenter.changes()] == [("u1", "keen", "ENTERED", 1)]


def test_an_assignment_travels() -> None:
    segmenter = MemorySegmenter()
    for key, condition in (WITHOUT_ORDER | IN_ORDER).items():
        segmenter.define(key, condition, awaits_backfill=True)
    segmenter.define("built-on", {"segment": "often"}, awaits_backfill=True)
    (assignment,) = assignments(_planned(segmenter), segmenter.log.current(), Clock.EVENT, 3)
    arrived: Assignment = pickle.loads(pickle.dumps(assignment))  # noqa: S301 - our own bytes
    assert arrived == assignment
    assert arrived.rules().keys() == {b"default"}
    assert set(arrived.run.leaves["default"]) == set(arrived.rules()[b"default"].plan.leaves)


@pytest.mark.parametrize(
    ("lake_end", "left", "takes_all", "kept", "start", "gap"),
    [
        (60, 0, False, None, 0, None),
        (60, 40, False, (0, 40), 40, None),
        (60, 40, True, (0, 60), 60, None),
        (150, 120, False, (0, 100), 100, None),  # never beyond the cut
        (150, 0, True, (0, 100), 100, None),
        (0, 0, True, None, 0, None),
        (30, 40, False, (0, 30), 40, (30, 40)),  # no source has the records between
        (0, 140, True, None, 100, (0, 100)),
    ],
)
def test_the_lake_gives_what_the_topics_have_no_longer(
    lake_end: int, left: int, takes_all: bool, kept: object, start: int, gap: object
) -> None:
    segmenter = MemorySegmenter()
    segmenter.define("keen", ORDER, awaits_backfill=True)
    (assignment,) = assignments(_planned(segmenter), segmenter.log.current(), Clock.EVENT, 1)
    assignment = replace(assignment, share=replace(assignment.share, inputs={BEHAVIOUR: 100}))
    found = with_lake(assignment, {BEHAVIOUR: lake_end}, {BEHAVIOUR: left}, takes_all=takes_all)
    assert (found.from_lake.get(BEHAVIOUR), found.starts[BEHAVIOUR], lost(found).get(BEHAVIOUR)) == (kept, start, gap)


def test_a_pass_that_goes_on_from_another_takes_of_the_lake_only_what_came_after_it() -> None:
    segmenter = MemorySegmenter()
    segmenter.define("keen", ORDER, awaits_backfill=True)
    (assignment,) = assignments(_planned(segmenter), segmenter.log.current(), Clock.EVENT, 1)
    share = replace(assignment.share, inputs={BEHAVIOUR: 100})
    assignment = replace(assignment, share=share, base=Part({BEHAVIOUR: 70}, 0, 0, 0, 0))
    found = with_lake(assignment, {BEHAVIOUR: 90}, {BEHAVIOUR: 80}, takes_all=False)
    assert (found.from_lake, found.starts, lost(found)) == ({BEHAVIOUR: (70, 80)}, {BEHAVIOUR: 80}, {})
    found = with_lake(assignment, {BEHAVIOUR: 60}, {BEHAVIOUR: 0}, takes_all=True)
    assert (found.from_lake, found.starts, lost(found)) == ({}, {BEHAVIOUR: 70}, {})


@pytest.mark.parametrize(
    ("where", "clock", "topics"),
    [
        (ORDER, Clock.EVENT, (BEHAVIOUR,)),
        ({"event": "Message Opened"}, Clock.WALL, (BEHAVIOUR, DELIVERY)),
        ({"event": "*"}, Clock.WALL, (BEHAVIOUR, DELIVERY)),
        ({"event": "Message Opened"}, Clock.EVENT, PAST),
        (IN_ORDER["left"], Clock.WALL, PAST),
    ],
)
def test_only_those_topics_are_read_that_count(where: dict[str, Any], clock: Clock, topics: tuple[str, ...]) -> None:
    segmenter = MemorySegmenter(clock)
    segmenter.define("keen", where, awaits_backfill=True)
    run = _planned(segmenter)
    (assignment,) = assignments(run, segmenter.log.current(), clock, 1)
    waiting = wanted(segmenter.log.current(), clock)
    assert waiting is not None
    assert assignment.topics == waiting.topics == topics
