"""Pure core: behaviour events as campaigns read them, and the devices that events register."""

import json
from collections.abc import Mapping
from typing import Any, Final, NamedTuple

import msgspec

from starling_rules.events import BEHAVIOUR_FIELDS, Behaviour

EVENT_FIELDS: Final = (*BEHAVIOUR_FIELDS, "event_id")
SUBSCRIBED: Final = "Push Subscribed"
UNSUBSCRIBED: Final = "Push Unsubscribed"
DEVICE_EVENTS: Final = frozenset({SUBSCRIBED, UNSUBSCRIBED})
PUSH: Final = "push"
WITH_DEVICE: Final = b'"token"'
"""An event without these bytes registers no device, apart from the two that are named for it."""
MAX_ADDRESS_CHARACTERS: Final = 4_096

INVALID_JSON: Final = (msgspec.DecodeError, RecursionError)


class Event(NamedTuple):
    """One `BehaviourEvent`. `received_at`: µs. `properties_text`, `context_text`: its JSON as it came."""

    event_id: str
    received_at: int
    seen: Behaviour
    properties_text: str
    context_text: str

    def text(self) -> str:
        """Return the event as templates read it: a JSON object with `name` and `properties`."""
        return f'{{"name":{json.dumps(self.seen.name)},"properties":{self.properties_text}}}'

    def number(self, path: str) -> float | None:
        """Return the property at a path; None if it is not a number."""
        found: Any = self.seen.properties
        for part in path.split("."):
            found = found.get(part) if isinstance(found, Mapping) else None
        if not isinstance(found, int | float) or isinstance(found, bool):
            return None
        try:
            return float(found)
        except OverflowError:
            return None


class Device(NamedTuple):
    """A device that an event adds or removes."""

    channel: str
    address: str
    present: bool


def event_of(fields: tuple[Any, ...]) -> Event:
    """Return the event of the values of `EVENT_FIELDS`."""
    return Event(fields[8], fields[0], Behaviour(fields), fields[5], fields[6])


def device_of(event: Event) -> Device | None:
    """Return the device that an event names; None without one. Raises: one of `INVALID_JSON`.

    `Push Subscribed` and `Push Unsubscribed` have the property `token` of a mobile device, or `subscription` of a browser: the
    object of the Push API. Any event with `context.device.token` registers that device.
    """
    if event.seen.name in DEVICE_EVENTS:
        address = _address(event.seen.properties)
        return None if address is None else Device(PUSH, address, event.seen.name == SUBSCRIBED)
    if WITH_DEVICE.decode() not in event.context_text:
        return None
    device = event.seen.context.get("device")
    address = _address(device) if isinstance(device, Mapping) else None
    return None if address is None else Device(PUSH, address, present=True)


def _address(found: Mapping[str, Any]) -> str | None:
    subscription, token = found.get("subscription"), found.get("token")
    if isinstance(subscription, Mapping):
        token = json.dumps(subscription, sort_keys=True, separators=(",", ":"))
    return token if isinstance(token, str) and 0 < len(token) <= MAX_ADDRESS_CHARACTERS else None
