"""Pure core: groups of conditions, of filters over events and of filters over array items: reads and combines them."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeVar, cast

from starling_segments.language.operators.table import Test
from starling_segments.language.tree import Group, GroupKind
from starling_segments.language.validation import MAX_DEPTH, Location, refuse_unknown_fields

T = TypeVar("T")
GROUP_KINDS: tuple[GroupKind, ...] = ("all", "any", "none", "not")
MAX_PARTS = 64


def group_kind(node: Mapping[str, object]) -> GroupKind | None:
    """Return the kind of the group; None if the node is not a group."""
    return next((kind for kind in GROUP_KINDS if kind in node), None)


def read_object(node: object, location: Location, expected: str) -> dict[str, Any] | None:
    """Return the node if it is an object; None after recording an error."""
    if isinstance(node, dict):
        return cast("dict[str, Any]", node)
    location.refuse("wrong_type", "the value is not an object", expected)
    return None


def read_group(
    node: Mapping[str, Any], kind: GroupKind, location: Location, read_part: Callable[[object, Location], T | None]
) -> Group[T] | None:
    """Read a group; None after recording errors. Nothing below the deepest level is read."""
    refuse_unknown_fields(node, frozenset({kind}), location)
    if location.depth == MAX_DEPTH:
        location.refuse("too_deep", f"groups are nested more than {MAX_DEPTH} deep", f"at most {MAX_DEPTH} levels")
        return None
    inside = location.at(kind).inside_group()
    if kind == "not":
        part = read_part(node[kind], inside)
        return None if part is None else Group(kind, (part,))
    parts = [read_part(part, inside.at(i)) for i, part in enumerate(_part_documents(node[kind], inside))]
    read = tuple(part for part in parts if part is not None)
    return Group(kind, read) if read and len(read) == len(parts) else None


def _part_documents(parts: object, location: Location) -> Sequence[object]:
    expected = f"a list of 1 to {MAX_PARTS} conditions"
    if not isinstance(parts, list):
        location.refuse("wrong_type", "the value is not a list", expected)
        return ()
    if not parts:
        location.refuse("empty_group", "the group has no conditions", f'{expected}; {{"everyone": true}} for everyone')
    if len(parts) > MAX_PARTS:
        location.refuse("too_wide", f"the group has {len(parts)} conditions", expected)
        return ()
    return parts


def combine(kind: GroupKind, tests: Sequence[Test]) -> Test:
    """Return one test for the group; it stops at the first part that decides."""
    if len(tests) == 1:
        only = tests[0]
        return only if kind in {"all", "any"} else lambda subject, now: not only(subject, now)
    if kind == "all":
        return _stops_at(False, tuple(tests))
    if kind == "any":
        return _stops_at(True, tuple(tests))
    some = _stops_at(True, tuple(tests))
    return lambda subject, now: not some(subject, now)


def _stops_at(decisive: bool, tests: tuple[Test, ...]) -> Test:
    def holds(subject: Any, now: int) -> bool:
        for test in tests:  # a loop: `any(...)` over a generator takes twice as long
            if test(subject, now) is decisive:
                return decisive
        return not decisive

    return holds
