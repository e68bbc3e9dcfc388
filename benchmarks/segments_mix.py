"""Cost of an event in the segment fold with 1, 20, 100 and 1,000 segments of all kinds. Prints JSON.

A shop with forty event names, fifty categories and two hundred brands; each segment selects one of them. A step is a worker's
computation for one event: state from bytes, fold, next timer, state to bytes. Processor time of one thread in microseconds.
Run: python benchmarks/segments_mix.py [--write]
"""

from __future__ import annotations

import argparse
import json
import random
import statistics
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from starling_segments import Evaluator, Known, Segment, UserState, compile_plan, decode_state, encode_state, parse_segment

FIRST_MS, DAY_MS = 1_767_225_600_000, 86_400_000
USERS, EVENTS, DAYS = 2_000, 20_000, 60
SIZES = (1, 20, 100, 1_000)
MOST_LEAVES = 256
NAMES = tuple(f"Event {i}" for i in range(40))
CATEGORIES = tuple(f"category-{i}" for i in range(50))
BRANDS = tuple(f"brand-{i}" for i in range(200))
Doc = dict[str, Any]
RESULT = Path(__file__).parent / "results" / "segments_mix.json"


@dataclass(slots=True)
class Event:
    name: str
    time_ms: int
    properties: Doc
    context: Doc


class Mix:
    """Segments of all kinds, deterministic for a seed."""

    def __init__(self, seed: int) -> None:
        self.dice = random.Random(seed)
        self.kinds: tuple[Callable[[int], Doc], ...] = (
            self.count, self.count, self.total, self.average, self.extreme, self.distinct, self.favourite, self.percentile,
            self.first_or_last, self.date, self.days, self.ratio, self.past, self.calendar, self.fixed, self.new, self.abandoned,
            self.same_brand, self.habit, self.trait, self.held, self.bucket, self.nested, self.lapsed,
        )  # fmt: skip

    def segments(self, n: int) -> list[Segment]:
        known = Known({f"s{i}": frozenset[str]() for i in range(n)})
        documents = [{"key": f"s{i}", "name": "x", "where": self.kinds[i % len(self.kinds)](i)} for i in range(n)]
        self.dice.shuffle(documents)
        return [parse_segment(document, known) for document in documents]

    def events(self) -> Doc:
        """Select one event name, in five of six cases with one category or brand."""
        found: Doc = {"event": self.dice.choice(NAMES)}
        asked = self.dice.choice(("category", "category", "brand", "brand", "brand", None))
        if asked:
            value = self.dice.choice(CATEGORIES if asked == "category" else BRANDS)
            found["where"] = {"property": asked, "op": "eq", "value": value}
        return found

    def window(self) -> Doc:
        return {"within": self.dice.choice(("1d", "7d", "30d", "90d", "365d"))}

    def measured(self, measure: Doc | str, op: str, value: Any) -> Doc:
        return {**self.events(), "measure": measure, "op": op, "value": value, **self.window()}

    def count(self, _i: int) -> Doc:
        return {**self.events(), "op": "gte", "value": self.dice.randint(1, 5), **self.window()}

    def total(self, _i: int) -> Doc:
        return self.measured({"sum": "revenue"}, "gte", 50 * self.dice.randint(2, 20))

    def average(self, _i: int) -> Doc:
        return self.measured({"avg": "revenue"}, "gte", 150)

    def extreme(self, _i: int) -> Doc:
        return self.measured({self.dice.choice(("min", "max")): "revenue"}, "gte", 190)

    def distinct(self, _i: int) -> Doc:
        return self.measured({"distinct": "brand"}, "gte", self.dice.randint(2, 5))

    def favourite(self, _i: int) -> Doc:
        return self.measured({"most_frequent": "category"}, "eq", self.dice.choice(CATEGORIES))

    def percentile(self, _i: int) -> Doc:
        return self.measured({"percentile": "revenue", "q": 0.9}, "gte", 190)

    def first_or_last(self, _i: int) -> Doc:
        return self.measured({self.dice.choice(("first", "last")): "brand"}, "eq", self.dice.choice(BRANDS))

    def date(self, _i: int) -> Doc:
        return {**self.events(), "measure": "last_time", "op": "older_than", "value": "14d"}

    def days(self, _i: int) -> Doc:
        return self.measured({"days": True}, "gte", 3)

    def ratio(self, _i: int) -> Doc:
        return {"measure": {"ratio": {"of": self.events(), "to": self.events()}}, "op": "gt", "value": 0.5, "within": "30d"}

    def past(self, _i: int) -> Doc:
        return {**self.events(), "between_ago": ["30d", "7d"]}

    def calendar(self, _i: int) -> Doc:
        return {**self.events(), "op": "gte", "value": 2, "calendar": self.dice.choice(("today", "this_week", "last_month"))}

    def fixed(self, _i: int) -> Doc:
        return {**self.events(), "after": "2026-01-10", "before": "2026-02-01"}

    def new(self, _i: int) -> Doc:
        return {"first_time": self.events(), "within": "7d"}

    def abandoned(self, _i: int) -> Doc:
        return {"sequence": [self.events(), {"not": self.events(), "for": "30m"}], "within": "7d"}

    def same_brand(self, _i: int) -> Doc:
        again = {
            "event": self.dice.choice(NAMES),
            "where": {"property": "brand", "op": "eq", "value": {"step": 0, "property": "brand"}},
        }
        return {"sequence": [self.events(), {**again, "within": "1d"}], "within": "7d"}

    def habit(self, _i: int) -> Doc:
        return {"regularly": self.events(), "every": "7d", "at_least": 3, "of": 4}

    def trait(self, _i: int) -> Doc:
        return {"trait": "city", "op": "eq", "value": f"city-{self.dice.randrange(100)}"}

    def held(self, _i: int) -> Doc:
        return {"trait": "plan", "op": "eq", "value": f"plan-{self.dice.randrange(20)}", "held_for": "7d"}

    def bucket(self, i: int) -> Doc:
        return {"all": [{"bucket": {"salt": f"exp-{i}", "from": 0, "to": 20}}, self.count(i)]}

    def nested(self, i: int) -> Doc:
        return {"all": [{"segment": f"s{i - 1}"}, {"segment": f"s{i - 2}"}]}

    def lapsed(self, _i: int) -> Doc:
        bought = self.events()
        return {"all": [bought, {"not": {**bought, "within": "14d"}}]}


def properties(dice: random.Random) -> Doc:
    """Return the properties of an event of the mix."""
    return {"category": dice.choice(CATEGORIES), "brand": dice.choice(BRANDS), "revenue": dice.randint(5, 200), "quantity": 1}


def traits(dice: random.Random) -> Doc:
    """Return the traits of a profile of the mix."""
    return {"plan": f"plan-{dice.randrange(20)}", "city": f"city-{dice.randrange(100)}"}


def events(seed: int) -> list[tuple[int, Event]]:
    dice, made = random.Random(seed), []
    for i in range(EVENTS):
        drawn = properties(dice)
        at = FIRST_MS + i * DAYS * DAY_MS // EVENTS
        made.append((dice.randrange(USERS), Event(dice.choice(NAMES), at, drawn, {})))
    return made


def states_with_profiles(evaluator: Evaluator) -> dict[int, bytes]:
    dice, states = random.Random(3), {}
    for user in range(USERS):
        state = UserState(user_id=f"user-{user}")
        evaluator.on_profile(state, traits(dice), [], FIRST_MS)
        states[user] = encode_state(state)
    return states


def run(evaluator: Evaluator, made: list[tuple[int, Event]]) -> dict[str, Any]:
    states, took = states_with_profiles(evaluator), {"decode": 0.0, "fold": 0.0, "encode": 0.0}
    changes, clock = 0, time.process_time
    began = clock()
    for user, event in made:  # no clock is read in between: that takes as long as a step
        state = decode_state(states[user])
        changes += len(evaluator.on_event(state, event, event.time_ms))
        evaluator.next_due(state)
        states[user] = encode_state(state)
    whole = clock() - began
    found = list(states.values())
    for _ in range(3):
        took["decode"] += timed(decode_state, found) / 3
        took["encode"] += timed(encode_state, [decode_state(data) for data in found]) / 3
    per_user = {name: spent / USERS * 1e6 for name, spent in took.items()}
    step = whole / EVENTS * 1e6
    return {
        "step_us": round(step, 2),
        "fold_us": round(step - per_user["decode"] - per_user["encode"], 2),
        "changes_an_event": round(changes / EVENTS, 2),
        "state_bytes_median": int(statistics.median(map(len, found))),
        "state_bytes_p99": sorted(map(len, found))[int(0.99 * USERS)],
    }


def timed(work: Callable[[Any], Any], items: list[Any]) -> float:
    began = time.process_time()
    for item in items:
        work(item)
    return time.process_time() - began


def measure(n: int, made: list[tuple[int, Event]]) -> dict[str, Any]:
    """Return the medians of three mixes of `n` segments (of 25 for small `n`, where the kinds differ)."""
    rounds = []
    for seed in range(3 if n > 20 else 25):
        began = time.process_time()
        evaluator = Evaluator(compile_plan(Mix(seed).segments(n)))
        compiled = time.process_time() - began
        rounds.append({"leaves": len(evaluator.plan.leaves), "parse_and_plan_ms": round(compiled * 1e3, 1), **run(evaluator, made)})
    return {name: statistics.median(found[name] for found in rounds) for name in rounds[0]}


def widest() -> dict[str, float]:
    """Return the time to parse and compile one segment of 256 conditions of all kinds, predicates inside `where` included."""
    mix, leaves = Mix(1), 0
    took: list[float] = []
    parts: list[Doc] = []
    kinds = [kind for kind in mix.kinds if kind.__name__ not in ("nested", "bucket", "lapsed", "ratio", "abandoned", "same_brand")]
    while leaves < MOST_LEAVES - 1:
        part = kinds[len(parts) % len(kinds)](0)
        parts.append(part)
        leaves += 1 + json.dumps(part).count('"property"')
    parts += [{"everyone": True}] * (MOST_LEAVES - leaves)
    document = {"key": "wide", "name": "x", "where": {"any": [{"all": parts[i : i + 50]} for i in range(0, len(parts), 50)]}}
    for _ in range(9):
        began = time.process_time()
        Evaluator(compile_plan([parse_segment(document, Known())]))
        took.append((time.process_time() - began) * 1e3)
    return {"leaves": MOST_LEAVES, "parse_and_plan_ms": round(statistics.median(took), 1)}


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--write", action="store_true", help=f"keep the result in {RESULT.name}")
    write = parser.parse_args().write
    made = events(7)
    sizes = {str(n): measure(n, made) for n in SIZES}
    result = {
        "benchmark": "segments_mix",
        "events": EVENTS,
        "users": USERS,
        "segments": sizes,
        "step_growth": round(sizes["1000"]["step_us"] / sizes["1"]["step_us"], 2),
        "widest_segment": widest(),
    }
    text = json.dumps(result, indent=1)
    if write:
        RESULT.write_text(text + "\n")
    print(text)


if __name__ == "__main__":
    main()
