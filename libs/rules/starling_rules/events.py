"""Pure core: what a segment sees of the input records; JSON stays text until somebody looks into it."""

from collections.abc import Mapping
from typing import Any, Final, NamedTuple

import msgspec

from starling_common.message_events import EVENT_NAMES, PROPERTIES
from starling_common.outcome import Refused
from starling_rules.rules import Rules
from starling_segments import UserState

BEHAVIOUR_FIELDS: Final = (
    "received_at", "event_time", "name", "message_id", "anonymous_ids", "properties", "context", "correlation_id",
)  # fmt: skip
PROFILE_FIELDS: Final = (
    "received_at", "event_time", "change", "message_id", "anonymous_ids", "traits", "group_id", "correlation_id",
)  # fmt: skip
REPORT_FIELDS: Final = ("received_at", "event_time", "correlation_id", *PROPERTIES)
LISTED_FIELDS: Final = ("received_at", "workspace", "user_id", "list_key", "on_list", "correlation_id")

_object = msgspec.json.Decoder(dict[str, Any])


class Behaviour:
    """One `BehaviourEvent`. `time_ms` is the event's own time; `properties` and `context` are read on first use.

    Most events of a busy site concern no segment: their JSON is never parsed.
    """

    __slots__ = ("_context", "_properties", "anonymous_ids", "correlation_id", "message_id", "name", "time_ms")

    def __init__(self, taken: tuple[Any, ...]) -> None:
        """`taken` are the fields of `BEHAVIOUR_FIELDS`."""
        (_, self.time_ms, self.name, self.message_id, self.anonymous_ids, self._properties, self._context, self.correlation_id) = (
            taken
        )

    @property
    def properties(self) -> Mapping[str, Any]:
        """Raises: msgspec.DecodeError if the text is no JSON object."""
        found = self._properties
        if found.__class__ is str:
            found = self._properties = _object.decode(found)
        return found  # type: ignore[no-any-return]

    @property
    def context(self) -> Mapping[str, Any]:
        """Raises: as `properties`."""
        found = self._context
        if found.__class__ is str:
            found = self._context = _object.decode(found)
        return found  # type: ignore[no-any-return]


def unreadable(event: Behaviour, rules: Rules) -> str | None:
    """What is wrong with the JSON that the rules will read of this event; None when they can be asked.

    Asked before anything is folded: half an event must never stay in a state.
    """
    if not rules.reads(event.name):
        return None
    try:
        _ = event.properties
        if rules.reads_context:
            _ = event.context
    except (msgspec.DecodeError, RecursionError) as error:
        return f"the event's JSON cannot be read: {error}"
    return None


class Profile(NamedTuple):
    """One `ProfileChanged`; `traits` is the snapshot after it, still JSON text, `group_id` the account after it."""

    change: str
    message_id: str | None
    anonymous_ids: list[str]
    traits: str
    group_id: str | None
    correlation_id: str


class Listed(NamedTuple):
    """One `ListMembershipChanged`."""

    list_key: str
    on_list: bool
    correlation_id: str

    def says_nothing_new(self, state: UserState | None) -> bool:
        """Whether the user is on the list already, or is not on it anyway: an upload repeats who stays."""
        if state is None:
            return not self.on_list
        return self.on_list is (self.list_key in state.lists)


class Reported(NamedTuple):
    """One `DeliveryReported` of an outcome that segments know. It becomes an event when it is known at which time it counts.

    `properties`: as `message_events.properties_of` has them, or that as JSON text.
    """

    name: str
    properties: Mapping[str, Any] | str
    correlation_id: str

    def at(self, time_ms: int) -> Behaviour:
        """The event. Nobody sent it as an item: it has no message id."""
        return Behaviour((0, time_ms, self.name, None, [], self.properties, {}, self.correlation_id))


def reported(outcome: str, properties: Mapping[str, Any] | str, correlation_id: str) -> Reported | None:
    """None for what is no outcome to segments."""
    name = EVENT_NAMES.get(outcome)
    return None if name is None else Reported(name, properties, correlation_id)


def parse_object(text: str) -> dict[str, Any] | Refused:
    """JSON text to an object."""
    try:
        return _object.decode(text)
    except (msgspec.DecodeError, RecursionError) as error:
        return Refused("bad_json", f"the profile's JSON cannot be read: {error}")
