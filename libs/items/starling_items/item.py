"""Pure core: what a sender may say in one call, read from its JSON text and checked.

Only the fields that a kind of call uses are read; anything else in the item is left alone. Explicit nulls are missing values.
"""

from collections.abc import Mapping
from typing import Any, Final

import msgspec

from starling_common.outcome import Refused
from starling_common.topics import INGEST_KINDS
from starling_common.values import MAX_ID_BYTES, is_longer
from starling_common.wire import DecodeError, item_json

MAX_ITEM_CHARS: Final = 131_072
"""The edge takes 32 KiB an item; the rest is room for a batch's context merged under it."""

MAX_DEPTH: Final = 32
MAX_EVENT_NAME_CHARS: Final = 200
RESERVED_TRAIT: Final = "computed"

Json = dict[str, Any]


class Item(msgspec.Struct, rename="camel"):
    """What every kind of call has. Times are as sent."""

    timestamp: str | None = None
    original_timestamp: str | None = None
    sent_at: str | None = None
    context: Json | None = None

    def said_at(self) -> str | None:
        """When it happened in the sender's own words; clients name it one way or the other."""
        return self.timestamp if self.timestamp is not None else self.original_timestamp


class Track(Item):
    """Something a person did."""

    event: str | None = None
    properties: Json | None = None

    def own_properties(self) -> Json:
        """The event's properties as sent."""
        return self.properties or {}


class View(Item):
    """A page or screen that a person saw."""

    name: str | None = None
    category: str | None = None
    properties: Json | None = None

    def own_properties(self) -> Json:
        """The properties as sent, with what the page or screen is called among them."""
        named = {name: value for name, value in (("name", self.name), ("category", self.category)) if value is not None}
        return {**(self.properties or {}), **named}


class Identify(Item):
    """What is known about a person."""

    traits: Json | None = None

    def sent_traits(self) -> Json:
        """`context.traits` with `traits` over them: some clients send the one, some the other."""
        beneath = (self.context or {}).get("traits")
        return {**(beneath or {}), **(self.traits or {})}


class Group(Item):
    """The account that a person belongs to."""

    group_id: str | int | None = None
    traits: Json | None = None


class Alias(Item):
    """Another id of the same person."""

    previous_id: str | int | None = None


_TYPES: Final[Mapping[str, type[Item]]] = dict(zip(INGEST_KINDS, (Track, Identify, View, View, Group, Alias), strict=True))
_DECODERS: Final[Mapping[str, msgspec.json.Decoder[Item]]] = {kind: msgspec.json.Decoder(_TYPES[kind]) for kind in INGEST_KINDS}
_ANY: Final = msgspec.json.Decoder()

_CURES: Final = {
    "timestamp": "send an ISO 8601 text such as 2026-01-31T09:00:00Z, or leave it out",
    "originalTimestamp": "send an ISO 8601 text such as 2026-01-31T09:00:00Z, or leave it out",
    "sentAt": "send an ISO 8601 text such as 2026-01-31T09:00:00Z, or leave it out",
    "event": "send the event's name as text",
}


def read_item(kind: str, text: str) -> Item | Refused:
    """The item of a call of that kind, one of `INGEST_KINDS`.

    Refused: it is no JSON, is too large or too deep, or a field that this kind uses has another type.
    """
    if len(text) > MAX_ITEM_CHARS:
        return Refused("too_large", f"the item has {len(text)} characters, over {MAX_ITEM_CHARS}: send less in one call")
    if deeper_than(MAX_DEPTH, text):
        return Refused("too_deep", f"the item is nested deeper than {MAX_DEPTH} levels: send flatter properties")
    try:
        return _DECODERS[kind].decode(text)
    except msgspec.ValidationError as error:
        return _wrong_type(str(error))
    except ValueError as error:
        return Refused("bad_json", f"the item is no JSON object ({error}): send valid JSON; NaN and Infinity are none")


def packed_text(data: bytes) -> str | Refused:
    """The JSON text of an item that was sent as Protocol Buffers: from there on both are the same."""
    try:
        return item_json(data)
    except DecodeError as error:
        return Refused(error.code, str(error))


def check_item(item: Item, own_id: str) -> Refused | None:
    """What a well-typed item of the profile `own_id` may still lack or get wrong; None when it is sound."""
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
    """Whether brackets outside strings nest deeper than `limit`; text that is no JSON may answer either way."""
    # Nothing is deeper than its number of opening brackets: nearly every item ends here.
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
        return Refused("wrong_type", "context.traits: is no object: send an object of trait names and values, or leave it out")
    for place, traits in (("traits", item.traits), ("context.traits", beneath)):
        if traits and RESERVED_TRAIT in traits:
            return Refused(
                "reserved_trait",
                f"{place}.{RESERVED_TRAIT}: the name is kept for computed traits: send the trait under another name",
            )
    return None


def _check_id(place: str, identifier: str | int | None) -> Refused | None:
    if identifier is None or not str(identifier).strip():
        return Refused("missing_id", f"{place}: is missing or blank: send the id as text")
    return check_id_length(place, str(identifier))


def check_id_length(place: str, identifier: str) -> Refused | None:
    """Refuse an id of more than `MAX_ID_BYTES`; `place` is its name in the item."""
    if is_longer(identifier, MAX_ID_BYTES):
        return Refused("id_too_long", f"{place}: has more than {MAX_ID_BYTES} bytes of UTF-8: send a shorter id")
    return None


def _check_not_itself(previous_id: str | int | None, own_id: str) -> Refused | None:
    if str(previous_id) == own_id:
        return Refused("alias_of_itself", "previousId: is the same as the user's own id: send the id used before")
    return None


def _wrong_type(complaint: str) -> Refused:
    what, _, place = complaint.partition(" - at `$")
    place = place.strip("`.") or "item"
    cure = _CURES.get(place, "send that type, or leave it out")
    return Refused("wrong_type", f"{place}: {what[:1].lower()}{what[1:]}: {cure}")
