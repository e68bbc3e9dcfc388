"""Adapter: values of Kafka topics to records and back, inside the Python workers of Spark.

Each value is read by the writer schema whose id it carries. This is done record by record in Python rather than by
Spark's `from_avro`, for one reason: `from_avro` fails a whole task on a broken record or turns it into a row of nulls,
and can do neither per id. Here a broken record is one `DecodeError`, and the rest of the batch goes on.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from functools import cache

from starling_common.wire import Codec, Registry


@dataclass(frozen=True, slots=True)
class Carried:
    """What a topic carries: our schema of that record is registered under `schema_id`."""

    topic: str
    record: str
    schema_id: int


@dataclass(frozen=True, slots=True)
class Wire:
    """All that a worker needs to read and write; it asks the registry only for the schemas of other writers."""

    registry_url: str
    carried: tuple[Carried, ...]

    def codec(self, topic: str) -> Codec:
        """The codec of a topic's values, one a process. Raises: KeyError for a topic that is not ours."""
        return _codec(self.registry_url, {carried.topic: carried for carried in self.carried}[topic])


def agree(registry: Registry, url: str, topics: Iterable[tuple[str, str]]) -> Wire:
    """Ask for the ids of (topic, record), once, in the driver. Raises: SchemaMissing, RegistryUnavailable."""
    return Wire(url, tuple(Carried(topic, record, registry.codec(topic, record).schema_id) for topic, record in topics))


@cache
def _codec(registry_url: str, carried: Carried) -> Codec:
    return Codec(carried.record, carried.schema_id, _registry(registry_url).schema)


@cache
def _registry(url: str) -> Registry:
    return Registry(url)
