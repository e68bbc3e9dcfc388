"""Time of one event with the most expensive definitions that are accepted. Prints JSON, microseconds an event.

Each family has definitions of growing size. The largest one within the default limit is evaluated for one user, with events that
make it as slow as possible: arrays and texts of 32 KB, accumulators that are full. Processor time of one thread; the mean of the
second half. Run: python benchmarks/worst_cost.py [--write]
"""

from __future__ import annotations

import argparse
import json
import random
import time
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

from starling_segments import (
    CostLimits,
    DefinitionRefused,
    Evaluator,
    Known,
    Segment,
    UserState,
    compile_plan,
    cost_of_segment,
    encode_state,
    parse_segment,
)

Doc = dict[str, Any]
LIMITS = CostLimits(work=1_000, state_bytes=2 << 20)
"""The defaults of the API."""
EVENTS, STEP_MS = 800, 6_000_000
RESULT = Path(__file__).parent / "results" / "worst_cost.json"
MANY = [f"value-{i}" for i in range(10_000)]
dice = random.Random(7)


@dataclass(slots=True)
class Event:
    name: str
    time_ms: int
    properties: Doc
    context: Doc


def each(predicate: Callable[[int], Doc]) -> Callable[[int], Doc]:
    """Return a family: an event condition whose `where` requires n predicates."""
    return lambda n: {
        "event": "A",
        "where": {"all": [{"any": [predicate(i) for i in range(k, min(k + 60, n))]} for k in range(0, n, 60)]},
    }


def conditions(condition: Callable[[int], Doc]) -> Callable[[int], Doc]:
    """Return a family: n conditions, all of which are false and therefore evaluated."""
    return lambda n: {"any": [condition(i) for i in range(min(n, 64))]}


def measured(measure: Doc | str, window: Doc, value: Any = -5) -> Callable[[int], Doc]:
    found = {"event": "A", "measure": measure, "op": "eq", "value": value}
    return conditions(lambda i: {**found, "within": f"{30 + i}d"} if "within" in window else {**found, **window})


def compared(op: str, *steps: int) -> Doc:
    return {"all": [{"property": "text", "op": op, "value": {"step": step, "property": "text"}} for step in steps]}


def of_property(name: str, op: str, value: Any) -> Doc:
    return {"event": "A", "where": {"property": name, "op": op, "value": value}}


def items(n: int) -> Doc:
    any_of = {"any": [{"item": "p", "op": "eq", "value": f"x{i}"} for i in range(min(n, 64))]}
    return {"event": "A", "where": {"property": "items", "op": "any_item", "where": any_of}}


def funnel(n: int) -> Doc:
    same = {"property": "code", "op": "eq", "value": {"step": 0, "property": "code"}}
    return {"sequence": [A, *[{"event": "A", "where": same}] * min(n, 62), {"event": "B"}], "within": "90d"}


def steps(n: int) -> Doc:
    last = {"event": "A", "where": compared("neq", *range(min(n, 62)))}
    return {"sequence": [*[A] * min(n, 62), last, {"event": "B"}], "within": "90d"}


A: Doc = {"event": "A"}
WITHIN: Doc = {"within": "30d"}
FAMILIES: dict[str, Callable[[int], Doc]] = {
    "has_all": each(lambda i: {"property": "texts", "op": "has_all", "value": [f"x{i}", *(MANY[1:] if i < 2 else [])]}),
    "has_any": each(lambda i: {"property": "texts", "op": "has_any", "value": [f"x{i}"]}),
    "in": each(lambda i: {"property": "text", "op": "in", "value": [*MANY[:36], f"x{i}"]}),
    "any_item": items,
    "every item of a path": each(lambda i: {"property": "items.*.p", "op": "has_any", "value": [f"x{i}"]}),
    "contains": lambda n: of_property("long", "contains", ["a" * 300 + f"x{i}" for i in range(n)]),
    "matches": each(lambda i: {"property": "bits", "op": "matches", "value": f"[ab]*a[ab]{{12}}x{i}"}),
    "a long pattern": lambda n: of_property("bits", "matches", f"(a|b)*a[ab]{{{n}}}c"),
    "compared with a trait": each(lambda i: {"property": f"text{i}", "op": "in", "value": {"trait": "wishes"}}),
    "count": conditions(lambda i: {"event": "A", "op": "eq", "value": -5, "within": f"{30 + i}d"}),
    "sum": measured({"sum": "number"}, WITHIN),
    "avg": measured({"avg": "number"}, WITHIN),
    "max": measured({"max": "number"}, WITHIN),
    "first": measured({"first": "text"}, WITHIN),
    "distinct": measured({"distinct": "text"}, WITHIN),
    "percentile": measured({"percentile": "number", "q": 0.5}, WITHIN),
    "most_frequent": measured({"most_frequent": "text"}, WITHIN, "none"),
    "between_ago": measured({"avg": "number"}, {"between_ago": ["60d", "30d"]}),
    "regularly": lambda n: {"regularly": A, "every": "1d", "at_least": 1, "of": min(n, 366)},
    "sequence": lambda n: {"sequence": [*[A] * min(n, 63), {"event": "B"}], "within": "90d"},
    "compared steps": steps,
    "a funnel of equal values": funnel,
    "a measure and a pattern": measured({"last": "bits"}, WITHIN, "none"),
    "dates in a trait": conditions(
        lambda i: {"trait": "cards", "op": "any_item", "where": {"item": "until", "op": "within_next", "value": f"{30 + i}d"}}
    ),
}
OF_PROFILES = frozenset({"dates in a trait"})
"""The families that an event of a profile evaluates."""


def accepted(where: Doc) -> Segment | None:
    try:
        return parse_segment({"key": "s", "name": "s", "where": where}, Known(limits=LIMITS))
    except DefinitionRefused:
        return None


def largest(family: Callable[[int], Doc]) -> tuple[int, Segment]:
    """Return the largest accepted definition of a family."""
    low, segment = 0, None
    for step in (4_096, 1_024, 256, 64, 16, 4, 1):
        while low + step <= 8_192 and (found := accepted(family(low + step))) is not None:
            low, segment = low + step, found
    if segment is None:
        raise SystemExit("a family has no accepted definition")
    return low, segment


def event(i: int) -> Event:
    bits = "".join(dice.choices("ab", k=1_100))
    properties = {
        "texts": [f"t{i}-{k}" for k in range(3_000)],
        "items": [{"p": f"t{k}"} for k in range(2_500)],
        "text": f"text-{i}-{dice.random()}",
        "long": "a" * 30_000,
        "bits": bits,
        "number": dice.random() * 1e3,
        "code": f"code-{i % 250}",
        **{f"text{k}": "none" for k in range(20)},
    }
    return Event("A", i * STEP_MS, properties, {})


def profile(i: int) -> Doc:
    """Return traits with dates that no earlier event has had."""
    first = datetime(2001, 1, 1, tzinfo=UTC) + timedelta(days=i)
    return {"cards": [{"until": (first + timedelta(seconds=k)).strftime("%Y-%m-%dT%H:%M:%SZ")} for k in range(600)]}


def measure(segment: Segment, *, of_profiles: bool) -> Doc:
    evaluator, state = Evaluator(compile_plan([segment])), UserState(user_id="u")
    evaluator.on_profile(state, {"wishes": MANY[:2_000]}, [], 0)
    took = []
    for i in range(EVENTS):
        made, traits = event(i), profile(i)
        began = time.thread_time()
        if of_profiles:
            evaluator.on_profile(state, traits, [], made.time_ms)
        else:
            evaluator.on_event(state, made, made.time_ms)
        took.append((time.thread_time() - began) * 1e6)
    half = took[EVENTS // 2 :]
    return {"event_us": round(sum(half) / len(half)), "slowest_us": round(max(half)), "state_bytes": len(encode_state(state))}


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--write", action="store_true", help=f"keep the result in {RESULT.name}")
    parser.add_argument("--only", default="", help="one family")
    arguments = parser.parse_args()
    families: Doc = {}
    for name, family in FAMILIES.items():
        if arguments.only in name:
            size, segment = largest(family)
            cost = cost_of_segment(segment)
            families[name] = {
                "size": size,
                "points": cost.work,
                "bytes": cost.state_bytes,
                **measure(segment, of_profiles=name in OF_PROFILES),
            }
    result = {"benchmark": "worst_cost", "limit_points": LIMITS.work, "families": families}
    result["worst_event_us"] = max(found["event_us"] for found in families.values())
    text = json.dumps(result, indent=1)
    if arguments.write:
        RESULT.write_text(text + "\n")
    print(text)


if __name__ == "__main__":
    main()
