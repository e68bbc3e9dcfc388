"""Pure core: what a plan explains -> the answer, with instants as text."""

from collections.abc import Mapping
from typing import Any, Final

from starling_common.instants import LATEST_MS, format_instant

_INSTANTS: Final = {"since", "completed_at"}
"""Fields of what is observed that are instants."""
_DATED: Final = ("first_time", "last_time")


def in_words(told: Mapping[str, Any], document: Mapping[str, Any]) -> dict[str, Any]:
    """`told` as `Evaluator.explain` has it, of the segment that `document` defines."""
    return {"member": told["member"], "as_of": _instant(told["as_of"]), "tree": _node(told["tree"], document)}


def _node(node: Mapping[str, Any], document: Mapping[str, Any]) -> dict[str, Any]:
    return {
        **node,
        "observed": _observed(node, document),
        "next_change_at": _instant(node["next_change_at"]),
        "children": [_node(child, document) for child in node["children"]],
    }


def _observed(node: Mapping[str, Any], document: Mapping[str, Any]) -> Any:
    seen = node["observed"]
    if isinstance(seen, Mapping):
        return {name: _instant(value) if name in _INSTANTS else value for name, value in seen.items()}
    if node["kind"] == "first_time" or (node["kind"] == "event" and _at(document, node["node"]).get("measure") in _DATED):
        return _instant(seen)
    if node["kind"] == "regularly":
        return [_instant(moment) for moment in seen]
    return seen


def _at(document: Any, pointer: str) -> Any:
    """The part of a document that a JSON pointer without escapes leads to, as those of conditions are."""
    for step in pointer.split("/")[1:]:
        document = document[int(step)] if isinstance(document, list) else document[step]
    return document


def _instant(ms: int | None) -> str | int | None:
    """Beyond the years that a date can have it stays a number."""
    return format_instant(ms) if ms is not None and 0 <= ms <= LATEST_MS else ms
