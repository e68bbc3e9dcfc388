"""Edge: the OpenAPI document: FastAPI's own, completed with shared components, headers, errors and examples."""

import re
from collections.abc import Iterator, Mapping
from typing import Any, Final

from fastapi import FastAPI
from fastapi.openapi.utils import get_openapi

from starling_api.http.openapi.bodies import body_schemas
from starling_api.http.openapi.examples.operations import EXAMPLES
from starling_api.http.openapi.examples.parameters import PARAMETER_EXAMPLES, PARAMETER_SHAPES
from starling_api.http.openapi.models import COMPONENT, INSTANT, ProblemModel
from starling_api.http.problems import PROBLEMS
from starling_common.http.problem import PROBLEM_JSON, problem

Document = dict[str, Any]

_SCHEMAS: Final = "#/components/schemas/"
_VALIDATION: Final = frozenset({"HTTPValidationError", "ValidationError"})
_VERBS: Final = ("get", "put", "post", "delete")
_TAGS: Final[Mapping[str, str]] = {
    "segments": "Definitions of segments, their members and sizes, previews and diffs",
    "computed traits": "Aggregates over events that Spark keeps in profiles; a segment refers to one as `computed.<key>`",
    "event types": "Declared properties of events; in SQL an event type is the table `event_<key>` with typed columns",
    "lists": "Uploaded lists of users",
    "users": "Profiles, memberships, events and explanations of single users",
    "feed": "Every membership change, as pages or live",
    "outcomes": "What became of each item that was sent",
    "webhooks": "Addresses that receive membership changes",
    "backfills": "Spark jobs that gather the history of new segments",
    "imports": "Files and databases that a Spark job imports",
    "views": "Views in SQL, and materialised views",
    "reports": "Reports that Spark computes",
    "messages": "Messages of campaigns to users, their consent, and suppressed addresses",
    "policy": "Whether, when and why a message to a user would be sent",
    "tokens": "API tokens: created, rotated and revoked without a restart",
    "write keys": "Write keys of ingest: created, scoped, rotated and revoked without a restart",
    "audit": "Who changed what, and when",
    "campaigns": "Messages on entry, exit, events and to whole segments: drafts, previews and dry runs. This version sends none",
    "secrets": "The encryption of stored secrets",
    "targets": "Where and as whom messages and feeds are sent: senders and credentials",
}
_HEADERS: Final[Mapping[str, Document]] = {
    "X-Correlation-Id": {
        "description": "Id of this request in logs and records: the given id, or a new one",
        "schema": {"type": "string"},
    },
    "ETag": {"description": "The revision of the resource, in quotes: the value of `If-Match`", "schema": {"type": "string"}},
    "RateLimit-Limit": {
        "description": "Most requests at once: reads or writes, of the token or of its workspace, whichever has fewer left",
        "schema": {"type": "integer"},
    },
    "RateLimit-Remaining": {"description": "Requests that are left of them", "schema": {"type": "integer"}},
    "RateLimit-Reset": {"description": "Seconds until all of them are left again", "schema": {"type": "integer"}},
    "Retry-After": {"description": "Seconds to wait before the same request is sent again", "schema": {"type": "integer"}},
    "WWW-Authenticate": {"description": "Always `Bearer`", "schema": {"type": "string"}},
}
_HEADERS_OF: Final[Mapping[int, tuple[str, ...]]] = {401: ("WWW-Authenticate",), 429: ("Retry-After",), 503: ("Retry-After",)}
_DEFAULT_DESCRIPTION: Final = "Successful Response"
"""FastAPI's description of each response that has none; the document repeats it with every operation."""
_EVERY_ANSWER: Final = ("X-Correlation-Id", "RateLimit-Limit", "RateLimit-Remaining", "RateLimit-Reset")
_SHORT_NAMES: Final = {
    "X-Correlation-Id": "Id",
    "RateLimit-Limit": "Limit",
    "RateLimit-Remaining": "Remaining",
    "RateLimit-Reset": "Reset",
}
"""Every response refers to these components, so their names are short."""
_NO_CONTENT: Final = "NoContent"
_TAGGED: Final = frozenset({"Segment", "Trait", "Webhook", "List", "Campaign", "Target", "Policy", "EventType", "View"})
"""Schemas whose responses have an ETag."""


def openapi_document(app: FastAPI) -> Document:
    """Return the complete OpenAPI document."""
    found = get_openapi(
        title=app.title,
        version=app.version,
        openapi_version=app.openapi_version,
        summary=app.summary,
        description=app.description,
        routes=app.routes,
        tags=[{"name": name, "description": text} for name, text in _TAGS.items()],
        servers=[{"url": "/", "description": "The server that this document was read from"}],
    )
    problem_schema = ProblemModel.model_json_schema(ref_template=_SCHEMAS + "{model}")
    derived = found["components"]["schemas"] | problem_schema.pop("$defs") | {"Problem": problem_schema}
    schemas = {_public_name(name): schema for name, schema in derived.items() if name not in _VALIDATION}
    found["components"]["schemas"] = schemas | body_schemas()
    document: Document = _tidy(found)
    parameters: dict[str, Document] = {}
    for operation in _operations(document):
        _complete(operation, parameters)
    document["components"] |= {
        "parameters": dict(sorted(parameters.items())),
        "headers": {_component(name): header for name, header in _HEADERS.items()},
        "responses": {_NO_CONTENT: _no_content()}
        | {PROBLEMS[status].component: _problem_response(status) for status in sorted(PROBLEMS)},
    }
    return document


def _operations(document: Document) -> Iterator[Document]:
    for item in document["paths"].values():
        yield from (item[verb] for verb in _VERBS if verb in item)


def _complete(operation: Document, shared: dict[str, Document]) -> None:
    operation["parameters"] = [_shared_parameter(one, shared) for one in operation.get("parameters", ())]
    if not operation["parameters"]:
        del operation["parameters"]
    answers = operation["responses"] = dict(sorted((operation["responses"] | {"429": {}}).items()))
    example = EXAMPLES.get(operation["operationId"])
    if example is not None and example.request is not None:
        operation["requestBody"]["content"]["application/json"] |= _shown(example.requests())
    for status, answer in answers.items():
        if int(status) >= 400:
            answers[status] = {"$ref": f"#/components/responses/{PROBLEMS[int(status)].component}"}
            continue
        if status == "204":
            answers[status] = {"$ref": f"#/components/responses/{_NO_CONTENT}"}
            continue
        content = answer.get("content", {}).get("application/json", {})
        name = content.get("schema", {}).get("$ref", "").removeprefix(_SCHEMAS)
        if answer["description"] == _DEFAULT_DESCRIPTION:
            answer["description"] = "Done"
        answer["headers"] = _header_references(*_EVERY_ANSWER, *(("ETag",) if name in _TAGGED else ()))
        if example is not None and content:
            content |= _shown(example.responses())
        if name in _TAGGED and operation["operationId"].startswith(("create_", "put_")):
            answer["links"] = _links(operation["operationId"])


def _shown(values: Document) -> Document:
    """Return the field with the examples of a body: OpenAPI has one field for a single example and another one for several."""
    if len(values) == 1:
        return {"example": next(iter(values.values()))}
    return {"examples": {name: {"value": value} for name, value in values.items()}} if values else {}


def _links(operation_id: str) -> dict[str, Document]:
    """Return links to the operations on the resource of a response."""
    name = operation_id.partition("_")[2]
    writing, removing = ("put", "delete") if name == "list" else ("update", "archive")
    names = [f"get_{name}", f"{writing}_{name}", f"{removing}_{name}"]
    if name == "segment":
        names += ["pause_segment", "list_segment_members", "diff_segment"]
    if name == "list":
        names += ["add_list_members"]
    return {one: {"operationId": one, "parameters": {"key": "$response.body#/key"}} for one in names if one != operation_id}


def _shared_parameter(parameter: Document, shared: dict[str, Document]) -> Document:
    """Return a reference to the parameter's component. Different parameters with the same name get different components."""
    described = {**parameter, **PARAMETER_EXAMPLES.get(parameter["name"], {})}
    # A client omits an absent parameter, so null is no value of it. The description belongs to the parameter, not to its schema.
    if "null" in str(described["schema"].get("anyOf")):
        described["schema"] = described["schema"]["anyOf"][0]
    described["schema"] = {field: value for field, value in described["schema"].items() if field != "description"}
    shape = described["schema"].get("items", described["schema"])
    if shape.get("type") == "string" and "enum" not in shape:
        shape |= PARAMETER_SHAPES.get(parameter["name"], {})
    name = re.sub(r"[\W_]", "", parameter["name"].title())
    number = 1
    while shared.setdefault(own := name if number == 1 else f"{name}{number}", described) != described:
        number += 1
    return {"$ref": f"#/components/parameters/{own}"}


def _problem_response(status: int) -> Document:
    entry = PROBLEMS[status]
    return {
        "description": entry.description,
        "headers": _header_references(*_EVERY_ANSWER, *_HEADERS_OF.get(status, ())),
        "content": {
            PROBLEM_JSON: {
                "schema": {"$ref": f"{_SCHEMAS}Problem"},
                "example": problem(status, entry.code, entry.message),
            }
        },
    }


def _no_content() -> Document:
    return {"description": "Done; the response has no body", "headers": _header_references(*_EVERY_ANSWER)}


def _component(header: str) -> str:
    """Return the name of a header's component."""
    return _SHORT_NAMES.get(header, header)


def _header_references(*names: str) -> dict[str, Document]:
    return {name: {"$ref": f"#/components/headers/{_component(name)}"} for name in names}


def _public_name(name: str) -> str:
    return name.removesuffix("Model")


def _tidy(part: Any) -> Any:
    """Return the part without FastAPI's generated titles. References replace `COMPONENT` marks, and instants have a format."""
    if isinstance(part, list):
        return [_tidy(one) for one in part]
    if not isinstance(part, dict):
        return part
    if COMPONENT in part:
        return {"$ref": _SCHEMAS + part[COMPONENT]} if "anyOf" not in part else _tidy_optional(part)
    reference = part.get("$ref")
    if isinstance(reference, str) and reference.startswith(_SCHEMAS):
        return {**part, "$ref": _SCHEMAS + _public_name(reference.removeprefix(_SCHEMAS))}
    # Only a schema has a generated title; the title of the document and a property named `title` stay.
    is_schema = any(name in part for name in ("type", "anyOf", "const", "enum", "$ref")) or part.keys() <= {"title", "description"}
    found = {name: _tidy(one) for name, one in part.items() if not (name == "title" and is_schema and isinstance(one, str))}
    if found.get("description") == INSTANT:
        del found["description"]
        shape = next((one for one in found.get("anyOf", ()) if one.get("type") == "string"), found)
        shape["format"] = "date-time"
    return found


def _tidy_optional(part: Document) -> Document:
    kept = {name: one for name, one in part.items() if name not in {COMPONENT, "anyOf", "title"}}
    return {**kept, "anyOf": [{"$ref": _SCHEMAS + part[COMPONENT]}, {"type": "null"}]}
