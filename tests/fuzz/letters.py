"""Adapter: the dead letters and outcomes that an attack left in the topics."""

from collections import Counter, defaultdict
from typing import Any

from starling_common.kafka.topic_range import read_topic
from starling_common.kafka.topics import OUTCOMES, load_catalogue
from starling_common.wire import Registry

Letter = dict[str, Any]
Place = tuple[str, int, int]
"""Topic, partition and offset of a record."""


class Letters:
    """Reads whole topics. The doors call it after the pipeline is settled."""

    def __init__(self, brokers: str, registry_url: str) -> None:
        self._brokers = brokers
        self._registry = Registry(registry_url)
        self._read: dict[str, list[Letter]] = {}

    def of(self, stage: str, mark: str = "") -> list[Letter]:
        """Return the dead letters of a stage whose correlation id begins with `mark`."""
        return [letter for letter in self._of(stage) if (letter["correlation_id"] or "").startswith(mark)]

    def by_origin(self, stage: str) -> dict[Place, list[Letter]]:
        """Return the dead letters of a stage by the place of the refused record."""
        found: dict[Place, list[Letter]] = defaultdict(list)
        for letter in self._of(stage):
            found[letter["origin_topic"], letter["origin_partition"], letter["origin_offset"]].append(letter)
        return found

    def outcomes(self, mark: str) -> dict[str, Counter[str]]:
        """Return correlation id -> number of outcomes by their kind."""
        codec = self._registry.codec(OUTCOMES, "IngestOutcome")
        found: dict[str, Counter[str]] = defaultdict(Counter)
        for message in read_topic(self._brokers, OUTCOMES):
            record = codec.decode(message.value() or b"")
            if record["correlation_id"].startswith(mark):
                found[record["correlation_id"]][record["outcome"]] += 1
        return found

    def forget(self) -> None:
        """Read the topics again at the next call."""
        self._read.clear()

    def _of(self, stage: str) -> list[Letter]:
        topic = f"{stage}.dlq"
        if topic not in self._read:
            codec = self._registry.codec(topic, load_catalogue().topics[topic].schema)
            self._read[topic] = [codec.decode(message.value() or b"") for message in read_topic(self._brokers, topic)]
        return self._read[topic]
