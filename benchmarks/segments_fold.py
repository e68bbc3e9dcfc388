"""Time of one event in the segment fold, and of one state to bytes and back. Prints JSON, microseconds each.

Twenty mixed segments, 200 users, events of five properties, one thread; each figure is the median of five rounds in processor
time, so that other processes hardly affect it. Run: python benchmarks/segments_fold.py
"""

from __future__ import annotations

import json
import random
import statistics
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from starling_segments import Evaluator, Known, UserState, compile_plan, decode_state, encode_state, parse_segment

DAY_MS = 86_400_000
USERS = 200
EVENTS = 20_000
ROUNDS = 5
NAMES = ("Page Viewed", "Product Added", "Order Completed", "Checkout Started", "Email Opened")


@dataclass(slots=True)
class Event:
    name: str
    time_ms: int
    properties: dict[str, Any]
    context: dict[str, Any]


def conditions() -> list[dict[str, Any]]:
    bought = {"event": "Order Completed"}
    shoes = {"property": "category", "op": "eq", "value": "shoes"}
    revenue = {**bought, "measure": {"sum": "revenue"}, "op": "gte"}
    pro = {"trait": "plan", "op": "eq", "value": "pro"}
    return [
        {**bought, "op": "gte", "value": 3, "within": "30d"},
        {**bought, "op": "gte", "value": 10, "within": "30d"},
        {**bought, "where": shoes, "op": "gte", "value": 2, "within": "90d"},
        {**revenue, "value": 500, "within": "30d"},
        {**revenue, "value": 5_000, "within": "365d"},
        {**revenue, "value": 10_000},
        {"all": [bought, {"not": {**bought, "within": "180d"}}]},
        {"all": [{"event": "Product Added", "within": "1d"}, {"not": {**bought, "within": "1d"}}]},
        {"first_time": bought, "within": "7d"},
        {"event": "Page Viewed", "op": "gte", "value": 20, "within": "7d"},
        {"not": {"event": "Page Viewed", "within": "14d"}},
        {**bought, "measure": {"distinct": "category"}, "op": "gte", "value": 3, "within": "90d"},
        {"all": [pro, {"event": "Page Viewed", "within": "7d"}]},
        {"trait": "country", "op": "in", "value": ["DE", "JP", "US"]},
        {"trait": "renewal", "op": "within_next", "value": "7d"},
        {"any": [{"event": "Email Opened", "within": "3d"}, {"event": "Checkout Started", "within": "3d"}]},
        {"all": [{"segment": "s0"}, {"segment": "s3"}]},
        {"none": [{"event": "Email*", "within": "30d"}]},
        {"event": "Checkout Started", "where": {"context": "app.version", "op": "semver_gte", "value": "2.0.0"}, "within": "30d"},
        {"everyone": True},
    ]


def evaluator() -> Evaluator:
    keys = {f"s{i}": frozenset[str]() for i in range(20)}
    known = Known(keys)
    return Evaluator(
        compile_plan([parse_segment({"key": f"s{i}", "name": "x", "where": where}, known) for i, where in enumerate(conditions())])
    )


def events(seed: int) -> list[tuple[int, Event]]:
    """One user does something every two hours or so; names as uneven as in a shop."""
    random.seed(seed)
    made = []
    for i in range(EVENTS):
        name = random.choices(NAMES, (60, 15, 8, 10, 7))[0]
        properties = {
            "category": random.choice(["shoes", "hats", "bags"]),
            "revenue": random.randint(5, 200),
            "sku": f"sku-{random.randint(1, 500)}",
            "currency": "EUR",
            "quantity": 1,
        }
        at = 1_700_000_000_000 + i * 30 * DAY_MS // (EVENTS // USERS) // USERS
        made.append((random.randrange(USERS), Event(name, at, properties, {"app": {"version": "2.1.0"}})))
    return made


def median_us(rounds: list[float], times: int) -> float:
    return round(statistics.median(rounds) / times * 1e6, 2)


def fold(compiled: Evaluator, made: list[tuple[int, Event]]) -> tuple[float, dict[int, UserState], int]:
    states = {user: UserState() for user in range(USERS)}
    for state in states.values():
        compiled.on_profile(state, {"plan": "pro", "country": "DE", "renewal": "2023-11-20"}, [], 1_699_999_000_000)
    changes, began = 0, time.process_time()
    for user, event in made:
        changes += len(compiled.on_event(states[user], event, event.time_ms))
    return time.process_time() - began, states, changes


def clock(work: Callable[[Any], Any], items: list[Any]) -> float:
    began = time.process_time()
    for item in items:
        work(item)
    return time.process_time() - began


def main() -> None:
    compiled, made = evaluator(), events(7)
    folds = [fold(compiled, made) for _ in range(ROUNDS)]
    states = list(folds[0][1].values())
    encoded = [encode_state(state) for state in states]
    due = [clock(compiled.next_due, states) for _ in range(ROUNDS)]
    there = [clock(encode_state, states) for _ in range(ROUNDS)]
    back = [clock(decode_state, encoded) for _ in range(ROUNDS)]
    print(
        json.dumps(
            {
                "benchmark": "segments_fold",
                "segments": len(compiled.plan.segments),
                "event_leaves": len(compiled.plan.leaves),
                "events": EVENTS,
                "changes": folds[0][2],
                "on_event_us": median_us([took for took, _, _ in folds], EVENTS),
                "next_due_us": median_us(due, USERS),
                "state_bytes_median": int(statistics.median(map(len, encoded))),
                "encode_us": median_us(there, USERS),
                "decode_us": median_us(back, USERS),
            },
            indent=1,
        )
    )


if __name__ == "__main__":
    main()
