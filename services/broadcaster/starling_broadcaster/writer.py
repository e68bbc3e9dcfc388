"""Adapter: transactions of listed members and the progress of their broadcast."""

import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final

from confluent_kafka import KafkaException, Producer

from starling_broadcaster.failpoints import AFTER_COMMIT, BEFORE_COMMIT
from starling_broadcaster.plan import Broadcast
from starling_broadcaster.settings import STAGE
from starling_common.headers import record_headers
from starling_common.kafka.clients import BrokerUnavailable, producer_config
from starling_common.kafka.topic_range import read_topic
from starling_common.kafka.topics import BROADCAST_PROGRESS, BROADCASTS
from starling_common.outcome import Done
from starling_common.telemetry.logs import log
from starling_common.time.instants import wall_clock_micros
from starling_common.values import deterministic_id, record_key
from starling_common.wire import Codec, DecodeError
from starling_messages.broadcast_progress import BroadcastProgress, Written, fold_progress

TRANSACTION_MS: Final = 20_000
"""Time after which the broker aborts the transaction of a process that is gone."""

_CALL_SECONDS: Final = 30.0
_GIVE_UP_SECONDS: Final = 60.0


class Writer:
    """Commits members and progress together. For one thread.

    Every process has the same transactional id: `start` ends the transactions of all earlier processes, and the broker refuses
    their later ones. A refused process ends.
    """

    def __init__(self, brokers: str, transactional_id: str, codec: Callable[[str], Codec], passed: Callable[[str], None]) -> None:
        """Connect in `start`. `passed` is called at each failpoint."""
        self._brokers = brokers
        self._codec = codec
        self._passed = passed
        own = {
            "transactional.id": transactional_id,
            "transaction.timeout.ms": TRANSACTION_MS,
            "message.timeout.ms": TRANSACTION_MS,
            # The broker may still complete the last transaction when the next one begins, and returns a retriable error.
            "retry.backoff.ms": 10,
        }
        self._config = producer_config(brokers, **own)
        self._producer: Producer | None = None

    def start(self) -> BroadcastProgress:
        """End the transactions of earlier processes, and return what they have written.

        Raises: BrokerUnavailable, RegistryUnavailable, SchemaMissing; KafkaException if another process has replaced this one.
        """
        producer = Producer(self._config)
        try:
            producer.init_transactions(_CALL_SECONDS)
        except KafkaException as cause:
            if cause.args[0].fatal():
                raise
            raise BrokerUnavailable(f"no transaction could be opened: {cause.args[0].str()}") from cause
        codec = self._codec(BROADCAST_PROGRESS)
        progress: BroadcastProgress = {}
        for message in read_topic(self._brokers, BROADCAST_PROGRESS):
            value = message.value()
            try:
                outcome = fold_progress(progress, message.key() or b"", None if value is None else codec.decode(value))
            except DecodeError as error:
                # A broadcast of unknown progress could be written twice.
                raise ProgressUnreadable(f"{BROADCAST_PROGRESS} offset {message.offset()}: {error}") from error
            if isinstance(outcome, Done):
                progress = outcome.value
        self._producer = producer
        return progress

    def write(self, broadcast: Broadcast, users: Sequence[str], after: Written) -> None:
        """Write the members, and how far the broadcast is with them, in one transaction.

        Raises: BrokerUnavailable if nothing was written; KafkaException if that is not known, or if another process has replaced
        this one. Then this process has to end.
        """
        assert self._producer is not None  # noqa: S101 - `start` opened it
        now, run = wall_clock_micros(), deterministic_id("broadcast", *broadcast.place)
        headers = record_headers(run, STAGE)
        common = {"workspace": broadcast.workspace, "campaign": broadcast.campaign, "correlation_id": run}
        listed = self._codec(BROADCASTS)
        try:
            self._producer.begin_transaction()
            for user in users:
                value = listed.encode({**common, "received_at": now, "user_id": user})
                self._produce(BROADCASTS, record_key(broadcast.workspace, user), value, headers)
            value = self._codec(BROADCAST_PROGRESS).encode({**common, "recorded_at": now, **_fields(after)})
            self._produce(BROADCAST_PROGRESS, record_key(broadcast.workspace, broadcast.campaign), value, headers)
            while self._producer.flush(1) > 0:
                pass  # each record is delivered or times out; the commit reports a failure
            self._passed(BEFORE_COMMIT)
            self._until_done(self._producer.commit_transaction)
        except KafkaException as cause:
            if cause.args[0].fatal():
                raise
            log(__name__).warning("transaction_aborted", error=cause.args[0].str())
            self._until_done(self._producer.abort_transaction)
            self._producer.poll(0)  # the reports of undelivered records
            raise BrokerUnavailable(f"the members could not be written: {cause.args[0].str()}") from cause
        self._passed(AFTER_COMMIT)

    def _produce(self, topic: str, key: bytes, value: bytes, headers: Any) -> None:
        assert self._producer is not None  # noqa: S101 - `start` opened it
        while True:
            try:
                self._producer.produce(topic, value, key, headers=headers)
            except BufferError:  # the client's queue is full
                self._producer.poll(0.05)
            else:
                return

    @staticmethod
    def _until_done(call: Callable[[float], object]) -> None:
        """Repeat a call whose result the client does not know yet."""
        deadline = time.monotonic() + _GIVE_UP_SECONDS
        while True:
            try:
                call(_CALL_SECONDS)
            except KafkaException as cause:
                if not cause.args[0].retriable() or time.monotonic() > deadline:
                    raise
            else:
                return


class ProgressUnreadable(RuntimeError):
    """A record of `broadcasts.progress` cannot be decoded. A newer version wrote it: upgrade this process."""


def _fields(after: Written) -> Mapping[str, Any]:
    return {"state": after.state, "written": after.members, "bucket": after.bucket, "user_id": after.user_id}
