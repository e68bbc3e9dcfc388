"""Adapter: values of Kafka topics to records, inside the Python workers of Spark.

Each value is read by the writer schema whose id it carries. This is done record by record in Python rather than by
Spark's `from_avro`, for one reason: `from_avro` fails a whole task on a broken record or turns it into a row of nulls,
and can do neither per id. Here a broken record is one `DecodeError`, and the rest of the batch goes on.
"""

from collections.abc import Mapping
from functools import cache
from typing import Any

from starling_common.wire import Codec, Registry

_REGISTRIES: dict[str, Registry] = {}


@cache
def topic_codec(registry_url: str, topic: str, record: str) -> Codec:
    """The codec of a topic's values; asked of the registry once in each process.

    Raises: SchemaMissing, RegistryUnavailable.
    """
    registry = _REGISTRIES.setdefault(registry_url, Registry(registry_url))
    return registry.codec(topic, record)


def decoder(registry_url: str, records: Mapping[str, str]) -> "TopicDecoder":
    """A decoder for topics, by the name of the record that each carries."""
    return TopicDecoder({topic: topic_codec(registry_url, topic, record) for topic, record in records.items()})


class TopicDecoder:
    """Decodes values by the topic they came from."""

    def __init__(self, codecs: Mapping[str, Codec]) -> None:
        self._codecs = codecs

    def __call__(self, topic: str, value: bytes) -> Mapping[str, Any]:
        """Raises: DecodeError for this value alone; RegistryUnavailable when the writer's schema cannot be asked for."""
        return self._codecs[topic].decode(value)
