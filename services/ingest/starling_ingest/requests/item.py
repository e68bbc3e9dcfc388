"""Pure core: validate the JSON of one item."""

import re
import uuid
from typing import Final

import msgspec

from starling_common.kafka.topics import INGEST_KINDS
from starling_common.values import MAX_ID_BYTES, is_longer
from starling_common.wire import ReceivedItem

MAX_ITEM_BYTES: Final = 32 * 1024
"""Largest size of one item as sent, with the batch's context merged into it (contract, part 3)."""

MAX_MESSAGE_ID_CHARACTERS: Final = 100

MAX_DEPTH: Final = 64
"""Deepest nesting of objects and lists: far beyond any real event, and far below the recursion limit of any consumer."""

_MAX_WHOLE_NUMBER: Final = 2**53 - 1
"""Largest integer id. A sender's JSON library may round a larger one, and two users would then share an id."""

_IDS: Final = ("userId", "anonymousId", "groupId", "previousId")
KINDS: Final = {kind: kind for kind in INGEST_KINDS}
"""Kind by the item's `type`."""
_NOT_STRUCTURE: Final = re.compile(rb'"(?:[^"\\]|\\.)*"|[^\[\]{}"]+')
_EXPECTED: Final = {
    "str | null": "text",
    "int | str | null": "text or a whole number",
    "object | null": "an object",
    "object": "an object",
    "array": "a list",
}
_GOT: Final = {
    "str": "text", "int": "a number", "float": "a number with a fraction", "bool": "true or false", "object": "an object",
    "array": "a list", "null": "null",
}  # fmt: skip


class ItemError(msgspec.Struct, frozen=True):
    """The reason why an item is invalid: a stable code, the JSON pointer of the place within the item, and a message."""

    code: str
    pointer: str
    message: str

    @classmethod
    def of(cls, error: msgspec.ValidationError) -> "ItemError":
        """Convert the decoder's error: JSON's type names replace Python's, and a JSON pointer replaces the path."""
        problem, _, path = str(error).partition(" - at `$")
        pointer = re.sub(r"\.|\[", "/", path.rstrip("`")).replace("]", "")
        found = re.fullmatch(r"Expected `(.*)`, got `(.*)`", problem)
        if found is None:
            return cls("wrong_type", pointer, problem)
        return cls("wrong_type", pointer, f"expected {_EXPECTED.get(found[1], found[1])}, got {_GOT.get(found[2], found[2])}")


class Shared(msgspec.Struct, frozen=True):
    """The fields of a batch that apply to all its items. `size_bytes` is the most that they add to an item."""

    context: dict[str, msgspec.Raw]
    integrations: dict[str, msgspec.Raw]
    sent_at: str | None
    size_bytes: int

    @classmethod
    def of(
        cls, context: dict[str, msgspec.Raw] | None, integrations: dict[str, msgspec.Raw] | None, sent_at: str | None
    ) -> "Shared":
        """Return the shared fields; null is equivalent to a missing field."""
        parts = {"context": context or {}, "integrations": integrations or {}}
        size = len(msgspec.json.encode(parts)) if context or integrations else 0
        return cls(parts["context"], parts["integrations"], sent_at or None, size)


NOTHING_SHARED: Final = Shared({}, {}, None, 0)


class _Object(msgspec.Struct):
    """A JSON object of any members. Decoding checks its syntax and keeps no member."""


class _Context(msgspec.Struct):
    traits: _Object | None = None


class ItemFields(msgspec.Struct, rename="camel"):
    """The fields of an item that are validated here."""

    type: str | None = None
    message_id: str | None = None
    user_id: str | int | None = None
    anonymous_id: str | int | None = None
    group_id: str | int | None = None
    previous_id: str | int | None = None
    event: str | None = None
    name: str | None = None
    timestamp: str | None = None
    original_timestamp: str | None = None
    sent_at: str | None = None
    context: _Context | None = None
    integrations: _Object | None = None
    properties: _Object | None = None
    traits: _Object | None = None


_decode_item = msgspec.json.Decoder(ItemFields).decode
_decode_members = msgspec.json.Decoder(dict[str, msgspec.Raw]).decode
_decode_own = msgspec.json.Decoder(dict[str, msgspec.Raw] | None).decode
_NULL: Final = msgspec.Raw(b"null")
_encode = msgspec.json.Encoder().encode


def validate_item(raw: bytes, kind: str | None, shared: Shared = NOTHING_SHARED) -> ReceivedItem | ItemError:
    """Return the item ready to publish, or the first error found.

    `kind` is that of the path; None in a batch, where the item's `type` states it. `raw` is UTF-8; in a batch it is valid JSON.
    """
    if len(raw) + shared.size_bytes > MAX_ITEM_BYTES:
        return item_size_error(len(raw) + shared.size_bytes)
    try:
        item = _decode_item(raw)
    except msgspec.ValidationError as error:
        return ItemError.of(error)
    except (msgspec.DecodeError, RecursionError) as error:
        return ItemError("not_json", "", str(error))
    user_id = _text_id(item.user_id)
    anonymous_id = _text_id(item.anonymous_id)
    kind = kind or KINDS.get(item.type or "")
    if kind is None:
        return type_error(item.type)
    has_number = _has_number(item)
    item_error = missing_field_error(kind, item, user_id or anonymous_id) or _limit_error(raw, item, has_number=has_number)
    if item_error is not None:
        return item_error
    return ReceivedItem(
        kind,
        item.message_id or str(uuid.uuid4()),
        user_id,
        anonymous_id,
        _completed(raw, item, shared) if shared.size_bytes or has_number else raw,
        None if item.sent_at else shared.sent_at,
    )


def salvage(raw: bytes) -> tuple[str | None, str | None]:
    """Return the message id and the key id of an invalid item; None for each that cannot be read."""
    try:
        members = _decode_members(raw)
    except (msgspec.DecodeError, RecursionError):
        return None, None
    message_id, user_id, anonymous_id = (_text_of(members.get(name)) for name in ("messageId", "userId", "anonymousId"))
    return message_id, dead_letter_id(user_id or anonymous_id)


def missing_field_error(kind: str, item: ItemFields, identifier: str | None) -> ItemError | None:
    """Return the error of a missing required field, or None. `identifier` is the id of the record's key."""
    if identifier is None:
        return ItemError("missing_id", "", "neither userId nor anonymousId is given: send at least one, not empty")
    if kind == "track":
        return None if item.event else ItemError("missing_event", "/event", "missing, expected the event's name")
    if kind == "group" and _text_id(item.group_id) is None:
        return ItemError("missing_group_id", "/groupId", "missing, expected the group's id")
    if kind == "alias":
        return _alias_error(item)
    return None


def type_error(sent: str | None) -> ItemError:
    """Return the error of a batch item whose `type` is missing or unknown."""
    known = ", ".join(INGEST_KINDS)
    if not sent:
        return ItemError("missing_type", "/type", f"missing, expected one of {known}")
    return ItemError("unknown_type", "/type", f"{sent[:40]!r} is not one of {known}")


def _alias_error(item: ItemFields) -> ItemError | None:
    if _text_id(item.previous_id) is None:
        return ItemError("missing_previous_id", "/previousId", "missing, expected the id that the user had before")
    if _text_id(item.user_id) is None:
        return ItemError("missing_id", "/userId", "missing, expected the id that the user has from now on")
    return None


def length_error(raw: bytes, item: ItemFields) -> ItemError | None:
    """Return the error of an id or event name over its limit, or None. `raw` is the item as JSON or Protocol Buffers."""
    message_id = item.message_id
    if message_id is not None and len(message_id) > MAX_MESSAGE_ID_CHARACTERS:
        count = len(message_id)
        return ItemError("message_id_too_long", "/messageId", f"{count} characters, at most {MAX_MESSAGE_ID_CHARACTERS} fit")
    # A field is never longer than its item, and a character has at most 4 bytes: most items return here.
    if (
        len(raw) <= MAX_ID_BYTES
        or len(f"{item.user_id}{item.anonymous_id}{item.group_id}{item.previous_id}{item.event}") <= MAX_ID_BYTES // 4
    ):
        return None
    values = (item.user_id, item.anonymous_id, item.group_id, item.previous_id, item.event)
    for name, value in zip((*_IDS, "event"), values, strict=True):
        if isinstance(value, str) and (size := len(value.encode())) > MAX_ID_BYTES:
            code, cure = (
                ("event_too_long", "send the rest as properties") if name == "event" else ("id_too_long", "send a hash of it")
            )
            return ItemError(code, f"/{name}", f"{size} bytes of UTF-8, at most {MAX_ID_BYTES} fit: {cure}")
    return None


def dead_letter_id(identifier: str | None) -> str | None:
    """Return the id for the key of a dead letter; None if it is too long for a key."""
    return None if identifier is None or is_longer(identifier, MAX_ID_BYTES) else identifier


def item_size_error(size_bytes: int) -> ItemError:
    """Return the error of an item over `MAX_ITEM_BYTES`."""
    return ItemError("item_too_large", "", f"{size_bytes} bytes with the batch's context, at most {MAX_ITEM_BYTES} fit")


def _limit_error(raw: bytes, item: ItemFields, *, has_number: bool) -> ItemError | None:
    if (item_error := length_error(raw, item)) is not None:
        return item_error
    if has_number and (name := _rounded_id(item)):
        return ItemError("id_too_large", f"/{name}", "a number beyond 2^53 loses digits in JSON libraries: send it as text")
    # Counting brackets is one pass over memory; only an item with many brackets needs the exact depth.
    if raw.count(b"{") + raw.count(b"[") > MAX_DEPTH and _depth(raw) > MAX_DEPTH:
        return ItemError("too_deep", "", f"nested more than {MAX_DEPTH} levels deep: send flatter properties")
    return None


def _has_number(item: ItemFields) -> bool:
    return (
        type(item.user_id) is int or type(item.anonymous_id) is int or type(item.group_id) is int or type(item.previous_id) is int
    )


def _rounded_id(item: ItemFields) -> str | None:
    values = (item.user_id, item.anonymous_id, item.group_id, item.previous_id)
    return next((n for n, v in zip(_IDS, values, strict=True) if isinstance(v, int) and abs(v) > _MAX_WHOLE_NUMBER), None)


def _depth(raw: bytes) -> int:
    deepest = level = 0
    for bracket in _NOT_STRUCTURE.sub(b"", raw):
        level += 1 if bracket in b"{[" else -1
        deepest = max(deepest, level)
    return deepest


def _completed(raw: bytes, item: ItemFields, shared: Shared) -> bytes:
    """Return the item as stored: numeric ids become text, and the batch's context and integrations are merged under its own."""
    members = _decode_members(raw)
    for name in _IDS if _has_number(item) else ():
        if (value := msgspec.json.decode(members.get(name, _NULL))) is not None:
            members[name] = msgspec.Raw(_encode(str(value)))
    for name, batch in (("context", shared.context), ("integrations", shared.integrations)):
        if batch:
            members[name] = msgspec.Raw(_encode({**batch, **(_decode_own(members.get(name, _NULL)) or {})}))
    return _encode(members)


def _text_id(value: str | int | None) -> str | None:
    if value is None or value == "":
        return None
    return value if isinstance(value, str) else str(value)


def _text_of(member: msgspec.Raw | None) -> str | None:
    if member is None or not bytes(member).startswith(b'"'):
        return None
    return msgspec.json.decode(member, type=str) or None
