"""Pure core: parse and validate the JSON body of one request.

The result is a `ParsedBody` (valid items and rejections), or `Refused` when the body has no items that can be read.
"""

import re
from typing import Final

import msgspec

from starling_common.outcome import Done, Outcome, Refused
from starling_common.wire import ReceivedItem
from starling_ingest.requests.item import ItemError, Shared, salvage, validate_item
from starling_ingest.requests.request import MAX_BODY_BYTES

MAX_ITEMS: Final = 2500
"""Most items in one batch (contract, part 3)."""

_NO_NUMBER: Final = re.compile(rb"-?(?:NaN|Infinity)")


class Rejection(msgspec.Struct, frozen=True):
    """One invalid item. `item` is its bytes as sent; `identifier` is the id in the key of its dead letter."""

    index: int
    message_id: str | None
    code: str
    message: str
    item: bytes
    identifier: str | None


class ParsedBody(msgspec.Struct, frozen=True):
    """The valid items and the rejections of one body, all encoded alike: as Protocol Buffers if `protobuf`, else as JSON."""

    items: list[ReceivedItem]
    rejections: list[Rejection]
    protobuf: bool = False


class _Keyed(msgspec.Struct, rename="camel"):
    write_key: str | None = None


class _Batch(msgspec.Struct, rename="camel"):
    batch: list[msgspec.Raw]
    sent_at: str | None = None
    context: dict[str, msgspec.Raw] | None = None
    integrations: dict[str, msgspec.Raw] | None = None


_decode_any = msgspec.json.Decoder(msgspec.Raw).decode
_decode_keyed = msgspec.json.Decoder(_Keyed).decode
_decode_batch = msgspec.json.Decoder(_Batch).decode


def body_write_key(body: bytes) -> Outcome[str | None]:
    """Return the `writeKey` of a JSON body. The rest of the body is not validated."""
    try:
        return Done(_decode_keyed(body).write_key)
    except msgspec.ValidationError:
        return _not_json(body) or Refused("wrong_type", "the body: expected a JSON object; its optional writeKey must be text")
    except UnicodeDecodeError:
        return _NOT_UTF8
    except (msgspec.DecodeError, RecursionError):
        return _not_json(body) or _NOT_UTF8


def accept_single(body: bytes, kind: str) -> Outcome[ParsedBody]:
    """Parse the body of `/v1/<kind>`, which is one item. An invalid item is a rejection; `Refused` means no JSON object."""
    if not _is_utf8(body):
        return _NOT_UTF8
    validated = validate_item(body, kind)
    if isinstance(validated, ReceivedItem):
        return Done(ParsedBody([validated], []))
    if (refused := _not_json(body)) is not None:
        return refused
    if not body.lstrip().startswith(b"{"):
        return Refused("wrong_type", "the body: expected a JSON object")
    return Done(ParsedBody([], [_rejection(0, validated, body, "")]))


def accept_batch(body: bytes) -> Outcome[ParsedBody]:
    """Parse the body of `/v1/batch`: `{"batch": [items], "sentAt", "context", "integrations", "writeKey"}`."""
    if not _is_utf8(body):
        return _NOT_UTF8
    try:
        envelope = _decode_batch(body)
    except msgspec.ValidationError as error:
        return _not_json(body) or Refused("wrong_type", _envelope_message(error))
    except (msgspec.DecodeError, RecursionError):
        return _not_json(body) or _NOT_UTF8
    shared = Shared.of(envelope.context, envelope.integrations, envelope.sent_at)
    return over_limits(len(envelope.batch), len(body), shared.size_bytes) or Done(_read_items(envelope.batch, shared))


def over_limits(items: int, body_bytes: int, shared_bytes: int) -> Refused | None:
    """Return why the whole batch is refused, or None if it is within the limits.

    `shared_bytes` is the size of the batch's context and integrations. Every item is stored with a copy of them; the body
    already contains one copy.
    """
    if not items:
        return Refused("empty_batch", "/batch: expected at least one item")
    if items > MAX_ITEMS:
        return Refused("too_many_items", f"/batch: {items} items, at most {MAX_ITEMS} are allowed: send several requests")
    expanded_bytes = body_bytes + (items - 1) * shared_bytes
    if expanded_bytes > MAX_BODY_BYTES:
        return Refused(
            "body_too_large",
            f"the body is {expanded_bytes} bytes with the batch's context and integrations ({shared_bytes} bytes) in each of its"
            f" {items} items, at most {MAX_BODY_BYTES} fit: put less into the batch's context or send fewer items in a request",
        )
    return None


def _read_items(batch: list[msgspec.Raw], shared: Shared) -> ParsedBody:
    items: list[ReceivedItem] = []
    rejections: list[Rejection] = []
    for index, part in enumerate(batch):
        raw = bytes(part)
        validated = validate_item(raw, None, shared)
        if isinstance(validated, ItemError):
            rejections.append(_rejection(index, validated, raw, f"/batch/{index}"))
        else:
            items.append(validated)
    return ParsedBody(items, rejections)


def _rejection(index: int, item_error: ItemError, raw: bytes, at: str) -> Rejection:
    message_id, identifier = salvage(raw)
    return Rejection(index, message_id, item_error.code, error_text(item_error, at), raw, identifier)


def error_text(item_error: ItemError, at: str) -> str:
    """Return the error message for the sender, with the place of the error; `at` is the item's JSON pointer within the body."""
    return f"{at + item_error.pointer or 'the item'}: {item_error.message}"


_NOT_UTF8: Final = Refused("not_json", "the body is not UTF-8 text: send JSON encoded as UTF-8")


def _is_utf8(body: bytes) -> bool:
    # The decoder skips values that no field needs, so it does not detect invalid UTF-8 inside properties.
    try:
        body.decode()
    except UnicodeDecodeError:
        return False
    return True


def _not_json(body: bytes) -> Refused | None:
    try:
        _decode_any(body)
    except RecursionError:
        return Refused("too_deep", "the body is nested too deeply: send flatter properties")
    except msgspec.DecodeError as error:
        return Refused("not_json", _syntax_message(body, str(error)))
    return None


def _syntax_message(body: bytes, problem: str) -> str:
    found = re.search(r"\(byte (\d+)\)", problem)
    if found and (word := _NO_NUMBER.match(body, int(found[1]))):
        return f"the body is not JSON: {word[0].decode()} at byte {found[1]} is no JSON number, send null or omit the field"
    if not body.strip():
        return "the body is empty: send a JSON object"
    return f"the body is not JSON: {problem.removeprefix('JSON is malformed: ')}"


def _envelope_message(error: msgspec.ValidationError) -> str:
    item_error = ItemError.of(error)
    if "missing required field" in str(error):
        return "/batch: missing, expected a list of items"
    return f"{item_error.pointer or 'the body'}: {item_error.message}"
