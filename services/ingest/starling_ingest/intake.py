"""Core: a reading becomes records and is published; the only place that knows the order of effects."""

from collections.abc import Awaitable, Callable, Sequence
from typing import Final, Protocol

import msgspec

from starling_common.headers import CONTENT_TYPE, Headers, record_headers
from starling_common.topics import INGEST_KINDS
from starling_common.values import record_key
from starling_common.wire import PROTOBUF, Codec, Receipt, ReceivedEncoder, encode_receipt
from starling_ingest.accept import Fault, Reading

DEAD_LETTERS: Final = "ingest.dlq"
_TOPICS: Final = {kind: f"ingest.{kind}" for kind in INGEST_KINDS}


class QueueFull(Exception):
    """More records are under way than the high-water mark allows; the same request may pass a moment later."""


class Outgoing(msgspec.Struct, frozen=True, gc=False):
    """One record to write. `timestamp_ms` is the wall clock at receipt."""

    topic: str
    key: bytes | None
    value: bytes
    timestamp_ms: int


class Publish(Protocol):
    """Writes records; what it returns is done once the broker has them all. Raises: QueueFull; awaited, BrokerUnavailable."""

    def __call__(self, records: Sequence[Outgoing], headers: Headers) -> Awaitable[None]: ...  # noqa: D102


class Origin(msgspec.Struct, frozen=True):
    """Where a request came from: its receipt, the path it was sent to, and its trace context."""

    receipt: Receipt
    path: str
    traceparent: str


class ArrivalClock:
    """Microseconds, strictly increasing for as long as the process lives, whatever the wall clock does."""

    def __init__(self, now_micros: Callable[[], int]) -> None:
        self._now = now_micros
        self._last = 0

    def take(self, count: int) -> int:
        """The first of `count` consecutive instants that nobody else gets."""
        first = max(self._now(), self._last + 1)
        self._last = first + count - 1
        return first


class Intake:
    """Stamps, encodes and publishes what one request brought. Used from one event loop only."""

    def __init__(self, encoder: ReceivedEncoder, dead_letters: Codec, publish: Publish, clock: ArrivalClock) -> None:
        self._encoder = encoder
        self._dead_letters = dead_letters
        self._publish = publish
        self._clock = clock

    def take(self, reading: Reading, origin: Origin) -> Awaitable[None]:
        """What it returns is done once every item and every dead letter is acknowledged.

        Raises: QueueFull with nothing written; awaited, BrokerUnavailable.
        """
        headers = record_headers(origin.receipt.correlation_id, "ingest", origin.traceparent)
        # From the stamp to the hand-over there is no waiting: records of one user are written in the order of their stamps.
        first = self._clock.take(len(reading.items) + len(reading.faults))
        records = self._items(reading, origin.receipt, first)
        letter_headers = [*headers, (CONTENT_TYPE, PROTOBUF.encode())] if reading.protobuf else headers
        for number, fault in enumerate(reading.faults, first + len(reading.items)):
            records.append(self._dead_letter(fault, origin, letter_headers, number))
        return self._publish(records, headers)

    def _items(self, reading: Reading, receipt: Receipt, first: int) -> list[Outgoing]:
        encode = self._encoder.encode_protobuf if reading.protobuf else self._encoder.encode
        workspace, tail = encode_receipt(receipt)
        return [
            Outgoing(
                _TOPICS[item.kind],
                record_key(receipt.workspace, item.user_id or item.anonymous_id or ""),
                encode(received_at, item, workspace, tail),
                received_at // 1000,
            )
            for received_at, item in enumerate(reading.items, first)
        ]

    def _dead_letter(self, fault: Fault, origin: Origin, headers: Headers, received_at: int) -> Outgoing:
        workspace = origin.receipt.workspace
        key = None if fault.identifier is None else record_key(workspace, fault.identifier)
        letter = {
            "received_at": received_at,
            "stage": "ingest",
            "code": fault.code,
            "message": fault.message,
            "origin_topic": origin.path,
            "origin_partition": -1,
            "origin_offset": -1,
            "key": key,
            "value": fault.item,
            "headers": dict(headers),
            "workspace": workspace,
            "correlation_id": origin.receipt.correlation_id,
            "refused_at": received_at // 1000,
        }
        return Outgoing(DEAD_LETTERS, key, self._dead_letters.encode(letter), received_at // 1000)
