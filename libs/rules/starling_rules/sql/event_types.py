"""Pure core: event types: the declared properties of an event, and the table of typed columns that they give a statement."""

import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final, NamedTuple

from starling_rules.sql.tables import TABLES

PREFIX: Final = "event_"
"""Of the table of an event type, before its key."""

KEY_PATTERN: Final = "^[a-z][a-z0-9_]{0,57}$"
"""Of the key of an event type, which is part of the name of a table."""

NAME_PATTERN: Final = "^[A-Za-z_][A-Za-z0-9_]{0,63}$"
"""Of a declared property, which is the name of a column."""

COLUMNS: Final = ("user_id", "event_time", "received_at", "message_id", "event_id", "anonymous_ids", "properties")
"""The columns of the table of every event type, before those of its properties."""

TYPES: Final = ("string", "integer", "number", "boolean", "timestamp", "string[]")
"""The types of properties. `string[]`: an array of strings."""

MAX_PROPERTIES: Final = 200

_KEY: Final = re.compile(KEY_PATTERN[:-1] + r"\Z")
_NAME: Final = re.compile(NAME_PATTERN[:-1] + r"\Z")


class Property(NamedTuple):
    """A declared property. `type`: one of `TYPES`."""

    name: str
    type: str


class EventType(NamedTuple):
    """An event type in force. `event`: the name of its events; `properties`: without those that are archived."""

    key: str
    event: str
    properties: Sequence[Property]

    @property
    def table(self) -> str:
        """Return the name of its table."""
        return PREFIX + self.key


def is_key(key: object) -> bool:
    """Return whether a value can be the key of an event type."""
    return isinstance(key, str) and _KEY.match(key) is not None


def is_table(name: str) -> bool:
    """Return whether a table of a statement is that of an event type."""
    return name.startswith(PREFIX)


def is_name(name: object) -> bool:
    """Return whether a value can be the name of a property."""
    return isinstance(name, str) and _NAME.match(name) is not None


def event_type_of(document: Mapping[str, Any]) -> EventType | None:
    """Return the event type of a stored document; None for one that another producer wrote and that declares no table."""
    key, event, declared = document.get("key"), document.get("event"), document.get("properties")
    if not is_key(key) or not isinstance(event, str) or not isinstance(declared, list):
        return None
    found = [one for one in declared if isinstance(one, Mapping) and not one.get("archived")]
    properties = [Property(one["name"], one["type"]) for one in found if is_name(one.get("name")) and one.get("type") in TYPES]
    taken = [*COLUMNS, *(one.name.lower() for one in properties)]
    if len(set(taken)) < len(taken):
        return None
    return EventType(str(key), event, properties)


def with_event_types(event_types: Iterable[EventType]) -> dict[str, tuple[str, ...]]:
    """Return the tables of a workspace with these event types, each with its columns in lower case."""
    return {**TABLES, **{one.table: (*COLUMNS, *(each.name.lower() for each in one.properties)) for one in event_types}}
