"""The load of the segmenter's benchmarks: a shop with 20 segments of every kind, or up to thousands, its users and what they do."""

import json
import random
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final, TypeAlias

from starling_common.values import deterministic_id, record_key

USERS = 100_000
FIRST_MS: Final = 1_767_225_600_000
"""2026-01-01T00:00:00Z"""
DAY_MS: Final = 86_400_000
NAMES: Final = ("Page Viewed", "Product Viewed", "Product Added", "Order Completed", "Signed In")
WEIGHTS: Final = (55, 20, 12, 8, 5)
Names: TypeAlias = tuple[Sequence[str], Sequence[float]]

_BOUGHT: Final = {"event": "Order Completed"}
_PRO: Final = {"trait": "plan", "op": "eq", "value": "pro"}
_SHOES: Final = {"property": "category", "op": "eq", "value": "shoes"}


def conditions() -> dict[str, dict[str, Any]]:
    """Segment key -> `where`: traits, counts, sums, distincts, windows from 7 to 365 days, first times, nested, groups."""
    return {
        "everyone": {"everyone": True},
        "pro": _PRO,
        "from-here": {"trait": "country", "op": "in", "value": ["DE", "JP", "US"]},
        "grown-up": {"trait": "age", "op": "gte", "value": 40},
        "buyers": _BOUGHT,
        "buyers-7d": {**_BOUGHT, "within": "7d"},
        "repeat-buyers-90d": {**_BOUGHT, "op": "gte", "value": 2, "within": "90d"},
        "loyal": {**_BOUGHT, "op": "gte", "value": 5, "within": "365d"},
        "spenders-30d": {**_BOUGHT, "measure": {"sum": "revenue"}, "op": "gte", "value": 200, "within": "30d"},
        "spenders": {**_BOUGHT, "measure": {"sum": "revenue"}, "op": "gte", "value": 500},
        "broad-taste": {"event": "Product Viewed", "measure": {"distinct": "category"}, "op": "gte", "value": 3, "within": "90d"},
        "new-buyers": {"first_time": _BOUGHT, "within": "7d"},
        "shoe-lovers": {"event": "Product *", "where": _SHOES, "op": "gte", "value": 3, "within": "30d"},
        "busy": {"event": "Page Viewed", "op": "gte", "value": 10, "within": "7d"},
        "carts": {"all": [{"event": "Product Added", "within": "7d"}, {"not": {**_BOUGHT, "within": "7d"}}]},
        "gone": {"all": [_BOUGHT, {"not": {**_BOUGHT, "within": "180d"}}]},
        "pro-buyers": {"all": [{"segment": "pro"}, {"segment": "buyers"}]},
        "idle-pro": {"all": [{"segment": "pro"}, {"not": {"event": "*", "within": "14d"}}]},
        "bargains": {
            "event": "Order Completed",
            "where": {"all": [{"property": "revenue", "op": "lt", "value": 20}, _SHOES]},
            "op": "gte",
            "value": 2,
            "within": "30d",
        },
        "any-of-it": {"any": [{"segment": "busy"}, {"event": "Signed In", "op": "gte", "value": 3, "within": "30d"}]},
    }


RARE_NAMES: Final = tuple(f"Feature {number} Used" for number in range(45))
WIDE_NAMES: Final = (*NAMES, *RARE_NAMES)
WIDE_WEIGHTS: Final = (*(weight * 9 for weight in WEIGHTS), *(100 / len(RARE_NAMES) for _ in RARE_NAMES))
"""Nine events in ten are of the five names of the shop, the rest spread over many: as where many segments are."""


def mixed(count: int) -> dict[str, dict[str, Any]]:
    """That many segments: those of `conditions()`, one that counts orders first, then variations of every kind.

    Names, thresholds, windows and filters vary with the number. Four in ten of the variations concern one of the shop's
    own five events, and of those that look at events half want a certain product or category.
    """
    first = "repeat-buyers-90d"
    found = {first: conditions()[first]} | conditions()
    found |= {f"variation-{number}": _variation(number) for number in range(max(0, count - len(found)))}
    return dict(list(found.items())[:count])


def _variation(number: int) -> dict[str, Any]:
    dice = random.Random(number)
    name = dice.choice(NAMES) if dice.random() < 0.4 else dice.choice(RARE_NAMES)
    happened: dict[str, Any] = {"event": name, "within": f"{dice.choice((1, 7, 14, 30, 90))}d"}
    category, product = dice.choice(("shoes", "hats", "bags", "coats", "toys")), f"sku-{dice.randrange(500)}"
    wanted = dice.choice((("category", category), ("product_id", product), None, None))
    if wanted is not None:
        happened["where"] = {"property": wanted[0], "op": "eq", "value": wanted[1]}
    lately = happened | {"op": "gte", "value": dice.randint(2, 8)}
    trait = {"trait": "age", "op": "gte", "value": dice.randint(20, 70)}
    return (
        lately,
        happened | {"measure": {"sum": "revenue"}, "op": "gte", "value": dice.randint(100, 2000)},
        happened | {"measure": {"distinct": "product_id"}, "op": "gte", "value": dice.randint(2, 6)},
        {"all": [happened, trait]},
        {"all": [trait, {"not": happened}]},
        {"any": [lately, {"trait": "country", "op": "eq", "value": dice.choice(("DE", "FR", "JP"))}]},
        {"first_time": {"event": name}, "within": f"{dice.randint(1, 60)}d"},
        {"all": [trait, {"trait": "plan", "op": "eq", "value": "pro"}]},
    )[number % 8]


def definitions(segments: Mapping[str, dict[str, Any]] | None = None) -> Iterator[tuple[bytes, dict[str, Any]]]:
    """The `DefinitionChanged` records of these segments (`conditions()`), each after those that it is built on."""
    for key, where in (segments or conditions()).items():
        yield (
            record_key("default", key),
            {
                "recorded_at": FIRST_MS * 1000,
                "event_id": deterministic_id("definition", key),
                "workspace": "default",
                "kind": "segment",
                "key": key,
                "version": 1,
                "action": "DEFINED",
                "document": json.dumps({"key": key, "name": key, "where": where}),
                "actor": "benchmark",
                "correlation_id": "benchmark",
            },
        )


def profiles() -> Iterator[tuple[bytes, dict[str, Any]]]:
    """One `ProfileChanged` for each user."""
    dice = random.Random(1)
    for number in range(USERS):
        user = f"user-{number}"
        traits = {
            "plan": dice.choice(("free", "free", "free", "pro")),
            "country": dice.choice(("DE", "FR", "JP", "BR", "US", "IN")),
            "age": dice.randint(18, 80),
            "email": f"{user}@example.com",
        }
        yield (
            record_key("default", user),
            _of(user, number, FIRST_MS)
            | {
                "change": "TRAITS",
                "traits": json.dumps(traits),
                "group_traits": "{}",
                "context": "{}",
            },
        )


def behaviour(
    count: int, seed: int, first_ms: int, span_ms: int, names: Names = (NAMES, WEIGHTS)
) -> Iterator[tuple[bytes, dict[str, Any]]]:
    """`count` events, evenly over `span_ms` from `first_ms` on; each call with a seed of its own (1, 2, 3 …)."""
    dice = random.Random(seed)
    for number in range(count):
        user = f"user-{dice.randrange(USERS)}"
        at_ms = first_ms + span_ms * number // count
        properties = {
            "revenue": dice.randint(5, 200),
            "category": dice.choice(("shoes", "hats", "bags", "coats", "toys")),
            "product_id": f"sku-{dice.randrange(500)}",
            "quantity": dice.randint(1, 4),
            "currency": "EUR",
        }
        yield (
            record_key("default", user),
            _of(user, USERS + seed * 10_000_000 + number, at_ms)
            | {
                "message_id": f"message-{seed}-{number}",
                "kind": "track",
                "name": dice.choices(*names)[0],
                "properties": json.dumps(properties),
                "context": _CONTEXT,
                "traits": "{}",
            },
        )


_CONTEXT: Final = json.dumps(
    {"ip": "192.0.2.7", "library": {"name": "analytics-python", "version": "2.3.4"}, "page": {"path": "/shop", "title": "Shop"}}
)


def _of(user: str, number: int, at_ms: int) -> dict[str, Any]:
    return {
        # The order of arrival; far enough in the past for no merge to hold anything back.
        "received_at": FIRST_MS * 1000 + number,
        "workspace": "default",
        "user_id": user,
        "anonymous_ids": [f"anonymous-{user}"],
        "event_id": deterministic_id("benchmark", number),
        "event_time": at_ms,
        "correlation_id": deterministic_id("request", number // 10),
    }
