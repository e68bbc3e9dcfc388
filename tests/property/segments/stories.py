"""Strategies: small worlds in which every edge collides. Times lie on a half-second grid, windows are a few seconds."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

from hypothesis import strategies as st

from tests.property.segments.oracle import GRID_MS, Happened

Doc = dict[str, Any]
NAMES = ("A", "AB", "B")
PATTERNS = ("A", "A*", "B", "*")
DURATIONS = ("1s", "2s", "3s", "5s")


@dataclass(frozen=True)
class Step:
    """One input: `kind` is event, profile, advance or define. `after_ms`: how far stream time moves on first."""

    kind: str
    after_ms: int
    event: Happened | None = None
    traits: Doc | None = None
    definitions: tuple[tuple[str, Doc], ...] = ()


def grid(low: int, high: int) -> st.SearchStrategy[int]:
    return st.integers(low, high).map(lambda i: i * GRID_MS)


def _as_test(pair: tuple[str, object]) -> Doc:
    return {"op": pair[0], "value": pair[1]}


windows: st.SearchStrategy[Doc] = st.one_of(st.just({}), st.sampled_from(DURATIONS).map(lambda d: {"within": d}))
numbers = st.sampled_from([-1, 0, 1, 1.5, 2, 3])
number_tests = st.one_of(
    st.tuples(st.sampled_from(["gte", "gt", "lt", "lte", "eq", "neq"]), numbers),
    st.tuples(st.just("between"), st.sampled_from([[1, 2], [0, 1]])),
    st.tuples(st.just("in"), st.sampled_from([[1, 3], [0, 2]])),
    st.tuples(st.just("mod"), st.just([2, 1])),
).map(_as_test)
existence = st.sampled_from([{"op": "exists"}, {"op": "missing"}])
property_checks = st.one_of(
    st.sampled_from(["x", "y", 1, True]).map(lambda v: {"property": "k", "op": "eq", "value": v}),
    number_tests.map(lambda test: {"property": "v", **test}),
    existence.map(lambda test: {"property": "v", **test}),
    st.sampled_from(DURATIONS).map(lambda d: {"property": "v", "op": "within_last", "value": d}),
)


def grouped(parts: st.SearchStrategy[Doc]) -> st.SearchStrategy[Doc]:
    several = st.lists(parts, min_size=1, max_size=3)
    return st.one_of(
        st.tuples(st.sampled_from(["all", "any", "none"]), several).map(lambda pair: {pair[0]: pair[1]}),
        parts.map(lambda part: {"not": part}),
    )


filters = st.one_of(property_checks, grouped(property_checks))
selectors = st.builds(
    lambda name, where: {"event": name, **where},
    st.sampled_from(PATTERNS),
    st.one_of(st.just({}), st.just({}), filters.map(lambda where: {"where": where})),
)
measures = st.sampled_from([{}, {"measure": "count"}, {"measure": {"sum": "v"}}, {"measure": {"distinct": "k"}}])
event_leaves = st.one_of(
    st.builds(lambda a, b, c, d: {**a, **b, **c, **d}, selectors, measures, windows, st.one_of(number_tests, existence)),
    st.builds(lambda a, b: {**a, **b}, selectors, windows),
)
first_leaves = st.builds(lambda a, b: {"first_time": a, **b}, selectors, windows)
trait_leaves = st.one_of(
    st.sampled_from(["x", 1, True]).map(lambda v: {"trait": "p", "op": "eq", "value": v}),
    st.sampled_from(["x", 1, True]).map(lambda v: {"trait": "p", "op": "neq", "value": v}),
    existence.map(lambda test: {"trait": "p", **test}),
    st.tuples(st.sampled_from(["within_last", "older_than", "within_next", "later_than"]), st.sampled_from(DURATIONS)).map(
        lambda pair: {"trait": "d", "op": pair[0], "value": pair[1]}
    ),
)
plain_leaves = st.one_of(event_leaves, event_leaves, first_leaves, trait_leaves, st.just({"everyone": True}))


def conditions(uses: tuple[str, ...]) -> st.SearchStrategy[Doc]:
    """Trees that may be built on the segments `uses`."""
    nested = st.sampled_from(uses).map(lambda key: {"segment": key}) if uses else st.nothing()
    leaves = st.one_of(plain_leaves, plain_leaves, nested)
    return st.one_of(leaves, grouped(leaves), grouped(st.one_of(leaves, grouped(leaves))))


@st.composite
def definitions(draw: st.DrawFn, keys: tuple[str, ...]) -> tuple[tuple[str, Doc], ...]:
    """A condition for each key; a later one may be built on those before it."""
    return tuple((key, draw(conditions(keys[:i]))) for i, key in enumerate(keys))


happened = st.builds(
    lambda name, time, v, k: Happened(name, time, {**v, **k}),
    st.sampled_from(NAMES),
    grid(-12, 8),  # relative to stream time here: late, on time, or ahead of it
    st.sampled_from([{}, {"v": 0.5}, {"v": 1}, {"v": 1}, {"v": 2}, {"v": -1}, {"v": "x"}, {"v": True}, {"v": 5_000}]),
    st.sampled_from([{}, {"k": "x"}, {"k": "y"}, {"k": 1}, {"k": 1.0}, {"k": True}]),
)
profiles = st.builds(
    lambda p, d: {**p, **d},
    st.sampled_from([{}, {"p": "x"}, {"p": 1}, {"p": True}, {"p": 1.0}]),
    st.one_of(st.just({}), grid(0, 60).map(lambda t: {"d": t})),
)
gaps = grid(0, 6)
event_steps = st.builds(lambda after, event: Step("event", after, event=event), gaps, happened)
steps = st.one_of(
    event_steps,
    event_steps,
    event_steps,
    st.builds(lambda after, traits: Step("profile", after, traits=traits), gaps, profiles),
    st.builds(lambda after: Step("advance", after), grid(0, 16)),
)


@st.composite
def stories(draw: st.DrawFn) -> list[Step]:
    """Definitions first, then inputs, now and then other definitions. A key that was dropped never comes back."""
    keys: tuple[str, ...] = ("a", "b", "c")
    told = [Step("define", 0, definitions=draw(definitions(keys)))]
    for chapter in range(draw(st.integers(1, 3))):
        told += draw(st.lists(steps, min_size=3, max_size=10))
        kept = tuple(key for key in keys if draw(st.booleans()))
        keys = (*kept, f"n{chapter}")
        told.append(Step("define", draw(gaps), definitions=draw(definitions(keys))))
    return [*told, *draw(st.lists(steps, max_size=6)), Step("advance", 20_000)]


windowed_leaves = st.builds(
    lambda measure, within, test: {"event": "A", **measure, "within": within, **test},
    measures,
    st.sampled_from(DURATIONS),
    st.one_of(number_tests, st.tuples(st.sampled_from(["gte", "lt"]), st.sampled_from([1, 2, 3])).map(_as_test)),
)


@st.composite
def crowded_windows(draw: st.DrawFn) -> list[Step]:
    """One kind of event, late as often as not, and nothing but windows over it."""
    keys = ("a", "b", "c", "d")
    told = [Step("define", 0, definitions=tuple((key, draw(windowed_leaves)) for key in keys))]
    crowd = st.builds(lambda after, event: Step("event", after, event=replace(event, name="A")), grid(0, 2), happened)
    pause = grid(0, 8).map(lambda after: Step("advance", after))
    return [*told, *draw(st.lists(st.one_of(crowd, crowd, crowd, pause), min_size=6, max_size=24)), Step("advance", 20_000)]
