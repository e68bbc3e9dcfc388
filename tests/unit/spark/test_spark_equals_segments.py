"""A computed trait has the value that the segment language's evaluator observes on the same history."""

import random
from collections.abc import Mapping, Sequence
from typing import Any

import pytest

from starling_segments import Known, UserState, compile_plan, parse_segment
from starling_spark.profiles.matching import EventView
from tests.unit.spark.keeping import DAY_MS, START_MS, Partition, defined, record

Event = tuple[str, int, str, dict[str, Any]]

DOCUMENTS: Sequence[Mapping[str, Any]] = [
    {"event": "Order Completed"},
    {"event": "Order *", "within": "7d"},
    {"event": "*", "measure": "count", "within": "12h"},
    {"event": "Order Completed", "measure": {"sum": "revenue"}},
    {"event": "Order Completed", "measure": {"sum": "revenue"}, "within": "30d"},
    {"event": "Order Completed", "measure": {"sum": "cart.total"}, "within": "3d"},
    {"event": "Order Completed", "measure": {"distinct": "sku"}},
    {"event": "*", "measure": {"distinct": "sku"}, "within": "2d"},
    {"event": "Order Completed", "where": {"property": "revenue", "op": "gte", "value": 20}, "within": "14d"},
    {
        "event": "Order Completed",
        "where": {"any": [{"property": "sku", "op": "in", "value": ["a", "b"]}, {"not": {"property": "sku", "op": "exists"}}]},
        "measure": {"sum": "revenue"},
        "within": "1095d",
    },
    {"event": "Page Viewed", "where": {"property": "seen", "op": "within_last", "value": "1d"}},
]


def history(seed: int, length: int) -> list[Event]:
    """Mostly in order, some late, some at one instant; a few long silences; values of every type where a number is asked for."""
    chance = random.Random(seed)
    now_ms, events = START_MS, []
    for _ in range(length):
        now_ms += chance.choice([0, 1, 60_000, 3_600_000, DAY_MS // 3, DAY_MS // 3, 9 * DAY_MS if chance.random() < 0.03 else 1])
        late_ms = chance.choice([0, 0, 0, 1, DAY_MS, 10 * DAY_MS])
        properties: dict[str, Any] = {"revenue": chance.choice([0, 1, 0.1, 19.99, 20, 100, "5", None, True])}
        properties |= chance.choice(
            [{}, {"sku": "a"}, {"sku": "b"}, {"sku": 1}, {"sku": 1.0}, {"sku": ["a"]}, {"cart": {"total": 3}}]
        )
        properties |= {"seen": now_ms - late_ms - chance.choice([0, DAY_MS // 2, 2 * DAY_MS])}
        name = chance.choice(["Order Completed", "Order Completed", "Order Cancelled", "Page Viewed"])
        events.append((f"u{chance.randrange(3)}", now_ms - late_ms, name, properties))
    return events


def observed(document: Mapping[str, Any], events: Sequence[Event], user: str, until_ms: int) -> Any:
    """What the evaluator says of the user at `until_ms`."""
    where = {**document, "op": "gte", "value": 1}
    plan = compile_plan([parse_segment({"key": "s", "name": "s", "where": where}, Known())])
    state, now_ms = UserState(), 0
    for name, time_ms, event_name, properties in events:
        now_ms = max(now_ms, time_ms)
        if name == user:
            plan.on_event(state, EventView(record(event_name, time_ms, properties)), now_ms)
    plan.on_timer(state, until_ms)
    return plan.explain(state, "s", until_ms)["tree"]["observed"]


@pytest.mark.parametrize("document", DOCUMENTS, ids=str)
@pytest.mark.parametrize("seed", [1, 2])
def test_values_equal_the_evaluators_after_every_micro_batch(document: Mapping[str, Any], seed: int) -> None:
    events, chance = history(seed, 240), random.Random(seed)
    partition = Partition(defined("t", document))
    told: dict[str, Any] = {}
    done, seen = 0, 0
    while done < len(events):
        size = chance.choice([1, 2, 5, 40])
        for computed in partition.batch(events[done : done + size], now_ms=0):
            told[computed.user.removeprefix("w/")] = computed.value
        done += size
        until_ms = partition.store.kept_clock.now_ms
        for user in ("u0", "u1", "u2"):
            expected = observed(document, events[:done], user, until_ms)
            assert told[user] == expected if user in told else not expected
            seen += bool(expected)
    assert seen > 5
    partition.batch([], partition.store.kept_clock.now_ms + 1200 * DAY_MS)
    assert bool(partition.store.users) is ("within" not in document)


def test_a_crowded_window_equals_the_evaluators_panes() -> None:
    """Above 256 matches in a window both keep panes, and the same ones."""
    document = {"event": "Order Completed", "measure": {"sum": "revenue"}, "within": "10d"}
    events: list[Event] = [("u", START_MS + i * 600_000, "Order Completed", {"revenue": i}) for i in range(1500)]
    partition = Partition(defined("t", document))
    for at in range(0, len(events), 100):
        (computed,) = partition.batch(events[at : at + 100])
        assert computed.value == observed(document, events[: at + 100], "u", computed.as_of)
    for hour in range(1, 240, 7):
        until_ms = events[-1][1] + hour * 3_600_000
        for computed in partition.batch([], until_ms):
            assert computed.value == observed(document, events, "u", until_ms)
