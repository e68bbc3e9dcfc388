"""Adapter: values of Kafka topics to records and back, inside the Python workers of Spark.

Each value is read by the writer schema whose id it carries. This is done record by record in Python rather than by
Spark's `from_avro`, for one reason: `from_avro` fails a whole task on a broken record or turns it into a row of nulls,
and can do neither per id. Here a broken record is one `DecodeError`, and the rest of the batch goes on.
"""

import gc
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import cache
from typing import Any, Final, NamedTuple

from starling_common.wire import Codec, DecodeError, Registry, UnknownSchema, schema_text, writer_id

NO_ID: Final = -1
"""Stands for the schema id of a value that has no wire header."""


@dataclass(frozen=True, slots=True)
class Carried:
    """What a topic carries: the schema that we read it by is registered under `schema_id`.

    `schema` is that schema's JSON; None: our own file of that record.
    """

    topic: str
    record: str
    schema_id: int
    schema: str | None = None

    @property
    def reader_schema(self) -> str:
        """The JSON of the schema that records are resolved to."""
        return schema_text(self.record) if self.schema is None else self.schema


@dataclass(frozen=True, slots=True)
class Wire:
    """All that a worker needs to read and write; it asks the registry only for the schemas of other writers."""

    registry_url: str
    carried: tuple[Carried, ...]

    def codec(self, topic: str) -> Codec:
        """The codec of a topic's values, one a process. Raises: KeyError for a topic that is not ours."""
        return _codec(self.registry_url, self.of(topic))

    def of(self, topic: str) -> Carried:
        """What a topic carries. Raises: KeyError for a topic that is not ours."""
        return {carried.topic: carried for carried in self.carried}[topic]


def agree(registry: Registry, url: str, topics: Iterable[tuple[str, str]]) -> Wire:
    """Ask for the ids of (topic, record), once, in the driver: all are read by our own files.

    Raises: SchemaMissing, RegistryUnavailable.
    """
    return Wire(url, tuple(Carried(topic, record, registry.codec(topic, record).schema_id) for topic, record in topics))


def agree_on_newest(registry: Registry, url: str, topics: Iterable[tuple[str, str]]) -> Wire:
    """Like `agree`, but read by the newest schema of each topic, so that no field of a newer writer is lost.

    A writer registers before it writes: asked for after a record was there, the newest schema has all of its fields.
    Raises: SchemaMissing, RegistryUnavailable.
    """
    return Wire(url, tuple(Carried(topic, record, *registry.newest(topic)) for topic, record in topics))


class Refusal(NamedTuple):
    """Why a value is no record; `schema_id` is the one that it names, `NO_ID` if none."""

    code: str
    message: str
    schema_id: int


class BatchReader:
    """Reads the values of one batch. An id that the registry does not know is asked for once a batch, not once a record:
    it may be registered by the next one.
    """

    def __init__(self, wire: Wire) -> None:
        self._wire = wire
        self._codecs: dict[str, Codec] = {}
        self._unknown: dict[int, UnknownSchema] = {}

    def read(self, topic: str, value: bytes | None) -> Mapping[str, Any] | Refusal:
        """One record, or why it is none. Raises: RegistryUnavailable, KeyError for a topic that is not ours."""
        data = value or b""
        try:
            if self._unknown and (known := self._unknown.get(writer_id(data))):
                raise known
            return self._codec(topic).decode(data)
        except UnknownSchema as error:
            self._unknown[writer_id(data)] = error
            return Refusal(error.code, str(error), writer_id(data))
        except DecodeError as error:
            return Refusal(error.code, str(error), _named_id(data))

    def _codec(self, topic: str) -> Codec:
        found = self._codecs.get(topic)
        if found is None:
            found = self._codecs[topic] = self._wire.codec(topic)
        return found


def _named_id(data: bytes) -> int:
    try:
        return writer_id(data)
    except DecodeError:
        return NO_ID


@cache
def _codec(registry_url: str, carried: Carried) -> Codec:
    return Codec(carried.record, carried.schema_id, _registry(registry_url).schema, carried.schema)


@cache
def _registry(url: str) -> Registry:
    return Registry(url)


def collect_rarely() -> None:
    """Let Python's collector of cycles look at every millionth object only, in this worker.

    Nothing here makes cycles, but hundreds of thousands of decoded records or of lists of people's matches live for a
    while: looking through them again and again was half of the time of a fold, and a third of what it takes to decode.
    """
    gc.set_threshold(1_000_000, 20, 100)
