"""The inputs of leaf nodes besides their events: profiles, the user's id, and the order of history."""

from typing import Any

import pytest

from starling_common.settings import Clock
from starling_segmenter.emitter import with_user_id
from starling_segments import UserState
from starling_segments.engine.trait_conditions import share_of
from tests.unit.segmenter.segmenting import NOW_MICROS, FeedEntry, MemorySegmenter

MINUTE_MS = 60_000
HOUR_MS, DAY_MS = 60 * MINUTE_MS, 86_400_000
PRO = {"trait": "plan", "op": "eq", "value": "pro"}
CONDITIONS: dict[str, dict[str, Any]] = {
    "cart": {"sequence": [{"event": "Product Added"}, {"not": {"event": "Order Completed"}, "for": "30m"}], "within": "2h"},
    "held": {**PRO, "held_for": "1h"},
    "fresh": {**PRO, "held_less_than": "3h"},
    "quiet": {"trait": "email", "op": "missing", "held_for": "2h"},
    "favourite": {"event": "Order Completed", "where": {"property": "shop", "op": "eq", "value": {"trait": "shop"}}},
    "half": {"all": [{"bucket": {"salt": "exp-7", "from": 0, "to": 50}}, {"event": "*"}]},
    "share": {
        "measure": {"ratio": {"of": {"event": "Order Completed"}, "to": {"event": "Product Added"}}},
        "op": "gte",
        "value": 1,
    },
    "today": {"event": "Order Completed", "calendar": "today"},
}


def feed_story(segmenter: MemorySegmenter, *, until_ms: int = 10 * HOUR_MS) -> None:
    """Two users: one abandons a cart and orders late, the other one orders at once."""
    segmenter.identify("user-1", {"plan": "pro", "shop": "Rome"}, at_ms=0)
    segmenter.track("user-1", "Product Added", 10 * MINUTE_MS)
    segmenter.track("user-2", "Product Added", 15 * MINUTE_MS)
    segmenter.track("user-1", "Order Completed", 50 * MINUTE_MS, {"shop": "Rome"})
    segmenter.track("user-2", "Look", HOUR_MS)
    segmenter.track("user-2", "Order Completed", 20 * MINUTE_MS, {"shop": "Rome"})  # late: the cart is abandoned by then
    segmenter.identify("user-1", {"plan": "pro", "shop": "Oslo"}, at_ms=2 * HOUR_MS)
    segmenter.track("user-3", "Order Completed", 3 * HOUR_MS, {"shop": "Oslo"})
    segmenter.identify("user-3", {"email": "a@example.com", "plan": "pro"}, at_ms=4 * HOUR_MS)
    segmenter.clock(until_ms)


def define_all(segmenter: MemorySegmenter) -> None:
    for key, where in CONDITIONS.items():
        segmenter.define(key, where)


def memberships(segmenter: MemorySegmenter) -> dict[str, set[str]]:
    return {key: segmenter.members(key) for key in CONDITIONS}


@pytest.mark.parametrize("until_hours", [4, 5, 6, 8, 30])
def test_the_same_history_before_and_after_the_definitions_gives_the_same_members(until_hours: int) -> None:
    live, late = MemorySegmenter(), MemorySegmenter()
    define_all(live)
    feed_story(live, until_ms=until_hours * HOUR_MS)
    feed_story(late, until_ms=until_hours * HOUR_MS)
    define_all(late)
    assert memberships(late) == memberships(live)
    for segmenter in (live, late):
        segmenter.changes()
        segmenter.clock(100 * HOUR_MS)
    assert sorted(entry[:3] + entry[4:] for entry in late.changes()) == sorted(entry[:3] + entry[4:] for entry in live.changes())


def test_a_cart_is_abandoned_on_a_timer() -> None:
    segmenter = MemorySegmenter()
    segmenter.define("cart", CONDITIONS["cart"])
    feed_story(segmenter)
    assert segmenter.changes() == [
        FeedEntry("user-1", "cart", "ENTERED", 1, 40 * MINUTE_MS, "TIMER"),
        FeedEntry("user-2", "cart", "ENTERED", 1, 45 * MINUTE_MS, "TIMER"),
        FeedEntry("user-1", "cart", "EXITED", 2, 160 * MINUTE_MS, "TIMER"),
        FeedEntry("user-2", "cart", "EXITED", 2, 165 * MINUTE_MS, "TIMER"),
    ]


def test_a_trait_is_held_since_its_record_even_under_the_wall_clock() -> None:
    segmenter = MemorySegmenter(Clock.WALL)
    segmenter.identify("user-1", {"plan": "pro"}, at_ms=1)
    segmenter.define("held", CONDITIONS["held"])
    segmenter.task.advance(NOW_MICROS // 1000 + HOUR_MS + 1000)
    assert [entry[:4] for entry in segmenter.changes()] == [("user-1", "held", "ENTERED", 1)]


def test_a_bucket_depends_on_the_users_id() -> None:
    segmenter = MemorySegmenter()
    users = [f"user-{i}" for i in range(20)]
    for user in users:
        segmenter.track(user, "Look", 1_000)
    segmenter.define("half", CONDITIONS["half"])
    assert segmenter.members("half") == {user for user in users if share_of("exp-7", user) < 50}


def test_a_state_of_a_release_without_ids_receives_the_id() -> None:
    assert with_user_id(b"default/u/1", None).user_id == "u/1"
    old = UserState(known=True)
    assert with_user_id(b"default/u/1", old) is old
    assert old.user_id == "u/1"
