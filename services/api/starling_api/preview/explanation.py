"""Pure core: converts the explanation of a plan to the response, with instants as text."""

from collections.abc import Mapping
from typing import Any, Final

from starling_common.time.instants import LATEST_MS, format_instant

_INSTANTS: Final = {"since", "completed_at"}
"""Fields of observed values that are instants."""
_DATED: Final = ("first_time", "last_time")


def explanation_json(explained: Mapping[str, Any], document: Mapping[str, Any]) -> dict[str, Any]:
    """Return the response for the result of `Evaluator.explain` on the segment of `document`."""
    return {"member": explained["member"], "as_of": _instant(explained["as_of"]), "tree": _node(explained["tree"], document)}


def _node(node: Mapping[str, Any], document: Mapping[str, Any]) -> dict[str, Any]:
    return {
        **node,
        "observed": _observed(node, document),
        "next_change_at": _instant(node["next_change_at"]),
        "children": [_node(child, document) for child in node["children"]],
    }


def _observed(node: Mapping[str, Any], document: Mapping[str, Any]) -> Any:
    value = node["observed"]
    if isinstance(value, Mapping):
        return {name: _instant(part) if name in _INSTANTS else part for name, part in value.items()}
    if node["kind"] == "first_time" or (node["kind"] == "event" and _at(document, node["node"]).get("measure") in _DATED):
        return _instant(value)
    if node["kind"] == "regularly":
        return [_instant(moment) for moment in value]
    return value


def _at(document: Any, pointer: str) -> Any:
    """Return the part of a document at a JSON pointer. Pointers of conditions contain no escapes."""
    for step in pointer.split("/")[1:]:
        document = document[int(step)] if isinstance(document, list) else document[step]
    return document


def _instant(ms: int | None) -> str | int | None:
    """Return the instant as text; a number outside the range of dates stays a number."""
    return format_instant(ms) if ms is not None and 0 <= ms <= LATEST_MS else ms
