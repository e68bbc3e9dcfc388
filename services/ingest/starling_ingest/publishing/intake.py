"""Core: turn a parsed body into Kafka records and publish them. The order of stamping, encoding and publishing is fixed here."""

from collections.abc import Awaitable, Callable, Sequence
from typing import Final, Protocol

import msgspec

from starling_common.headers import CONTENT_TYPE, Headers, record_headers
from starling_common.kafka.topics import INGEST_KINDS
from starling_common.outcome import Refused
from starling_common.records.dead_letters import SourceRecord, dead_letter
from starling_common.values import record_key
from starling_common.wire import PROTOBUF, Codec, Receipt, ReceivedEncoder, encode_receipt
from starling_ingest.requests.accept import ParsedBody, Rejection

DEAD_LETTERS: Final = "ingest.dlq"
_TOPICS: Final = {kind: f"ingest.{kind}" for kind in INGEST_KINDS}


class QueueFull(Exception):
    """The workspace uses up its share of the queue. The same request can succeed a moment later."""


class Outgoing(msgspec.Struct, frozen=True, gc=False):
    """One record to publish. `timestamp_ms` is the wall clock at receipt."""

    topic: str
    key: bytes | None
    value: bytes
    timestamp_ms: int


class Publish(Protocol):
    """Publish records of one workspace; return an awaitable that completes when the broker has acknowledged them all.

    `received_at`: the first of the records. Until they are acknowledged, the low watermark does not pass it.
    Raises: QueueFull at once; BrokerUnavailable when awaited.
    """

    def __call__(  # noqa: D102
        self, workspace: str, records: Sequence[Outgoing], headers: Headers, received_at: int
    ) -> Awaitable[None]: ...


class Origin(msgspec.Struct, frozen=True):
    """The origin of a request: its receipt, its path, and its trace context."""

    receipt: Receipt
    path: str
    traceparent: str


class ArrivalClock:
    """Microseconds since 1970, strictly increasing within a process, even if the wall clock goes back."""

    def __init__(self, now_micros: Callable[[], int]) -> None:
        self._now = now_micros
        self._last = 0

    def take(self, count: int) -> int:
        """Reserve `count` consecutive instants and return the first."""
        first = max(self._now(), self._last + 1)
        self._last = first + count - 1
        return first

    def next(self) -> int:
        """Return an instant that no later one precedes: the wall clock, unless an instant after it was taken."""
        first = max(self._now(), self._last + 1)
        self._last = first - 1
        return first

    def advance(self, instant: int) -> None:
        """Take no instant before that one."""
        self._last = max(self._last, instant - 1)


class Intake:
    """Stamps, encodes and publishes the items of one request. Used from one event loop only."""

    def __init__(
        self, encoder: ReceivedEncoder, dead_letters: Codec, publish: Publish, clock: ArrivalClock, check: Callable[[], None]
    ) -> None:
        """`check` raises BrokerUnavailable while records must not be stamped."""
        self._encoder = encoder
        self._dead_letters = dead_letters
        self._publish = publish
        self._clock = clock
        self._check = check

    def take(self, parsed: ParsedBody, origin: Origin) -> Awaitable[None]:
        """Publish all items and dead letters; return an awaitable that completes when all are acknowledged.

        Raises: QueueFull or BrokerUnavailable with nothing written; BrokerUnavailable also when awaited.
        """
        self._check()
        headers = record_headers(origin.receipt.correlation_id, "ingest", origin.traceparent)
        # No await between stamping and publishing: the records of one user are written in the order of their stamps.
        first = self._clock.take(len(parsed.items) + len(parsed.rejections))
        records = self._items(parsed, origin.receipt, first)
        letter_headers = [*headers, (CONTENT_TYPE, PROTOBUF.encode())] if parsed.protobuf else headers
        for number, rejection in enumerate(parsed.rejections, first + len(parsed.items)):
            records.append(self._dead_letter(rejection, origin, letter_headers, number))
        return self._publish(origin.receipt.workspace, records, headers, first)

    def _items(self, parsed: ParsedBody, receipt: Receipt, first: int) -> list[Outgoing]:
        encode = self._encoder.encode_protobuf if parsed.protobuf else self._encoder.encode
        workspace, tail = encode_receipt(receipt)
        return [
            Outgoing(
                _TOPICS[item.kind],
                record_key(receipt.workspace, item.user_id or item.anonymous_id or ""),
                encode(received_at, item, workspace, tail),
                received_at // 1000,
            )
            for received_at, item in enumerate(parsed.items, first)
        ]

    def _dead_letter(self, rejection: Rejection, origin: Origin, headers: Headers, received_at: int) -> Outgoing:
        workspace = origin.receipt.workspace
        key = None if rejection.identifier is None else record_key(workspace, rejection.identifier)
        fields = {"workspace": workspace}  # a key is missing if the item has no id that fits one
        source = SourceRecord(origin.path, -1, -1, key, rejection.item, headers, received_at, fields)
        letter = dead_letter("ingest", source, Refused(rejection.code, rejection.message), received_at // 1000)
        return Outgoing(DEAD_LETTERS, key, self._dead_letters.encode(letter), received_at // 1000)
