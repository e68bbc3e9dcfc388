"""Adapter: the transactions of one target."""

import time
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any, Final, NamedTuple

from confluent_kafka import KafkaError, KafkaException, Message, Producer

from starling_common.headers import Headers
from starling_common.kafka.clients import RECORD_REFUSED, producer_config

TRANSACTION_MS: Final = 20_000
"""Time after which the broker aborts the transaction of a process that is gone. The next owner of the target waits for none."""

_CALL_SECONDS: Final = 30.0
_GIVE_UP_SECONDS: Final = 60.0
_QUEUE_KBYTES: Final = 16_384


class Outgoing(NamedTuple):
    """A record to write."""

    topic: str
    key: bytes
    value: bytes
    headers: Headers
    timestamp_ms: int


class RecordsRefused(Exception):
    """The broker refuses some records, and would refuse them again. `errors`: index -> error. Nothing of the others is known."""

    def __init__(self, errors: Mapping[int, KafkaError]) -> None:
        super().__init__(f"{len(errors)} records were refused: {next(iter(errors.values())).str()}")
        self.errors = errors


class Journal:
    """Commits the records of one target together. For one thread.

    The owner of a target uses the transactional id of the target: its start ends the transactions of the former owner, and the
    broker refuses those that this one begins later.
    """

    def __init__(self, brokers: str, transactional_id: str) -> None:
        """Connect in `start`."""
        own = {
            "transactional.id": transactional_id,
            "transaction.timeout.ms": TRANSACTION_MS,
            "message.timeout.ms": TRANSACTION_MS,
            "queue.buffering.max.kbytes": _QUEUE_KBYTES,
            # The broker may still complete the last transaction when the next one begins, and returns a retriable error.
            "retry.backoff.ms": 10,
        }
        self._producer = Producer(producer_config(brokers, **own))

    def start(self) -> None:
        """End the transactions of the former owner. Raises: KafkaException."""
        self._producer.init_transactions(_CALL_SECONDS)

    def commit(self, records: Sequence[Outgoing], before_commit: Callable[[], None] = lambda: None) -> None:
        """Write all records, or none. `before_commit` is called once the broker has them.

        Raises: RecordsRefused; KafkaException, after which the target is opened again.
        """
        self._producer.begin_transaction()
        try:
            written(self._producer, records)
            before_commit()
            _until_done(lambda: self._producer.commit_transaction(_CALL_SECONDS))
        except KafkaException as cause:
            if not cause.args[0].fatal():
                self._abort()
            raise
        except RecordsRefused:
            self._abort()
            raise

    def _abort(self) -> None:
        _until_done(lambda: self._producer.abort_transaction(_CALL_SECONDS))
        self._producer.poll(0)  # the reports of undelivered records


def written(producer: Producer, records: Sequence[Outgoing]) -> None:
    """Write records and return once the broker has each. Raises: RecordsRefused, KafkaException with the first other error."""
    errors: dict[int, KafkaError] = {}

    def delivered(index: int, error: KafkaError | None, _message: Message) -> None:
        if error is not None:
            errors[index] = error

    for index, record in enumerate(records):
        more: dict[str, Any] = {"headers": record.headers, "on_delivery": partial(delivered, index)}
        if record.timestamp_ms > 0:
            more["timestamp"] = record.timestamp_ms
        try:
            while not _produced(producer, record, more):
                producer.poll(0.05)
        except KafkaException as cause:
            if cause.args[0].code() not in RECORD_REFUSED:
                raise
            errors[index] = cause.args[0]
    while producer.flush(1) > 0:
        pass  # each record is delivered or times out
    others = [error for error in errors.values() if error.code() not in RECORD_REFUSED]
    if others:
        raise KafkaException(others[0])
    if errors:
        raise RecordsRefused(errors)


def _produced(producer: Producer, record: Outgoing, more: Mapping[str, Any]) -> bool:
    """Return whether the queue of the client has room for the record."""
    try:
        producer.produce(record.topic, record.value, record.key, **more)
    except BufferError:
        return False
    return True


def _until_done(call: Callable[[], object]) -> None:
    """Repeat a call whose result the client does not know yet."""
    deadline = time.monotonic() + _GIVE_UP_SECONDS
    while True:
        try:
            call()
        except KafkaException as cause:
            if not cause.args[0].retriable() or time.monotonic() > deadline:
                raise
        else:
            return
