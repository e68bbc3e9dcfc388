"""Adapter: the records that this job publishes."""

from typing import Final

from confluent_kafka import Producer

from starling_common.cassandra.read_models import BACKFILL
from starling_common.headers import record_headers
from starling_common.kafka.clients import producer_config
from starling_common.kafka.topics import BACKFILLS, SEGMENT_DEFINITIONS
from starling_common.time.instants import wall_clock_micros
from starling_common.values import deterministic_id
from starling_common.wire import Codec
from starling_rules.backfills import EVERYWHERE, Backfill, to_json
from starling_rules.ledger import DONE, PARTITION, RUN, Run, Share, report, report_key

_STAGE: Final = "backfill"
_TIMEOUT_SECONDS: Final = 30.0


class Reporter:
    """Publishes in transactions under one transactional id, which fences a previous job that is still running."""

    def __init__(self, brokers: str, definitions: Codec, backfills: Codec) -> None:
        self._definition_codec = definitions
        self._backfill_codec = backfills
        # An open transaction of a killed job hides newer definitions from consumers until this timeout.
        more = {"transactional.id": "starling-backfill", "transaction.timeout.ms": 10_000, "linger.ms": 0}
        self._producer = Producer(producer_config(brokers, **more))

    def start(self) -> None:
        """Fence any other job. Raises: KafkaException."""
        self._producer.init_transactions(_TIMEOUT_SECONDS)

    def publish(self, run: Run, *shares: Share) -> None:
        """Publish the state of the run and of these shares. Raises: KafkaException; fatal when another job has taken over."""
        self._producer.begin_transaction()
        self._report(run, *shares)
        self._producer.commit_transaction(_TIMEOUT_SECONDS)

    def finish(self, run: Run, backfill: Backfill) -> None:
        """Publish the finished run and put its segments in force, in one transaction. Raises: as `publish`."""
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
        records += [report(run, PARTITION, share.state if share.part is None else DONE, now, share) for share in shares]
        for record in records:
            self._producer.produce(BACKFILLS, self._backfill_codec.encode(record), report_key(record))
