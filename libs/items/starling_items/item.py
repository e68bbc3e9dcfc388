"""Pure core: parse and validate the JSON text of one tracking call.

Only the fields that a kind of call uses are parsed; other fields are ignored. Null is equivalent to a missing value.
"""

from collections.abc import Mapping
from typing import Any, Final

import msgspec

from starling_common.kafka.topics import INGEST_KINDS
from starling_common.outcome import Refused
from starling_common.values import MAX_ID_BYTES, is_longer
from starling_common.wire import DecodeError, item_json

MAX_ITEM_CHARS: Final = 131_072
"""Longest JSON text of an item. The ingest service accepts 32 KiB; JSON converted from Protocol Buffers can be longer."""

MAX_DEPTH: Final = 32
MAX_EVENT_NAME_CHARS: Final = 200
RESERVED_TRAIT: Final = "computed"

Json = dict[str, Any]


class Item(msgspec.Struct, rename="camel"):
    """The fields that every kind of call has. Times are as sent."""

    timestamp: str | None = None
    original_timestamp: str | None = None
    sent_at: str | None = None
    context: Json | None = None

    def own_timestamp(self) -> str | None:
        """Return the sender's event time as text. Clients send it as `timestamp` or as `originalTimestamp`."""
        return self.timestamp if self.timestamp is not None else self.original_timestamp


class Track(Item):
    """An action of a user."""

    event: str | None = None
    properties: Json | None = None

    def own_properties(self) -> Json:
        """Return the event's properties as sent."""
        return self.properties or {}


class View(Item):
    """A page or screen that a user viewed."""

    name: str | None = None
    category: str | None = None
    properties: Json | None = None

    def own_properties(self) -> Json:
        """Return the properties as sent, plus the `name` and `category` of the page or screen."""
        named = {name: value for name, value in (("name", self.name), ("category", self.category)) if value is not None}
        return {**(self.properties or {}), **named}


class Identify(Item):
    """The traits of a user."""

    traits: Json | None = None

    def sent_traits(self) -> Json:
        """Return `context.traits` overridden by `traits`: clients differ in which of the two they send."""
        beneath = (self.context or {}).get("traits")
        return {**(beneath or {}), **(self.traits or {})}


class Group(Item):
    """The account to which a user belongs."""

    group_id: str | int | None = None
    traits: Json | None = None


class Alias(Item):
    """Another id of the same user."""

    previous_id: str | int | None = None


_TYPES: Final[Mapping[str, type[Item]]] = dict(zip(INGEST_KINDS, (Track, Identify, View, View, Group, Alias), strict=True))
_DECODERS: Final[Mapping[str, msgspec.json.Decoder[Item]]] = {kind: msgspec.json.Decoder(_TYPES[kind]) for kind in INGEST_KINDS}

_CURES: Final = {
    "timestamp": "send an ISO 8601 text such as 2026-01-31T09:00:00Z, or leave it out",
    "originalTimestamp": "send an ISO 8601 text such as 2026-01-31T09:00:00Z, or leave it out",
    "sentAt": "send an ISO 8601 text such as 2026-01-31T09:00:00Z, or leave it out",
    "event": "send the event's name as text",
}


def read_item(kind: str, text: str) -> Item | Refused:
    """Parse a call of that kind, one of `INGEST_KINDS`.

    Refused: the text is no JSON, too large or too deep, or a field that this kind uses has the wrong type.
    """
    if len(text) > MAX_ITEM_CHARS:
        return Refused("too_large", f"the item has {len(text)} characters, over {MAX_ITEM_CHARS}: send a smaller call")
    if deeper_than(MAX_DEPTH, text):
        return Refused("too_deep", f"the item is nested deeper than {MAX_DEPTH} levels: send flatter properties")
    try:
        return _DECODERS[kind].decode(text)
    except msgspec.ValidationError as error:
        return _wrong_type(str(error))
    except ValueError as error:
        return Refused("bad_json", f"the item is no JSON object ({error}): send valid JSON, without NaN and Infinity")


def packed_text(data: bytes) -> str | Refused:
    """Convert an item in Protocol Buffers to JSON text, so that one parser handles both formats."""
    try:
        return item_json(data)
    except DecodeError as error:
        return Refused(error.code, str(error))


def check_item(item: Item, own_id: str) -> Refused | None:
    """Return the first error of a parsed item of the profile `own_id`, or None if it is valid."""
    match item:
        case Track():
            return _check_event_name(item.event)
        case Identify():
            return _check_traits(item)
        case Group():
            return _check_id("groupId", item.group_id)
        case Alias():
            return _check_id("previousId", item.previous_id) or _check_not_itself(item.previous_id, own_id)
    return None


def deeper_than(limit: int, text: str) -> bool:
    """Return whether brackets outside strings nest deeper than `limit`; undefined for text that is no JSON."""
    # The depth never exceeds the number of opening brackets: most items return here.
    if text.count("{") + text.count("[") <= limit:
        return False
    depth = 0
    in_text = escaped = False
    for character in text:
        if in_text:
            in_text = escaped or character != '"'
            escaped = character == "\\" and not escaped
        elif character == '"':
            in_text = True
        elif character in "{[":
            depth += 1
            if depth > limit:
                return True
        elif character in "}]":
            depth -= 1
    return False


def _check_event_name(name: str | None) -> Refused | None:
    if name is None or not name.strip():
        return Refused("missing_event", "event: is missing or blank: send the event's name, such as Order Completed")
    if len(name) > MAX_EVENT_NAME_CHARS:
        return Refused(
            "event_name_too_long",
            f"event: has {len(name)} characters, over {MAX_EVENT_NAME_CHARS}: send a name, and details as properties",
        )
    return None


def _check_traits(item: Identify) -> Refused | None:
    beneath = (item.context or {}).get("traits")
    if beneath is not None and not isinstance(beneath, dict):
        return Refused("wrong_type", "context.traits: is no object: send an object of trait names and values, or omit it")
    for place, traits in (("traits", item.traits), ("context.traits", beneath)):
        if traits and RESERVED_TRAIT in traits:
            return Refused(
                "reserved_trait",
                f"{place}.{RESERVED_TRAIT}: the name is reserved for computed traits: send the trait under another name",
            )
    return None


def _check_id(place: str, identifier: str | int | None) -> Refused | None:
    if identifier is None or not str(identifier).strip():
        return Refused("missing_id", f"{place}: is missing or blank: send the id as text")
    return check_id_length(place, str(identifier))


def check_id_length(place: str, identifier: str) -> Refused | None:
    """Return a refusal if the id has more than `MAX_ID_BYTES`, else None; `place` is its name in the item."""
    if is_longer(identifier, MAX_ID_BYTES):
        return Refused("id_too_long", f"{place}: has more than {MAX_ID_BYTES} bytes of UTF-8: send a shorter id")
    return None


def _check_not_itself(previous_id: str | int | None, own_id: str) -> Refused | None:
    if str(previous_id) == own_id:
        return Refused("alias_of_itself", "previousId: is the same as the user's own id: send the id used before")
    return None


def _wrong_type(decoder_message: str) -> Refused:
    problem, _, place = decoder_message.partition(" - at `$")
    place = place.strip("`.") or "item"
    cure = _CURES.get(place, "send that type, or omit it")
    return Refused("wrong_type", f"{place}: {problem[:1].lower()}{problem[1:]}: {cure}")
