"""Pure core: the JSON of one item -> a usable item, or what is wrong with it."""

import re
import uuid
from typing import Final

import msgspec

from starling_common.topics import INGEST_KINDS
from starling_common.values import MAX_ID_BYTES, is_longer
from starling_common.wire import ReceivedItem

MAX_ITEM_BYTES: Final = 32 * 1024
"""Of one item, as sent and with the batch's context under its own (contract, part 3)."""

MAX_MESSAGE_ID_CHARACTERS: Final = 100

MAX_DEPTH: Final = 64
"""Of nested objects and lists: far beyond any real event, and far below what would trouble a later reader's stack."""

_MAX_WHOLE_NUMBER: Final = 2**53 - 1
"""Beyond it a sender's JSON library may have rounded the id, so two users could become one."""

_IDS: Final = ("userId", "anonymousId", "groupId", "previousId")
KINDS: Final = {kind: kind for kind in INGEST_KINDS}
"""By what a `type` says."""
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


class Wrong(msgspec.Struct, frozen=True):
    """Why an item is unusable: a stable code, the JSON pointer of the place within the item, and words."""

    code: str
    pointer: str
    message: str

    @classmethod
    def of(cls, error: msgspec.ValidationError) -> "Wrong":
        """The decoder's complaint in the words of someone who writes JSON, not Python."""
        problem, _, path = str(error).partition(" - at `$")
        pointer = re.sub(r"\.|\[", "/", path.rstrip("`")).replace("]", "")
        found = re.fullmatch(r"Expected `(.*)`, got `(.*)`", problem)
        if found is None:
            return cls("wrong_type", pointer, problem)
        return cls("wrong_type", pointer, f"expected {_EXPECTED.get(found[1], found[1])}, got {_GOT.get(found[2], found[2])}")


class Shared(msgspec.Struct, frozen=True):
    """What a batch says for all its items. `size_bytes` is what it adds to an item at most."""

    context: dict[str, msgspec.Raw]
    integrations: dict[str, msgspec.Raw]
    sent_at: str | None
    size_bytes: int

    @classmethod
    def of(
        cls, context: dict[str, msgspec.Raw] | None, integrations: dict[str, msgspec.Raw] | None, sent_at: str | None
    ) -> "Shared":
        """Nulls are missing."""
        parts = {"context": context or {}, "integrations": integrations or {}}
        size = len(msgspec.json.encode(parts)) if context or integrations else 0
        return cls(parts["context"], parts["integrations"], sent_at or None, size)


NOTHING_SHARED: Final = Shared({}, {}, None, 0)


class _Object(msgspec.Struct):
    """A JSON object whose members nobody looks at here: decoding checks them and keeps nothing."""


class _Context(msgspec.Struct):
    traits: _Object | None = None


class Said(msgspec.Struct, rename="camel"):
    """What an item says, as far as it is judged here."""

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


_decode_item = msgspec.json.Decoder(Said).decode
_decode_members = msgspec.json.Decoder(dict[str, msgspec.Raw]).decode
_decode_own = msgspec.json.Decoder(dict[str, msgspec.Raw] | None).decode
_NULL: Final = msgspec.Raw(b"null")
_encode = msgspec.json.Encoder().encode


def judge(raw: bytes, kind: str | None, shared: Shared = NOTHING_SHARED) -> ReceivedItem | Wrong:
    """`kind` is the path's; None in a batch, where the item's `type` says it. `raw` is UTF-8; of a batch it is known to be JSON."""
    if len(raw) + shared.size_bytes > MAX_ITEM_BYTES:
        return item_too_large(len(raw) + shared.size_bytes)
    try:
        item = _decode_item(raw)
    except msgspec.ValidationError as error:
        return Wrong.of(error)
    except (msgspec.DecodeError, RecursionError) as error:
        return Wrong("not_json", "", str(error))
    user_id = _text_id(item.user_id)
    anonymous_id = _text_id(item.anonymous_id)
    kind = kind or KINDS.get(item.type or "")
    if kind is None:
        return no_kind(item.type)
    has_number = _has_number(item)
    wrong = what_is_missing(kind, item, user_id or anonymous_id) or _what_is_too_much(raw, item, has_number=has_number)
    if wrong is not None:
        return wrong
    return ReceivedItem(
        kind,
        item.message_id or str(uuid.uuid4()),
        user_id,
        anonymous_id,
        _completed(raw, item, shared) if shared.size_bytes or has_number else raw,
        None if item.sent_at else shared.sent_at,
    )


def salvage(raw: bytes) -> tuple[str | None, str | None]:
    """Message id and key id of an item that is wrong elsewhere, as far as they can be told."""
    try:
        members = _decode_members(raw)
    except (msgspec.DecodeError, RecursionError):
        return None, None
    message_id, user_id, anonymous_id = (_text_of(members.get(name)) for name in ("messageId", "userId", "anonymousId"))
    return message_id, dead_letter_id(user_id or anonymous_id)


def what_is_missing(kind: str, item: Said, identifier: str | None) -> Wrong | None:
    """What a call of that kind needs and the item does not have; `identifier` is the one it would be keyed by."""
    if identifier is None:
        return Wrong("missing_id", "", "neither userId nor anonymousId is given: send at least one, not empty")
    if kind == "track":
        return None if item.event else Wrong("missing_event", "/event", "missing, expected the event's name")
    if kind == "group" and _text_id(item.group_id) is None:
        return Wrong("missing_group_id", "/groupId", "missing, expected the group's id")
    if kind == "alias":
        return _no_alias(item)
    return None


def no_kind(sent: str | None) -> Wrong:
    """The fault of an item of a batch whose `type` is none."""
    known = ", ".join(INGEST_KINDS)
    if not sent:
        return Wrong("missing_type", "/type", f"missing, expected one of {known}")
    return Wrong("unknown_type", "/type", f"{sent[:40]!r} is not one of {known}")


def _no_alias(item: Said) -> Wrong | None:
    if _text_id(item.previous_id) is None:
        return Wrong("missing_previous_id", "/previousId", "missing, expected the id that the user had before")
    if _text_id(item.user_id) is None:
        return Wrong("missing_id", "/userId", "missing, expected the id that the user has from now on")
    return None


def what_is_too_long(raw: bytes, item: Said) -> Wrong | None:
    """A message id, another id or an event's name that is over its limit; `raw` is the item in either form."""
    message_id = item.message_id
    if message_id is not None and len(message_id) > MAX_MESSAGE_ID_CHARACTERS:
        many = len(message_id)
        return Wrong("message_id_too_long", "/messageId", f"{many} characters, at most {MAX_MESSAGE_ID_CHARACTERS} are kept")
    # No text is longer than its item, and a character has at most 4 bytes: nearly every item passes without the loop.
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
            return Wrong(code, f"/{name}", f"{size} bytes of UTF-8, at most {MAX_ID_BYTES} fit: {cure}")
    return None


def dead_letter_id(identifier: str | None) -> str | None:
    """The id that a dead letter is keyed by; none where it is too long for a key."""
    return None if identifier is None or is_longer(identifier, MAX_ID_BYTES) else identifier


def item_too_large(size_bytes: int) -> Wrong:
    """The fault of an item over `MAX_ITEM_BYTES`."""
    return Wrong("item_too_large", "", f"{size_bytes} bytes with the batch's context, at most {MAX_ITEM_BYTES} fit")


def _what_is_too_much(raw: bytes, item: Said, *, has_number: bool) -> Wrong | None:
    if (wrong := what_is_too_long(raw, item)) is not None:
        return wrong
    if has_number and (name := _rounded(item)):
        return Wrong("id_too_large", f"/{name}", "a number beyond 2^53 loses digits on its way: send it as text")
    # Brackets are counted in one sweep of memory; only an item with many of them is looked at closely.
    if raw.count(b"{") + raw.count(b"[") > MAX_DEPTH and _depth(raw) > MAX_DEPTH:
        return Wrong("too_deep", "", f"nested more than {MAX_DEPTH} levels deep")
    return None


def _has_number(item: Said) -> bool:
    return (
        type(item.user_id) is int or type(item.anonymous_id) is int or type(item.group_id) is int or type(item.previous_id) is int
    )


def _rounded(item: Said) -> str | None:
    values = (item.user_id, item.anonymous_id, item.group_id, item.previous_id)
    return next((n for n, v in zip(_IDS, values, strict=True) if isinstance(v, int) and abs(v) > _MAX_WHOLE_NUMBER), None)


def _depth(raw: bytes) -> int:
    deepest = level = 0
    for bracket in _NOT_STRUCTURE.sub(b"", raw):
        level += 1 if bracket in b"{[" else -1
        deepest = max(deepest, level)
    return deepest


def _completed(raw: bytes, item: Said, shared: Shared) -> bytes:
    """The item as later stages read it: ids that came as numbers are text, the batch's members lie under its own."""
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
