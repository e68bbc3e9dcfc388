"""Adapter: the definitions of computed traits, read from their topic."""

from starling_common.kafka.folded_topic import FoldedTopic
from starling_common.records.definitions import definitions_fold
from starling_common.telemetry.logs import log
from starling_common.wire import Codec
from starling_spark.jobs.profiles.definitions.in_force import Definition, Definitions, computable, fold_definition


class TraitCatalogue(FoldedTopic[Definitions]):
    """Follows `computed-traits.definitions` (one partition) in its own thread. The other methods have one caller."""

    def __init__(self, brokers: str, topic: str, codec: Codec) -> None:
        """Open no connection; `start` does."""
        super().__init__((brokers, topic), codec, Definitions(), definitions_fold(fold_definition))
        self._read: Definitions | None = None
        self._computable: tuple[Definition, ...] = ()
        self._problems: frozenset[str] = frozenset()

    def current(self, timeout_seconds: float = 10.0) -> tuple[tuple[Definition, ...], int]:
        """Return every computable definition written before this call, and the offset up to which they were read.

        Raises: BrokerUnavailable when the topic could not be read to its end in time.
        """
        self.refresh(timeout_seconds)
        return self.latest()

    def latest(self) -> tuple[tuple[Definition, ...], int]:
        """Return the computable definitions read so far and their offset, without a request to the broker."""
        position = self.positions().get(0, 0)  # read first, so that the definitions are at least as new
        value = self.value()
        if value is not self._read:
            self._computable, problems = computable(value.in_force())
            for problem in sorted({*problems} - self._problems):
                log(__name__).error("definition_not_computed", problem=problem)
            self._read, self._problems = value, frozenset(problems)
        return self._computable, position
