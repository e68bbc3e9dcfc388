"""Pure core: parse and validate the Protocol Buffers body of one request, by the same rules as JSON.

The contents of properties, traits and context are not validated here; the normalizer refuses invalid values there.
"""

import uuid

from starling_common.outcome import Done, Outcome, Refused
from starling_common.wire import (
    DecodeError,
    Item,
    OpenBatch,
    ReceivedItem,
    batch_write_key,
    item_write_key,
    open_batch,
    read_item,
)
from starling_ingest.requests.accept import ParsedBody, Rejection, error_text, over_limits
from starling_ingest.requests.item import (
    KINDS,
    MAX_ITEM_BYTES,
    ItemError,
    ItemFields,
    dead_letter_id,
    item_size_error,
    length_error,
    missing_field_error,
    type_error,
)


def message_write_key(body: bytes, kind: str | None) -> Outcome[str | None]:
    """Return the `write_key` of an `Item`, or of a `Batch` if `kind` is None. The rest of the body is not parsed."""
    try:
        return Done(batch_write_key(body) if kind is None else item_write_key(body))
    except DecodeError as error:
        return Refused(error.code, str(error))


def accept_single_message(body: bytes, kind: str) -> Outcome[ParsedBody]:
    """Parse the body of `/v1/<kind>`, which is an `Item`. An invalid item is a rejection; `Refused` means no `Item`."""
    try:
        item = read_item(body)
    except DecodeError as error:
        return Refused(error.code, str(error))
    validated = _validate(item, kind, None, body)
    if isinstance(validated, ItemError):
        return Done(ParsedBody([], [_rejection(0, validated, item, body, "")], protobuf=True))
    return Done(ParsedBody([validated], [], protobuf=True))


def accept_batch_message(body: bytes) -> Outcome[ParsedBody]:
    """Parse the body of `/v1/batch`, which is a `Batch`."""
    try:
        batch = open_batch(body)
    except DecodeError as error:
        return Refused(error.code, str(error))
    return over_limits(len(batch.items), len(body), len(batch.shared)) or _read_items(batch)


def _read_items(batch: OpenBatch) -> Outcome[ParsedBody]:
    items: list[ReceivedItem] = []
    rejections: list[Rejection] = []
    for index, raw in enumerate(batch.items):
        try:
            item = read_item(raw)
        except DecodeError as error:
            return Refused(error.code, f"/batch/{index}: {error}")
        validated = _validate(item, None, batch.sent_at, batch.shared + raw)
        if isinstance(validated, ItemError):
            rejections.append(_rejection(index, validated, item, raw, f"/batch/{index}"))
        else:
            items.append(validated)
    return Done(ParsedBody(items, rejections, protobuf=True))


def _validate(item: Item, kind: str | None, sent_at: str | None, raw: bytes) -> ReceivedItem | ItemError:
    if (item_error := _traits_error(item)) is not None:
        return item_error
    if len(raw) > MAX_ITEM_BYTES:
        return item_size_error(len(raw))
    user_id, anonymous_id = item.user_id or None, item.anonymous_id or None
    kind = kind or KINDS.get(item.type)
    if kind is None:
        return type_error(item.type)
    fields = _fields(item)
    item_error = missing_field_error(kind, fields, user_id or anonymous_id) or length_error(raw, fields)
    if item_error is not None:
        return item_error
    message_id = item.message_id or str(uuid.uuid4())
    return ReceivedItem(kind, message_id, user_id, anonymous_id, raw, None if item.HasField("sent_at") else sent_at)


def _fields(item: Item) -> ItemFields:
    return ItemFields(
        message_id=item.message_id,
        user_id=item.user_id,
        anonymous_id=item.anonymous_id,
        group_id=item.group_id,
        previous_id=item.previous_id,
        event=item.event,
    )


def _traits_error(item: Item) -> ItemError | None:
    context = item.context.fields
    if "traits" in context and context["traits"].WhichOneof("kind") not in {"struct_value", "null_value"}:
        return ItemError("wrong_type", "/context/traits", "expected an object")
    return None


def _rejection(index: int, item_error: ItemError, item: Item, raw: bytes, at: str) -> Rejection:
    identifier = dead_letter_id(item.user_id or item.anonymous_id or None)
    return Rejection(index, item.message_id or None, item_error.code, error_text(item_error, at), raw, identifier)
