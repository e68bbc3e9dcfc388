"""The load of the segmenter's benchmark: a shop with 20 segments of every kind, its users and what they do."""

import json
import random
from collections.abc import Iterator
from typing import Any, Final

from starling_common.values import deterministic_id, record_key

USERS = 100_000
FIRST_MS: Final = 1_767_225_600_000
"""2026-01-01T00:00:00Z"""
DAY_MS: Final = 86_400_000
NAMES: Final = ("Page Viewed", "Product Viewed", "Product Added", "Order Completed", "Signed In")
WEIGHTS: Final = (55, 20, 12, 8, 5)

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


def definitions() -> Iterator[tuple[bytes, dict[str, Any]]]:
    """The `DefinitionChanged` records of all segments, each after those that it is built on."""
    for key, where in conditions().items():
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


def behaviour(count: int, seed: int, first_ms: int, span_ms: int) -> Iterator[tuple[bytes, dict[str, Any]]]:
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
                "name": dice.choices(NAMES, WEIGHTS)[0],
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
