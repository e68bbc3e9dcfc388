"""Pure core: the dead letter of a refused record. Every stage builds its dead letters here."""

from collections.abc import Iterable, Mapping
from typing import Any, Final, NamedTuple

from starling_common.headers import Headers, header, headers_of, record_headers
from starling_common.outcome import Refused
from starling_common.time.instants import LATEST_MS
from starling_common.values import deterministic_id, split_key
from starling_common.wire import Record

TIMER_ORIGIN: Final = "(timer)"
"""The origin of a dead letter for a key whose timer cannot be fired. No topic can have the name."""
SWITCH_ORIGIN: Final = "(definition)"
"""The origin of a dead letter for a key that cannot be switched to new definitions."""

FOLD_ORIGIN: Final = "(fold)"
"""The origin of a dead letter for an event of a user that makes the fold of computed traits raise."""


class SourceRecord(NamedTuple):
    """A refused record as read.

    `topic`, `partition` and `offset` locate it; at the ingest API they are the HTTP path, -1 and -1. `received_at` is its
    arrival in microseconds. `fields` are those of the decoded record; None if it cannot be decoded.
    """

    topic: str
    partition: int
    offset: int
    key: bytes | None
    value: bytes
    headers: Iterable[tuple[str, str | bytes | None]]
    received_at: int
    fields: Mapping[str, Any] | None = None

    @property
    def workspace(self) -> str | None:
        """Return the workspace of the key, else that of the decoded record; None if neither has one."""
        try:
            workspace: str | None = split_key(self.key or b"")[0]
        except ValueError:
            workspace = None
        return workspace or self._text("workspace")

    @property
    def correlation_id(self) -> str | None:
        """Return the correlation id of the headers, else that of the decoded record; None if neither has one."""
        return header(self.headers, "correlation_id") or self._text("correlation_id")

    def _text(self, name: str) -> str | None:
        value = (self.fields or {}).get(name)
        return value if isinstance(value, str) and value else None


def clock_ahead(ahead_ms: int) -> Refused:
    """Return the refusal of a record whose `received_at` lies that far after the broker appended it."""
    message = (
        f"received_at: is {ahead_ms // 1000} s after the append at the broker: correct the clock of its writer, write it again"
    )
    return Refused("clock_ahead", message)


def bad_received_at(received_at: int) -> Refused:
    """Return the refusal of a record whose `received_at` is no valid time. It orders the records of a partition."""
    return Refused("bad_received_at", f"received_at: {received_at} is no valid time: write microseconds since 1970")


def source_record(message: Any, fields: Mapping[str, Any] | None = None) -> SourceRecord:
    """Return the source record of a Kafka message; `fields`: those of the decoded record."""
    return SourceRecord(
        message.topic(),
        message.partition(),
        message.offset(),
        message.key(),
        message.value() or b"",
        headers_of(message),
        arrival(message.timestamp()[1], fields),
        fields,
    )


def arrival(timestamp_ms: int, fields: Mapping[str, Any] | None = None) -> int:
    """Return when the ingest service received what caused a record, in microseconds.

    It is the record's own `received_at`. For an unreadable record, or one with an invalid `received_at`, it is the broker's
    timestamp, which is the same instant in milliseconds.
    """
    own = (fields or {}).get("received_at")
    return own if isinstance(own, int) and 0 <= own // 1000 <= LATEST_MS else max(timestamp_ms, 0) * 1000


def dead_letter(stage: str, source: SourceRecord, refused: Refused, refused_at_ms: int) -> Record:
    """Return the `DeadLetter` record of a source record that `stage` refuses."""
    return {
        "received_at": source.received_at,
        "stage": stage,
        "code": refused.code,
        "message": refused.message,
        "origin_topic": source.topic,
        "origin_partition": source.partition,
        "origin_offset": source.offset,
        "key": source.key or None,
        "value": source.value,
        "headers": {name: value for name, value in source.headers if isinstance(value, bytes)},
        "workspace": source.workspace,
        "correlation_id": source.correlation_id,
        "refused_at": refused_at_ms,
    }


def letter_correlation_id(source: SourceRecord) -> str:
    """Return the correlation id for the headers of a dead letter; if the source record has none, one made of its place."""
    return source.correlation_id or deterministic_id("dead letter", source.topic, source.partition, source.offset)


def dead_letter_headers(stage: str, source: SourceRecord) -> Headers:
    """Return the headers of a dead letter, in the trace of the source record."""
    return record_headers(letter_correlation_id(source), stage, header(source.headers, "traceparent"))
