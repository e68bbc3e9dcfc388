"""The OpenAPI document is valid and complete, and its examples conform to its schemas."""

import json
import re
from collections.abc import Iterator
from typing import Any

import pytest
from jsonschema import Draft202012Validator
from openapi_spec_validator import OpenAPIV31SpecValidator
from prometheus_client import CollectorRegistry

from starling_api.app import build_app
from starling_api.http.openapi.examples.operations import EXAMPLES
from starling_campaigns import References, parse_campaign
from starling_common.telemetry.metrics import Metrics
from starling_segments import Known
from tests.unit.api.memory import World

Document = dict[str, Any]

DOCUMENT: Document = build_app(World().services, Metrics(CollectorRegistry()), dict).openapi()
OPERATIONS: dict[str, tuple[str, str, Document]] = {
    operation["operationId"]: (verb, path, operation)
    for path, item in DOCUMENT["paths"].items()
    for verb, operation in item.items()
}
MOST_BYTES = 360_000


def walk(part: Any) -> Iterator[Document]:
    if isinstance(part, dict):
        yield part
        part = list(part.values())
    if isinstance(part, list):
        for one in part:
            yield from walk(one)


def found(reference: str) -> Any:
    part: Any = DOCUMENT
    for step in reference.removeprefix("#/").split("/"):
        part = part[step]
    return part


def test_it_is_valid_and_of_a_size_that_tools_read() -> None:
    OpenAPIV31SpecValidator(DOCUMENT).validate()
    assert len(json.dumps(DOCUMENT, separators=(",", ":"))) <= MOST_BYTES


def test_every_reference_is_local_and_resolves() -> None:
    references = [part["$ref"] for part in walk(DOCUMENT) if isinstance(part.get("$ref"), str)]
    assert len(references) > 500
    assert {reference for reference in references if not reference.startswith("#/components/")} == set()
    assert all(found(reference) for reference in references)


def test_every_component_is_used() -> None:
    used = {part["$ref"] for part in walk(DOCUMENT) if isinstance(part.get("$ref"), str)}
    for kind in ("schemas", "parameters", "headers", "responses"):
        assert {name for name in DOCUMENT["components"][kind] if f"#/components/{kind}/{name}" not in used} == set()


def test_operation_ids_are_names_of_functions() -> None:
    assert {name for name in OPERATIONS if not re.fullmatch("[a-z]+(_[a-z]+)+", name)} == set()
    assert {"create_segment", "list_segment_members", "preview_segment", "read_feed"} <= OPERATIONS.keys()


@pytest.mark.parametrize("name", OPERATIONS)
def test_an_operation_declares_its_parameters_and_problems(name: str) -> None:
    _, path, operation = OPERATIONS[name]
    parameters = [found(one["$ref"]) for one in operation.get("parameters", ())]
    assert {one["name"] for one in parameters if one["in"] == "path"} == set(re.findall(r"{(\w+)}", path))
    assert operation["security"]
    assert operation["summary"]
    assert operation["tags"][0] in {tag["name"] for tag in DOCUMENT["tags"]}
    assert {"401", "403", "429", "500"} <= operation["responses"].keys()
    for status, answer in operation["responses"].items():
        described = found(answer["$ref"]) if "$ref" in answer else answer
        assert {"X-Correlation-Id", "RateLimit-Limit", "RateLimit-Remaining", "RateLimit-Reset"} <= described["headers"].keys()
        if int(status) >= 400:
            assert described["content"].keys() == {"application/problem+json"}
            assert described["content"]["application/problem+json"]["schema"] == {"$ref": "#/components/schemas/Problem"}


@pytest.mark.parametrize("name", OPERATIONS)
def test_an_operation_has_an_example_that_its_schema_allows(name: str) -> None:
    operation = OPERATIONS[name][2]
    contents = [operation.get("requestBody", {}).get("content", {})]
    contents += [answer.get("content", {}) for answer in operation["responses"].values() if "$ref" not in answer]
    described = [content["application/json"] for content in contents if "application/json" in content]
    assert (name in EXAMPLES) is bool(described)
    for media in described:
        schema = {**media["schema"], "components": DOCUMENT["components"]}
        shown = [media["example"]] if "example" in media else [one["value"] for one in media["examples"].values()]
        assert [error.message for one in shown for error in Draft202012Validator(schema).iter_errors(one)] == []


def test_campaigns_have_an_example_of_a_broadcast() -> None:
    for name in ("create_campaign", "get_campaign", "activate_campaign"):
        operation = OPERATIONS[name][2]
        status = "201" if name == "create_campaign" else "200"
        examples = operation["responses"][status]["content"]["application/json"]["examples"]
        assert examples["broadcast"]["value"]["trigger"] == {"broadcast": "lapsing-vips", "local": "2026-03-20T09:00"}
    body = OPERATIONS["create_campaign"][2]["requestBody"]["content"]["application/json"]["examples"]["broadcast"]["value"]
    known = References(Known(segments={"lapsing-vips": frozenset()}), {"main-smtp": "email"})
    assert parse_campaign(body, known).rate == 500
    written = OPERATIONS["list_campaigns"][2]["responses"]["200"]["content"]["application/json"]["example"]["items"][0]
    assert written["broadcast"] == {"state": "writing", "written": 41_200}


def test_examples_of_problems_are_problems() -> None:
    schema = {"$ref": "#/components/schemas/Problem", "components": DOCUMENT["components"]}
    for name, answer in DOCUMENT["components"]["responses"].items():
        if name == "NoContent":
            continue
        Draft202012Validator(schema).validate(answer["content"]["application/problem+json"]["example"])


def test_links_lead_to_operations() -> None:
    links = [link for part in walk(DOCUMENT["paths"]) for link in part.get("links", {}).values()]
    assert {link["operationId"] for link in links} <= OPERATIONS.keys()
    assert len(links) > 15


def test_answers_with_a_revision_have_an_etag() -> None:
    tagged = {
        (name, status)
        for name, (_, _, operation) in OPERATIONS.items()
        for status, answer in operation["responses"].items()
        if "ETag" in answer.get("headers", {})
    }
    assert {("create_segment", "201"), ("get_list", "200"), ("put_list", "201"), ("pause_segment", "200")} <= tagged
    assert ("list_segments", "200") not in tagged
