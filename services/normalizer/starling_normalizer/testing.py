"""For tests and benchmarks: ingest records without the ingest service, and codecs without a registry."""

import json
from collections.abc import Mapping
from typing import Any, Final

from starling_common.kafka.topics import load_catalogue
from starling_common.values import record_key
from starling_common.wire import Codec, UnknownSchema

RECEIVED_MS: Final = 1_767_225_600_000
"""2026-01-01T00:00:00Z"""


def local_codecs() -> dict[str, Codec]:
    """Return a codec for every topic. Each record type has its own schema id; other ids are unknown."""
    topics = load_catalogue().topics
    ids = {schema: number for number, schema in enumerate(sorted({topic.schema for topic in topics.values()}), start=1)}
    return {name: Codec(topic.schema, ids[topic.schema], _unknown) for name, topic in topics.items()}


def received(kind: str, item: Mapping[str, Any] | str, **fields: Any) -> dict[str, Any]:
    """Return an `IngestReceived` of user `ada` in workspace `default`. `item` is its JSON; `fields` override the defaults."""
    text = item if isinstance(item, str) else json.dumps(item)
    return {
        "received_at": RECEIVED_MS * 1000,
        "workspace": "default",
        "kind": kind,
        "message_id": "m-1",
        "user_id": "ada",
        "anonymous_id": None,
        "item": text,
        "sent_at": None,
        "imported": False,
        "correlation_id": "c-1",
        "remote_address": None,
        "user_agent": None,
        "edge": "ingest-0",
        "item_protobuf": None,
        **fields,
    }


def key_of(record: Mapping[str, Any]) -> bytes:
    """Return the key with which the ingest service publishes an `IngestReceived`."""
    return record_key(record["workspace"], record["user_id"] or record["anonymous_id"] or "")


def _unknown(schema_id: int) -> str:
    raise UnknownSchema(schema_id)
