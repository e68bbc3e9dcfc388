"""Pure core: the bytes of one request's body in Protocol Buffers -> usable items and faults, by the rules that hold for JSON.

What lies inside properties, traits and context is not looked at here; the normalizer refuses what is wrong there.
"""

import uuid

from starling_common.outcome import Done, Outcome, Refused
from starling_common.wire import Batch, DecodeError, Item, ReceivedItem, instant_text, lay_under, read_batch, read_item
from starling_ingest.accept import Fault, Reading, told, wrong_count
from starling_ingest.item import (
    KINDS,
    MAX_ITEM_BYTES,
    MAX_MESSAGE_ID_CHARACTERS,
    Said,
    Wrong,
    item_too_large,
    message_id_too_long,
    no_kind,
    what_is_missing,
)


def accept_single_message(body: bytes, kind: str) -> Outcome[Reading]:
    """The body of `/v1/<kind>`: an `Item`. An unusable one is a fault of the reading; `Refused` means no `Item`."""
    try:
        item = read_item(body)
    except DecodeError as error:
        return Refused(error.code, str(error))
    write_key = item.write_key or None
    judged = _wrong_traits(item) or _judged(item, kind, None, body)
    if isinstance(judged, Wrong):
        return Done(Reading([], [_fault(0, judged, item, body, "")], write_key, protobuf=True))
    return Done(Reading([judged], [], write_key, protobuf=True))


def accept_batch_message(body: bytes) -> Outcome[Reading]:
    """The body of `/v1/batch`: a `Batch`."""
    try:
        batch = read_batch(body)
        sent_at = instant_text(batch.sent_at, "sentAt") if batch.HasField("sent_at") else None
    except DecodeError as error:
        return Refused(error.code, str(error))
    return wrong_count(len(batch.batch)) or Done(_read_items(batch, sent_at))


def _read_items(batch: Batch, sent_at: str | None) -> Reading:
    items: list[ReceivedItem] = []
    faults: list[Fault] = []
    for index, item in enumerate(batch.batch):
        raw = item.SerializeToString()
        wrong = _wrong_traits(item)
        lay_under(item, batch)
        judged = wrong or _judged(item, None, sent_at, item.SerializeToString())
        if isinstance(judged, Wrong):
            faults.append(_fault(index, judged, item, raw, f"/batch/{index}"))
        else:
            items.append(judged)
    return Reading(items, faults, batch.write_key or None, protobuf=True)


def _judged(item: Item, kind: str | None, sent_at: str | None, raw: bytes) -> ReceivedItem | Wrong:
    if len(raw) > MAX_ITEM_BYTES:
        return item_too_large(len(raw))
    user_id, anonymous_id = item.user_id or None, item.anonymous_id or None
    kind = kind or KINDS.get(item.type)
    if kind is None:
        return no_kind(item.type)
    wrong = what_is_missing(kind, _said(item), user_id or anonymous_id)
    if wrong is not None:
        return wrong
    if len(item.message_id) > MAX_MESSAGE_ID_CHARACTERS:
        return message_id_too_long(item.message_id)
    message_id = item.message_id or str(uuid.uuid4())
    return ReceivedItem(kind, message_id, user_id, anonymous_id, raw, None if item.HasField("sent_at") else sent_at)


def _said(item: Item) -> Said:
    return Said(user_id=item.user_id, event=item.event, group_id=item.group_id, previous_id=item.previous_id)


def _wrong_traits(item: Item) -> Wrong | None:
    context = item.context.fields
    if "traits" in context and context["traits"].WhichOneof("kind") not in {"struct_value", "null_value"}:
        return Wrong("wrong_type", "/context/traits", "expected an object")
    return None


def _fault(index: int, wrong: Wrong, item: Item, raw: bytes, at: str) -> Fault:
    message_id, identifier = item.message_id or None, item.user_id or item.anonymous_id or None
    return Fault(index, message_id, wrong.code, told(wrong, at), raw, identifier)
