"""Pure core: an event and the traits -> what each trait is to fold of it."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import msgspec

from starling_segments.filters import compile_filter
from starling_segments.measures import MEASURES
from starling_segments.paths import reader
from starling_segments.tree import EventSelector, Measure
from starling_spark.profiles.definitions import Trait

Payload = float | str | bool | None
"""What an accumulator takes in (True where it reads no property); None only says that the trait concerns this user."""


class BadEvent(ValueError):
    """The event's properties or context are no JSON object."""


class EventView:
    """An event as predicates look at it; its JSON is read when the first of them does."""

    __slots__ = ("_context", "_properties", "_record", "name", "time_ms")

    def __init__(self, record: Mapping[str, Any]) -> None:
        self._record = record
        self._properties: Mapping[str, Any] | None = None
        self._context: Mapping[str, Any] | None = None
        self.name: str = record["name"]
        self.time_ms: int = record["event_time"]

    @property
    def properties(self) -> Mapping[str, Any]:
        """Raises: BadEvent."""
        if self._properties is None:
            self._properties = _json_object(self._record, "properties")
        return self._properties

    @property
    def context(self) -> Mapping[str, Any]:
        """Raises: BadEvent."""
        if self._context is None:
            self._context = _json_object(self._record, "context")
        return self._context


def _json_object(record: Mapping[str, Any], field: str) -> Mapping[str, Any]:
    try:
        return msgspec.json.decode(record[field], type=dict[str, Any])
    except msgspec.DecodeError as cause:
        raise BadEvent(f"{field} is no JSON object: {cause}") from cause


@dataclass(frozen=True, slots=True)
class _Question:
    """One trait's interest in events: `selects` by content, `payload` of what it selects (None: it reads nothing)."""

    index: int
    selects: Callable[[EventView], bool]
    payload: Callable[[EventView], Payload]


class Matcher:
    """All traits at once; an event meets only those that its workspace and its name can touch."""

    def __init__(self, traits: Sequence[Trait]) -> None:
        self._exact: dict[tuple[str, str], list[_Question]] = {}
        self._prefixes: dict[str, list[tuple[str, _Question]]] = {}
        for index, trait in enumerate(traits):
            if trait.measure is not None:
                self._add(trait.workspace, trait.measure.event, _Question(index, *_asked(trait.measure)))
            for former in trait.former:
                self._add(trait.workspace, former.event, _Question(index, _selects(former.event), lambda _: None))

    def _add(self, workspace: str, event: EventSelector, question: _Question) -> None:
        if event.name.endswith("*"):
            self._prefixes.setdefault(workspace, []).append((event.name[:-1], question))
        else:
            self._exact.setdefault((workspace, event.name), []).append(question)

    def match(self, workspace: str, event: EventView) -> list[tuple[int, Payload]]:
        """(index of the trait, payload) of each trait that the event counts for; most events count for none.

        Raises: BadEvent.
        """
        asked = self._exact.get((workspace, event.name), ())
        prefixed = [question for prefix, question in self._prefixes.get(workspace, ()) if event.name.startswith(prefix)]
        return [(question.index, question.payload(event)) for question in (*asked, *prefixed) if question.selects(event)]


def _asked(measure: Measure) -> tuple[Callable[[EventView], bool], Callable[[EventView], Payload]]:
    payload = MEASURES[measure.name].payload
    if payload is None or measure.path is None:
        return _selects(measure.event), lambda _: True
    read = reader(measure.path)
    return _selects(measure.event), lambda event: payload(read(event.properties))


def _selects(selector: EventSelector) -> Callable[[EventView], bool]:
    if selector.where is None:
        return lambda _: True
    holds = compile_filter(selector.where)
    # A moving date in `where` is judged at the event's own time.
    return lambda event: holds(event, event.time_ms)
