"""The worst-case cost of definitions: what counts, what is refused, and what an evaluation looks at."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from starling_segments import (
    CostLimits,
    DefinitionRefused,
    Evaluator,
    Known,
    UserState,
    compile_plan,
    cost_of,
    parse_condition,
    parse_segment,
)
from starling_segments.language.bounds import MAX_COMPARED_TEXTS, MAX_ELEMENTS, MAX_TEXT

Doc = dict[str, Any]
A: Doc = {"event": "A"}
LIMITS = CostLimits(work=1_000, state_bytes=2 << 20)
ONE: Doc = {"op": "eq", "value": 1}
MANY = [f"value-{i}" for i in range(10_000)]


def where(*predicates: Doc) -> Doc:
    return {"event": "A", "where": {"all": list(predicates)}}


def work(condition: Doc) -> int:
    return cost_of(parse_condition(condition, "UTC", Known())).work


def refused(document: Doc, limits: CostLimits = LIMITS) -> list[tuple[str, str]]:
    with pytest.raises(DefinitionRefused) as raised:
        parse_segment({"key": "s", "name": "s", "where": document}, Known(limits=limits))
    return [(error.pointer, error.code) for error in raised.value.errors]


def is_true(predicate: Doc, value: Any, traits: Doc | None = None) -> bool:
    segment = parse_segment(
        {"key": "s", "name": "s", "where": where({"property": predicate.get("property", "p"), **predicate})}, Known()
    )
    evaluator, state = Evaluator(compile_plan([segment])), UserState(user_id="u")
    evaluator.on_profile(state, traits or {}, [], 0)
    event = SimpleNamespace(name="A", time_ms=1, properties={"p": value}, context={})
    return bool(evaluator.on_event(state, event, 1))


def test_a_list_of_values_costs_a_lookup() -> None:
    assert work(where({"property": "p", "op": "in", "value": MANY})) == work(where({"property": "p", "op": "in", "value": ["a"]}))
    assert work(where({"property": "p", "op": "has_all", "value": MANY})) < LIMITS.work


@pytest.mark.parametrize(
    ("small", "large"),
    [
        ({"op": "contains", "value": ["ab"]}, {"op": "contains", "value": [f"ab{i}" for i in range(100)]}),
        ({"op": "matches", "value": "a[ab]c"}, {"op": "matches", "value": "a[ab]{40}c"}),
        ({"op": "any_item", "where": ONE}, {"op": "any_item", "where": {"any": [ONE] * 3}}),
        ({"op": "eq", "value": "a"}, {"op": "eq", "value": {"trait": "t"}}),
        ({"op": "in", "value": ["a"]}, {"op": "any_item", "where": {"op": "in", "value": ["a"]}}),
    ],
)  # fmt: skip
def test_the_work_follows_the_predicate(small: Doc, large: Doc) -> None:
    assert work(where({"property": "p", **small})) < work(where({"property": "p", **large}))


def test_an_expensive_predicate_is_refused_at_its_place() -> None:
    cheap = {"property": "plan", "op": "eq", "value": "pro"}
    dear = {"property": "url", "op": "matches", "value": "(a|b)*a[ab]{200}c"}
    assert refused({"any": [A, where(cheap, dear)]}) == [("/where/any/1/where/all/1", "too_costly")]


def test_many_cheap_conditions_are_refused_together_with_the_sum_and_the_cure() -> None:
    document = {"any": [{**A, "measure": {"most_frequent": "p"}, "op": "eq", "value": "x", "within": f"{i}d"} for i in range(1, 4)]}
    with pytest.raises(DefinitionRefused) as raised:
        parse_segment({"key": "s", "name": "s", "where": document}, Known(limits=LIMITS))
    (error,) = raised.value.errors
    total = work(document)
    assert error.message.startswith(f"an event can cost {total:,} points of work, ")
    assert error.message.endswith("the limit is 1,000")
    assert "fewer conditions" in error.expected


def test_a_large_state_is_refused() -> None:
    document = {"any": [{**A, "measure": {"first": "p"}, "op": "eq", "value": "x", "within": f"{i}d"} for i in range(1, 7)]}
    assert refused(document) == [("/where/any/0", "too_costly")]


def test_combinations_of_values_are_the_work_of_a_sequence() -> None:
    same = {"property": "k", "op": "neq", "value": {"step": 0, "property": "k"}}
    assert work({"sequence": [A, {"event": "B", "where": same}]}) < LIMITS.work
    every = [{**same, "value": {"step": i, "property": "k"}} for i in range(6)]
    assert refused({"sequence": [*[A] * 6, {"event": "B", "where": {"all": every}}]})[0][1] == "too_costly"


def compared(op: str, *steps: int, path: str = "sku") -> Doc:
    each = [{"property": path, "op": op, "value": {"step": step, "property": path}} for step in steps]
    return {"event": "A", "where": {"all": each}}


@pytest.mark.parametrize(
    "steps",
    [
        [A, compared("eq", 0), compared("eq", 0), compared("eq", 0), compared("eq", 0)],
        [A, compared("eq", 0), compared("eq", 1), compared("eq", 2)],
        [A, compared("eq", 0), compared("neq", 0)],
        [A, {"not": {"event": "B"}}, compared("eq", 0), compared("eq", 0)],
        [A, A, compared("eq", 1)],
    ],
)
def test_a_sequence_of_equal_values_has_few_combinations(steps: list[Doc]) -> None:
    assert work({"sequence": steps}) < LIMITS.work


@pytest.mark.parametrize(
    "steps",
    [
        [A, A, compared("eq", 0)],
        [A, compared("neq", 0), compared("eq", 0)],
        [A, {"event": "A", "where": {"any": [compared("eq", 0)["where"], ONE | {"property": "p"}]}}, compared("eq", 0)],
        [A, {"event": "A", "where": {"not": compared("eq", 0)["where"]}}, compared("eq", 0)],
        [
            A,
            compared("eq", 0),
            {"event": "A", "where": {"all": [compared("eq", 0)["where"], compared("neq", 0, path="size")["where"]]}},
        ],
        [
            A,
            compared("eq", 0, path="a"),
            {"event": "A", "where": {"all": [compared("gt", 1, path="b")["where"]]}},
            compared("eq", 0),
        ],
    ],
)
def test_a_step_that_any_value_passes_multiplies_the_combinations(steps: list[Doc]) -> None:
    assert refused({"sequence": steps})[0][1] == "too_costly"


def test_dates_of_an_array_are_read_once_an_event() -> None:
    dates = {"trait": "cards", "op": "any_item", "where": {"item": "until", "op": "within_next", "value": "30d"}}
    assert work(dates) < LIMITS.work
    assert refused({"any": [dates, {**dates, "trait": "passes"}]})[0][1] == "too_costly"


def test_a_ratio_an_account_and_negations_name_their_places() -> None:
    dear = {"property": "url", "op": "matches", "value": "(a|b)*a[ab]{200}c"}
    ratio = {"measure": {"ratio": {"of": A, "to": {"event": "B", "where": dear}}}, "op": "gt", "value": 1}
    account = {"account": {"match": "any", "where": {"not": {"first_time": {"event": "A", "where": dear}}}}}
    sequence = {"sequence": [A, {"not": {"event": "B", "where": dear}, "for": "1h"}]}
    known = Known(limits=LIMITS, accounts=True)
    for document, place in (
        (ratio, "/where/measure/ratio/to/where"),
        (account, "/where/account/where/not/first_time/where"),
        (sequence, "/where/sequence/1/not/where"),
        ({"trait": "t", "op": "any_item", "where": {"item": "u", "op": "matches", "value": "a[ab]{30}c"}}, "/where/where"),
    ):
        with pytest.raises(DefinitionRefused) as raised:
            parse_segment({"key": "s", "name": "s", "where": document}, known)
        assert [(error.pointer, error.code) for error in raised.value.errors] == [(place, "too_costly")]


def test_a_definition_without_limits_is_accepted_whatever_it_costs() -> None:
    dear = where({"property": "url", "op": "matches", "value": "(a|b)*a[ab]{200}c"})
    assert parse_segment({"key": "s", "name": "s", "where": dear}, Known()).key == "s"


@pytest.mark.parametrize(
    ("predicate", "inside", "beyond"),
    [
        ({"op": "has_any", "value": ["x"]}, [0] * (MAX_ELEMENTS - 1) + ["x"], [0] * MAX_ELEMENTS + ["x"]),
        ({"op": "has_all", "value": [0, "x"]}, [0] * (MAX_ELEMENTS - 1) + ["x"], [0] * MAX_ELEMENTS + ["x"]),
        ({"op": "any_item", "where": {"op": "eq", "value": "x"}}, [0] * (MAX_ELEMENTS - 1) + ["x"], [0] * MAX_ELEMENTS + ["x"]),
        ({"op": "all_items", "where": {"op": "eq", "value": "x"}}, ["x"] * MAX_ELEMENTS + [0], ["x"] * (MAX_ELEMENTS - 1) + [0]),
        ({"op": "contains", "value": "x"}, " " * (MAX_TEXT - 1) + "x", " " * MAX_TEXT + "x"),
        ({"op": "matches", "value": "x"}, " " * (MAX_TEXT - 1) + "x", " " * MAX_TEXT + "x"),
    ],
)
def test_an_evaluation_looks_at_the_first_part_of_a_value(predicate: Doc, inside: Any, beyond: Any) -> None:
    assert is_true(predicate, inside)
    assert not is_true(predicate, beyond)


def test_the_size_of_an_array_and_the_end_of_a_text_are_exact() -> None:
    assert is_true({"op": "size_eq", "value": 5_000}, [0] * 5_000)
    assert is_true({"op": "ends_with", "value": "x"}, " " * 5_000 + "x")


def test_every_star_of_a_path_looks_at_the_first_elements() -> None:
    wanted = {"property": "p.*.q", "op": "has_any", "value": ["x"]}
    nested = {"property": "p.*.q.*.r", "op": "has_any", "value": ["x"]}
    for count, expected in ((MAX_ELEMENTS, True), (MAX_ELEMENTS + 1, False)):
        assert is_true(wanted, [{"q": 0}] * (count - 1) + [{"q": "x"}]) is expected
        inner = [[{}] * 256, [{}] * (count - 257) + [{"r": "x"}]]
        assert is_true(nested, [{"q": part} for part in inner]) is expected


def test_a_comparison_reads_the_first_values_of_a_trait() -> None:
    wishes = [f"w{i}" for i in range(MAX_ELEMENTS + 1)]
    compared = {"op": "in", "value": {"trait": "wishes"}}
    assert is_true(compared, wishes[MAX_ELEMENTS - 1], {"wishes": wishes})
    assert not is_true(compared, wishes[MAX_ELEMENTS], {"wishes": wishes})
    texts = [f"w{i}." for i in range(MAX_COMPARED_TEXTS + 1)]
    compared = {"op": "contains", "value": {"trait": "wishes"}}
    assert is_true(compared, texts[MAX_COMPARED_TEXTS - 1], {"wishes": texts})
    assert not is_true(compared, texts[MAX_COMPARED_TEXTS], {"wishes": texts})


def test_case_is_ignored_for_long_texts_too() -> None:
    text = "Straße" * 400
    assert is_true({"op": "eq", "value": text, "ignore_case": True}, text.upper())
    assert not is_true({"op": "in", "value": ["STRASSE", text], "ignore_case": True}, text.upper() + "!")


def test_the_end_of_what_a_pattern_searches_is_not_the_end_of_the_text() -> None:
    assert is_true({"op": "matches", "value": "^ +$"}, " " * MAX_TEXT)
    assert not is_true({"op": "matches", "value": "^ +$"}, " " * MAX_TEXT + "x")
    assert is_true({"op": "matches", "value": "^ +"}, " " * MAX_TEXT + "x")
