"""The edge's own encoder writes what the general codec writes, byte for byte."""

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from starling_common import wire
from starling_common.kafka.topics import INGEST_KINDS
from starling_common.wire import Codec, Receipt, ReceivedEncoder, ReceivedItem, encode_receipt
from starling_common.wire import received as module

CODECS = {kind: Codec("IngestReceived", 70_000 + number, lambda _id: "") for number, kind in enumerate(INGEST_KINDS)}
ENCODER = ReceivedEncoder(CODECS)

text = st.text(st.characters(exclude_categories=["Cs"]), max_size=40) | st.integers(0, 40_000).map("x".__mul__)
optional = st.none() | text
items = st.builds(
    ReceivedItem,
    kind=st.sampled_from(INGEST_KINDS),
    message_id=text,
    user_id=optional,
    anonymous_id=optional,
    item=text.map(str.encode),
    sent_at=optional,
)
receipts = st.builds(
    Receipt,
    workspace=text,
    imported=st.booleans(),
    correlation_id=text,
    remote_address=optional,
    user_agent=optional,
    edge=text,
)
times = st.integers(0, 2**62) | st.integers(1_600_000_000_000_000, 2_000_000_000_000_000) | st.integers(0, 2**29)


@given(times, items, receipts)
def test_equals_the_codec(received_at: int, item: ReceivedItem, receipt: Receipt) -> None:
    written = ENCODER.encode(received_at, item, *encode_receipt(receipt))
    record = {
        "received_at": received_at,
        "workspace": receipt.workspace,
        "kind": item.kind,
        "message_id": item.message_id,
        "user_id": item.user_id,
        "anonymous_id": item.anonymous_id,
        "item": item.item.decode(),
        "sent_at": item.sent_at,
        "imported": receipt.imported,
        "correlation_id": receipt.correlation_id,
        "remote_address": receipt.remote_address,
        "user_agent": receipt.user_agent,
        "edge": receipt.edge,
        "item_protobuf": None,
    }
    assert written == CODECS[item.kind].encode(record)
    assert CODECS[item.kind].decode(written) == record
    packed = ENCODER.encode_protobuf(received_at, item, *encode_receipt(receipt))
    assert packed == CODECS[item.kind].encode(record | {"item": "", "item_protobuf": item.item})


def test_refuses_a_schema_it_was_not_written_for(monkeypatch: pytest.MonkeyPatch) -> None:
    changed = re.sub('"name": "edge"', '"name": "edge_process"', wire.codec.schema_text("IngestReceived"))
    monkeypatch.setattr(module, "schema_text", lambda _name: changed)
    with pytest.raises(TypeError, match=r"IngestReceived\.avsc has changed"):
        ReceivedEncoder(CODECS)
