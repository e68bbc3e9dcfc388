"""Core: the lane of a target of the channel `kafka`, whose topic gets each change as a record.

In the cluster of the installation the records and the position of the target are one transaction: each change is there exactly once
for readers of committed records. Another cluster has no part in that transaction: the position follows the records, and the records
of a killed process are written again, with the same ids.
"""

import json
import time
from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any, Final

from confluent_kafka import KafkaError, Producer

from starling_common.failures import POISON, poison
from starling_common.headers import Headers, header, headers_of
from starling_common.kafka.clients import producer_config
from starling_common.kafka.clusters import check_topic, cluster_config
from starling_common.outcome import Refused
from starling_common.records.membership_json import membership_json
from starling_delivery.feeds.journal import Journal, Outgoing, RecordsRefused, written
from starling_delivery.feeds.lane import IDLE_SECONDS, Change, Installation, Lane
from starling_delivery.feeds.progress import READ, Stored
from starling_delivery.feeds.reader import FeedReader
from starling_delivery.feeds.targets import FeedTarget

JSON: Final = "json"
_READ_SECONDS: Final = 0.5
_QUEUE_KBYTES: Final = 16_384
_TIMEOUT_MS: Final = 30_000


def record_of(change: Change, topic: str, kind: str) -> Outgoing:
    """Return the record of a change: the value of the feed, or its JSON. The key is the user id."""
    record, message = change.record, change.message
    value = message.value() or b""
    if kind == JSON:
        value = json.dumps(membership_json(record), separators=(",", ":"), ensure_ascii=False).encode()
    headers: Headers = [
        ("event_id", record["event_id"].encode()),
        ("segment", record["segment_key"].encode()),
        ("sequence", str(record["sequence"]).encode()),
        ("correlation_id", record["correlation_id"].encode()),
    ]
    traceparent = header(headers_of(message), "traceparent")
    if traceparent is not None:
        headers.append(("traceparent", traceparent.encode()))
    return Outgoing(topic, record["user_id"].encode(), value, headers, message.timestamp()[1])


class MirrorLane(Lane):
    """Writes each change to the topic of the target, in the order of the feed."""

    def __init__(self, target: FeedTarget, installation: Installation) -> None:
        super().__init__(target, installation)
        self._is_own_cluster = target.settings.get("bootstrap_servers") is None
        self._kind = target.settings.get("format") or "avro"

    def follow(self, reader: FeedReader, journal: Journal, stored: Stored) -> None:
        """Write the changes, and store the position with them or after them."""
        self._check_topic()
        producer = None if self._is_own_cluster else self._remote()
        idle_at, noted = time.monotonic(), dict(stored.positions)
        while not self.stopping.is_set():
            changes, letters = self.changes(reader.read(_READ_SECONDS))
            if changes or letters:
                self._write(changes, letters, reader, (journal, producer))
            elif noted != reader.positions and time.monotonic() - idle_at > IDLE_SECONDS:
                journal.commit([self.progressed(READ, reader.positions)])
            else:
                self.observe(reader)
                if reader.is_current:  # nothing waits, so nothing fails
                    self.worked()
                continue
            noted, idle_at = dict(reader.positions), time.monotonic()
            self.observe(reader, len(changes))
            self.worked()

    def _check_topic(self) -> None:
        """Raise TopicUnusable if the topic does not exist: a producer would create it where the cluster allows that."""
        installation = self.installation
        check_topic(self.target.settings, installation.brokers, allow_private=installation.allow_private)

    def _remote(self) -> Producer:
        settings = self.target.settings
        more = {"message.timeout.ms": _TIMEOUT_MS, "queue.buffering.max.kbytes": _QUEUE_KBYTES}
        # Nothing of the installation's own connection: neither its user nor its certificates.
        base = {name: value for name, value in producer_config("").items() if not name.startswith(("ssl.", "sasl.", "security."))}
        return Producer({**base, **cluster_config(settings, self.installation.brokers), **more})

    def _write(
        self, changes: Sequence[Change], letters: Sequence[Outgoing], reader: FeedReader, to: tuple[Journal, Producer | None]
    ) -> None:
        journal, producer = to
        topic = self.target.settings["topic"]
        left, more = list(changes), list(letters)
        while True:
            records = self._records(left, topic, more)
            position = self.progressed(READ, reader.positions, **_counts(left))
            passed = partial(self.installation.passed, "after_send")
            try:
                if producer is None:
                    journal.commit([*records, *more, position], passed)
                else:
                    written(producer, records)
                    passed()
                    journal.commit([*more, position])
            except RecordsRefused as refused:
                # Such as of a topic with a smaller limit than that of the feed. In a transaction the others are written again.
                of_changes = {index: error for index, error in refused.errors.items() if index < len(left)}
                if not of_changes:
                    raise
                more += [self.letter(left[index].message, _not_taken(error, topic)) for index, error in of_changes.items()]
                remaining = range(len(left)) if producer is None else ()
                left = [left[index] for index in remaining if index not in of_changes]
            else:
                return

    def _records(self, left: list[Change], topic: str, more: list[Outgoing]) -> list[Outgoing]:
        """Return the records of the changes. One that cannot be written as JSON leaves `left`, and its letter joins `more`."""
        records = []
        for change in list(left):
            try:
                records.append(record_of(change, topic, self._kind))
            except (ValueError, TypeError, KeyError, OverflowError) as error:
                more.append(self.letter(change.message, poison(error)))
                left.remove(change)
        return records


def _counts(changes: Sequence[Change]) -> Mapping[str, Any]:
    entered = sum(change.record["status"] == "ENTERED" for change in changes)
    return {"entered": entered, "exited": len(changes) - entered}


def _not_taken(error: KafkaError, topic: str) -> Refused:
    return Refused(POISON, f"the topic {topic} refuses the record: {error.str()}: correct its limits, such as max.message.bytes")
