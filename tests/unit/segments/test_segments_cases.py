"""The shared cases of the package, one folder for each family of operators and kind of condition: predicates and stories.

A predicate's rows are evaluated by a whole segment: is a user with a trait of that value a member?
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import pytest

from starling_segments import Change, Evaluator, Known, UserState, compile_plan, decode_state, encode_state, parse_segment
from tests.unit.segments.cases import CASES, Doc, ms, take

FAMILIES = (
    "account", "after_before", "array", "between_ago", "bucket", "calendar", "compared", "date_fixed", "date_moving", "equality",
    "event_avg", "event_count", "event_days", "event_distinct", "event_first_last", "event_first_time", "event_last_time",
    "event_min_max", "event_most_frequent", "event_percentile", "event_ratio", "event_sum", "everyone", "existence", "first_time",
    "geo", "groups", "held", "list", "number", "order", "paths", "pattern", "regularly", "segment", "sequence", "text", "trait",
    "version",
)  # fmt: skip
AT_LEAST = 300
"""Return the cases, each with its rows or steps."""


def cases() -> Iterator[Any]:
    for path in sorted(CASES.glob("*/*.json")):
        for case in json.loads(path.read_text())["cases"]:
            yield pytest.param(case, id=f"{path.parent.name}/{path.stem}: {case['name']}")


def test_every_family_has_cases() -> None:
    assert sorted(path.name for path in CASES.iterdir()) == sorted(FAMILIES)
    assert len(list(cases())) >= AT_LEAST


@pytest.mark.parametrize("case", list(cases()))
def test_case(case: Doc) -> None:
    if "predicate" in case:
        for row in case["rows"]:
            assert holds(case, row) is row["holds"], row
    else:
        run_story(case)


def holds(case: Doc, row: Doc) -> bool:
    path = case.get("path", "v")
    document = {"key": "s", "name": "s", "timezone": case.get("timezone", "UTC"), "where": {"trait": path, **case["predicate"]}}
    traits = row.get("traits") or ({"v": row["value"]} if "value" in row else {})
    state = UserState()
    Evaluator(compile_plan([parse_segment(document, Known())])).on_profile(
        state, traits, [], ms(case.get("now", "2026-01-01T00:00:00Z"))
    )
    return "s" in state.memberships and state.memberships["s"].member


def run_story(case: Doc) -> None:
    known = Known(
        {segment["key"]: frozenset() for segment in case["segments"]},
        computed_traits=frozenset(case.get("computed_traits", [])),
        lists=frozenset(case.get("lists", [])),
        accounts=True,
    )
    evaluator = Evaluator(compile_plan([parse_segment(document, known) for document in case["segments"]]))
    state = UserState(user_id=case.get("user", "u1"))
    for step in case["steps"]:
        state = decode_state(encode_state(state))
        changes = [as_tuple(change) for change in take(evaluator, state, step)]
        assert sorted(changes) == sorted(expected(step)), step
    assert sorted(key for key, membership in state.memberships.items() if membership.member) == case["members"]


def as_tuple(change: Change) -> tuple[Any, ...]:
    return (change.effective_at, change.segment_key, change.status, change.sequence, change.cause)


def expected(step: Doc) -> list[tuple[Any, ...]]:
    return [(ms(c["effective_at"]), c["key"], c["status"], c["sequence"], c["cause"]) for c in step["changes"]]
