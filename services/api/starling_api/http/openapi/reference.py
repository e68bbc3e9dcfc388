"""Pure core: the HTML pages. They load no external resource, so they work without internet access."""

import html
import json
from collections.abc import Iterator, Mapping
from typing import Any, Final

_STYLE: Final = (
    "body{font:16px/1.5 system-ui,sans-serif;max-width:60rem;margin:2rem auto;padding:0 1rem;color:#222}"
    "code,pre{font-family:ui-monospace,monospace;background:#f4f4f4}pre{padding:.6rem;overflow:auto}"
    "h3 code{background:none}.verb{display:inline-block;min-width:4.5rem;font-weight:700}details{margin:.3rem 0 1rem}"
)
_VERBS: Final = ("get", "post", "put", "delete")


def front_page() -> str:
    """Return the start page with links to the reference, the metrics and the schemas."""
    return _page(
        "Starling",
        "<h1>Starling</h1><p>The segment API.</p><ul>"
        '<li><a href="/docs">Reference</a></li><li><a href="/openapi.json">OpenAPI 3.1 document</a></li>'
        '<li><a href="/v1/segment-schema.json">JSON Schema of a segment</a></li>'
        '<li><a href="/v1/campaign-schema.json">JSON Schema of a campaign</a></li>'
        '<li><a href="/readyz">Readiness</a></li><li><a href="/metrics">Metrics</a></li></ul>',
    )


def reference_page(openapi: Mapping[str, Any]) -> str:
    """Return the reference of all operations of an OpenAPI document, grouped by tag in order of appearance."""
    groups: dict[str, list[str]] = {}
    for tag, text in _calls(openapi):
        groups.setdefault(tag, []).append(text)
    body = "".join(f"<h2>{html.escape(tag)}</h2>{''.join(calls)}" for tag, calls in groups.items())
    schemas = openapi.get("components", {}).get("schemas", {})
    shapes = "".join(_schema(name, schema) for name, schema in sorted(schemas.items()))
    intro = (
        "<p>Send <code>Authorization: Bearer &lt;token&gt;</code>. "
        "Errors are <code>application/problem+json</code>. Lists are pages. "
        'Machine-readable: <a href="/openapi.json">/openapi.json</a>.</p>'
    )
    return _page("Starling API", f"<h1>Starling API</h1>{intro}{body}<h2>Schemas</h2>{shapes}")


def _calls(openapi: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    for path, item in openapi["paths"].items():
        for verb in _VERBS:
            if verb in item:
                yield item[verb].get("tags", ["other"])[0], _call(openapi, verb, path, item[verb])


def _resolved(openapi: Mapping[str, Any], part: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return the component that the part refers to, or the part itself."""
    if "$ref" not in part:
        return part
    found = openapi
    for step in part["$ref"].removeprefix("#/").split("/"):
        found = found[step]
    return found


def _call(openapi: Mapping[str, Any], verb: str, path: str, operation: Mapping[str, Any]) -> str:
    named = (_resolved(openapi, one) for one in operation.get("parameters", ()))
    parameters = ", ".join(f"<code>{html.escape(one['name'])}</code> ({html.escape(one['in'])})" for one in named)
    answers = "".join(
        f"<li>{html.escape(status)}: {html.escape(_resolved(openapi, answer).get('description', ''))}</li>"
        for status, answer in operation["responses"].items()
    )
    body = operation.get("requestBody")
    content = body["content"]["application/json"] if body else {}
    shown = {"Example": content.get("example")} if "examples" not in content else {
        f"Example: {name}": one["value"] for name, one in content["examples"].items()
    }  # fmt: skip
    examples = "".join(_schema(name, value) for name, value in shown.items())
    return (
        f'<h3><span class="verb">{verb.upper()}</span> <code>{html.escape(path)}</code></h3>'
        f"<p>{html.escape(operation.get('summary', ''))}. {html.escape(operation.get('description', ''))}</p>"
        + (f"<p>Parameters: {parameters}.</p>" if parameters else "")
        + (_schema("Body", _resolved(openapi, content["schema"])) + examples if body else "")
        + f"<ul>{answers}</ul>"
    )


def _schema(name: str, schema: object) -> str:
    text = html.escape(json.dumps(schema, indent=2, ensure_ascii=False))
    return f"<details><summary>{html.escape(name)}</summary><pre>{text}</pre></details>"


def _page(title: str, body: str) -> str:
    return (
        f'<!doctype html><html lang="en"><head><meta charset="utf-8"><title>{html.escape(title)}</title>'
        f'<meta name="viewport" content="width=device-width"><style>{_STYLE}</style></head><body>{body}</body></html>'
    )
