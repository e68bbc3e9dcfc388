"""Adapter: `IngestReceived` to bytes, for the one place that writes it in every request.

The general codec takes 5-7 µs a record, more than all the rest that the edge does with an item. This encoder writes
the same bytes (a property test holds the two together) in about a fifth of that, because most of a record is the same
for all items of a request. It refuses to be built for a schema file that it was not written for.
"""

import json
from collections.abc import Mapping
from functools import lru_cache
from typing import Final

import msgspec

from starling_common.wire.basics import long_bytes, optional_text_bytes, text_bytes
from starling_common.wire.codec import Codec, schema_text

_EXPECTED: Final = (
    ("received_at", {"type": "long", "logicalType": "timestamp-micros"}),
    ("workspace", "string"),
    ("kind", "string"),
    ("message_id", "string"),
    ("user_id", ["null", "string"]),
    ("anonymous_id", ["null", "string"]),
    ("item", "string"),
    ("sent_at", ["null", "string"]),
    ("imported", "boolean"),
    ("correlation_id", "string"),
    ("remote_address", ["null", "string"]),
    ("user_agent", ["null", "string"]),
    ("edge", "string"),
    ("item_protobuf", ["null", "bytes"]),
)
_NO_BYTES: Final = b"\x00"


class ReceivedItem(msgspec.Struct, frozen=True, gc=False):
    """One usable item. `item` is a JSON object in UTF-8, or an `Item` of Protocol Buffers; at least one of the two ids is there."""

    kind: str
    message_id: str
    user_id: str | None
    anonymous_id: str | None
    item: bytes
    sent_at: str | None


class Receipt(msgspec.Struct, frozen=True, gc=False):
    """What is the same for all items of one request."""

    workspace: str
    imported: bool
    correlation_id: str
    remote_address: str | None
    user_agent: str | None
    edge: str


class ReceivedEncoder:
    """`encode(...)` and `encode_protobuf(...)` equal `Codec.encode` of the same record, byte for byte."""

    def __init__(self, codecs: Mapping[str, Codec]) -> None:
        """`codecs`: kind -> codec of its topic. Raises: TypeError if the schema file is not the one this was written for."""
        fields = tuple((field["name"], field["type"]) for field in json.loads(schema_text("IngestReceived"))["fields"])
        if fields != _EXPECTED:
            raise TypeError("IngestReceived.avsc has changed: change ReceivedEncoder with it")
        self._headers = {kind: codec.header for kind, codec in codecs.items()}
        self._kinds = {kind: text_bytes(kind) for kind in codecs}

    def encode(self, received_at: int, item: ReceivedItem, workspace: bytes, tail: bytes) -> bytes:
        """An item of JSON. `received_at` in µs; `workspace` and `tail` come from `encode_receipt`.

        Raises: KeyError for a kind without a codec.
        """
        kind = item.kind
        body = item.item
        return b"".join(
            (
                self._headers[kind],
                long_bytes(received_at),
                workspace,
                self._kinds[kind],
                text_bytes(item.message_id),
                optional_text_bytes(item.user_id),
                optional_text_bytes(item.anonymous_id),
                long_bytes(len(body)),
                body,
                optional_text_bytes(item.sent_at),
                tail,
            )
        )

    def encode_protobuf(self, received_at: int, item: ReceivedItem, workspace: bytes, tail: bytes) -> bytes:
        """An item of Protocol Buffers; as `encode` otherwise."""
        kind = item.kind
        body = item.item
        return b"".join(
            (
                self._headers[kind],
                long_bytes(received_at),
                workspace,
                self._kinds[kind],
                text_bytes(item.message_id),
                optional_text_bytes(item.user_id),
                optional_text_bytes(item.anonymous_id),
                text_bytes(""),
                optional_text_bytes(item.sent_at),
                # The tail says at its end that there are no such bytes: so items of JSON, nearly all, pay nothing for them.
                tail[: -len(_NO_BYTES)],
                b"\x02",
                long_bytes(len(body)),
                body,
            )
        )


def encode_receipt(receipt: Receipt) -> tuple[bytes, bytes]:
    """The encoded workspace and tail that all records of one request share; the tail is that of an item of JSON."""
    start = b"\x01" if receipt.imported else b"\x00"
    return text_bytes(receipt.workspace), start + text_bytes(receipt.correlation_id) + _sender(
        receipt.remote_address, receipt.user_agent, receipt.edge
    )


@lru_cache(maxsize=4096)
def _sender(remote_address: str | None, user_agent: str | None, edge: str) -> bytes:
    # The same few clients send again and again.
    return optional_text_bytes(remote_address) + optional_text_bytes(user_agent) + text_bytes(edge) + _NO_BYTES
