"""Every example of the segment language's page matches its user, and does not match a user with one difference."""

from __future__ import annotations

import json
import re
from datetime import datetime, timedelta
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from starling_segments import AccountTally, Evaluator, Known, UserState, compile_plan, parse_segment

PAGE = Path(__file__).parents[3] / "docs/reference/segment-language.md"
EXAMPLES = {
    title: json.loads(body)
    for title, body in re.findall(r"^\*([^*]+)\*[^\n]*\n\n```json\n(.*?)^```", PAGE.read_text(), re.MULTILINE | re.DOTALL)
}
NOW = datetime.fromisoformat("2026-03-04T12:00:00+00:00")
"""A Wednesday."""
Step = tuple[float, str | dict[str, Any], dict[str, Any]]
"""How many days ago; an event's name, or the profile's traits; the event's properties."""


def bought(days_ago: float, **properties: Any) -> Step:
    return days_ago, "Order Completed", properties


def did(days_ago: float, name: str, **properties: Any) -> Step:
    return days_ago, name, properties


def has(since_days: float = 0, **traits: Any) -> Step:
    return since_days, traits, {}


PRO_JAPAN: dict[str, Any] = {"plan": "pro", "address": {"country": "japan"}, "consent": {"email": True}}
CART = did(0.1, "Product Added", sku="a")
MINUTE = 1 / 24 / 60
# Title -> the story of a matching user, and the story of one that does not match.
STORIES: dict[str, tuple[list[Step], list[Step]]] = {
    "On the pro plan, in Japan, may be e-mailed": ([has(**PRO_JAPAN)], [has(**PRO_JAPAN | {"consent": {}})]),
    "Renews within the next three days": ([has(renewal="2026-03-07")], [has(renewal="2026-03-08")]),
    "Has a birthday this week": ([has(born="1990-03-10")], [has(born="1990-03-03")]),
    "Has been on the pro plan for half a year without a break": (
        [has(plan="pro", since_days=180)],
        [has(plan="pro", since_days=200), has(plan="free", since_days=100), has(plan="pro", since_days=99)],
    ),
    "Has just cancelled: not a week ago": ([has(status="cancelled", since_days=6)], [has(status="cancelled", since_days=7)]),
    "Lives within 25 km of the shop in Berlin": (
        [has(home={"lat": 52.39, "lon": 13.3})],
        [has(home={"lat": 48.14, "lon": 11.58})],
    ),
    "Has a card that runs out within a month": (
        [has(cards=[{"until": "2030-01-01"}, {"until": "2026-03-31"}])],
        [has(cards=[{"until": "2030-01-01"}])],
    ),
    "Still uses a version before 2.0": ([has(app={"version": "2.0.0-rc.1"})], [has(app={"version": "2.0.0"})]),
    "Three orders of shoes within 30 days": (
        [bought(day, category="shoes") for day in (29, 2, 1)],
        [bought(30, category="shoes"), bought(2, category="shoes"), bought(1, category="hats")],
    ),
    "Has spent 500 within a year": (
        [bought(300, revenue=450), bought(1, revenue=50)],
        [bought(365, revenue=450), bought(1, revenue=50)],
    ),
    "Spends 80 an order, on average": (
        [bought(9, revenue=60), bought(1, revenue=100)],
        [bought(9, revenue=60), bought(1, revenue=99)],
    ),
    "Has never bought for less than 20": ([bought(9, revenue=20)], [bought(9, revenue=19), bought(1, revenue=100)]),
    "Bought from three brands or more": (
        [bought(9, brand="a"), bought(8, brand="b"), bought(7, brand="c")],
        [bought(9, brand="a"), bought(8, brand="b"), bought(7, brand="a")],
    ),
    "Came to us through the newsletter": (
        [did(9, "Page Viewed", campaign="newsletter"), did(8, "Page Viewed", campaign="search")],
        [did(9, "Page Viewed", campaign="search"), did(8, "Page Viewed", campaign="newsletter")],
    ),
    "Looked at shoes last": (
        [did(9, "Product Viewed", category="hats"), did(8, "Product Viewed", category="shoes")],
        [did(9, "Product Viewed", category="shoes"), did(8, "Product Viewed", category="hats")],
    ),
    "Looks at shoes more often than at anything else": (
        [did(day, "Product Viewed", category=what) for day, what in ((9, "shoes"), (8, "shoes"), (7, "hats"))],
        [did(day, "Product Viewed", category=what) for day, what in ((9, "hats"), (8, "shoes"), (7, "hats"))],
    ),
    "Waits too long: nine of ten page loads take up to four seconds, one takes more": (
        [did(1, "Page Viewed", load_seconds=seconds) for seconds in (1, 1, 1, 1, 1, 1, 1, 1, 4, 9)],
        [did(1, "Page Viewed", load_seconds=seconds) for seconds in (1, 1, 1, 1, 1, 1, 1, 1, 1, 9)],
    ),
    "A customer for a year": ([bought(365), bought(1)], [bought(364)]),
    "Last bought before the new collection came": ([bought(4)], [bought(4), bought(1)]),
    "Was here on three different days of this week": (
        [did(day, "Page Viewed") for day in (2, 1, 0)],
        [did(day, "Page Viewed") for day in (3, 1, 0)],
    ),
    "Buys on one visit in ten, at least": (
        [*(did(5, "Visit Started") for _ in range(10)), bought(4)],
        [*(did(5, "Visit Started") for _ in range(11)), bought(4)],
    ),
    "Bought in their own favourite shop": (
        [has(favourite_shop="Rome", since_days=9), bought(1, shop="Rome")],
        [has(favourite_shop="Rome", since_days=9), bought(1, shop="Oslo")],
    ),
    "Bought for the very first time within the last week": ([bought(6)], [bought(7), bought(6)]),
    "Was written to this week, and has not opened it": (
        [did(6, "Message Delivered"), did(20, "Message Opened")],
        [did(6, "Message Delivered"), did(5, "Message Opened")],
    ),
    "Cannot be reached: two messages failed within a month": (
        [did(9, "Message Failed", channel="webhook"), did(8, "Message Failed", channel="webhook")],
        [did(9, "Message Failed", channel="webhook"), did(8, "Message Failed", channel="email")],
    ),
    'Ordered within a day of a message about the segment "lapsing"': (
        [did(3, "Message Delivered", segment_key="lapsing"), bought(2)],
        [did(3, "Message Delivered", segment_key="keen"), bought(2)],
    ),
    "Has done anything at all within 30 days": (
        [did(29, "Help Opened")],
        [did(30, "Help Opened"), did(1, "Message Delivered", delivery_id="d-1")],
    ),
    "Within the last 30 days": ([bought(29.99)], [bought(30)]),
    "In the month before the last one, but not since": ([bought(30)], [bought(30), bought(29)]),
    "During the sale": ([bought(40)], [bought(31)]),
    "More this month than last month took": ([bought(10), bought(2), bought(1)], [bought(10), bought(9), bought(2), bought(1)]),
    "Has not been here for two weeks": ([did(14, "Page Viewed")], [did(13, "Page Viewed")]),
    "Left in the cart": ([CART], [CART, bought(0.1 - 20 * MINUTE)]),
    "Left in the cart, this very product": (
        [CART, bought(0.1 - 20 * MINUTE, sku="b")],
        [CART, bought(0.1 - 20 * MINUTE, sku="a")],
    ),
    "Went from the campaign to the order within an hour, without asking for help in between": (
        [did(1, "Campaign Clicked"), bought(1 - 59 * MINUTE)],
        [did(1, "Campaign Clicked"), did(1 - 9 * MINUTE, "Help Opened"), bought(1 - 59 * MINUTE)],
    ),
    "Comes every week": (
        [did(day, "Page Viewed") for day in (22, 15, 1)],
        [did(day, "Page Viewed") for day in (22, 2, 1)],
    ),
    "In another segment, and not in a third": ([bought(1)], [bought(1), did(0.5, "Complained")]),
    "A stable quarter of all users, for an experiment": ([did(1, "user-1")], [did(1, "user-8")]),
    "All users": ([did(1, "Page Viewed")], []),
    "On an uploaded list": ([did(1, "list fair-2026")], [did(1, "list fair-2025"), did(1, "Page Viewed")]),
    "A user of the same company has ordered this month": (
        [did(2, "colleagues", ordered=1)],
        [did(2, "colleagues", ordered=0), did(1, "Page Viewed")],
    ),
}  # fmt: skip


def test_every_example_has_its_stories() -> None:
    assert EXAMPLES.keys() == STORIES.keys()
    assert PAGE.read_text().count("```json") == len(EXAMPLES)


@pytest.mark.parametrize("title", EXAMPLES)
def test_it_finds_who_fits(title: str) -> None:
    assert is_member(EXAMPLES[title], STORIES[title][0])


@pytest.mark.parametrize("title", EXAMPLES)
def test_and_not_who_does_not(title: str) -> None:
    assert not is_member(EXAMPLES[title], STORIES[title][1])


def is_member(where: object, story: list[Step]) -> bool:
    """Return whether a user with that story is a member at `NOW`. An event named after a user selects the user of the
    story; one named after a list or colleagues selects a list or the other users of the account.
    """
    wheres = {"buyers": {"event": "Order Completed"}, "complainers": {"event": "Complained"}, "asked": where}
    known = Known({key: frozenset() for key in wheres}, lists=frozenset({"fair-2026"}), accounts=True)
    evaluator = Evaluator(
        compile_plan([parse_segment({"key": key, "name": key, "where": where}, known) for key, where in wheres.items()])
    )
    user = next((name for _, name, _ in story if isinstance(name, str) and name.startswith("user-")), "u1")
    state = UserState(user_id=user)
    for days_ago, what, properties in story:
        at = round((NOW - timedelta(days=days_ago)).timestamp() * 1_000)
        if isinstance(what, dict):
            evaluator.on_profile(state, what, [], at)
        elif what.startswith("list "):
            evaluator.on_list(state, what.removeprefix("list "), True, at)
        elif what == "colleagues":
            others = dict.fromkeys((condition.id for condition in evaluator.plan.accounts), (3, properties["ordered"]))
            evaluator.on_account(state, AccountTally("acme", others), at)
        else:
            evaluator.on_event(state, SimpleNamespace(name=what, time_ms=at, properties=properties, context={}), at)
    evaluator.on_timer(state, round(NOW.timestamp() * 1_000))
    return "asked" in state.memberships and state.memberships["asked"].member
