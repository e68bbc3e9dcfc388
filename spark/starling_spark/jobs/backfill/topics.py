"""Adapter: the segments and the runs of the backfill, as their topics contain them."""

from collections.abc import Mapping
from typing import Final

from starling_common.kafka.folded_topic import FoldedTopic
from starling_common.kafka.topics import BACKFILLS, SEGMENT_DEFINITIONS
from starling_common.wire import Codec
from starling_rules import definitions as segments
from starling_rules import ledger
from starling_rules.definitions import Definitions
from starling_rules.ledger import Run

_TIMEOUT_SECONDS: Final = 30.0


class BackfillTopics:
    """Reads `segments.definitions` and `segments.backfills`, each in a thread of its own."""

    def __init__(self, brokers: str, definitions: Codec, backfills: Codec) -> None:
        self._definitions = FoldedTopic((brokers, SEGMENT_DEFINITIONS), definitions, Definitions(), segments.fold_topic)
        self._runs = FoldedTopic[Mapping[str, Run]]((brokers, BACKFILLS), backfills, {}, ledger.fold_topic)

    def start(self) -> None:
        """Read the present records. Raises: BrokerUnavailable."""
        self._definitions.start()
        self._runs.start()

    def stop(self) -> None:
        """Stop reading."""
        self._definitions.stop()
        self._runs.stop()

    def refresh(self) -> None:
        """Read the records that were written before this call. Raises: BrokerUnavailable."""
        self._definitions.refresh(_TIMEOUT_SECONDS)
        self._runs.refresh(_TIMEOUT_SECONDS)

    def definitions(self) -> Definitions:
        """Return the segments, as the segmenter reads them."""
        return self._definitions.value()

    def runs(self) -> Mapping[str, Run]:
        """Return each run by name."""
        return self._runs.value()
