"""The fast path of a user's first match leaves the same state as the general path."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any, get_args

import msgspec
import pytest

from starling_segments import Evaluator, Known, UserState, compile_plan, parse_segment
from starling_segments.aggregates.accumulators import Delayed, Measured
from starling_segments.aggregates.measure_table import BEATS, FIRST, MEASURES, MeasureKind, kind_of
from starling_segments.engine.leaves import EventLeaf
from starling_segments.engine.window_leaves import DelayedLeaf
from starling_segments.language.tree import EventSelector, Measure

NOW, HOUR_MS, DAY_MS = 1_767_225_600_000, 3_600_000, 86_400_000
A: dict[str, Any] = {"event": "A"}
KINDS: dict[str, MeasureKind] = {
    **{str(name): kind for name, kind in MEASURES.items()},
    "percentile": kind_of(Measure(EventSelector("A", None), "percentile", path="v", window=None, q="0.9")),
    "the first": FIRST, "beats": BEATS,
}  # fmt: skip
AMOUNT, ANY = (5.0, -0.5, 1e290), ("x", "y" * 9_000, 7, 1.5, True, ["x", {"deep": None}], {"a": [1]})
PAYLOADS: dict[str, tuple[Any, ...]] = {
    **dict.fromkeys(("sum", "avg", "min", "max", "percentile"), AMOUNT),
    **dict.fromkeys(("first", "last", "most_frequent"), ANY),
    "distinct": ("tx", "j7"), "days": (739_000,),
}  # fmt: skip
WINDOWS: dict[str, dict[str, Any]] = {
    "ever": {}, "within": {"within": "30d"}, "fixed": {"after": "2025-06-01", "before": "2026-01-01"},
    "between_ago": {"between_ago": ["20d", "2d"]},
}  # fmt: skip
ASKED: list[tuple[tuple[str, ...], list[dict[str, Any]]]] = [
    (
        ("count", "distinct", "days"),
        [{"op": op, "value": value} for op in ("gte", "lt", "eq", "neq", "gt") for value in (0, 1, 2)],
    ),
    (
        ("sum", "avg", "min", "max", "percentile"),
        [{"op": "gte", "value": 5}, {"op": "eq", "value": 5}, {"op": "lt", "value": 0}],
    ),
    (
        ("first", "last", "most_frequent"),
        [{"op": "eq", "value": "x"}, {"op": "neq", "value": "x"}, {"op": "exists"}, {"op": "within_last", "value": "3d"}],
    ),
    (
        ("first_time", "last_time"),
        [{"op": "within_last", "value": "3d"}, {"op": "older_than", "value": "3d"}, {"op": "before", "value": "2026-01-01"}],
    ),
]
OPERATORS = {name: operators for names, operators in ASKED for name in names}
EVENTS: list[dict[str, Any]] = [
    {"v": 5, "k": "x"},
    {"v": -0.5, "k": "y"},
    {"v": "none", "k": None},
    {"k": ["x"] * 300},
    {"k": "2020-01-01"},
    {"k": "2025-12-31"},
    {},
]


@pytest.mark.parametrize("name", KINDS)
@pytest.mark.parametrize("lasting", [True, False])
def test_what_is_written_is_what_would_have_been_kept(name: str, lasting: bool) -> None:
    kind = KINDS[name]
    make, begins = (kind.lifetime, kind.lifetime_first) if lasting else (kind.windowed, kind.windowed_first)
    for payload in PAYLOADS.get(name, (None,)):
        kept: Any = make()
        kept.add(NOW, payload, 1_000)
        written = begins(NOW, payload)
        assert msgspec.msgpack.encode(written) == msgspec.msgpack.encode(kept)
        assert kind.single(NOW, payload) == kept.value()
        assert make().value() == kind.default


def test_every_measure_has_a_beginning() -> None:
    made = {getattr(make, "func", make) for kind in KINDS.values() for make in (kind.lifetime, kind.windowed)}
    assert made == set(get_args(Measured))


def _leaves() -> dict[str, list[dict[str, Any]]]:
    """Name -> condition: each measure and window, and the conditions with encodings of their own."""
    found: dict[str, list[dict[str, Any]]] = {}
    for name, operators in OPERATORS.items():
        path = "k" if name in {"distinct", "first", "last", "most_frequent"} else "v"
        measure: Any = name if name in {"count", "first_time", "last_time"} else {name: True if name == "days" else path}
        if name == "percentile":
            measure = {name: path, "q": 0.9}
        for window, more in WINDOWS.items():
            asked = [{**A, "measure": measure, **operator, **more} for operator in operators]
            found |= {f"{name}, {window}, {number}": [one] for number, one in enumerate(asked)}
            found[f"{name}, {window}, all at once"] = asked
    found["first time in a window"] = [{"first_time": A, "within": "7d"}, {"first_time": A, "within": "2h"}]
    found["first time between"] = [{"first_time": A, "between_ago": ["7d", "2d"]}]
    found["regularly"] = [{"regularly": A, "every": "2d", "at_least": n, "of": 3} for n in (1, 2)]
    return found


LEAVES = _leaves()


def _nothing(leaf: EventLeaf) -> Any:
    if isinstance(leaf, DelayedLeaf):
        return Delayed(leaf.kind.windowed())
    return leaf.kind.lifetime() if leaf.window_ms is None else leaf.kind.windowed()


def _evaluator(wheres: list[dict[str, Any]]) -> Evaluator:
    documents = [{"key": f"s{n}", "name": "s", "where": where} for n, where in enumerate(wheres)]
    return Evaluator(compile_plan([parse_segment(document, Known()) for document in documents]))


@pytest.mark.parametrize("name", LEAVES)
def test_a_first_match_leaves_the_same_either_way(name: str) -> None:
    evaluator = _evaluator(LEAVES[name])
    (leaf,) = evaluator.plan.event_leaves.values()
    assert isinstance(leaf, EventLeaf)
    for age_ms in (0, HOUR_MS, 3 * DAY_MS, 31 * DAY_MS, 400 * DAY_MS):
        for properties in EVENTS:
            event: Any = SimpleNamespace(name="A", time_ms=NOW - age_ms, properties=properties, context={})
            one, other = UserState(known=True), UserState(known=True)
            other.accumulators.put(leaf.id, _nothing(leaf))  # present but empty: the general path
            masks = [leaf.fold(state, event, NOW) for state in (one, other)]
            assert masks[0] == masks[1]
            assert one.due == other.due
            kept, same = (state.accumulators.get(leaf.id) for state in (one, other))
            assert same == (_nothing(leaf) if kept is None else kept)
