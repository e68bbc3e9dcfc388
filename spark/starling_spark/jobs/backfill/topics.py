"""Adapter: the segments and the runs of the backfill, as their topics contain them."""

from collections.abc import Mapping

from starling_common.topic_views import TopicFold
from starling_common.topics import BACKFILLS, SEGMENT_DEFINITIONS
from starling_common.wire import Codec
from starling_rules.definitions import Definitions, newest_valid
from starling_rules.ledger import Run, applied


class BackfillTopics:
    """Reads `segments.definitions` and `segments.backfills`, each in a thread of its own."""

    def __init__(self, brokers: str, definitions: Codec, backfills: Codec) -> None:
        empty, no_runs = Definitions(), dict[str, Run]()
        self._definitions = TopicFold(brokers, SEGMENT_DEFINITIONS, definitions, empty, newest_valid, skips_undecodable=True)
        self._runs = TopicFold[Mapping[str, Run]](brokers, BACKFILLS, backfills, no_runs, applied)

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
        self._definitions.refresh()
        self._runs.refresh()

    def definitions(self) -> Definitions:
        """Return the segments, as the segmenter reads them."""
        return self._definitions.value()

    def runs(self) -> Mapping[str, Run]:
        """Return each run by name."""
        return self._runs.value()
