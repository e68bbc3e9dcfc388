"""Adapter: values of the projector's topics -> records, by the schemas in the registry."""

from collections.abc import Sequence

from starling_common.topics import load_catalogue
from starling_common.wire import Codec, DecodeError, Record, Registry


class Decoder:
    """One codec a topic. One thread uses it."""

    def __init__(self, registry: Registry, topics: Sequence[str]) -> None:
        """Asks nothing; `start` does."""
        self._registry = registry
        self._topics = topics
        self._codecs: dict[str, Codec] = {}

    def start(self) -> None:
        """Look the schemas up; may be repeated. Raises: SchemaMissing, RegistryUnavailable."""
        catalogue = load_catalogue()
        for topic in self._topics:
            self._codecs[topic] = self._registry.codec(topic, catalogue.topics[topic].schema)

    def decode(self, topic: str, value: bytes) -> Record:
        """Raises: DecodeError; RegistryUnavailable when an unknown writer's schema cannot be asked for."""
        if not value:
            raise DecodeError("bad_framing", "the value is empty")
        return self._codecs[topic].decode(value)
