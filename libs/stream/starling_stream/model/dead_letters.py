"""Pure core: what a refused record becomes on the dead-letter topic."""

from collections.abc import Mapping
from typing import Any

from starling_common.headers import Headers, header
from starling_common.values import split_key
from starling_stream.model.ports import Refusal


def dead_letter(stage: str, refusal: Refusal, refused_at_ms: int) -> Mapping[str, Any]:
    """The `DeadLetter` record: the source whole, the reason, and where it came from."""
    record = refusal.record
    return {
        "received_at": record.received_at,
        "stage": stage,
        "code": refusal.code,
        "message": refusal.message,
        "origin_topic": record.topic,
        "origin_partition": record.partition,
        "origin_offset": record.offset,
        "key": record.key or None,
        "value": record.raw,
        "headers": {name: value for name, value in record.headers if value is not None},
        "workspace": _workspace(record.key),
        "correlation_id": header(record.headers, "correlation_id"),
        "refused_at": refused_at_ms,
    }


def dead_letter_headers(stage: str, refusal: Refusal) -> Headers:
    """Those of the source record, but produced by the stage that refused it."""
    kept: Headers = [(name, value) for name, value in refusal.record.headers if name != "produced_by"]
    return [*kept, ("produced_by", stage.encode())]


def _workspace(key: bytes) -> str | None:
    try:
        return split_key(key)[0]
    except ValueError:
        return None
