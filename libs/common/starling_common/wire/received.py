"""Adapter: the encoder of `IngestReceived` for the ingest service.

The general codec costs more than all other work on an item. This encoder writes the same bytes (a property test compares them) in
about a fifth of the time, because most of a record is the same for all items of a request. It refuses a changed schema.
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
    """One valid item. `item` is a JSON object in UTF-8, or an `Item` in Protocol Buffers; at least one of the two ids is set."""

    kind: str
    message_id: str
    user_id: str | None
    anonymous_id: str | None
    item: bytes
    sent_at: str | None


class Receipt(msgspec.Struct, frozen=True, gc=False):
    """The fields with the same value in all items of one request."""

    workspace: str
    imported: bool
    correlation_id: str
    remote_address: str | None
    user_agent: str | None
    edge: str


class ReceivedEncoder:
    """Encodes `IngestReceived`; the bytes equal `Codec.encode` of the same record."""

    def __init__(self, codecs: Mapping[str, Codec]) -> None:
        """Prepare the encoder; `codecs` maps a kind to its topic's codec. Raises: TypeError if the schema file has changed."""
        fields = tuple((field["name"], field["type"]) for field in json.loads(schema_text("IngestReceived"))["fields"])
        if fields != _EXPECTED:
            raise TypeError("IngestReceived.avsc has changed: change ReceivedEncoder with it")
        self._headers = {kind: codec.header for kind, codec in codecs.items()}
        self._kinds = {kind: text_bytes(kind) for kind in codecs}

    def encode(self, received_at: int, item: ReceivedItem, workspace: bytes, tail: bytes) -> bytes:
        """Encode an item in JSON. `received_at` in µs; `workspace` and `tail` come from `encode_receipt`.

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
        """Encode an item in Protocol Buffers, with the arguments of `encode`."""
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
                # The tail ends with the absent `item_protobuf`, so that JSON items, nearly all, need no extra step.
                tail[: -len(_NO_BYTES)],
                b"\x02",
                long_bytes(len(body)),
                body,
            )
        )


def encode_receipt(receipt: Receipt) -> tuple[bytes, bytes]:
    """Return the encoded workspace and tail shared by all records of one request; the tail is that of a JSON item."""
    start = b"\x01" if receipt.imported else b"\x00"
    return text_bytes(receipt.workspace), start + text_bytes(receipt.correlation_id) + _sender(
        receipt.remote_address, receipt.user_agent, receipt.edge
    )


@lru_cache(maxsize=4096)
def _sender(remote_address: str | None, user_agent: str | None, edge: str) -> bytes:
    # The cache hits because few clients send most requests.
    return optional_text_bytes(remote_address) + optional_text_bytes(user_agent) + text_bytes(edge) + _NO_BYTES
