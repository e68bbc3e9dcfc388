"""Each measure, window and operator in Spark SQL equals the segment language, user by user, on small histories."""

import json
import random
from collections.abc import Iterable, Mapping, Sequence
from functools import reduce
from itertools import cycle
from typing import Any, NamedTuple

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from pyspark.sql import DataFrame, SparkSession, functions

from starling_segments import UserState, compile_measures, parse_measure
from starling_segments.parse.filters import compile_filter
from starling_spark.jobs.trait_verify.comparing import DIFFERENT, EQUAL, Fact, finding
from starling_spark.jobs.trait_verify.filters import native
from starling_spark.jobs.trait_verify.measures import EVENTS, Times, facts
from starling_spark.jobs.trait_verify.trait import read_sides

HOUR_MS = 3_600_000
DAY_MS = 24 * HOUR_MS
START_MS = 1_774_000_000_000
"""20 March 2026: the clocks of several zones change within the next weeks."""
ZONES = ("UTC", "America/New_York", "Pacific/Chatham", "Europe/Berlin")
TRAITS = json.dumps({"limit": 20})
CONTEXT = json.dumps({"app": {"version": "2.1.0"}, "page": {"path": "/shoes"}})


class Event(NamedTuple):
    """`now_ms`: the stream time of its arrival."""

    user: str
    name: str
    time_ms: int
    now_ms: int
    texts: tuple[str, str, str]

    @property
    def properties(self) -> Any:
        return json.loads(self.texts[0])

    @property
    def context(self) -> Any:
        return json.loads(self.texts[1])

    @property
    def traits(self) -> Any:
        return json.loads(self.texts[2])


NUMBERS: Sequence[Any] = (0, 1, 0.1, 0.2, -3, 19.99, 20, 1e16, 1e-9, 1e300, 2**60 + 1, "5", None, True)
VALUES: Sequence[Any] = (
    "a", "b", "A", "", "shoes", "red shoes", "ß", "日本", "x" * 1030 + "end", 1, 1.0, 1.5, "1", True, False, None, 10**19, -0.0,
    [], ["a"], ["a", 1], {}, {"z": 1, "a": [2.50]}, {"a": [2.5], "z": 1.0},
    "2026-03-29", "2026-03-29T02:30:00", "2026-03-28T23:59:59.9999Z", "2026-03-29T01:00+02:00", "2026-13-01", START_MS,
)  # fmt: skip
OPERANDS: Mapping[str, Sequence[Any]] = {
    "eq": ("a", 1, 1.5, True, "ß"),
    "neq": ("a", 1, False),
    "in": (["a", 1], [True, "b"], [0.1]),
    "not_in": (["a", 1],),
    "gt": (0, "a", 1.5),
    "gte": (1, "b"),
    "lt": (20, "b"),
    "lte": (1, "a"),
    "between": ([0, 20], ["A", "b"]),
    "not_between": ([0, 20],),
    "exists": (None,),
    "missing": (None,),
    "empty": (None,),
    "not_empty": (None,),
    "is_type": ("string", "number", "boolean", "array", "object"),
    "contains": ("shoes", ["a", "end"], "%"),
    "not_contains": ("shoes",),
    "starts_with": ("red", ["s", "A"]),
    "not_starts_with": ("a",),
    "ends_with": ("shoes", "end"),
    "not_ends_with": ("本",),
    "before": ("2026-03-29", "2026-03-29T01:30:00Z"),
    "after": ("2026-03-28",),
    "on": ("2026-03-29",),
    "not_on": ("2026-03-29",),
    "between_dates": (["2026-03-28", "2026-03-29"],),
    # By the language.
    "matches": ("^s.*s$",),
    "semver_gte": ("2.0.0",),
    "mod": ([3, 1],),
    "within_last": ("9d",),
    "weekday_is": ("sunday",),
    "has_any": (["a"],),
}
PATHS = ("value", "deep.value", "list.0", "a key.007")
MEASURES: Sequence[Any] = (
    "count", "first_time", "last_time", {"sum": "number"}, {"avg": "number"}, {"min": "number"}, {"max": "number"},
    {"first": "value"}, {"last": "value"}, {"distinct": "value"}, {"most_frequent": "value"}, {"most_frequent": "deep.value"},
    {"percentile": "number", "q": 0.07}, {"percentile": "number", "q": 0.5}, {"days": True},
)  # fmt: skip
WINDOWS: Sequence[Mapping[str, Any]] = (
    {}, {"within": "12h"}, {"within": "9d"}, {"within": "1095d"}, {"between_ago": ["9d", "2d"]}, {"between_ago": ["3d", "1s"]},
    {"after": "2026-03-22", "before": "2026-03-29"}, {"before": "2026-03-25T12:00:00"}, {"calendar": "today"},
    {"calendar": "yesterday"}, {"calendar": "last_week"}, {"calendar": "this_month"}, {"calendar": "this_year"},
)  # fmt: skip
NAMES = ("Order Completed", "Order *", "*")
RATIOS: Sequence[Mapping[str, Any]] = (
    {"measure": {"ratio": {"of": {"event": "Order Cancelled"}, "to": {"event": "Order *"}}}},
    {"measure": {"ratio": {"of": {"event": "*", "measure": {"sum": "number"}}, "to": {"event": "Order *"}}}, "within": "9d"},
    {"measure": {"ratio": {"of": {"event": "*", "within": "3d"}, "to": {"event": "*", "measure": {"max": "number"}}}}},
)


@st.composite
def wheres(draw: st.DrawFn, depth: int = 0) -> dict[str, Any]:
    if depth < 2 and draw(st.integers(0, 3)) == 0:
        kind = draw(st.sampled_from(["all", "any", "none", "not"]))
        if kind == "not":
            return {kind: draw(wheres(depth + 1))}
        return {kind: draw(st.lists(wheres(depth + 1), min_size=1, max_size=3))}
    op = draw(st.sampled_from(sorted(OPERANDS)))
    operand = draw(st.sampled_from(OPERANDS[op]))
    given_value = {} if operand is None else {"value": operand}
    if op in {"eq", "in"} and draw(st.integers(0, 4)) == 0:
        return {"property": "value", "op": op, "value": "SHOES" if op == "eq" else ["SHOES"], "ignore_case": True}
    if op == "gte" and draw(st.booleans()):
        return {"property": "number", "op": op, "value": {"trait": "limit"}}
    if draw(st.integers(0, 9)) == 0:
        return {"context": draw(st.sampled_from(["page.path", "app.version"])), "op": op, **given_value}
    return {"property": draw(st.sampled_from(PATHS)), "op": op, **given_value}


@st.composite
def documents(draw: st.DrawFn) -> dict[str, Any]:
    zone = {"timezone": draw(st.sampled_from(ZONES))}
    if draw(st.integers(0, 9)) == 0:
        return {**draw(st.sampled_from(RATIOS)), **zone}
    where = {"where": draw(wheres())} if draw(st.booleans()) else {}
    window, measure = draw(st.sampled_from(WINDOWS)), draw(st.sampled_from(MEASURES))
    return {"event": draw(st.sampled_from(NAMES)), "measure": measure, **where, **window, **zone}


def history(seed: int, length: int, users: int = 3) -> list[Event]:
    """Mostly in order, some late, some at one instant, some ahead of stream time."""
    chance = random.Random(seed)
    now_ms, events = START_MS, []
    for _ in range(length):
        now_ms += chance.choice([0, 1, 60_000, HOUR_MS, DAY_MS // 3])
        time_ms = now_ms + chance.choice([0, 0, 0, -1, 200_000, -DAY_MS, -10 * DAY_MS])
        value = chance.choice(VALUES)
        properties = {"number": chance.choice(NUMBERS), "value": value} | chance.choice(
            [{"deep": {"value": chance.choice("abc")}}, {"list": [value]}, {"list": {"0": value}}, {"a key": {"007": value}}, {}]
        )
        name = chance.choice(["Order Completed", "Order Cancelled", "Page Viewed"])
        texts = (json.dumps(properties, ensure_ascii=False), CONTEXT, TRAITS)
        events.append(Event(f"u{chance.randrange(users)}", name, time_ms, now_ms, texts))
    return events


def language(document: Mapping[str, Any], events: Iterable[Event], until_ms: int) -> dict[str, Any]:
    """Return each user's value by the fold of the language."""
    fields = {name: value for name, value in document.items() if name != "timezone"}
    plan = compile_measures([parse_measure(fields, document["timezone"])])
    states: dict[str, UserState] = {}
    for event in events:
        state = states.setdefault(event.user, UserState(user_id=event.user))
        matches = plan.matches(event)
        if matches:
            plan.fold(state, (event.time_ms, matches), event.now_ms)
    for state in states.values():
        plan.settle(state, until_ms)
    return {user: plan.compiled[0].read(state, until_ms)[0] for user, state in states.items()}


def spark_rows(spark: SparkSession, events: Sequence[Event]) -> DataFrame:
    rows = [(0, offset, one.user, one.name, one.time_ms, *one.texts, False) for offset, one in enumerate(events)]
    return spark.createDataFrame(rows, EVENTS)


def spark_facts(
    spark: SparkSession, documents: Sequence[Mapping[str, Any]], events: Sequence[Event], until_ms: int
) -> Mapping[tuple[int, str], list[Fact]]:
    """Return the facts by document and user, of one Spark job."""
    rows, times = spark_rows(spark, events).localCheckpoint(), {0: Times(until_ms, until_ms)}
    found = []
    for number, document in enumerate(documents):
        text = json.dumps(document)
        found.append(facts(spark, rows, read_sides(text), text, times).withColumn("number", functions.lit(number)))
    collected = reduce(DataFrame.unionByName, found).collect()
    return {(row["number"], row["user_id"]): [fact.asDict() for fact in row["facts"]] for row in collected}


def all_equal(spark: SparkSession, documents: Sequence[Mapping[str, Any]], events: Sequence[Event], until_ms: int) -> int:
    """Compare every value, and each with another one planted in its place; return the number of values."""
    found, values = spark_facts(spark, documents, events, until_ms), 0
    for number, document in enumerate(documents):
        sides = read_sides(json.dumps(document))
        for user, value in language(document, events, until_ms).items():
            own = found.get((number, user), [])
            text = None if value is None else json.dumps(value)
            assert finding(sides, text, own).state == EQUAL, (document, user, value, finding(sides, text, own))
            assert finding(sides, json.dumps("planted"), own).state == DIFFERENT
            if isinstance(value, int | float) and not isinstance(value, bool) and abs(value) < 1e15:
                assert finding(sides, json.dumps(value + 1), own).state == DIFFERENT
            values += value not in (None, 0)
    return values


@pytest.mark.long
def test_every_operator_holds_for_the_same_events(spark: SparkSession) -> None:
    """All conditions are columns of one plan. Those that are not native are evaluated by the language itself."""
    some = [("value", op, operand) for op, operands in OPERANDS.items() for operand in operands]
    some += [(path, "in", ["a", "b", 1]) for path in PATHS]
    zones = cycle([{}, {"timezone": "Europe/Berlin"}, {"timezone": "Pacific/Chatham"}])
    texts = [
        json.dumps({"event": "*", "where": {"property": path, "op": op, **({} if operand is None else {"value": operand})}, **zone})
        for (path, op, operand), zone in zip(some, zones, strict=False)
    ]
    wheres = [read_sides(text)[0].event.where for text in texts]
    events, json_of = history(7, 120), functions.try_parse_json
    columns = [native(where, json_of("properties"), json_of("context")) for where in wheres]
    foreign = {json.loads(text)["where"]["op"] for text, column in zip(texts, columns, strict=True) if column is None}
    assert foreign == {"matches", "semver_gte", "mod", "within_last", "weekday_is", "has_any"}
    rows = spark_rows(spark, events)
    known = {number: column for number, column in enumerate(columns) if column is not None}
    found = rows.select("offset", functions.array(*known.values()).alias("truths")).orderBy("offset").collect()
    seen = set()
    for event, row in zip(events, found, strict=True):
        for number, truth in zip(known, row["truths"], strict=True):
            where = wheres[number]
            assert where is not None
            assert truth is compile_filter(where)(event, event.time_ms), (texts[number], event.texts)
            seen.add((json.loads(texts[number])["where"]["op"], truth))
    assert seen == {(op, truth) for op in OPERANDS.keys() - foreign for truth in (True, False)}


def test_every_measure_has_the_value_of_the_language(spark: SparkSession) -> None:
    pairs = zip(MEASURES, cycle(WINDOWS), strict=False)
    some = [{"event": NAMES[i % 3], "measure": one, **window, "timezone": ZONES[i % 4]} for i, (one, window) in enumerate(pairs)]
    some += [{"event": "*", "where": {"property": "value", "op": "matches", "value": "^s"}, "timezone": "UTC"}]
    some += [{**RATIOS[1], "timezone": "UTC"}]
    events = history(7, 120)
    assert all_equal(spark, some, events, events[-1].now_ms + HOUR_MS) > len(some)


@pytest.mark.long
@settings(max_examples=8, deadline=None, suppress_health_check=list(HealthCheck))
@given(
    some=st.lists(documents(), min_size=10, max_size=10), seed=st.integers(0, 10_000), later_ms=st.sampled_from([0, 1, 2 * DAY_MS])
)
def test_generated_definitions(spark: SparkSession, some: list[dict[str, Any]], seed: int, later_ms: int) -> None:
    events = history(seed, 60)
    all_equal(spark, some, events, max(one.now_ms for one in events) + later_ms)
