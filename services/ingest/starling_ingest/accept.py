"""Pure core: the bytes of one request's body -> usable items and faults, or the reason why nothing of it can be used."""

import re
from typing import Final

import msgspec

from starling_common.outcome import Done, Outcome, Refused
from starling_common.wire import ReceivedItem
from starling_ingest.item import Shared, Wrong, judge, salvage
from starling_ingest.request import MAX_BODY_BYTES

MAX_ITEMS: Final = 2500
"""Of one batch (contract, part 3)."""

_NO_NUMBER: Final = re.compile(rb"-?(?:NaN|Infinity)")


class Fault(msgspec.Struct, frozen=True):
    """One item that cannot be used. `item` is its bytes as sent; `identifier` is the id that its dead letter is keyed by."""

    index: int
    message_id: str | None
    code: str
    message: str
    item: bytes
    identifier: str | None


class Reading(msgspec.Struct, frozen=True):
    """What one body held. All items and faults are in one form: Protocol Buffers where `protobuf`, else JSON."""

    items: list[ReceivedItem]
    faults: list[Fault]
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
    """The `writeKey` of a JSON body; nothing else of the body is kept or judged."""
    try:
        return Done(_decode_keyed(body).write_key)
    except msgspec.ValidationError:
        return _not_json(body) or Refused("wrong_type", "the body: expected a JSON object whose writeKey, if any, is text")
    except UnicodeDecodeError:
        return _NOT_UTF8
    except (msgspec.DecodeError, RecursionError):
        return _not_json(body) or _NOT_UTF8


def accept_single(body: bytes, kind: str) -> Outcome[Reading]:
    """The body of `/v1/<kind>`: one item. An unusable one is a fault of the reading; `Refused` means no JSON object."""
    if not _is_utf8(body):
        return _NOT_UTF8
    judged = judge(body, kind)
    if isinstance(judged, ReceivedItem):
        return Done(Reading([judged], []))
    if (refused := _not_json(body)) is not None:
        return refused
    if not body.lstrip().startswith(b"{"):
        return Refused("wrong_type", "the body: expected a JSON object")
    return Done(Reading([], [_fault(0, judged, body, "")]))


def accept_batch(body: bytes) -> Outcome[Reading]:
    """The body of `/v1/batch`: `{"batch": [items], "sentAt", "context", "integrations", "writeKey"}`."""
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
    """Why a batch is refused whole; None when it is not.

    `shared_bytes` is the weight of the batch's context and integrations. They are written into every item, so they count once
    an item; the body holds them once already.
    """
    if not items:
        return Refused("empty_batch", "/batch: expected at least one item")
    if items > MAX_ITEMS:
        return Refused("too_many_items", f"/batch: {items} items, at most {MAX_ITEMS} fit one request: send several")
    expanded_bytes = body_bytes + (items - 1) * shared_bytes
    if expanded_bytes > MAX_BODY_BYTES:
        return Refused(
            "body_too_large",
            f"the body is {expanded_bytes} bytes with the batch's context and integrations ({shared_bytes} bytes) in each of its"
            f" {items} items, at most {MAX_BODY_BYTES} fit: put less into the batch's context or send fewer items in a request",
        )
    return None


def _read_items(batch: list[msgspec.Raw], shared: Shared) -> Reading:
    items: list[ReceivedItem] = []
    faults: list[Fault] = []
    for index, part in enumerate(batch):
        raw = bytes(part)
        judged = judge(raw, None, shared)
        if isinstance(judged, Wrong):
            faults.append(_fault(index, judged, raw, f"/batch/{index}"))
        else:
            items.append(judged)
    return Reading(items, faults)


def _fault(index: int, wrong: Wrong, raw: bytes, at: str) -> Fault:
    message_id, identifier = salvage(raw)
    return Fault(index, message_id, wrong.code, told(wrong, at), raw, identifier)


def told(wrong: Wrong, at: str) -> str:
    """What is wrong and where, for who sent it; `at` points to the item within the body."""
    return f"{at + wrong.pointer or 'the item'}: {wrong.message}"


_NOT_UTF8: Final = Refused("not_json", "the body is not UTF-8 text: send JSON encoded as UTF-8")


def _is_utf8(body: bytes) -> bool:
    # The decoder steps over what it need not read, so it would let broken text inside properties pass.
    try:
        body.decode()
    except UnicodeDecodeError:
        return False
    return True


def _not_json(body: bytes) -> Refused | None:
    try:
        _decode_any(body)
    except RecursionError:
        return Refused("too_deep", "the body is nested too deeply to be read")
    except msgspec.DecodeError as error:
        return Refused("not_json", _syntax_message(body, str(error)))
    return None


def _syntax_message(body: bytes, problem: str) -> str:
    found = re.search(r"\(byte (\d+)\)", problem)
    if found and (word := _NO_NUMBER.match(body, int(found[1]))):
        return f"the body is not JSON: {word[0].decode()} at byte {found[1]} is no JSON number, send null or leave it out"
    if not body.strip():
        return "the body is empty: send a JSON object"
    return f"the body is not JSON: {problem.removeprefix('JSON is malformed: ')}"


def _envelope_message(error: msgspec.ValidationError) -> str:
    wrong = Wrong.of(error)
    if "missing required field" in str(error):
        return "/batch: missing, expected a list of items"
    return f"{wrong.pointer or 'the body'}: {wrong.message}"
