"""The cases of stored states: one user each, which together have every kind of accumulator. `states/format_*.json` has the bytes.

    python -m tests.unit.segments.stored

adds missing cases to the file of the current format. Existing bytes are never written again: they stand for the states in use.
"""

from __future__ import annotations

import base64
import json
import zlib
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from starling_segments import (
    AccountTally,
    Change,
    Evaluator,
    Known,
    UserState,
    account_updates,
    compile_plan,
    encode_state,
    parse_segment,
    set_account,
)
from starling_segments.engine.state import FORMAT

STATES = Path(__file__).parent / "states"
FIRST_MS, HOUR_MS, DAY_MS = 1_767_225_600_000, 3_600_000, 86_400_000
BUY: dict[str, Any] = {"event": "Buy"}
ENOUGH = {"op": "gte", "value": 2}

Doc = dict[str, Any]
Step = tuple[Any, ...]
"""(kind, advance of the clock before it, content) of one step."""


@dataclass(frozen=True)
class Case:
    """The conditions by segment key, and the steps."""

    wheres: dict[str, Doc]
    steps: tuple[Step, ...]

    def evaluator(self) -> Evaluator:
        known = Known({"pro": frozenset()}, lists=frozenset({"vips"}), accounts=True)
        documents = [{"key": key, "name": key, "timezone": "Europe/Berlin", "where": self.wheres[key]} for key in self.wheres]
        return Evaluator(compile_plan([parse_segment(document, known) for document in documents]))


def state_of(case: Case) -> UserState:
    """Return the state after all steps."""
    evaluator, state = case.evaluator(), UserState(user_id="u")
    now = FIRST_MS
    for kind, after_ms, *what in case.steps:
        now += after_ms
        take(evaluator, state, now, kind, *what)
    return state


def take(evaluator: Evaluator, state: UserState, now: int, kind: str, *what: Any) -> list[Change]:
    """Apply one step."""
    if kind == "event":
        name, ahead_ms, properties = what
        return evaluator.on_event(state, SimpleNamespace(name=name, time_ms=now + ahead_ms, properties=properties, context={}), now)
    if kind == "profile":
        return evaluator.on_profile(state, what[0], ["a1"], now)
    if kind == "list":
        return evaluator.on_list(state, what[0], True, now)
    account, others = what
    set_account(state, account)
    account_updates(state, evaluator.plan)
    return evaluator.on_account(state, AccountTally(account, {asked.id: others for asked in evaluator.plan.accounts}), now)


def go_on(case: Case, state: UserState) -> list[Change]:
    """Apply the same events again a day later, then timers only."""
    evaluator, now, changes = case.evaluator(), state.clock + DAY_MS, []
    for kind, after_ms, *what in case.steps[:20]:
        now += after_ms
        changes += take(evaluator, state, now, kind, *what)
    for _ in range(90):
        now += DAY_MS
        changes += evaluator.on_timer(state, now)
    return changes


def events(n: int, every_ms: int, name: str = "Buy", ahead_ms: int = 0) -> Iterator[Step]:
    """Events with amounts `v` that rise and fall, texts `k` of a few values, and `i`, different each time."""
    for i in range(n):
        yield "event", every_ms, name, ahead_ms, {"v": 10 + i * 37 % 100, "k": "xyz"[i * i % 3], "i": f"i{i}"}


def asked_of(measure: Any) -> Doc:
    """Return a condition on this measure."""
    name = measure if isinstance(measure, str) else next(iter(measure))
    if name in ("first_time", "last_time"):
        return {**BUY, "measure": measure, "op": "within_last", "value": "3d"}
    if name in ("first", "last", "most_frequent"):
        return {**BUY, "measure": measure, "op": "eq", "value": "x"}
    return {**BUY, "measure": measure, **ENOUGH}


MEASURES: dict[str, Any] = {
    "count": "count", "first_time": "first_time", "last_time": "last_time", "days": {"days": True},
    **{name: {name: "v"} for name in ("sum", "avg", "min", "max")},
    **{name: {name: "k"} for name in ("first", "last", "most_frequent", "distinct")},
    "percentile": {"percentile": "v", "q": 0.5},
}  # fmt: skip
WINDOWS: dict[str, Doc] = {
    "ever": {}, "within": {"within": "30d"}, "between_ago": {"between_ago": ["6d", "2d"]}, "fixed": {"after": "2026-01-03"},
    "calendar": {"calendar": "this_week"},
}  # fmt: skip
CROWDED = ("count", "first_time", "sum", "avg", "min", "max", "first", "most_frequent", "percentile")
"""The measures with panes in a window; distinct values have them above 256."""
SAME_SKU = {"property": "k", "op": "eq", "value": {"step": 0, "property": "k"}}
SEQUENCES: dict[str, Doc] = {
    "open": {"sequence": [BUY, {"event": "Pay"}], "within": "20d"},
    "done": {"sequence": [BUY, {"event": "Look", "within": "5d"}], "within": "30d"},
    "for ever": {  # vocabulary: for ever: name in the stored states
        "sequence": [BUY, {"not": {"event": "Pay"}}, {"event": "Look"}]
    },
    "paused": {"sequence": [BUY, {"not": {"event": "Look"}, "for": "2d"}], "within": "30d"},
    "broken": {"sequence": [BUY, {"not": {"event": "Buy"}, "for": "2d"}, {"not": {"event": "Pay"}, "for": "9d"}]},
    "compared": {"sequence": [BUY, {"event": "Look"}, {"event": "Pay", "where": SAME_SKU}], "within": "40d"},
    "compared twice": {
        "sequence": [
            BUY,
            {"event": "Look", "where": {"all": [{"property": "k", "op": "eq", "value": {"trait": "shop"}}, SAME_SKU]}},
            {"event": "Buy", "where": {"property": "v", "op": "gt", "value": {"step": 1, "property": "v"}}, "within": "3d"},
        ],
        "within": "40d",
    },
    "compared pause": {"sequence": [BUY, {"not": {"event": "Look", "where": SAME_SKU}, "for": "8d"}], "within": "40d"},
    "compared trait": {
        "sequence": [
            BUY,
            {"event": "Look", "where": {"all": [SAME_SKU, {"property": "k", "op": "eq", "value": {"trait": "shop"}}]}},
        ]
    },
}
STANDING: dict[str, Doc] = {
    "pro": {"trait": "plan", "op": "eq", "value": "pro"},
    "renewing": {"trait": "renewal", "op": "within_next", "value": "7d"},
    "held": {"trait": "plan", "op": "eq", "value": "pro", "held_for": "12d"},
    "newly": {"trait": "plan", "op": "eq", "value": "pro", "held_less_than": "12d"},
    "never set": {"trait": "other", "op": "neq", "value": 1, "held_for": "12d"},
    "own shop": {**BUY, "where": {"property": "k", "op": "eq", "value": {"trait": "shop"}}, **ENOUGH, "within": "30d"},
    "listed": {"list": "vips"},
    "quarter": {"bucket": {"salt": "s", "from": 0, "to": 99}},
    "colleagues": {"account": {"match": "all", "where": {**BUY, "within": "10d"}}},
    "everyone": {"everyone": True},
}
PROFILE: Step = ("profile", 1_000, {"plan": "pro", "renewal": "2026-02-01", "shop": "x", "n": 1.5})


def cases() -> dict[str, Case]:
    """Return all cases by name."""
    few, many = tuple(events(6, DAY_MS)), tuple(events(270, HOUR_MS // 3))  # KLL is random from 300 amounts on
    found = {
        f"{name} {window}": Case({"s": {**asked_of(measure), **WINDOWS[window]}}, few)
        for name, measure in MEASURES.items()
        for window in WINDOWS
    }
    for name in CROWDED:
        found[f"{name} crowded"] = Case({"s": {**asked_of(MEASURES[name]), "within": "30d"}}, many)
    for name, measure in {"distinct": {"distinct": "i"}, "most_frequent": {"most_frequent": "i"}}.items():
        found[f"{name} crowded, different"] = Case({"s": {**asked_of(measure), "within": "30d"}}, many)
        found[f"{name} crowded ever"] = Case({"s": asked_of(measure)}, many)
        found[f"{name} crowded calendar"] = Case({"s": {**asked_of(measure), "calendar": "this_year"}}, many)
    # Once an hour for thirteen days: more than 256 matches wait, and the oldest have not all entered the window.
    waiting = {**MEASURES, "distinct": {"distinct": "i"}, "most_frequent": {"most_frequent": "i"}}
    for name, measure in waiting.items():
        found[f"{name} waiting in panes"] = Case(
            {"s": {**asked_of(measure), "between_ago": ["20d", "12d"]}}, tuple(events(320, HOUR_MS))
        )
    found["percentile crowded ever"] = Case({"s": asked_of(MEASURES["percentile"])}, many)
    mixed = (PROFILE, *(step for pair in zip(few, events(6, HOUR_MS, "Look"), strict=True) for step in pair))
    found |= {f"sequence {name}": Case({"s": where}, mixed) for name, where in SEQUENCES.items()}
    ahead = (PROFILE, *few, *events(2, HOUR_MS, ahead_ms=200_000), *events(2, 1_000, "Look", ahead_ms=100_000))
    found |= {f"waiting {key}": Case({"s": SEQUENCES[key]}, ahead) for key in ("done", "compared")}
    found["waiting"] = Case({name.replace("_", "-"): {**asked_of(MEASURES[name]), "within": "30d"} for name in MEASURES}, ahead)
    found["regularly"] = Case({"s": {"regularly": BUY, "every": "2d", "at_least": 2, "of": 3}}, few)
    found["first_time in a window"] = Case({"s": {"first_time": BUY, "within": "7d"}}, few)
    found["first_time by a date"] = Case({"s": {"first_time": BUY, "after": "2026-01-01", "before": "2026-01-04"}}, few)
    sides = {"of": {**BUY, "measure": {"sum": "v"}}, "to": {"event": "Look"}}
    found["ratio"] = Case({"s": {"measure": {"ratio": sides}, "op": "gt", "value": 1, "within": "9d"}}, mixed)
    standing = (PROFILE, ("list", 1_000, "vips"), ("account", 1_000, "acme", (3, 2)), *few)
    wheres = {key.replace(" ", "-"): where for key, where in STANDING.items()}
    key = "who somebody is"  # vocabulary: somebody: the key of a stored case
    found[key] = Case({**wheres, "nested": {"segment": "pro"}}, standing)
    # An accumulator of more than 255 bytes makes all lengths wider.
    many_leaves = {
        f"{name.replace('_', '-')}-{key}": {**asked_of(MEASURES[name]), **WINDOWS[key]} for name in MEASURES for key in WINDOWS
    }
    found["side by side"] = Case(many_leaves, few)
    found["side by side, some long"] = Case(many_leaves, tuple(events(60, HOUR_MS)))
    return found


def read(path: Path) -> dict[str, bytes]:
    """Return the states of one file by case."""
    texts: dict[str, str] = json.loads(path.read_text())
    return {name: zlib.decompress(base64.b64decode(text)) for name, text in texts.items()}


def write(path: Path, states: dict[str, bytes]) -> None:
    """Write the states of one file."""
    texts = {name: base64.b64encode(zlib.compress(data, 9)).decode() for name, data in states.items()}
    path.write_text(json.dumps(texts, indent=0) + "\n")


def main() -> None:
    """Write the missing cases."""
    path = STATES / f"format_{FORMAT}.json"
    there = {name for other in STATES.glob("format_*.json") for name in read(other)}
    states = read(path) if path.exists() else {}
    write(path, states | {name: encode_state(state_of(case)) for name, case in cases().items() if name not in there})


if __name__ == "__main__":
    main()
