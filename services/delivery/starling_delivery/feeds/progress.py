"""How far each feed is: the newest record of each target in `feeds.progress`."""

import time
from collections.abc import Mapping, Sequence
from typing import Any, Final, NamedTuple, TypeAlias

from confluent_kafka import OFFSET_END, Consumer

from starling_common.kafka.clients import BrokerUnavailable, consumer_config, offsets
from starling_common.kafka.folded_topic import FoldedTopic
from starling_common.outcome import Done, Outcome, Refused
from starling_common.values import split_key
from starling_common.wire import Codec, Record
from starling_delivery.feeds.targets import FeedTarget, TargetPlace

READ: Final = "READ"
SENDING: Final = "SENDING"
SENT: Final = "SENT"
RETRYING: Final = "RETRYING"
UNKNOWN: Final = "UNKNOWN"
FAILED: Final = "FAILED"

READER_GROUP: Final = "starling-feeds-reader"
"""The group of the consumers of the feeds. It is named and never joined: the positions are in `feeds.progress`."""

_POLL_SECONDS: Final = 0.02


class Stored(NamedTuple):
    """How far a target is. `positions`: partition of the feed -> next offset. `sent_at_ms`: when a digest was last sent, or 0."""

    positions: Mapping[int, int]
    sent_at_ms: int = 0


Known: TypeAlias = dict[TargetPlace, Stored]


def fold_progress(known: Known, key: bytes, record: Record | None) -> Outcome[Known]:
    """Return what is stored after one record."""
    if record is None:
        try:
            workspace, target = split_key(key)
        except ValueError as error:
            return Refused("bad_key", str(error))
        known.pop((str(workspace), str(target)), None)
        return Done(known)
    positions = {number: offset for number, offset in enumerate(record["positions"]) if offset >= 0}
    known[record["workspace"], record["target"]] = Stored(positions, record["sent_at"])
    return Done(known)


def progress_record(
    target: FeedTarget, step: str, positions: Mapping[int, int], correlation_id: str, now_micros: int, **more: Any
) -> dict[str, Any]:
    """Return a FeedProgressed. `more`: its optional fields."""
    return {
        "recorded_at": now_micros,
        "workspace": target.workspace,
        "target": target.key,
        "channel": target.channel,
        "step": step,
        "positions": listed(positions),
        "sent_at": 0,
        "digest_id": None,
        "entered": 0,
        "exited": 0,
        "status_code": None,
        "detail": None,
        "correlation_id": correlation_id,
        **more,
    }


def listed(positions: Mapping[int, int]) -> Sequence[int]:
    """Return the offsets in the order of the partitions; -1 for a partition without one."""
    return [positions.get(number, -1) for number in range(max(positions, default=-1) + 1)]


class ProgressView:
    """Follows `feeds.progress`."""

    def __init__(self, brokers: str, topic: str, codec: Codec) -> None:
        """Open no connection; `start` does."""
        self._brokers = brokers
        self._topic = topic
        self._view: FoldedTopic[Known] = FoldedTopic((brokers, topic), codec, {}, fold_progress)

    def start(self) -> None:
        """Read the topic to its end. Blocks. Raises: BrokerUnavailable."""
        self._view.start()

    def stop(self) -> None:
        """Stop reading."""
        self._view.stop()

    def problem(self) -> str | None:
        """Return the error that has stopped the reading."""
        return self._view.problem()

    def current(self, place: TargetPlace, timeout_seconds: float) -> Stored | None:
        """Return what is stored of a target, with every record that is in the topic now. Raises: BrokerUnavailable, KafkaException.

        The end is that of uncommitted records too. An open transaction of another target hides the records behind its own from
        readers, and the newest one of this target may be among them.
        """
        consumer = Consumer(consumer_config(self._brokers, READER_GROUP, **{"isolation.level": "read_uncommitted"}))
        try:
            [end] = offsets(consumer, [(self._topic, 0)], OFFSET_END, timeout_seconds).values()
        finally:
            consumer.close()
        deadline = time.monotonic() + timeout_seconds
        while self._view.positions().get(0, 0) < end:
            if self.problem() is not None or time.monotonic() > deadline:
                raise BrokerUnavailable(f"{self._topic} could not be read to its end: {self.problem() or 'timed out'}")
            time.sleep(_POLL_SECONDS)
        return self._view.value().get(place)
