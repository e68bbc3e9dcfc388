"""Pure core: the record on the dead-letter topic for a refused record."""

from collections.abc import Mapping
from typing import Any

from starling_common.headers import Headers
from starling_common.outcome import Refused
from starling_common.records import dead_letters
from starling_common.wire import Record
from starling_stream.model.ports import Refusal


def dead_letter(stage: str, refusal: Refusal, refused_at_ms: int) -> Record:
    """Return the `DeadLetter` record of a refusal."""
    return dead_letters.dead_letter(stage, _source(refusal), Refused(refusal.code, refusal.message), refused_at_ms)


def dead_letter_headers(stage: str, refusal: Refusal) -> Headers:
    """Return the headers of the dead letter of a refusal."""
    return dead_letters.dead_letter_headers(stage, _source(refusal))


def _source(refusal: Refusal) -> dead_letters.SourceRecord:
    record = refusal.record
    fields = {"correlation_id": _correlation_id(record.value)}
    place = (record.topic, record.partition, record.offset)
    return dead_letters.SourceRecord(*place, record.key, record.raw, record.headers, record.received_at, fields)


def _correlation_id(value: Any) -> Any:
    return value.get("correlation_id") if isinstance(value, Mapping) else getattr(value, "correlation_id", None)
