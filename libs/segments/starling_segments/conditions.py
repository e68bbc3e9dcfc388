"""Pure core: the leaves of the language, by their field. A new kind of leaf is one entry in `LEAF_READERS`."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, cast

from starling_segments import paths
from starling_segments.faults import NOT_YET, Known, Place, refuse_unknown_fields
from starling_segments.filters import EVENT_SOURCES, predicate, read_filter, read_predicate
from starling_segments.groups import GROUP_KINDS, group_kind, read_group, read_object
from starling_segments.measures import LATER_MEASURES, MEASURES
from starling_segments.tree import (
    Condition,
    EventMeasure,
    EventSelector,
    Everyone,
    FirstTime,
    InSegment,
    Leaf,
    Measure,
    MeasureName,
    Trait,
)  # fmt: skip
from starling_segments.windows import LATER_WINDOW_FIELDS, WINDOW_FIELDS, read_window

LATER_LEAVES = frozenset({"sequence", "regularly", "list", "bucket", "account"})
"""Part of the language, not built yet."""
LATER_TRAIT_FIELDS = frozenset({"held_for", "held_less_than"})
MEASURE_FIELDS = frozenset({"event", "where", "measure"}) | WINDOW_FIELDS
MAX_EVENT_NAME_CHARACTERS = 200

Fields = Mapping[str, Any]


def read_condition(node: object, place: Place) -> Condition | None:
    """The only road from JSON to a tree; None after saying everything that is wrong below."""
    fields = read_object(node, place, "a condition: an object")
    if fields is None:
        return None
    kind = group_kind(fields)
    if kind is not None:
        return read_group(fields, kind, place, read_condition)
    place.count_leaf()
    for name, read in LEAF_READERS.items():
        if name in fields:
            return read(fields, place)
    if "measure" in fields:  # `ratio` stands without an event of its own
        return _read_event_measure(fields, place)
    later = next((name for name in LATER_LEAVES if name in fields), None)
    if later is not None:
        place.refuse(NOT_YET, f"a {later!r} leaf is not built yet", "another kind of leaf for now")
    else:
        expected = "one of " + ", ".join([*GROUP_KINDS, *LEAF_READERS])
        place.refuse("missing_field", "it is no kind of condition that there is", expected)
        refuse_unknown_fields(fields, _every_field(), place)
    return None


def _every_field() -> frozenset[str]:
    return MEASURE_FIELDS | LATER_WINDOW_FIELDS | LATER_TRAIT_FIELDS | {"op", "value", "ignore_case"}


def _read_trait(fields: Fields, place: Place) -> Leaf | None:
    path = fields["trait"]
    if not paths.is_path(path):
        place.at("trait").refuse("wrong_type", "it is no path", paths.EXPECTED)
    elif _is_unknown_computed(path, place.reading.known):
        expected = ", ".join(sorted(place.reading.known.computed_traits)) or "no computed trait is defined"
        place.at("trait").refuse("unknown_trait", f"there is no computed trait {path!r}", expected)
    found = read_predicate(fields, place, frozenset({"trait"}), LATER_TRAIT_FIELDS)
    return Trait(path, found) if found and paths.is_path(path) else None


def _is_unknown_computed(path: str, known: Known) -> bool:
    head, _, rest = path.partition(".")
    return head == "computed" and rest.split(".")[0] not in known.computed_traits


def _read_event_measure(fields: Fields, place: Place) -> Leaf | None:
    measure = read_measure(fields, place)
    kind = MEASURES[measure.name] if measure else MEASURES["count"]
    if measure and measure.name == "count" and "op" not in fields and "value" not in fields:
        refuse_unknown_fields(fields, MEASURE_FIELDS, place, LATER_WINDOW_FIELDS)
        return EventMeasure(measure, predicate("gte", 1))
    if measure is None and "op" not in fields:
        refuse_unknown_fields(fields, MEASURE_FIELDS | {"value"}, place, LATER_WINDOW_FIELDS)
        return None
    fits = kind.gives if measure else ""
    found = read_predicate(fields, place, MEASURE_FIELDS, LATER_WINDOW_FIELDS, fits)
    return EventMeasure(measure, found) if measure and found else None


def read_measure(fields: Fields, place: Place) -> Measure | None:
    """The part of an event leaf that says what is measured: `event`, `where`, `measure` and the window."""
    measured = _read_measure_kind(fields.get("measure", "count"), place.at("measure"))
    if measured is None and "event" not in fields:
        return None
    selector = _read_selector(fields, place)
    within_ms = read_window(fields, place)
    if measured is None or selector is None:
        return None
    name, path = measured
    return Measure(selector, name, path, within_ms)


def _read_selector(fields: Fields, place: Place) -> EventSelector | None:
    name = fields.get("event")
    expected = f"a name of 1 to {MAX_EVENT_NAME_CHARACTERS} characters; * at the end: every name that starts so"
    named = isinstance(name, str) and 0 < len(name) <= MAX_EVENT_NAME_CHARACTERS
    if name is None:
        place.refuse("missing_field", "it names no event", '"event": ' + expected)
    elif not named:
        place.at("event").refuse("wrong_type", "it is no event name", expected)
    if fields.get("where") is None:
        return EventSelector(cast("str", name)) if named else None
    where = read_filter(fields["where"], place.at("where"), EVENT_SOURCES)
    return EventSelector(cast("str", name), where) if named and where else None


def _read_measure_kind(node: Any, place: Place) -> tuple[MeasureName, str | None] | None:
    over_property = [name for name, kind in MEASURES.items() if kind.payload]
    expected = '"count", or one of ' + ", ".join(f'{{"{name}": path}}' for name in over_property)
    if node == "count":
        return "count", None
    if (isinstance(node, str) and node in LATER_MEASURES) or (isinstance(node, dict) and LATER_MEASURES & node.keys()):
        place.refuse(NOT_YET, "this measure is not built yet", expected)
    elif not isinstance(node, dict) or not node:
        place.refuse("wrong_type", "it is no measure", expected)
    elif len(node) > 1 or not node.keys() <= set(over_property):
        refuse_unknown_fields(node, frozenset(over_property), place)
        if node.keys() <= set(over_property):
            place.refuse("unknown_field", "a leaf has one measure", expected)
    else:
        ((name, path),) = node.items()
        if paths.is_path(path):
            return cast("MeasureName", name), path
        place.at(name).refuse("wrong_type", "it is no path", paths.EXPECTED)
    return None


def _read_first_time(fields: Fields, place: Place) -> Leaf | None:
    refuse_unknown_fields(fields, frozenset({"first_time"}) | WINDOW_FIELDS, place, LATER_WINDOW_FIELDS)
    within_ms = read_window(fields, place)
    there = place.at("first_time")
    inner = read_object(fields["first_time"], there, '{"event": name, "where": …}')
    if inner is None:
        return None
    refuse_unknown_fields(inner, frozenset({"event", "where"}), there)
    selector = _read_selector(inner, there)
    return FirstTime(selector, within_ms) if selector else None


def _read_segment(fields: Fields, place: Place) -> Leaf | None:
    refuse_unknown_fields(fields, frozenset({"segment"}), place)
    key, there, known = fields["segment"], place.at("segment"), place.reading.known
    if not isinstance(key, str):
        there.refuse("wrong_type", "a segment is named by its key", "text")
        return None
    loop = _loop(key, place.reading.key, known.segments)
    if loop:
        there.refuse("cycle", "it would be built on itself: " + " → ".join(loop), "segments that do not use this one")
    elif key not in known.segments:
        there.refuse("unknown_segment", f"there is no segment {key!r}", "the key of a live segment")
    return InSegment(key)


def _loop(start: str, own: str | None, uses: Mapping[str, frozenset[str]]) -> list[str]:
    """The way from `own` over `start` back to `own`, if there is one."""
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


def _read_everyone(fields: Fields, place: Place) -> Leaf | None:
    refuse_unknown_fields(fields, frozenset({"everyone"}), place)
    if fields["everyone"] is True:
        return Everyone()
    place.at("everyone").refuse("wrong_type", "it can only be true", "true")
    return None


LEAF_READERS: Mapping[str, Callable[[Fields, Place], Leaf | None]] = {
    "trait": _read_trait,
    "event": _read_event_measure,
    "first_time": _read_first_time,
    "segment": _read_segment,
    "everyone": _read_everyone,
}
