"""Adapter: the definitions and the runs as their topics tell them, and what this job tells."""

from collections.abc import Mapping
from threading import Lock
from typing import Final

from confluent_kafka import Message, Producer

from starling_common.headers import record_headers
from starling_common.instants import wall_clock_micros
from starling_common.kafka import BrokerUnavailable, TopicView, producer_config
from starling_common.logs import log
from starling_common.outcome import Done
from starling_common.topics import BACKFILLS, SEGMENT_DEFINITIONS
from starling_common.values import deterministic_id
from starling_common.wire import Codec, DecodeError
from starling_rules.backfills import BACKFILL, EVERYWHERE, Backfill, to_json
from starling_rules.definitions import Definitions, fold
from starling_rules.ledger import DONE, RUN, Run, Share, applied, report, report_key

_STAGE: Final = "backfill"
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


class Reporter:
    """What the job says, in transactions under one name: a job that was given up, and is not dead yet, says nothing more."""

    def __init__(self, brokers: str, definitions: Codec, backfills: Codec) -> None:
        self._definition_codec = definitions
        self._backfill_codec = backfills
        self._producer = Producer(producer_config(brokers, **{"transactional.id": "starling-backfill", "linger.ms": 0}))

    def start(self) -> None:
        """From here on any other job is fenced. Raises: KafkaException."""
        self._producer.init_transactions(_TIMEOUT_SECONDS)

    def tell(self, run: Run, *shares: Share) -> None:
        """How the run is, and these shares of it. Raises: KafkaException; fatal when another job took over."""
        self._producer.begin_transaction()
        self._report(run, *shares)
        self._producer.commit_transaction(_TIMEOUT_SECONDS)

    def finish(self, run: Run, backfill: Backfill) -> None:
        """The run is done, and the segments take effect: both or neither. Raises: as `tell`."""
        now = wall_clock_micros()
        correlation_id = deterministic_id("backfill", run.name)
        record = {
            "recorded_at": now,
            "event_id": deterministic_id("definition", EVERYWHERE, BACKFILL, run.name),
            "workspace": EVERYWHERE,
            "kind": BACKFILL,
            "key": run.name,
            "version": 1,
            "action": "BACKFILLED",
            "document": to_json(backfill),
            "actor": _STAGE,
            "correlation_id": correlation_id,
            "awaits_backfill": False,
        }
        self._producer.begin_transaction()
        value, key = self._definition_codec.encode(record), f"{EVERYWHERE}/{run.name}".encode()
        self._producer.produce(SEGMENT_DEFINITIONS, value, key, headers=record_headers(correlation_id, _STAGE))
        self._report(run)
        self._producer.commit_transaction(_TIMEOUT_SECONDS)

    def _report(self, run: Run, *shares: Share) -> None:
        now = wall_clock_micros()
        records = [report(run, RUN, run.state, now)]
        records += [report(run, "partition", share.state if share.part is None else DONE, now, share) for share in shares]
        for record in records:
            self._producer.produce(BACKFILLS, self._backfill_codec.encode(record), report_key(record))
