"""Adapter: the segments and the runs of the backfill as their topics tell them."""

from collections.abc import Mapping
from threading import Lock
from typing import Final

from confluent_kafka import Message

from starling_common.kafka import BrokerUnavailable, TopicView
from starling_common.logs import log
from starling_common.outcome import Done
from starling_common.topics import BACKFILLS, SEGMENT_DEFINITIONS
from starling_common.wire import Codec, DecodeError
from starling_rules.definitions import Definitions, fold
from starling_rules.ledger import Run, applied

_TIMEOUT_SECONDS: Final = 30.0


class Known:
    """Follows `segments.definitions` and `segments.backfills`, each in a thread of its own."""

    def __init__(self, brokers: str, definitions: Codec, backfills: Codec) -> None:
        self._definition_codec = definitions
        self._backfill_codec = backfills
        self._lock = Lock()
        self._definitions = Definitions()
        self._runs: Mapping[str, Run] = {}
        self._views = (
            TopicView(brokers, SEGMENT_DEFINITIONS, self._define),
            TopicView(brokers, BACKFILLS, self._report),
        )

    def start(self) -> None:
        """Read what is there. Raises: BrokerUnavailable."""
        for view in self._views:
            view.start()

    def stop(self) -> None:
        """Stop following."""
        for view in self._views:
            view.stop()

    def refresh(self) -> None:
        """Read what was written before this call. Raises: BrokerUnavailable."""
        for view in self._views:
            if not view.wait_until_current(_TIMEOUT_SECONDS):
                raise BrokerUnavailable(f"{view.topic} could not be read to its end: {view.problem() or 'timed out'}")

    def definitions(self) -> Definitions:
        """The segments, as the segmenter reads them."""
        with self._lock:
            return self._definitions

    def problem(self) -> str | None:
        """What keeps news from coming in; None when all is well."""
        return next((problem for view in self._views if (problem := view.problem()) is not None), None)

    def runs(self) -> Mapping[str, Run]:
        """Every run, by name."""
        with self._lock:
            return self._runs

    def _define(self, message: Message) -> None:
        try:
            record = self._definition_codec.decode(message.value() or b"")
        except DecodeError as error:
            log(__name__).warning("definition_refused", offset=message.offset(), code=error.code)
            return
        outcome = fold(self._definitions, record)
        if isinstance(outcome, Done):
            with self._lock:
                self._definitions = outcome.value

    def _report(self, message: Message) -> None:
        record = self._backfill_codec.decode(message.value() or b"")
        with self._lock:
            self._runs = applied(self._runs, record)
