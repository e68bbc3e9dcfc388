"""Pure core: what starts a message (`trigger`), what cancels it, and what it is for (`goal`)."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Final, TypeAlias

from starling_campaigns.bounds import LONGEST_GOAL
from starling_campaigns.definitions.references import (
    Fields,
    References,
    read_at,
    read_flag,
    read_local,
    read_segment_key,
)
from starling_policy.fields import read_duration
from starling_segments.language import paths
from starling_segments.language.tree import EventSelector
from starling_segments.language.validation import Location, refuse_unknown_fields
from starling_segments.parse.behaviour import read_selector
from starling_segments.parse.comparisons import Scope
from starling_segments.parse.filters import EVENT
from starling_segments.parse.groups import read_object

EVENT_SCOPE: Final[Scope] = EVENT


@dataclass(frozen=True, slots=True)
class MembershipTrigger:
    """An entry into a segment, or an exit from it. `on_definition`: changes by definitions and merges count too."""

    segment: str
    entered: bool
    on_definition: bool = False


@dataclass(frozen=True, slots=True)
class EventTrigger:
    """An event. `while_segment`: the user was a member just before the event; None: whether or not."""

    event: EventSelector
    while_segment: str | None = None


@dataclass(frozen=True, slots=True)
class BroadcastTrigger:
    """One instant for all members of a segment, epoch ms, or one local time by each user's clock. The other one is None."""

    segment: str
    at_ms: int | None = None
    local: str | None = None


Trigger: TypeAlias = MembershipTrigger | EventTrigger | BroadcastTrigger


@dataclass(frozen=True, slots=True)
class Cancel:
    """What cancels a message that waits. `left`: the user left the segment (after an exit: entered it)."""

    left: bool = True
    event: EventSelector | None = None


@dataclass(frozen=True, slots=True)
class Goal:
    """The event that counts as a conversion within a time after the message. `value`: the path of the property that is summed."""

    event: EventSelector
    within_ms: int
    value: str | None = None


BY_DEFAULT: Final = Cancel()
NO_EVENT: Final = EventSelector("*")
_TRIGGERS_IN_WORDS: Final = (
    '{"enter": segment}, {"exit": segment}, {"event": {"event": name}}, or {"broadcast": segment, "at": instant} (or "local": time)'
)
_EVENT_IN_WORDS: Final = '{"event": name, "where": filter}'
_GOAL_IN_WORDS: Final = '{"event": name, "where": filter, "within": a duration, "value": property}'
TRIGGER_FIELDS: Final = {
    "enter": frozenset({"enter", "on_definition"}),
    "exit": frozenset({"exit", "on_definition"}),
    "event": frozenset({"event", "while"}),
    "broadcast": frozenset({"broadcast", "at", "local"}),
}
"""The field that names the kind of a trigger -> its fields."""
CANCEL_FIELDS: Final = frozenset({"left", "event"})
GOAL_FIELDS: Final = frozenset({"event", "where", "within", "value"})


def read_trigger(fields: Fields, location: Location, references: References) -> Trigger | None:
    """Read the required trigger. Errors are recorded; None after one that leaves its kind open."""
    if fields.get("trigger") is None:
        location.refuse("missing_field", "the trigger is missing", f'"trigger": {_TRIGGERS_IN_WORDS}')
        return None
    child = location.at("trigger")
    inner = read_object(fields["trigger"], child, _TRIGGERS_IN_WORDS)
    if inner is None:
        return None
    kinds = [kind for kind in TRIGGER_FIELDS if kind in inner]
    if len(kinds) != 1:
        child.refuse("wrong_type", f"the trigger has {len(kinds)} of the fields {', '.join(TRIGGER_FIELDS)}", _TRIGGERS_IN_WORDS)
        return None
    refuse_unknown_fields(inner, TRIGGER_FIELDS[kinds[0]], child)
    return _READERS[kinds[0]](inner, child, references)


def _membership(kind: str) -> Callable[[Fields, Location, References], Trigger]:
    def read(fields: Fields, location: Location, references: References) -> Trigger:
        segment = read_segment_key(fields, kind, location, references)
        return MembershipTrigger(segment, kind == "enter", read_flag(fields, "on_definition", location, otherwise=False))

    return read


def _event(fields: Fields, location: Location, references: References) -> Trigger:
    selector = _read_event(fields["event"], location.at("event"))
    segment = None if fields.get("while") is None else read_segment_key(fields, "while", location, references)
    return EventTrigger(selector, segment)


def _broadcast(fields: Fields, location: Location, references: References) -> Trigger:
    segment = read_segment_key(fields, "broadcast", location, references)
    given = [name for name in ("at", "local") if fields.get(name) is not None]
    if len(given) != 1:
        expected = '"at": an instant, or "local": a local time'
        location.refuse("missing_field" if not given else "unknown_field", f"the broadcast has {len(given)} times", expected)
        return BroadcastTrigger(segment)
    if given == ["at"]:
        return BroadcastTrigger(segment, at_ms=read_at(fields, "at", location))
    return BroadcastTrigger(segment, local=read_local(fields, "local", location))


_READERS: Final = {"enter": _membership("enter"), "exit": _membership("exit"), "event": _event, "broadcast": _broadcast}


def read_cancel(fields: Fields, location: Location) -> Cancel:
    """Read what cancels a message."""
    if fields.get("cancel") is None:
        return BY_DEFAULT
    child = location.at("cancel")
    inner = read_object(fields["cancel"], child, f'{{"left": true, "event": {_EVENT_IN_WORDS}}}')
    if inner is None:
        return BY_DEFAULT
    refuse_unknown_fields(inner, CANCEL_FIELDS, child)
    event = None if inner.get("event") is None else _read_event(inner["event"], child.at("event"))
    return Cancel(read_flag(inner, "left", child, otherwise=True), event)


def read_goal(fields: Fields, location: Location) -> Goal | None:
    """Read the goal; None without one."""
    if fields.get("goal") is None:
        return None
    child = location.at("goal")
    inner = read_object(fields["goal"], child, _GOAL_IN_WORDS)
    if inner is None:
        return None
    refuse_unknown_fields(inner, GOAL_FIELDS, child)
    selector = read_selector(inner, child, EVENT_SCOPE)
    value = inner.get("value")
    if value is not None and not paths.is_path(value):
        child.at("value").refuse("wrong_type", "the value is not the path of a property", paths.EXPECTED)
    return Goal(selector or NO_EVENT, read_duration(inner, "within", child, LONGEST_GOAL), value)


def _read_event(document: object, location: Location) -> EventSelector:
    fields = read_object(document, location, _EVENT_IN_WORDS)
    if fields is None:
        return NO_EVENT
    refuse_unknown_fields(fields, frozenset({"event", "where"}), location)
    return read_selector(fields, location, EVENT_SCOPE) or NO_EVENT
