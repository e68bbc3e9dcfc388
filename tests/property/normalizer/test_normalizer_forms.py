"""An item means the same as JSON and as Protocol Buffers: at the edge, and in what becomes of it.

The message is made of the JSON by the Protocol Buffers library's own mapping, which shares nothing with ours.
"""

import json
from collections.abc import Callable, Mapping
from typing import Any

from google.protobuf import json_format
from hypothesis import given, settings
from hypothesis import strategies as st

from starling_common.kafka.topics import INGEST_KINDS
from starling_common.outcome import Done, Outcome, Refused
from starling_common.settings import Clock
from starling_common.time.instants import parse_instant
from starling_common.wire import Batch, Item
from starling_ingest.requests.accept import ParsedBody, accept_batch, accept_single, body_write_key
from starling_ingest.requests.messages import accept_batch_message, accept_single_message, message_write_key
from starling_items.enrich import Product
from starling_items.pipeline import FOLD, READ, run
from starling_items.work import StageDependencies, Work
from starling_normalizer.testing import key_of, received

RULES = StageDependencies(
    Clock.WALL, lambda _workspace, product_id: Product("shoes", 42.5, None, None) if product_id == "sku-1" else None
)

text = st.text(st.characters(exclude_categories=["Cs"]), max_size=8)
# A message's number is a double: neither more digits than that, nor a difference between 5 and 5.0.
numbers = st.integers(-(2**53), 2**53) | st.floats(allow_nan=False, allow_infinity=False).filter(lambda n: not n.is_integer())
values = st.recursive(
    st.none() | st.booleans() | numbers | text,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(text, inner, max_size=3),
    max_leaves=6,
)
objects = st.none() | st.dictionaries(text | st.sampled_from(["product_id", "computed", "traits"]), values, max_size=3)
instants = st.none() | st.sampled_from(
    ["2025-12-31T23:59:59Z", "2026-01-01T00:00:00.123456Z", "1969-12-31T23:59:59Z", "2026-01-01T09:30:00.250+09:00"]
)
ids = st.none() | st.just("") | st.sampled_from(["ada", "bob", "é", "é" * 256, "x" * 513])
items = st.fixed_dictionaries(
    {"messageId": st.sampled_from(["m-1", "m" * 100, "m" * 101]), "userId": ids | st.just("ada")},
    optional={
        "anonymousId": ids, "type": st.sampled_from([*INGEST_KINDS, "merge"]), "event": st.none() | text, "name": st.none() | text,
        "category": st.none() | text, "groupId": ids, "previousId": ids, "timestamp": instants, "originalTimestamp": instants,
        "sentAt": instants, "properties": objects | st.just({"product_id": "sku-1", "price": None}), "traits": objects,
        "context": objects, "integrations": objects, "writeKey": st.none() | text,
    },
)  # fmt: skip
batches = st.fixed_dictionaries(
    {"batch": st.lists(items, max_size=3)},
    optional={"context": objects, "integrations": objects, "sentAt": instants, "writeKey": text},
)


def message(kind: type[Item] | type[Batch], document: Mapping[str, Any]) -> bytes:
    # The library takes a null for a missing field only where the field is no message.
    return json_format.ParseDict(without_nulls(document), kind()).SerializeToString()


def without_nulls(document: Mapping[str, Any]) -> dict[str, Any]:
    kept = {name: value for name, value in document.items() if value is not None}
    return kept | ({"batch": [without_nulls(item) for item in kept["batch"]]} if "batch" in kept else {})


def outcome_of(parsed: ParsedBody | Refused) -> Any:
    """Return the response to the sender and the parsed items."""
    if isinstance(parsed, Refused):
        return parsed.code
    rejections = [
        (rejection.index, rejection.message_id, rejection.code, rejection.message.partition(", got")[0], rejection.identifier)
        for rejection in parsed.rejections
    ]
    return [(item.kind, item.message_id, item.user_id, item.anonymous_id) for item in parsed.items], rejections


def became(parsed: ParsedBody) -> list[Any]:
    """What the normalizer makes of each item, JSON texts read."""
    found = []
    for item in parsed.items:
        text, packed = ("", item.item) if parsed.protobuf else (item.item.decode(), None)
        ids = {"message_id": item.message_id, "user_id": item.user_id, "anonymous_id": item.anonymous_id}
        record = received(item.kind, text, **ids, sent_at=item.sent_at, item_protobuf=packed)
        step = run(READ, Work(record, key=key_of(record)), RULES)
        step = run(FOLD, step, RULES) if isinstance(step, Work) else step
        found.append(read_texts(step.event) | {"topic": step.topic} if isinstance(step, Work) else step)
    return found


def read_texts(event: Mapping[str, Any]) -> dict[str, Any]:
    # Members of an object have no order.
    texts = ("properties", "traits", "context", "group_traits")
    read: dict[str, Callable[[Any], Any]] = dict.fromkeys(texts, json.loads)
    read |= {"raw_timestamp": parse_instant, "raw_sent_at": parse_instant, "changed": sorted}
    return {name: read[name](value) if name in read and value is not None else value for name, value in event.items()}


def value_of(outcome: Any) -> ParsedBody | Refused:
    found = outcome.value if isinstance(outcome, Done) else outcome
    assert isinstance(found, ParsedBody | Refused)
    return found


def agree(as_json: ParsedBody | Refused, packed: ParsedBody | Refused) -> None:
    assert outcome_of(packed) == outcome_of(as_json)
    if isinstance(as_json, ParsedBody) and isinstance(packed, ParsedBody):
        assert became(packed) == became(as_json)


def agree_on_key(as_json: Outcome[str | None], packed: Outcome[str | None]) -> None:
    assert isinstance(as_json, Done)
    assert isinstance(packed, Done)
    assert (packed.value or None) == (as_json.value or None)


@settings(max_examples=400)
@given(st.sampled_from(INGEST_KINDS), items)
def test_a_call(kind: str, item: dict[str, Any]) -> None:
    as_json = accept_single(json.dumps(item).encode(), kind)
    packed = message(Item, item)
    agree(value_of(as_json), value_of(accept_single_message(packed, kind)))
    agree_on_key(body_write_key(json.dumps(item).encode()), message_write_key(packed, kind))


@settings(max_examples=200)
@given(batches)
def test_a_batch(batch: dict[str, Any]) -> None:
    as_json, packed = json.dumps(batch).encode(), message(Batch, batch)
    agree(value_of(accept_batch(as_json)), value_of(accept_batch_message(packed)))
    agree_on_key(body_write_key(as_json), message_write_key(packed, None))
