"""Pure core: reads conditions on events: event measures, first times, sequences and regular habits."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, cast

from starling_segments.aggregates.measure_table import MEASURES, PLAIN
from starling_segments.language import paths
from starling_segments.language.operators import operands
from starling_segments.language.operators.operands import is_number
from starling_segments.language.operators.table import NUMBER
from starling_segments.language.tree import (
    EventMeasure,
    EventSelector,
    FirstTime,
    Leaf,
    Measure,
    MeasureName,
    Ratio,
    Regularly,
    Sequence,
    Step,
    Window,
)  # fmt: skip
from starling_segments.language.validation import Location, refuse_unknown_fields
from starling_segments.parse.comparisons import Scope
from starling_segments.parse.filters import EVENT, EVENT_SOURCES, predicate, read_filter, read_predicate
from starling_segments.parse.groups import MAX_PARTS, read_object
from starling_segments.parse.windows import WINDOW_FIELDS, read_window

MEASURE_FIELDS = frozenset({"event", "where", "measure"}) | WINDOW_FIELDS
MAX_EVENT_NAME_CHARACTERS = 200
MAX_PERIODS = 366
OVER_PROPERTY = tuple(name for name, kind in MEASURES.items() if kind.payload)
MEASURES_IN_WORDS = ", ".join(
    [f'"{name}"' for name in PLAIN]
    + [f'{{"{name}": path}}' for name in OVER_PROPERTY if name != "percentile"]
    + ['{"percentile": path, "q": 0.95}', '{"days": true}', '{"ratio": {"of": …, "to": …}}']
)

Fields = Mapping[str, Any]
Measured = tuple[MeasureName, str | None, str | None]
"""name, path, q"""


def read_event_measure(fields: Fields, location: Location) -> Leaf | None:
    """Read an event measure with its predicate; a count without a predicate means `gte 1`."""
    if _is_ratio(fields.get("measure")):
        return _read_ratio(fields, location)
    measure = read_measure(fields, location)
    if measure and measure.name == "count" and "op" not in fields and "value" not in fields:
        refuse_unknown_fields(fields, MEASURE_FIELDS, location)
        return EventMeasure(measure, predicate("gte", 1))
    if measure is None and "op" not in fields:
        refuse_unknown_fields(fields, MEASURE_FIELDS | {"value"}, location)
        return None
    found = read_predicate(fields, location, MEASURE_FIELDS, MEASURES[measure.name].value_type if measure else "")
    return EventMeasure(measure, found) if measure and found else None


def read_bare_measure(fields: Fields, location: Location) -> Measure | Ratio | None:
    """Read an event measure without `op` and `value`, as in a computed trait."""
    if _is_ratio(fields.get("measure")):
        refuse_unknown_fields(fields, frozenset({"measure"}) | WINDOW_FIELDS, location)
        return _read_sides(fields, location)
    refuse_unknown_fields(fields, MEASURE_FIELDS, location)
    return read_measure(fields, location)


def read_measure(fields: Fields, location: Location, default: Window | None = None) -> Measure | None:
    """Read the measure of an event condition: `event`, `where`, `measure` and the window."""
    measured = _read_measure_kind(fields.get("measure", "count"), location.at("measure"))
    if measured is None and "event" not in fields:
        return None
    selector = read_selector(fields, location, EVENT)
    window = read_window(fields, location) if WINDOW_FIELDS & fields.keys() else default
    if measured is None or selector is None:
        return None
    name, path, q = measured
    return Measure(selector, name, path, window, q, location.validation.zone.key if name == "days" else None)


def _is_ratio(measure: object) -> bool:
    return isinstance(measure, dict) and "ratio" in measure


def _read_ratio(fields: Fields, location: Location) -> Leaf | None:
    ratio = _read_sides(fields, location)
    found = read_predicate(fields, location, frozenset({"measure"}) | WINDOW_FIELDS, NUMBER)
    return EventMeasure(ratio, found) if ratio and found else None


def _read_sides(fields: Fields, location: Location) -> Ratio | None:
    window = read_window(fields, location)
    child = location.at("measure", "ratio")
    refuse_unknown_fields(fields["measure"], frozenset({"ratio"}), location.at("measure"))
    inner = read_object(fields["measure"]["ratio"], child, '{"of": event measure, "to": event measure}')
    if inner is None:
        return None
    refuse_unknown_fields(inner, frozenset({"of", "to"}), child)
    of, to = (_read_part(inner, name, child, window) for name in ("of", "to"))
    return Ratio(of, to) if of and to else None


def _read_part(ratio: Fields, name: str, location: Location, window: Window | None) -> Measure | None:
    if not location.count_condition():
        return None
    if ratio.get(name) is None:
        location.refuse("missing_field", f"{name!r} is missing", "an event measure without op")
        return None
    child = location.at(name)
    fields = read_object(ratio[name], child, "an event measure without op")
    if fields is None:
        return None
    refuse_unknown_fields(fields, MEASURE_FIELDS, child)
    measure = None if _is_ratio(fields.get("measure")) else read_measure(fields, child, window)
    if _is_ratio(fields.get("measure")) or (measure and MEASURES[measure.name].value_type != NUMBER):
        child.at("measure").refuse("wrong_type", "the measure is not numeric", "a numeric measure, such as count or sum")
        return None
    return measure


def read_selector(fields: Fields, location: Location, scope: Scope) -> EventSelector | None:
    """Read `event` and `where`."""
    name = fields.get("event")
    expected = f"a name of 1 to {MAX_EVENT_NAME_CHARACTERS} characters; a trailing * matches every name with this prefix"
    named = isinstance(name, str) and 0 < len(name) <= MAX_EVENT_NAME_CHARACTERS
    if name is None:
        location.refuse("missing_field", "the event name is missing", '"event": ' + expected)
    elif not named:
        location.at("event").refuse("wrong_type", "the value is not an event name", expected)
    if fields.get("where") is None:
        return EventSelector(cast("str", name)) if named else None
    where = read_filter(fields["where"], location.at("where"), scope)
    return EventSelector(cast("str", name), where) if named and where else None


def _read_measure_kind(node: Any, location: Location) -> Measured | None:
    expected = "one of " + MEASURES_IN_WORDS
    if isinstance(node, str) and node in PLAIN:
        return node, None, None
    if not isinstance(node, dict) or not node:
        location.refuse("wrong_type", "the value is not a measure", expected)
        return None
    names = [name for name in (*OVER_PROPERTY, "days") if name in node]
    own = frozenset({"percentile", "q"}) if "percentile" in node else frozenset(names or (*OVER_PROPERTY, "days", "ratio"))
    refuse_unknown_fields(node, own, location)
    if len(names) > 1:
        location.refuse("unknown_field", "the condition has more than one measure", expected)
    if len(names) != 1 or not node.keys() <= own:
        return None
    return _read_named(names[0], node, location)


def _read_named(name: MeasureName, node: Fields, location: Location) -> Measured | None:
    if name == "days":
        if node[name] is True:
            return name, None, None
        location.at(name).refuse("wrong_type", "the only valid value is true", "true")
        return None
    path, q = node[name], None
    if not paths.is_path(path):
        location.at(name).refuse("wrong_type", "the value is not a path", paths.EXPECTED)
        path = None
    if name == "percentile":
        q = node.get("q")
        if q is None:
            location.refuse("missing_field", "the rank of the percentile is missing", '"q": a number from 0 to 1')
            return None
        if not is_number(q) or not 0 <= q <= 1:
            location.at("q").refuse("wrong_type", "the value is not a rank", "a number from 0 to 1")
            return None
        q = repr(float(q))
    return None if path is None else (name, path, q)


def read_first_time(fields: Fields, location: Location) -> Leaf | None:
    """Read `{"first_time": {"event", "where"}}` and a window."""
    refuse_unknown_fields(fields, frozenset({"first_time"}) | WINDOW_FIELDS, location)
    window = read_window(fields, location)
    child = location.at("first_time")
    inner = read_object(fields["first_time"], child, '{"event": name, "where": …}')
    if inner is None:
        return None
    refuse_unknown_fields(inner, frozenset({"event", "where"}), child)
    selector = read_selector(inner, child, EVENT)
    return FirstTime(selector, window) if selector else None


def read_regularly(fields: Fields, location: Location) -> Leaf | None:
    """Read `{"regularly": {"event", "where"}, "every", "at_least", "of"}`."""
    refuse_unknown_fields(fields, frozenset({"regularly", "every", "at_least", "of"}), location)
    child = location.at("regularly")
    inner = read_object(fields["regularly"], child, '{"event": name, "where": …}')
    selector = None
    if inner is not None:
        refuse_unknown_fields(inner, frozenset({"event", "where"}), child)
        selector = read_selector(inner, child, EVENT)
    for name, expected in (("every", '"7d"'), ("at_least", "3"), ("of", "4")):
        if fields.get(name) is None:
            location.refuse("missing_field", f"{name!r} is missing", f'"{name}": such as {expected}')
    every = None if fields.get("every") is None else operands.DURATION.read(fields["every"], location.at("every"))
    of = _read_whole(fields, "of", location, MAX_PERIODS)
    at_least = _read_whole(fields, "at_least", location, MAX_PERIODS if of is None else of)
    if selector is None or every is None or at_least is None or of is None:
        return None
    return Regularly(selector, every, at_least, of)


def _read_whole(fields: Fields, name: str, location: Location, most: int) -> int | None:
    value = fields.get(name)
    if type(value) is int and 1 <= value <= most:
        return value
    if value is not None:
        location.at(name).refuse("wrong_type", f"{value!r} is not valid here", f"a whole number from 1 to {most}")
    return None


def read_sequence(fields: Fields, location: Location) -> Leaf | None:
    """Read `{"sequence": [step, …], "within"}`."""
    refuse_unknown_fields(fields, frozenset({"sequence", "within"}), location)
    within_ms = operands.DURATION.read(fields["within"], location.at("within")) if "within" in fields else None
    child, nodes = location.at("sequence"), fields["sequence"]
    expected = f"a list of 1 to {MAX_PARTS} steps"
    if not isinstance(nodes, list):
        child.refuse("wrong_type", "the value is not a list", expected)
        return None
    if not nodes:
        child.refuse("empty_group", "the sequence has no steps", expected)
    if len(nodes) > MAX_PARTS:
        child.refuse("too_wide", f"the sequence has {len(nodes)} steps", expected)
        return None
    met: list[int] = []
    steps = []
    for i, node in enumerate(nodes):
        step = _read_step(node, child.at(i), Scope(EVENT_SOURCES, traits=True, steps=tuple(met)))
        steps.append(step)
        if isinstance(node, dict) and "not" not in node:
            met.append(i)
    read = [step for step in steps if step is not None]
    if not nodes or len(read) < len(nodes) or not _fits_together(read, child) or ("within" in fields and within_ms is None):
        return None
    return Sequence(tuple(read), within_ms)


def _read_step(node: object, location: Location, scope: Scope) -> Step | None:
    if not location.count_condition():
        return None
    fields = read_object(node, location, '{"event": name, …} or {"not": {"event": name, …}, …}')
    if fields is None:
        return None
    if "not" in fields:
        refuse_unknown_fields(fields, frozenset({"not", "for"}), location)
        for_ms = operands.DURATION.read(fields["for"], location.at("for")) if "for" in fields else None
        child = location.at("not")
        inner = read_object(fields["not"], child, '{"event": name, "where": …}')
        if inner is None:
            return None
        refuse_unknown_fields(inner, frozenset({"event", "where"}), child)
        selector = read_selector(inner, child, scope)
        return Step(selector, True, None, for_ms) if selector and ("for" not in fields or for_ms) else None
    refuse_unknown_fields(fields, frozenset({"event", "where", "within"}), location)
    within_ms = operands.DURATION.read(fields["within"], location.at("within")) if "within" in fields else None
    if within_ms is not None and not scope.steps:
        location.at("within").refuse(
            "bad_window", "the first step has no preceding step", '"within" on a later step, or beside "sequence"'
        )
        return None
    selector = read_selector(fields, location, scope)
    return Step(selector, False, within_ms) if selector and ("within" not in fields or within_ms) else None


def _fits_together(steps: list[Step], location: Location) -> bool:
    """Check that the first step is an event, and that a `not` without `for` is between two events."""
    fine = True
    if steps[0].negative:
        location.at(0).refuse("bad_window", "a sequence cannot start with a not step", "an event as the first step")
        fine = False
    for i, step in enumerate(steps):
        if not step.negative or step.for_ms is not None:
            continue
        before = next((other for other in reversed(steps[:i]) if not _forbids(other)), None)
        after = next((other for other in steps[i + 1 :] if not _forbids(other)), None)
        if i and (before is None or before.negative or after is None or after.negative):
            location.at(i).refuse("missing_field", "a not step without 'for' must be between two events", '"for": such as "30m"')
            fine = False
    return fine


def _forbids(step: Step) -> bool:
    return step.negative and step.for_ms is None
