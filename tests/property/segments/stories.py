"""Strategies: small worlds with many coinciding edges. Times are on a half-second grid, windows have a few seconds."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from typing import Any

from hypothesis import strategies as st

from tests.property.segments.oracle import GRID_MS, MeasuredEvent
from tests.property.segments.wide import (
    DURATIONS,
    At,
    birthday_tests,
    birthdays,
    date_values,
    day_tests,
    located,
    scalar_tests,
    wide_paths,
    wide_tests,
    wide_values,
)  # fmt: skip

Doc = dict[str, Any]
NAMES = ("A", "AB", "B")
PATTERNS = ("A", "A*", "B", "*")
LISTS = ("vips", "press")


@dataclass(frozen=True)
class Step:
    """One input: `kind` is event, profile, list, account, advance, define or hold. `after_ms`: advance of stream time before it.

    `held`: the segments that are paused from then on; all others continue.
    """

    kind: str
    after_ms: int
    event: MeasuredEvent | None = None
    traits: Doc | None = None
    listed: tuple[str, bool] = ("", False)
    others: tuple[int, int] | None = None
    definitions: tuple[tuple[str, Doc], ...] = ()
    held: frozenset[str] = frozenset()


@dataclass(frozen=True)
class World:
    """The timezone and time of a story. `base_ms`: its first instant, to which all its times are relative."""

    zone: str
    base_ms: int


WORLDS = (
    World("UTC", 86_400_000_000),  # far from the epoch: a property of 1 or 2 is an instant too, and not on the grid
    World("Europe/Berlin", 1_861_916_390_000),  # ten seconds before the start of a day, a week, a month and a year
    World("Europe/Berlin", 1_774_745_990_000),  # ten seconds before the clocks go forward
    World("America/Havana", 1_772_945_990_000),  # ten seconds before a day whose first hour does not exist
)


def grid(low: int, high: int) -> st.SearchStrategy[int]:
    return st.integers(low, high).map(lambda i: i * GRID_MS)


def _as_test(pair: tuple[str, object]) -> Doc:
    return {"op": pair[0], "value": pair[1]}


def both(pair: tuple[Any, Any]) -> Doc:
    return {**pair[0], **pair[1]}


spans: st.SearchStrategy[Doc] = st.sampled_from(DURATIONS).map(lambda d: {"within": d})
fixed_windows = st.one_of(
    grid(-8, 40).map(lambda t: {"after": t}),
    grid(0, 80).map(lambda t: {"before": t}),
    st.sampled_from([At(0, "day"), At(86_400_000, "day")]).map(lambda day: {"after": day}),
    st.sampled_from([At(0, "day"), At(86_400_000, "day")]).map(lambda day: {"before": day}),
    st.tuples(grid(-8, 40), grid(1, 40)).map(lambda pair: {"after": pair[0], "before": pair[0] + pair[1]}),
)
calendar_windows = st.sampled_from(
    ["today", "yesterday", "this_week", "last_week", "this_month", "last_month", "this_year"]
).map(lambda name: {"calendar": name})  # fmt: skip
past_windows = st.sampled_from([["2s", "1s"], ["3s", "1s"], ["5s", "2s"], ["5s", "3s"]]).map(lambda pair: {"between_ago": pair})
windows = st.one_of(st.just({}), spans, spans, past_windows, fixed_windows, calendar_windows)
numbers = st.sampled_from([-1, 0, 1, 1.5, 2, 3])
number_tests = st.one_of(
    st.tuples(st.sampled_from(["gte", "gt", "lt", "lte", "eq", "neq"]), numbers),
    st.tuples(st.just("between"), st.sampled_from([[1, 2], [0, 1]])),
    st.tuples(st.just("in"), st.sampled_from([[1, 3], [0, 2]])),
    st.tuples(st.just("mod"), st.just([2, 1])),
).map(_as_test)
existence = st.sampled_from([{"op": "exists"}, {"op": "missing"}])
moving_tests = st.tuples(
    st.sampled_from(["within_last", "older_than", "within_next", "later_than"]), st.sampled_from(DURATIONS)
).map(_as_test)  # fmt: skip
date_tests = st.one_of(
    moving_tests, moving_tests, st.tuples(st.sampled_from(["before", "after"]), grid(0, 60)).map(_as_test), existence
)
any_tests = st.one_of(
    st.tuples(st.sampled_from(["eq", "neq"]), st.sampled_from(["x", "y", 1, True, 2])).map(_as_test), moving_tests, existence
)
property_checks = st.one_of(
    st.sampled_from(["x", "y", 1, True]).map(lambda v: {"property": "k", "op": "eq", "value": v}),
    st.just({"property": "k", "op": "in", "value": ["x", "y"]}),
    number_tests.map(lambda test: {"property": "v", **test}),
    existence.map(lambda test: {"property": "v", **test}),
    st.sampled_from(DURATIONS).map(lambda d: {"property": "v", "op": "within_last", "value": d}),
    st.builds(lambda path, test: {"property": path, **test}, wide_paths, wide_tests),
    st.builds(lambda test: {"context": "app.version", **test}, wide_tests),
    st.tuples(st.sampled_from(["k", "v"]), st.sampled_from(["eq", "neq", "gt"])).map(
        lambda pair: {"property": pair[0], "op": pair[1], "value": {"trait": "p"}}
    ),
)


def grouped(parts: st.SearchStrategy[Doc]) -> st.SearchStrategy[Doc]:
    several = st.lists(parts, min_size=1, max_size=3)
    return st.one_of(
        st.tuples(st.sampled_from(["all", "any", "none"]), several).map(lambda pair: {pair[0]: pair[1]}),
        parts.map(lambda part: {"not": part}),
    )


def selectors_of(where: st.SearchStrategy[Doc]) -> st.SearchStrategy[Doc]:
    return st.builds(
        lambda name, where: {"event": name, **where},
        st.sampled_from(PATTERNS),
        st.one_of(st.just({}), st.just({}), where.map(lambda where: {"where": where})),
    )


filters = st.one_of(property_checks, grouped(property_checks))
selectors = selectors_of(filters)
counting = st.sampled_from([{}, {"measure": "count"}, {"measure": {"distinct": "k"}}, {"measure": {"days": True}}])
amounts = st.sampled_from(
    [
        *({"measure": {name: "v"}} for name in ("sum", "avg", "min", "max")),
        *({"measure": {"percentile": "v", "q": q}} for q in (0, 0.1, 0.5, 0.95, 1)),
    ]
)
wide_ends = st.sampled_from([{"measure": {name: "w"}} for name in ("first", "last")])
values = st.sampled_from([{"measure": {name: path}} for name in ("first", "last", "most_frequent") for path in ("k", "v")])
times = st.sampled_from([{"measure": "first_time"}, {"measure": "last_time"}])
tested_measures: st.SearchStrategy[Doc] = st.one_of(
    st.tuples(st.one_of(counting, amounts), st.one_of(number_tests, existence)),
    st.tuples(values, any_tests),
    st.tuples(wide_ends, scalar_tests),
    st.tuples(times, st.one_of(date_tests, date_tests, day_tests)),
).map(both)
event_leaves = st.one_of(
    st.builds(lambda a, b, c: {**a, **b, **c}, selectors, tested_measures, windows),
    st.builds(lambda a, b, c: {**a, **b, **c}, selectors, tested_measures, windows),
    st.builds(lambda a, b: {**a, **b}, selectors, windows),
)
sides = st.builds(lambda a, b, c: {**a, **b, **c}, selectors, st.one_of(counting, amounts), st.one_of(st.just({}), windows))
ratio_leaves = st.builds(
    lambda of, to, window, test: {"measure": {"ratio": {"of": of, "to": to}}, **window, **test},
    sides,
    sides,
    windows,
    st.one_of(number_tests, existence),
)
first_leaves = st.builds(lambda a, b: {"first_time": a, **b}, selectors, windows)
regular_leaves = st.builds(
    lambda a, every, of: {"regularly": a, "every": every, "at_least": of[0], "of": of[1]},
    selectors,
    st.sampled_from(["1s", "2s"]),
    st.sampled_from([(1, 1), (2, 2), (2, 3), (3, 4), (1, 3)]),
)
trait_tests = st.one_of(
    st.sampled_from(["x", 1, True]).map(lambda v: {"trait": "p", "op": "eq", "value": v}),
    st.sampled_from(["x", 1, True]).map(lambda v: {"trait": "p", "op": "neq", "value": v}),
    existence.map(lambda test: {"trait": "p", **test}),
    moving_tests.map(lambda test: {"trait": "d", **test}),
    st.builds(lambda path, test: {"trait": path, **test}, wide_paths, wide_tests),
    day_tests.map(lambda test: {"trait": "d", **test}),
    birthday_tests.map(lambda test: {"trait": "b", **test}),
)
held = st.one_of(
    st.sampled_from(DURATIONS).map(lambda d: {"held_for": d}),
    st.sampled_from(DURATIONS).map(lambda d: {"held_less_than": d}),
    st.just({"held_for": "1s", "held_less_than": "3s"}),
)
held_leaves = st.builds(lambda test, length: {**test, **length}, trait_tests, held)
trait_leaves = st.one_of(trait_tests, held_leaves)
buckets = st.tuples(st.sampled_from(["one", "two"]), st.sampled_from([(0, 50), (50, 100), (0, 100)])).map(
    lambda pair: {"bucket": {"salt": pair[0], "from": pair[1][0], "to": pair[1][1]}}
)
lists = st.sampled_from(LISTS).map(lambda key: {"list": key})


@cache
def _checked(met: tuple[int, ...]) -> tuple[st.SearchStrategy[Doc], st.SearchStrategy[Doc]]:
    """Return the selector of a step over its own properties and those of earlier steps, and a forbidden one."""
    checks = st.one_of(property_checks, _referring(met)) if met else property_checks
    return selectors_of(st.one_of(checks, grouped(checks))), selectors_of(checks)


def _referring(steps: tuple[int, ...]) -> st.SearchStrategy[Doc]:
    return st.tuples(st.sampled_from(["k", "v"]), st.sampled_from(["eq", "neq"]), st.sampled_from(steps)).map(
        lambda parts: {"property": parts[0], "op": parts[1], "value": {"step": parts[2], "property": parts[0]}}
    )


_near: st.SearchStrategy[Doc] = st.one_of(st.just({}), spans)


@st.composite
def sequence_leaves(draw: st.DrawFn) -> Doc:
    """Return up to four steps, and the steps forbidden between or after them."""
    steps: list[Doc] = []
    met: list[int] = []
    refers = draw(st.integers(0, 2)) == 0
    for i in range(draw(st.integers(1, 4))):
        selectors_here, forbidden = _checked(tuple(met) if refers else ())
        selector = draw(selectors_here)
        if i and draw(st.integers(0, 3)) == 0:
            steps.append({"not": selector, "for": draw(st.sampled_from(DURATIONS))})
            continue
        if i and "event" in steps[-1] and draw(st.integers(0, 3)) == 0:
            steps.append({"not": draw(forbidden)})
        met.append(len(steps))
        near = draw(_near) if i else {}
        steps.append({**selector, **near})
    return {"sequence": steps, **draw(_near)}


plain_leaves = st.one_of(
    event_leaves,
    event_leaves,
    event_leaves,
    ratio_leaves,
    first_leaves,
    regular_leaves,
    sequence_leaves(),
    sequence_leaves(),
    trait_leaves,
    buckets,
    lists,
    st.just({"everyone": True}),
)
account_leaves = st.builds(
    lambda match, where: {"account": {"match": match, "where": where}},
    st.sampled_from(["any", "all", "none"]),
    st.one_of(plain_leaves, grouped(plain_leaves)),
)


@cache
def conditions(uses: tuple[str, ...]) -> st.SearchStrategy[Doc]:
    """Return a strategy for trees that may use the segments `uses`; cached, because creating a strategy is slow."""
    nested = st.sampled_from(uses).map(lambda key: {"segment": key}) if uses else st.nothing()
    leaves = st.one_of(plain_leaves, plain_leaves, plain_leaves, nested, account_leaves)
    return st.one_of(leaves, grouped(leaves), grouped(st.one_of(leaves, grouped(leaves))))


@st.composite
def definitions(draw: st.DrawFn, keys: tuple[str, ...]) -> tuple[tuple[str, Doc], ...]:
    """Return a condition for each key; a later one may use the earlier ones."""
    return tuple((key, draw(conditions(keys[:i]))) for i, key in enumerate(keys))


_missing: st.SearchStrategy[Doc] = st.just({})
happened = st.builds(
    lambda name, time, v, k, w, app: MeasuredEvent(name, time, {**v, **k, **w}, app),
    st.sampled_from(NAMES),
    grid(-12, 8),  # relative to stream time: late, on time, or in the future
    st.sampled_from([{}, {"v": 0.5}, {"v": 1}, {"v": 1}, {"v": 2}, {"v": -1}, {"v": "x"}, {"v": True}, {"v": At(5_000)}]),
    st.sampled_from([{}, {"k": "x"}, {"k": "y"}, {"k": 1}, {"k": 1.0}, {"k": True}]),
    st.one_of(_missing, wide_values.map(lambda w: {"w": w})),
    st.one_of(_missing, wide_values.map(lambda version: {"app": {"version": version}})),
)
profiles = st.builds(
    lambda p, d, w, b: {**p, **d, **w, **b},
    st.sampled_from([{}, {"p": "x"}, {"p": 1}, {"p": True}, {"p": 1.0}]),
    st.one_of(_missing, date_values.map(lambda t: {"d": t})),
    st.one_of(_missing, wide_values.map(lambda w: {"w": w})),
    st.one_of(_missing, birthdays.map(lambda b: {"b": b})),
)
gaps = grid(0, 6)
event_steps = st.builds(lambda after, event: Step("event", after, event=event), gaps, happened)
steps = st.one_of(
    event_steps,
    event_steps,
    event_steps,
    event_steps,
    st.builds(lambda after, traits: Step("profile", after, traits=traits), gaps, profiles),
    st.builds(lambda after: Step("advance", after), grid(0, 16)),
    st.builds(
        lambda after, key, is_on: Step("list", after, listed=(key, is_on)), gaps, st.sampled_from(LISTS), st.booleans()
    ),
    st.builds(
        lambda after, others: Step("account", after, others=others),
        gaps,
        st.sampled_from([None, (0, 0), (2, 0), (2, 1), (2, 2)]),
    ),
)  # fmt: skip


_chapter = st.lists(steps, min_size=3, max_size=10)
_last_chapter = st.lists(steps, max_size=6)


@cache
def _holds(keys: tuple[str, ...]) -> st.SearchStrategy[list[Step]]:
    """Some segments are paused, others continue."""
    hold = st.builds(lambda after, held: Step("hold", after, held=held), gaps, st.frozensets(st.sampled_from(keys)))
    return st.one_of(st.just([]), st.just([]), st.lists(hold, min_size=1, max_size=2))


def _interrupted(chapter: list[Step], holds: list[Step], place: int) -> list[Step]:
    """Return the chapter with the first hold somewhere in it and the second at its end."""
    place %= len(chapter)
    return [*chapter[:place], *holds[:1], *chapter[place:], *holds[1:]]


@st.composite
def stories(draw: st.DrawFn) -> list[Step]:
    """Return definitions, then inputs, now and then other definitions or pauses. A removed key never returns."""
    keys: tuple[str, ...] = ("a", "b", "c")
    steps = [Step("define", 0, definitions=draw(definitions(keys)))]
    for chapter in range(draw(st.integers(1, 3))):
        steps += _interrupted(draw(_chapter), draw(_holds(keys)), draw(st.integers(0, 9)))
        kept = tuple(key for key in keys if draw(st.booleans()))
        keys = (*kept, f"n{chapter}")
        steps.append(Step("define", draw(gaps), definitions=draw(definitions(keys))))
    return [*steps, *draw(_last_chapter), Step("advance", 20_000)]


windowed_leaves = st.builds(
    lambda measure, window, test: {"event": "A", **measure, **window, **test},
    st.one_of(counting, amounts),
    st.one_of(spans, past_windows),
    st.one_of(number_tests, st.tuples(st.sampled_from(["gte", "lt"]), st.sampled_from([1, 2, 3])).map(_as_test)),
)


_crowd = st.builds(lambda after, event: Step("event", after, event=event), grid(0, 2), happened)
_pause = grid(0, 8).map(lambda after: Step("advance", after))
_crowds = st.lists(st.one_of(_crowd, _crowd, _crowd, _pause), min_size=6, max_size=24)


@st.composite
def crowded(draw: st.DrawFn, leaves: st.SearchStrategy[Doc]) -> list[Step]:
    """Return a story with few event names, half of them late, and one kind of condition."""
    keys = ("a", "b", "c", "d")
    steps = [Step("define", 0, definitions=tuple((key, draw(leaves)) for key in keys))]
    return [*steps, *draw(_crowds), Step("advance", 20_000)]


def placed(document: Any, world: World) -> Any:
    """Return the document with its instants moved into the world."""
    if isinstance(document, list):
        return [placed(part, world) for part in document]
    if not isinstance(document, dict):
        return located(document, world.zone, world.base_ms)
    dated = document.get("op") in ("before", "after")
    return {
        key: located(At(value, "utc"), world.zone, world.base_ms)
        if isinstance(value, int) and (key in ("after", "before") or (key == "value" and dated))
        else placed(value, world)
        for key, value in document.items()
    }
