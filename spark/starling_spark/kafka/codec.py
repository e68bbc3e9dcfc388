"""Adapter: values of Kafka topics to records and back, inside the Python workers of Spark.

Each value is decoded with the writer schema of its id, record by record in Python. Spark's `from_avro` has one schema for all
records, and an invalid record fails the task, becomes a row of nulls, or is decoded to something (decision 18). Here an invalid
record is one `DecodeError`, and the other records of the batch are decoded.
"""

import gc
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import cache
from typing import Any, Final, NamedTuple

from starling_common.wire import Codec, DecodeError, Registry, UnknownSchema, schema_text, writer_id

NO_ID: Final = -1
"""The schema id of a value without a wire header."""


@dataclass(frozen=True, slots=True)
class TopicSchema:
    """The reader schema of a topic, registered under `schema_id`.

    `schema` is its JSON; None: the schema file of `record` in this repository.
    """

    topic: str
    record: str
    schema_id: int
    schema: str | None = None

    @property
    def reader_schema(self) -> str:
        """Return the JSON of the schema to which records are resolved."""
        return schema_text(self.record) if self.schema is None else self.schema


@dataclass(frozen=True, slots=True)
class Wire:
    """The schemas for reading and writing in a worker. A worker requests only the schemas of other writers from the registry."""

    registry_url: str
    schemas: tuple[TopicSchema, ...]

    def codec(self, topic: str) -> Codec:
        """Return the codec of a topic's values, cached in the process. Raises: KeyError for a topic without a schema."""
        return _codec(self.registry_url, self.of(topic))

    def of(self, topic: str) -> TopicSchema:
        """Return the schema of a topic. Raises: KeyError for a topic without a schema."""
        return {one.topic: one for one in self.schemas}[topic]


def topic_schemas(registry: Registry, url: str, topics: Iterable[tuple[str, str]]) -> Wire:
    """Return the schemas of each (topic, record), read once, in the driver. Records are resolved to this repository's schema files.

    Raises: SchemaMissing, RegistryUnavailable.
    """
    return Wire(url, tuple(TopicSchema(topic, record, registry.codec(topic, record).schema_id) for topic, record in topics))


def newest_schemas(registry: Registry, url: str, topics: Iterable[tuple[str, str]]) -> Wire:
    """Return the schemas of each (topic, record); the reader schema is the newest one of the topic.

    A writer registers a schema before it writes. A schema that is requested after a record was written has all of its fields.
    Raises: SchemaMissing, RegistryUnavailable.
    """
    return Wire(url, tuple(TopicSchema(topic, record, *registry.newest(topic)) for topic, record in topics))


class Refusal(NamedTuple):
    """The reason why a value cannot be decoded. `schema_id` is the id in its wire header, or `NO_ID`."""

    code: str
    message: str
    schema_id: int


class BatchReader:
    """Decodes the values of one batch.

    A schema id that is not registered is requested once for each batch, because it may be registered before the next one.
    """

    def __init__(self, wire: Wire) -> None:
        self._wire = wire
        self._codecs: dict[str, Codec] = {}
        self._unknown: dict[int, UnknownSchema] = {}

    def read(self, topic: str, value: bytes | None) -> Mapping[str, Any] | Refusal:
        """Return the record, or why it cannot be decoded. Raises: RegistryUnavailable, KeyError for a topic without a schema."""
        data = value or b""
        try:
            if self._unknown and (known := self._unknown.get(writer_id(data))):
                raise known
            return self._codec(topic).decode(data)
        except UnknownSchema as error:
            self._unknown[writer_id(data)] = error
            return Refusal(error.code, str(error), writer_id(data))
        except DecodeError as error:
            return Refusal(error.code, str(error), named_id(data))

    def _codec(self, topic: str) -> Codec:
        found = self._codecs.get(topic)
        if found is None:
            found = self._codecs[topic] = self._wire.codec(topic)
        return found


def named_id(data: bytes) -> int:
    """Return the schema id in the wire header of a value, or `NO_ID`."""
    try:
        return writer_id(data)
    except DecodeError:
        return NO_ID


@cache
def _codec(registry_url: str, own: TopicSchema) -> Codec:
    return Codec(own.record, own.schema_id, _registry(registry_url).schema, own.schema)


@cache
def _registry(url: str) -> Registry:
    return Registry(url)


def collect_rarely() -> None:
    """Run Python's cycle collector after every millionth allocation only, in this worker.

    The jobs create no cycles, but hundreds of thousands of decoded records or lists of matches are alive at a time. With the
    default threshold their traversal takes half of the time of a fold and a third of the time of decoding.
    """
    gc.set_threshold(1_000_000, 20, 100)
