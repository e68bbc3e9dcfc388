"""Definitions, users and times at the limits: refused with a location and an expectation, or evaluated without an exception.

All inputs are generated from the tables of the package, so that new operators, measures and calendar windows are included.
`STARLING_EXTREMES_EVERY=1` tries every combination, `make extremes`.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from functools import cache, partial
from itertools import cycle, islice, product
from typing import Any, cast

import pytest

from starling_common.outcome import Done, Refused
from starling_rules.definitions import Definition, Definitions, fold
from starling_rules.events import Behaviour, json_error, parse_object
from starling_rules.rules import compiled
from starling_segments import DefinitionRefused, Segment, UserState, compile_measures, parse_measure, read_document
from starling_segments.aggregates.measure_table import MEASURES, PLAIN
from starling_segments.language.operators import OPERATORS, operands
from starling_segments.language.operators.table import NUMBER
from starling_segments.language.tree import MeasureName, Trait
from starling_segments.language.validation import UTC
from starling_segments.parse.comparisons import COMPARING, comparison
from starling_segments.parse.windows import CALENDAR
from tests.property.segments.extremes import (
    EVERY,
    FIRST_MS,
    LAST_MS,
    LATE_MS,
    MID_MS,
    OPERANDS,
    UNREADABLE,
    VALUES,
    ZONES,
    Doc,
    User,
    parsed,
    placed_in,
    sampled,
    through_json,
)  # fmt: skip
from tests.property.segments.oracle import MeasuredEvent, Oracle
from tests.property.segments.predicates import evaluate, looked_up
from tests.unit.segments.cases import CASES, take

READ = [through_json(value) for value in VALUES]
TRAITS = {f"t{number}": value for number, value in enumerate(READ)}
PATHS = [name + tail for name in TRAITS for tail in ("", ".*", ".*.*", ".v", ".0")]
ITEM_TESTS = [
    {"op": name, **test}
    for name, operator in OPERATORS.items()
    if not operator.filters
    for test in ([{}] if operator.operand is operands.NOTHING else [{"value": value} for value in OPERANDS])
]


def asked_with(op: str) -> Iterator[Doc]:
    """Return the operator with every extreme operand, or with conditions on items that contain them."""
    operator = OPERATORS[op]
    if operator.filters:
        yield from ({"op": op, "where": test} for test in ITEM_TESTS)
    elif operator.operand is operands.NOTHING:
        yield {"op": op}
    else:
        for operand in OPERANDS:
            for value in placed_in(operator.operand.schema, operand):
                yield {"op": op, "value": value}
                if operator.ignores_case:
                    yield {"op": op, "value": value, "ignore_case": True}


@pytest.mark.parametrize("op", OPERATORS)
def test_every_operator_with_every_operand_has_an_answer_for_every_value(op: str) -> None:
    """The predicate alone, which is fast: all combinations."""
    accepted = 0
    for test in asked_with(op):
        segment = parsed({"trait": "v", **test}, ZONES[1])
        if segment is None:
            continue
        assert isinstance(segment.where, Trait)
        predicate, now = segment.where.predicate, (FIRST_MS, MID_MS, LAST_MS)[accepted % 3]
        accepted += 1
        for value in READ if not OPERATORS[op].filters else READ[accepted % 5 :: 5]:
            assert predicate.holds(value, now) is evaluate(test, value, now, ZONES[1]), (test, value, now)
            turn = predicate.next_change(value, now) if predicate.next_change else None
            assert turn is None or turn > now
    assert accepted


@pytest.mark.parametrize("op", COMPARING)
def test_every_operator_has_an_answer_for_every_operand_that_is_found(op: str) -> None:
    for flag in {False, OPERATORS[op].ignores_case}:
        holds = comparison(OPERATORS[op], UTC, flag)
        for value, other in product(READ, READ):
            assert type(holds(value, other, MID_MS)) is bool


@pytest.mark.parametrize("op", OPERATORS)
def test_every_operator_with_every_operand_of_every_trait(op: str) -> None:
    accepted = [test for test in asked_with(op) if parsed({"trait": "v", **test}) is not None]
    for number, test in enumerate(accepted[:: max(1, EVERY // 12)]):
        zone = ZONES[number % len(ZONES)]
        paths = [path for i, path in enumerate(PATHS) if (i + number) % EVERY == 0]
        plain = {path: {"trait": path, **test} for path in paths}
        held = {f"held {path}": {**where, "held_for": "1095d"} for path, where in plain.items()}
        wheres = {f"s{i}": where for i, where in enumerate([*plain.values(), *held.values()])}
        user = User.of(wheres, zone)
        user.becomes(TRAITS, (FIRST_MS, MID_MS, LATE_MS)[number % 3])
        expect(user, wheres)
        user.passes(LATE_MS)
        user.becomes({}, user.now)
        user.becomes(TRAITS, LAST_MS)
        expect(user, wheres)
        user.explained(wheres)
        for key in list(user.segments)[:2]:
            assert user.previewed(key) is ("held_for" not in wheres[key] and key in user.members())


def expect(user: User, wheres: dict[str, Doc]) -> None:
    members = user.members()
    for key in user.segments:
        where = wheres[key]
        if "held_for" not in where and not where["trait"].endswith(".*.*"):
            truth = evaluate(where, looked_up(TRAITS, where["trait"]), user.now, user.zone)
            assert (key in members) is truth, where


WINDOWS: list[Doc] = [
    {},
    *({"within": length} for length in ("1s", "1095d")),
    *({"between_ago": pair} for pair in (["2s", "1s"], ["1095d", "1s"], ["1095d", "1094d"])),
    *({"after": date} for date in ("0001-01-03", "2026-03-01", "9999-12-28")),
    *({"before": date} for date in ("0001-01-03", "2026-03-01", "9999-12-28")),
    {"after": "0001-01-03", "before": "9999-12-28"},
    *({"calendar": name} for name in CALENDAR),
]
MEASURED: list[Any] = [
    *PLAIN,
    {"days": True},
    *({name: "v"} for name, kind in MEASURES.items() if kind.payload and name != "percentile"),
    *({"percentile": "v", "q": q} for q in (0, -0.0, 5e-324, 0.5, 1)),
]


def test_every_measure_is_tried() -> None:
    assert {name if isinstance(name, str) else next(iter(name)) for name in MEASURED} == {*MEASURES}


def gives(measure: Any) -> str:
    name = measure if isinstance(measure, str) else next(iter(measure))
    return MEASURES[cast("MeasureName", name)].value_type


@cache
def asked_of(type_name: str) -> list[Doc]:
    """Return every operator that applies to the value type, with its extreme operands."""
    measure = next(one for one in MEASURED if gives(one) == type_name)
    tests = [test for op, operator in OPERATORS.items() if not operator.filters for test in asked_with(op)]
    return [test for test in tests if parsed({"event": "A", "measure": measure, **test}) is not None]


def lived(user: User, oracle: Oracle, offset: int) -> None:
    """Return events with every value: on time, late, and at both ends of time."""
    some = [value for i, value in enumerate(READ) if (i + offset) % max(1, EVERY // 5) == 0]
    for i, value in enumerate(some):
        time_ms = (MID_MS + i * 500, MID_MS - i * 86_400_000, FIRST_MS)[i % 3]
        properties = {"v": value, "w": some[-i]}
        user.does(properties, time_ms)
        oracle.events.append(MeasuredEvent("A", time_ms, properties, properties))


@pytest.mark.parametrize("measure", MEASURED, ids=json.dumps)
def test_every_measure_in_every_window_of_every_property(measure: Any) -> None:
    tests = asked_of(gives(measure))
    for number, window in enumerate(WINDOWS):
        zone = ZONES[number % len(ZONES)]
        some = [test for i, test in enumerate(tests) if (i + number) % EVERY == 0]
        wheres = {f"s{i}": {"event": "A", "measure": measure, **window, **test} for i, test in enumerate(some)}
        user, oracle = User.of(wheres, zone), Oracle({}, zone=zone)
        lived(user, oracle, number)
        agree(user, oracle, wheres)
        user.passes(user.now + 2_000)
        agree(user, oracle, wheres)
        user.explained(wheres)
        for key in list(user.segments)[:1]:
            assert user.previewed(key) is (key in user.members()), wheres[key]
        for time_ms in (LATE_MS, LAST_MS):
            user.does({"v": 1, "w": 1}, time_ms)
            oracle.events.append(MeasuredEvent("A", time_ms, {"v": 1, "w": 1}, {}))
        user.passes(LAST_MS)
        agree(user, oracle, wheres)
        user.explained(wheres)
        read_as_a_trait({"event": "A", "measure": measure, **window}, user)


def agree(user: User, oracle: Oracle, wheres: dict[str, Doc]) -> None:
    members = user.members()
    for key in user.segments:
        where = wheres[key]
        assert (key in members) is oracle.holds(where, user.now), (where, user.now)


def read_as_a_trait(document: Doc, user: User) -> None:
    """The same measure without a segment, as Spark computes it: its value can be written as JSON."""
    plan, state, now = compile_measures([parse_measure(document, user.zone)]), UserState(user_id="u"), FIRST_MS
    for happened, now in user.past:
        plan.fold(state, (happened.time_ms, plan.matches(happened)), now)
    plan.settle(state, now)
    value, _ = plan.compiled[0].read(state, now)
    json.dumps(value, allow_nan=False)


@pytest.mark.parametrize("window", WINDOWS, ids=json.dumps)
def test_ratios_and_first_times(window: Doc) -> None:
    sides = [{"event": "A", "measure": {name: path}} for name in ("sum", "avg", "min", "max", "distinct") for path in ("v", "w")]
    tests = [test for i, test in enumerate(asked_of(NUMBER)) if i % EVERY == 0]
    pairs = list(sampled(sides, sides, tests))
    wheres: dict[str, Doc] = {
        f"s{i}": {"measure": {"ratio": {"of": of, "to": to}}, **window, **test} for i, (of, to, test) in enumerate(pairs)
    }
    wheres["first"] = {"first_time": {"event": "A"}, **window}
    user, oracle = User.of(wheres, ZONES[1]), Oracle({}, zone=ZONES[1])
    lived(user, oracle, len(window))
    for value in (5e-324, -5e-324, 1e290, -1e290):
        user.does({"v": value, "w": 1e290}, MID_MS + 1)
        oracle.events.append(MeasuredEvent("A", MID_MS + 1, {"v": value, "w": 1e290}, {}))
        agree(user, oracle, wheres)
    user.explained(wheres)
    user.passes(LAST_MS)
    user.explained(wheres)


@pytest.mark.parametrize("window", [{}, {"within": "1s"}, {"between_ago": ["2s", "1s"]}, {"calendar": "today"}], ids=json.dumps)
@pytest.mark.parametrize("measure", [one for one in MEASURED if not isinstance(one, str)], ids=json.dumps)
def test_many_of_the_largest_amounts(measure: Any, window: Doc) -> None:
    """More matches than are stored one by one: panes and sketches hold them too, and no sum overflows."""
    wheres = {"s": {"event": "A", "measure": measure, **window, "op": "exists"}}
    user = User.of(wheres, "UTC")
    for i in range(300 if EVERY > 1 else 1_000):
        user.does({"v": (1e290, -1e290, 1e308, 5e-324, 10**400, 2**64)[i % (1 if i < 280 else 6)]}, MID_MS + i)
    user.passes(MID_MS + 1_500)
    user.explained(wheres)
    user.passes(MID_MS + 5_000)
    user.explained(wheres)


@pytest.mark.parametrize("op", COMPARING)
def test_every_operator_with_an_operand_that_is_found(op: str) -> None:
    """Compare with a trait, and with an earlier step."""
    flags = cycle([{}, {"ignore_case": True}] if OPERATORS[op].ignores_case else [{}])
    pairs = sampled(list(TRAITS), list(TRAITS))
    while some := list(islice(pairs, 100)):
        wheres: dict[str, Doc] = {}
        for i, (one, other) in enumerate(some):
            test = {"property": one, "op": op, **next(flags)}
            wheres[f"t{i}"] = {"event": "A", "where": {**test, "value": {"trait": other}}}
            later = {"event": "A", "where": {**test, "value": {"step": 0, "property": other}}}
            wheres[f"q{i}"] = {"sequence": [{"event": "A"}, later], "within": "1095d"}
        user = User.of(wheres, ZONES[2])
        user.becomes(TRAITS, MID_MS)
        for i in range(3):
            user.does(TRAITS, MID_MS + i)
        user.passes(LAST_MS)
        user.explained(wheres)


def scalars_in(document: Any, steps: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    """Return the path to each leaf value of a document."""
    if not isinstance(document, dict | list):
        yield steps
        return
    for step, part in document.items() if isinstance(document, dict) else enumerate(document):
        yield from scalars_in(part, (*steps, step))


def with_value(document: Any, steps: tuple[Any, ...], value: Any) -> Any:
    if not steps:
        return value
    first, *rest = steps
    if isinstance(document, list):
        return [with_value(part, tuple(rest), value) if i == first else part for i, part in enumerate(document)]
    return {name: with_value(part, tuple(rest), value) if name == first else part for name, part in document.items()}


STORIES = [case for path in sorted(CASES.glob("*/*.json")) for case in json.loads(path.read_text())["cases"] if "segments" in case]


def test_every_place_of_every_case() -> None:
    """Each value in the definitions of the shared cases is replaced by each extreme value; valid ones run through the case."""
    places = [(case, i, steps) for case in STORIES for i, one in enumerate(case["segments"]) for steps in scalars_in(one)]
    tried = accepted = 0
    for (case, i, steps), value in sampled(places, OPERANDS):
        document = with_value(case["segments"][i], steps, value)
        tried += 1
        outcome = taken_over([*case["segments"][:i], document, *case["segments"][i + 1 :]])
        if outcome is None:
            continue
        accepted += 1
        documents = [document if j == i else other for j, other in enumerate(case["segments"])]
        wheres = {one["key"]: one["where"] for one in documents}
        user = User(outcome)
        for step in case["steps"]:
            user.steps(partial(take, user.evaluator, user.state, step))
            user.now = max(user.now, user.state.clock)
        user.explained(wheres)
    assert tried > accepted > 0


def taken_over(documents: list[Doc]) -> list[Segment] | None:
    """Return a user of the segments as the segmenter folds them; None if one is refused."""
    definitions, left = Definitions(), list(documents)
    for _ in documents:  # in any order of dependencies
        for document in list(left):
            outcome = fold(definitions, record_of(json.dumps(document), document["key"]))
            if isinstance(outcome, Done):
                definitions = outcome.value
                left.remove(document)
            else:
                assert isinstance(outcome, Refused)
                assert outcome.code in {"definition_refused", "definition_not_json"}
    compiled(definitions.of("acme"))
    return None if left else [one.segment for one in definitions.of("acme").values()]


NOT_JSON = {"NaN", "Infinity"}


@pytest.mark.parametrize("text", UNREADABLE, ids=lambda text: text[:20])
def test_texts_that_python_reads_differently_or_not_at_all(text: str) -> None:
    """Such values are refused with the location in a definition; in an event or a profile, the record is refused."""
    document = f'{{"key": "s", "name": "s", "where": {{"trait": "v", "op": "eq", "value": {text}}}}}'
    with pytest.raises(ValueError, match=r".") as caught:
        read_document(document)
    assert isinstance(caught.value, DefinitionRefused) is (text not in NOT_JSON)
    if isinstance(caught.value, DefinitionRefused):
        deep = text.startswith("[")
        assert [fault.pointer for fault in caught.value.errors] == ["" if deep else "/where/value"]
    outcome = fold(Definitions(), record_of(document, "s"))
    assert isinstance(outcome, Refused)
    assert outcome.code == ("definition_not_json" if text in NOT_JSON else "definition_refused")
    properties = f'{{"v": {text}}}'
    assert isinstance(parse_object(properties), Refused)
    rules = compiled({"s": definition({"event": "A", "where": {"property": "v", "op": "eq", "value": 1}})})
    assert json_error(Behaviour((0, 0, "A", None, [], properties, "{}", "c")), rules) is not None


def definition(where: Doc) -> Definition:
    outcome = fold(Definitions(), record_of(json.dumps({"key": "s", "name": "s", "where": where}), "s"))
    assert isinstance(outcome, Done)
    return outcome.value.of("acme")["s"]


def record_of(document: str, key: object) -> Doc:
    return {
        "kind": "segment",
        "workspace": "acme",
        "key": key if isinstance(key, str) else "",
        "version": 1,
        "action": "DEFINED",
        "document": document,
        "correlation_id": "c",
    }
