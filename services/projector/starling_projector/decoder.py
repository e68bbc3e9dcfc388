"""Adapter: decodes the values of the projector's topics with the schemas of the registry."""

from collections.abc import Sequence

from starling_common.kafka.topics import load_catalogue
from starling_common.wire import Codec, DecodeError, Record, Registry


class Decoder:
    """One codec for each topic. Not thread-safe."""

    def __init__(self, registry: Registry, topics: Sequence[str]) -> None:
        """`start` connects to the registry."""
        self._registry = registry
        self._topics = topics
        self._codecs: dict[str, Codec] = {}

    def start(self) -> None:
        """Read the schemas. May be repeated. Raises: SchemaMissing, RegistryUnavailable."""
        catalogue = load_catalogue()
        for topic in self._topics:
            self._codecs[topic] = self._registry.codec(topic, catalogue.topics[topic].schema)

    def decode(self, topic: str, value: bytes) -> Record:
        """Return the decoded record. Raises: DecodeError; RegistryUnavailable if an unknown writer schema cannot be read."""
        if not value:
            raise DecodeError("bad_framing", "the value is empty")
        return self._codecs[topic].decode(value)
