"""The quota of a workspace, through the API: cost of one definition, number of segments, and summed cost."""

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from starling_api.definitions.definition import Definition
from starling_api.definitions.quota import Quota
from starling_api.settings import ApiSettings
from starling_segments import CostLimits, DefinitionRefused, Known, cost_of, parse_condition
from starling_segments.language.tree import Condition
from tests.unit.api.calls import call
from tests.unit.api.memory import World

CHEAP: dict[str, Any] = {"everyone": True}
DEAR: dict[str, Any] = {"event": "Buy", "measure": {"most_frequent": "sku"}, "op": "eq", "value": "x", "within": "30d"}
"""481 points."""
LIMITS = CostLimits(work=600, state_bytes=1 << 30)


def segment(key: str, where: dict[str, Any] = CHEAP) -> dict[str, Any]:
    return {"key": key, "name": key, "where": where}


def world(segments: int = 10, work: int = 10_000, definition: CostLimits = LIMITS) -> World:
    return World(quota=Quota(definition, segments, work))


def errors(answer: Any) -> list[tuple[str, str]]:
    assert answer.status_code == 422, answer.text
    return [(error["pointer"], error["code"]) for error in answer.json()["errors"]]


def test_a_definition_above_the_limit_is_refused_at_its_place() -> None:
    answer = call(world(), "POST", "/v1/segments", json=segment("a", {"any": [DEAR, {**DEAR, "within": "60d"}]}))
    assert errors(answer) == [("/where/any/0", "too_costly")]
    assert "an event can cost 96" in answer.json()["errors"][0]["message"]


@pytest.mark.parametrize("path", ["/v1/segments/preview", "/v1/segments/a/diff"])
def test_a_preview_and_a_diff_are_refused_as_well(path: str) -> None:
    here = world()
    assert call(here, "POST", "/v1/segments", json=segment("a")).status_code == 201
    body = {"where": {"any": [DEAR, {**DEAR, "within": "60d"}]}}
    assert errors(call(here, "POST", path, json=body)) == [("/where/any/0", "too_costly")]


def test_the_number_of_segments_is_limited_with_the_usage_in_the_error() -> None:
    here = world(segments=2)
    for key in ("a", "b"):
        assert call(here, "POST", "/v1/segments", json=segment(key)).status_code == 201
    for query in ("", "?dry_run=true"):
        answer = call(here, "POST", "/v1/segments" + query, json=segment("c"))
        assert errors(answer) == [("", "too_many_segments")]
        assert "the workspace has 2 of 2 segments and would have 3" in answer.json()["errors"][0]["message"]
    assert errors(call(here, "POST", "/v1/segments:batch", json={"segments": [segment("c")]})) == [("", "too_many_segments")]
    assert call(here, "PUT", "/v1/segments/a", json={**segment("a"), "name": "renamed"}).status_code == 200
    assert call(here, "DELETE", "/v1/segments/b").status_code == 204
    assert call(here, "POST", "/v1/segments", json=segment("c")).status_code == 201


def test_the_summed_cost_is_limited_when_segments_are_created_changed_batched_and_resumed() -> None:
    here = world(work=600)
    assert call(here, "POST", "/v1/segments", json=segment("a", DEAR)).status_code == 201
    for query in ("", "?dry_run=true"):
        answer = call(here, "POST", "/v1/segments" + query, json=segment("b", DEAR))
        assert errors(answer) == [("/where", "too_costly")]
        assert "481 of 600 points of work an event and would cost 962" in answer.json()["errors"][0]["message"]
    assert call(here, "POST", "/v1/segments", json=segment("b")).status_code == 201
    assert errors(call(here, "PUT", "/v1/segments/b", json=segment("b", DEAR))) == [("/where", "too_costly")]
    assert errors(call(here, "POST", "/v1/segments:batch", json={"segments": [segment("b", DEAR)]})) == [("/where", "too_costly")]
    assert call(here, "POST", "/v1/segments/a/pause").status_code == 200
    assert call(here, "PUT", "/v1/segments/b", json=segment("b", DEAR)).status_code == 200
    assert errors(call(here, "POST", "/v1/segments/a/resume")) == [("/where", "too_costly")]
    assert call(here, "DELETE", "/v1/segments/b").status_code == 204
    assert call(here, "POST", "/v1/segments/a/resume").status_code == 200


def test_stored_segments_above_the_limits_keep_working() -> None:
    here = world()
    assert call(here, "POST", "/v1/segments", json=segment("a", DEAR)).status_code == 201
    here.quota = Quota(CostLimits(work=100, state_bytes=100), segments=1, work=10)
    assert call(here, "GET", "/v1/segments/a").status_code == 200
    assert call(here, "PUT", "/v1/segments/a", json={**segment("a", DEAR), "name": "renamed"}).status_code == 200
    assert errors(call(here, "PUT", "/v1/segments/a", json=segment("a", {**DEAR, "within": "60d"})))[0][1] == "too_costly"


ROOT = Path(__file__).parents[3]
DEFAULT = CostLimits(*(ApiSettings.model_fields[name].default for name in ("segment_work", "segment_state_bytes")))


def conditions(part: Any) -> Iterator[Condition]:
    """Yield every part of a document that is a condition."""
    if isinstance(part, dict):
        try:
            yield parse_condition(part, "UTC", Known(accounts=True))
        except DefinitionRefused:
            part = list(part.values())
    if isinstance(part, list):
        for one in part:
            yield from conditions(one)


def documents(path: Path) -> Iterator[Any]:
    text = path.read_text()
    blocks = [text] if path.suffix == ".json" else re.findall(r"^```json\n(.*?)^```", text, re.MULTILINE | re.DOTALL)
    for block in blocks:
        try:
            yield json.loads(block)
        except ValueError:
            continue  # a block that leaves a part out


@pytest.mark.parametrize(("folder", "pattern", "least"), [("libs/segments/cases", "*/*.json", 200), ("docs", "**/*.md", 15)])
def test_shared_cases_and_examples_of_the_documentation_are_within_the_default_limits(
    folder: str, pattern: str, least: int
) -> None:
    files = sorted((ROOT / folder).glob(pattern))
    found = [(path, one) for path in files for document in documents(path) for one in conditions(document)]
    assert len(found) >= least
    for path, condition in found:
        cost = cost_of(condition)
        assert (cost.work <= DEFAULT.work, cost.state_bytes <= DEFAULT.state_bytes) == (True, True), (path, cost.parts)


@pytest.mark.parametrize("document", [{}, {"where": None}, {"where": 3}, {"where": {"segment": 1}}])
def test_a_stored_document_that_this_release_cannot_read_costs_nothing(document: dict[str, Any]) -> None:
    stored = Definition("segment", "foreign", 1, "ACTIVE", document, 0, 0)
    Quota(LIMITS, 10, 10_000).check([stored], {"a": segment("a")})
