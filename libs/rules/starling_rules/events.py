"""Pure core: the inputs of segments. JSON is parsed on first access."""

from collections.abc import Mapping
from typing import Any, Final, NamedTuple

import msgspec

from starling_common.outcome import Refused
from starling_common.records.message_events import EVENT_NAMES, PROPERTIES
from starling_rules.rules import Rules
from starling_segments import UserState

BEHAVIOUR_FIELDS: Final = (
    "received_at", "event_time", "name", "message_id", "anonymous_ids", "properties", "context", "correlation_id",
)  # fmt: skip
PROFILE_FIELDS: Final = (
    "received_at", "event_time", "change", "message_id", "anonymous_ids", "traits", "group_id", "correlation_id",
)  # fmt: skip
CHAIN_FIELDS: Final = ("order", "previous_order")
REPORT_FIELDS: Final = ("received_at", "event_time", "correlation_id", *PROPERTIES)
LISTED_FIELDS: Final = ("received_at", "workspace", "user_id", "list_key", "on_list", "correlation_id")

_object = msgspec.json.Decoder(dict[str, Any])


class Behaviour:
    """One `BehaviourEvent`. `time_ms` is the event time; `properties` and `context` are parsed on first access.

    Most events of a busy site match no segment, and their JSON is never parsed.
    """

    __slots__ = ("_context", "_properties", "anonymous_ids", "correlation_id", "message_id", "name", "time_ms")

    def __init__(self, fields: tuple[Any, ...]) -> None:
        """`fields`: the values of `BEHAVIOUR_FIELDS`, and perhaps more."""
        (_, self.time_ms, self.name, self.message_id, self.anonymous_ids, self._properties, self._context, self.correlation_id) = (
            fields[:8]
        )

    @property
    def properties(self) -> Mapping[str, Any]:
        """The JSON object. Raises: msgspec.DecodeError for other text."""
        found = self._properties
        if found.__class__ is str:
            found = self._properties = _object.decode(found)
        return found  # type: ignore[no-any-return]

    @property
    def context(self) -> Mapping[str, Any]:
        """The JSON object. Raises: msgspec.DecodeError for other text."""
        found = self._context
        if found.__class__ is str:
            found = self._context = _object.decode(found)
        return found  # type: ignore[no-any-return]


def json_error(event: Behaviour, rules: Rules) -> str | None:
    """Return the error in the JSON that the rules read of this event; None if it is valid.

    Checked before the fold, which must not stop in the middle of an event.
    """
    if not rules.reads(event.name):
        return None
    try:
        _ = event.properties
        if rules.reads_context:
            _ = event.context
    except (msgspec.DecodeError, RecursionError) as error:
        return f"the event's JSON is invalid: {error}"
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

    def changes_nothing(self, state: UserState | None) -> bool:
        """Return whether the state contains this already: an upload repeats the users who stay on the list."""
        if state is None:
            return not self.on_list
        return self.on_list is (self.list_key in state.lists)


class Reported(NamedTuple):
    """One `DeliveryReported` whose outcome is an event for segments. The fold determines the time of the event.

    `properties`: the report's channel, outcome and message, as a mapping or as its JSON text.
    """

    name: str
    properties: Mapping[str, Any] | str
    correlation_id: str

    def at(self, time_ms: int) -> Behaviour:
        """Return the event, which has no message id because no client sent it as an item."""
        return Behaviour((0, time_ms, self.name, None, [], self.properties, {}, self.correlation_id))


def reported(outcome: str, properties: Mapping[str, Any] | str, correlation_id: str) -> Reported | None:
    """Return None if segments have no event for the outcome."""
    name = EVENT_NAMES.get(outcome)
    return None if name is None else Reported(name, properties, correlation_id)


def parse_object(text: str) -> dict[str, Any] | Refused:
    """Return the JSON object of a text."""
    try:
        return _object.decode(text)
    except (msgspec.DecodeError, RecursionError) as error:
        return Refused("bad_json", f"the profile's JSON is invalid: {error}")
