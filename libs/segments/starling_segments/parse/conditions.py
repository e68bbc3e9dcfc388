"""Pure core: reads conditions, by their field. A new kind of condition is one entry in `LEAF_READERS`."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, cast

from starling_segments.language.operators import operands
from starling_segments.language.operators.operands import is_number
from starling_segments.language.tree import Account, Bucket, Condition, Everyone, InList, InSegment, Leaf, Match, Trait
from starling_segments.language.validation import NOT_YET, Location, refuse_unknown_fields
from starling_segments.parse import behaviour
from starling_segments.parse.comparisons import read_trait_path
from starling_segments.parse.filters import read_predicate
from starling_segments.parse.groups import GROUP_KINDS, group_kind, read_group, read_object
from starling_segments.parse.windows import WINDOW_FIELDS

HELD_FIELDS = frozenset({"held_for", "held_less_than"})
MATCHES: tuple[Match, ...] = ("any", "all", "none")
MAX_SALT_CHARACTERS = 100

Fields = Mapping[str, Any]


def read_condition(node: object, location: Location) -> Condition | None:
    """Read a condition and everything below it; None after recording all errors."""
    fields = read_object(node, location, "a condition: an object")
    if fields is None:
        return None
    kind = group_kind(fields)
    if kind is not None:
        return read_group(fields, kind, location, read_condition)
    if not location.count_condition():
        return None
    for name, read in LEAF_READERS.items():
        if name in fields:
            return read(fields, location)
    expected = "one of " + ", ".join([*GROUP_KINDS, *LEAF_READERS])
    location.refuse("missing_field", "the node contains no condition", expected)
    refuse_unknown_fields(fields, WINDOW_FIELDS | HELD_FIELDS | {"where", "op", "value", "ignore_case"}, location)
    return None


def _read_trait(fields: Fields, location: Location) -> Leaf | None:
    path = read_trait_path(fields["trait"], location.at("trait"))
    held = {name: operands.DURATION.read(fields[name], location.at(name)) for name in HELD_FIELDS & fields.keys()}
    found = read_predicate(fields, location, frozenset({"trait"}) | HELD_FIELDS)
    if path is None or found is None or None in held.values():
        return None
    at_least, less_than = held.get("held_for"), held.get("held_less_than")
    if at_least is not None and less_than is not None and at_least >= less_than:
        location.refuse("bad_window", "held_for is not shorter than held_less_than", '"held_for" below "held_less_than"')
        return None
    return Trait(path, found, at_least, less_than)


def _read_segment(fields: Fields, location: Location) -> Leaf | None:
    refuse_unknown_fields(fields, frozenset({"segment"}), location)
    key, child, known = fields["segment"], location.at("segment"), location.validation.known
    if not isinstance(key, str):
        child.refuse("wrong_type", "`segment` is not text", "the key of an existing segment")
        return None
    loop = _loop(key, location.validation.key, known.segments)
    if loop:
        child.refuse("cycle", "the segment would depend on itself: " + " → ".join(loop), "segments that do not depend on this one")
    elif key not in known.segments:
        child.refuse("unknown_segment", f"unknown segment {key!r}", "the key of an existing segment that is not archived")
    return InSegment(key)


def _loop(start: str, own: str | None, uses: Mapping[str, frozenset[str]]) -> list[str]:
    """Return the path from `own` through `start` back to `own`; empty if there is none."""
    if own is None:
        return []
    came_from: dict[str, str] = {start: own}
    waiting = [start]
    while waiting:
        key = waiting.pop()
        if key == own:
            return _way_back(own, came_from)
        for used in sorted(uses.get(key, frozenset()) - came_from.keys()):
            came_from[used] = key
            waiting.append(used)
    return []


def _way_back(own: str, came_from: Mapping[str, str]) -> list[str]:
    way = [own, came_from[own]]
    while way[-1] != own:
        way.append(came_from[way[-1]])
    return way[::-1]


def _read_list(fields: Fields, location: Location) -> Leaf | None:
    refuse_unknown_fields(fields, frozenset({"list"}), location)
    key, known = fields["list"], location.validation.known.lists
    if not isinstance(key, str):
        location.at("list").refuse("wrong_type", "the list is not a key", "the key of an uploaded list")
        return None
    if known is None:
        location.refuse(NOT_YET, "conditions on lists are not supported yet", "another condition")
    elif key not in known:
        location.at("list").refuse("unknown_list", f"unknown list {key!r}", "the key of an uploaded list")
    return InList(key)


def _read_bucket(fields: Fields, location: Location) -> Leaf | None:
    refuse_unknown_fields(fields, frozenset({"bucket"}), location)
    child = location.at("bucket")
    inner = read_object(fields["bucket"], child, '{"salt": text, "from": 0, "to": 25}')
    if inner is None:
        return None
    refuse_unknown_fields(inner, frozenset({"salt", "from", "to"}), child)
    missing = [name for name in ("salt", "from", "to") if inner.get(name) is None]
    for name in missing:
        child.refuse("missing_field", f"{name!r} is missing", '{"salt": text, "from": 0, "to": 25}')
    salt, low, high = inner.get("salt"), inner.get("from"), inner.get("to")
    if salt is not None and (not isinstance(salt, str) or not 0 < len(salt) <= MAX_SALT_CHARACTERS):
        child.at("salt").refuse("wrong_type", "the value is not a valid salt", f"text of 1 to {MAX_SALT_CHARACTERS} characters")
        missing.append("salt")
    wrong = [name for name in ("from", "to") if name not in missing and not _is_per_cent(inner[name])]
    for name in wrong:
        child.at(name).refuse("wrong_type", "the value is not a percentage", "a number from 0 to 100")
    if missing or wrong:
        return None
    if low >= high:  # type: ignore[operator]
        child.refuse("wrong_type", "the bucket is empty", '"from" less than "to"')
        return None
    return Bucket(str(salt), cast("float", low), cast("float", high))


def _is_per_cent(value: object) -> bool:
    return is_number(value) and 0 <= cast("float", value) <= 100


def _read_account(fields: Fields, location: Location) -> Leaf | None:
    refuse_unknown_fields(fields, frozenset({"account"}), location)
    child = location.at("account")
    inner = read_object(fields["account"], child, '{"match": "any", "where": a condition on users}')
    if inner is None:
        return None
    refuse_unknown_fields(inner, frozenset({"match", "where"}), child)
    match = inner.get("match")
    if match is None:
        child.refuse("missing_field", "the match mode is missing", '"match": one of ' + ", ".join(MATCHES))
    elif match not in MATCHES:
        child.at("match").refuse("wrong_type", "unknown match mode", "one of " + ", ".join(MATCHES))
    if inner.get("where") is None:
        child.refuse("missing_field", "the condition on the users is missing", '"where": a condition on users')
        return None
    if location.validation.in_account:
        child.refuse("wrong_type", "an account condition contains another one", "conditions on users only")
        return None
    if not location.validation.known.accounts:
        location.refuse(NOT_YET, "conditions on accounts are not supported yet", "another condition")
    location.validation.in_account = True
    where = read_condition(inner["where"], child.at("where").inside_group())
    location.validation.in_account = False
    return Account(match, where) if match in MATCHES and where is not None else None


def _read_everyone(fields: Fields, location: Location) -> Leaf | None:
    refuse_unknown_fields(fields, frozenset({"everyone"}), location)
    if fields["everyone"] is True:
        return Everyone()
    location.at("everyone").refuse("wrong_type", "the only valid value is true", "true")
    return None


LEAF_READERS: Mapping[str, Callable[[Fields, Location], Leaf | None]] = {
    "trait": _read_trait,
    "event": behaviour.read_event_measure,
    "first_time": behaviour.read_first_time,
    "sequence": behaviour.read_sequence,
    "regularly": behaviour.read_regularly,
    "segment": _read_segment,
    "list": _read_list,
    "bucket": _read_bucket,
    "account": _read_account,
    "everyone": _read_everyone,
    "measure": behaviour.read_event_measure,  # a ratio has no event of its own
}
