"""Adapter: the definitions of computed traits, read from their topic."""

from starling_common.kafka.folded_topic import FoldedTopic
from starling_common.records.definitions import definitions_fold
from starling_common.wire import Codec
from starling_spark.jobs.profiles.definitions.in_force import Definition, Definitions, fold_definition


class TraitCatalogue(FoldedTopic[Definitions]):
    """Follows `computed-traits.definitions` (one partition) in its own thread."""

    def __init__(self, brokers: str, topic: str, codec: Codec) -> None:
        """Open no connection; `start` does."""
        super().__init__((brokers, topic), codec, Definitions(), definitions_fold(fold_definition))

    def current(self, timeout_seconds: float = 10.0) -> tuple[tuple[Definition, ...], int]:
        """Return every definition written before this call, and the offset up to which they were read.

        Raises: BrokerUnavailable when the topic could not be read to its end in time.
        """
        self.refresh(timeout_seconds)
        return self.latest()

    def latest(self) -> tuple[tuple[Definition, ...], int]:
        """Return the definitions read so far and their offset, without a request to the broker."""
        position = self.positions().get(0, 0)  # read first, so that the definitions are at least as new
        return self.value().in_force(), position
