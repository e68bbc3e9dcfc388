"""What the tests of the lake share: micro-batches of a fake topic log into real tables, with a fake registry."""

import json
from dataclasses import dataclass, field
from typing import Any

from pyspark.sql import DataFrame, Row, SparkSession

from starling_common.kafka.topics import BEHAVIOUR
from starling_common.wire import Codec, RegistryUnavailable, schema_text
from starling_spark.jobs.lake.batches import LakeWriter, Source
from starling_spark.jobs.lake.by_rows import by_rows
from starling_spark.kafka.sources import RECORDS
from starling_spark.lakehouse.iceberg import Lake
from starling_spark.lakehouse.schema.tables import TABLES

USED = tuple(table for table in TABLES if table.name in {"ingest_items", "behaviour_events"})
"""Each table takes a second to make."""
TRACK, PAGE = "ingest.track", "ingest.page"
RECEIVED_AT = 1_700_000_000_000_000
ITEM = {"type": "track", "event": "Order Completed", "timestamp": "2023-11-14T22:00:00.5Z", "properties": {"a": {"b": 1}}}


class Registered:
    """The newest schema of each topic, as a test sets it."""

    def __init__(self) -> None:
        self.is_away = False
        records = {topic: table.record for table in TABLES for topic in table.topics}
        ids = {name: number + 1 for number, name in enumerate(dict.fromkeys(records.values()))}
        self.schemas = {topic: (ids[name], schema_text(name)) for topic, name in records.items()}

    def newest(self, topic: str) -> tuple[int, str]:
        if self.is_away:
            raise RegistryUnavailable("away")
        return self.schemas[topic]

    def schema(self, schema_id: int) -> str:
        return next(text for number, text in self.schemas.values() if number == schema_id)

    def value(self, topic: str, record: dict[str, Any]) -> bytes:
        schema_id, text = self.schemas[topic]
        return Codec("", schema_id, self.schema, text).encode(record)


@dataclass
class Rig:
    """A lake of a test's own, and a topic log that batches are cut from."""

    spark: SparkSession
    registered: Registered
    lake: Lake
    writer: LakeWriter
    sent: dict[tuple[str, int], int] = field(default_factory=dict)
    as_rows: bool = False
    """As on an object store: rows go through Spark's own writer."""

    def record(self, topic: str, value: bytes, partition: int = 0) -> tuple[Any, ...]:
        offset = self.sent.get((topic, partition), 0)
        self.sent[topic, partition] = offset + 1
        return topic, partition, offset, 1_700_000_000_123, b"w/ann", value, [("correlation_id", b"c")]

    def item(self, topic: str, item: object, partition: int = 0, **more: Any) -> tuple[Any, ...]:
        return self.record(topic, self.registered.value(topic, received(topic, item) | more), partition)

    def event(self, name: str, **more: Any) -> tuple[Any, ...]:
        return self.record(BEHAVIOUR, self.registered.value(BEHAVIOUR, behaviour(name) | more))

    def write(self, *records: tuple[Any, ...], writer: LakeWriter | None = None) -> dict[str, int]:
        batch, writer = self.spark.createDataFrame(records, RECORDS), writer or self.writer
        written: dict[str, int] = by_rows(self.lake, USED, batch, writer.open()) if self.as_rows else writer.write(batch)
        return written

    def rows(self, table: str, *columns: str) -> list[Row]:
        found = self.spark.table(self.lake.name(table)).orderBy("origin_topic", "origin_partition", "origin_offset")
        return found.selectExpr(*columns or "*").collect()

    def about(self, table: str, what: str) -> DataFrame:
        """One of Iceberg's tables about a table."""
        return self.spark.table(f"{self.lake.name(table)}.{what}")

    def restarted(self) -> LakeWriter:
        return writer_of(self.lake, self.registered)


def writer_of(lake: Lake, registered: Registered) -> LakeWriter:
    return LakeWriter(lake, USED, Source(registered, "http://127.0.0.1:1"))  # type: ignore[arg-type]


def received(topic: str, item: object) -> dict[str, Any]:
    text = item if isinstance(item, str) else json.dumps(item)
    return {
        "received_at": RECEIVED_AT, "workspace": "w", "kind": topic.removeprefix("ingest."), "message_id": "m", "user_id": "ann",
        "item": text, "imported": False, "correlation_id": "c", "edge": "e",
    }  # fmt: skip


def behaviour(name: str) -> dict[str, Any]:
    return {
        "received_at": RECEIVED_AT, "workspace": "w", "user_id": "ann", "event_id": "e", "message_id": "m", "kind": "track",
        "name": name, "event_time": RECEIVED_AT // 1000, "properties": "{}", "context": "{}", "traits": "{}", "correlation_id": "c",
        "products": [{"product_id": "p"}],
    }  # fmt: skip
