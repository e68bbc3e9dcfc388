"""Pure core: the bytes of one request's body in Protocol Buffers -> usable items and faults, by the rules that hold for JSON.

What lies inside properties, traits and context is not looked at here; the normalizer refuses what is wrong there.
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
from starling_ingest.accept import Fault, Reading, over_limits, told
from starling_ingest.item import (
    KINDS,
    MAX_ITEM_BYTES,
    Said,
    Wrong,
    dead_letter_id,
    item_too_large,
    no_kind,
    what_is_missing,
    what_is_too_long,
)


def message_write_key(body: bytes, kind: str | None) -> Outcome[str | None]:
    """The `write_key` of an `Item`, or of a `Batch` where `kind` is None; nothing else of the body is parsed."""
    try:
        return Done(batch_write_key(body) if kind is None else item_write_key(body))
    except DecodeError as error:
        return Refused(error.code, str(error))


def accept_single_message(body: bytes, kind: str) -> Outcome[Reading]:
    """The body of `/v1/<kind>`: an `Item`. An unusable one is a fault of the reading; `Refused` means no `Item`."""
    try:
        item = read_item(body)
    except DecodeError as error:
        return Refused(error.code, str(error))
    judged = _judged(item, kind, None, body)
    if isinstance(judged, Wrong):
        return Done(Reading([], [_fault(0, judged, item, body, "")], protobuf=True))
    return Done(Reading([judged], [], protobuf=True))


def accept_batch_message(body: bytes) -> Outcome[Reading]:
    """The body of `/v1/batch`: a `Batch`."""
    try:
        batch = open_batch(body)
    except DecodeError as error:
        return Refused(error.code, str(error))
    return over_limits(len(batch.items), len(body), len(batch.shared)) or _read_items(batch)


def _read_items(batch: OpenBatch) -> Outcome[Reading]:
    items: list[ReceivedItem] = []
    faults: list[Fault] = []
    for index, raw in enumerate(batch.items):
        try:
            item = read_item(raw)
        except DecodeError as error:
            return Refused(error.code, f"/batch/{index}: {error}")
        judged = _judged(item, None, batch.sent_at, batch.shared + raw)
        if isinstance(judged, Wrong):
            faults.append(_fault(index, judged, item, raw, f"/batch/{index}"))
        else:
            items.append(judged)
    return Done(Reading(items, faults, protobuf=True))


def _judged(item: Item, kind: str | None, sent_at: str | None, raw: bytes) -> ReceivedItem | Wrong:
    if (wrong := _wrong_traits(item)) is not None:
        return wrong
    if len(raw) > MAX_ITEM_BYTES:
        return item_too_large(len(raw))
    user_id, anonymous_id = item.user_id or None, item.anonymous_id or None
    kind = kind or KINDS.get(item.type)
    if kind is None:
        return no_kind(item.type)
    said = _said(item)
    wrong = what_is_missing(kind, said, user_id or anonymous_id) or what_is_too_long(raw, said)
    if wrong is not None:
        return wrong
    message_id = item.message_id or str(uuid.uuid4())
    return ReceivedItem(kind, message_id, user_id, anonymous_id, raw, None if item.HasField("sent_at") else sent_at)


def _said(item: Item) -> Said:
    return Said(
        message_id=item.message_id,
        user_id=item.user_id,
        anonymous_id=item.anonymous_id,
        group_id=item.group_id,
        previous_id=item.previous_id,
        event=item.event,
    )


def _wrong_traits(item: Item) -> Wrong | None:
    context = item.context.fields
    if "traits" in context and context["traits"].WhichOneof("kind") not in {"struct_value", "null_value"}:
        return Wrong("wrong_type", "/context/traits", "expected an object")
    return None


def _fault(index: int, wrong: Wrong, item: Item, raw: bytes, at: str) -> Fault:
    identifier = dead_letter_id(item.user_id or item.anonymous_id or None)
    return Fault(index, item.message_id or None, wrong.code, told(wrong, at), raw, identifier)
