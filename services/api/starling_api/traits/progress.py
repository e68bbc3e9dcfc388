"""Adapter: how far the Spark job of computed traits is, by the offsets that it commits.

The job commits the offset of a definition after its trait is published over all history. Until then a definition is pending. The
metadata of its offset contain how much of its history is read, those of the other offsets the stream time up to which values are
published.
"""

import threading
import time
from collections.abc import Iterable
from typing import Final

from confluent_kafka import OFFSET_BEGINNING, OFFSET_END, Consumer, KafkaException, TopicPartition

from starling_api.ports import ComputedProgress
from starling_common.kafka.clients import BrokerUnavailable, committed, consumer_config, offsets, partitions_of
from starling_common.kafka.position_notes import position_note
from starling_common.kafka.topics import TRAIT_DEFINITIONS, Stage
from starling_common.telemetry.logs import log
from starling_common.time.instants import wall_clock_micros
from starling_common.wire import DecodeError, Registry, RegistryUnavailable, SchemaMissing

_READ_SECONDS: Final = 2.0
_TIMEOUT_SECONDS: Final = 10.0
_MOST_AGE_SECONDS: Final = 30.0
"""A progress of this age is no longer reported."""
_DEFINITIONS: Final = (TRAIT_DEFINITIONS, 0)


class TraitProgress:
    """A thread of its own requests the offsets, so that a read of the API never waits for the broker."""

    def __init__(self, brokers: str, registry: Registry, stage: Stage) -> None:
        """Open no connection; `start` does. `stage`: that of the job, with its group and inputs."""
        self._brokers = brokers
        self._registry = registry
        self._stage = stage
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._run, name="trait-progress", daemon=True)
        self._latest: tuple[float, ComputedProgress] | None = None

    def start(self) -> None:
        """Start to request offsets. The call does not wait for the broker."""
        self._thread.start()

    def stop(self) -> None:
        """Stop to request offsets."""
        self._stopping.set()
        if self._thread.ident is not None:
            self._thread.join(timeout=2)  # it may wait for an unreachable broker and then ends with the process

    def value(self) -> ComputedProgress | None:
        """Return the progress; None while the broker or the registry does not respond. Does not block."""
        latest = self._latest
        return latest[1] if latest is not None and time.monotonic() - latest[0] < _MOST_AGE_SECONDS else None

    def _run(self) -> None:
        while not self._stopping.is_set():
            # It reads uncommitted records and never joins the group, whose id the request for committed offsets needs.
            config = {"enable.partition.eof": True, "isolation.level": "read_uncommitted"}
            consumer = Consumer(consumer_config(self._brokers, self._stage.group, **config))
            try:
                while not self._stopping.is_set():
                    self._latest = time.monotonic(), self._read(consumer)
                    self._stopping.wait(_READ_SECONDS)
            except (KafkaException, BrokerUnavailable, RegistryUnavailable, SchemaMissing, DecodeError) as error:
                log(__name__).warning("trait_progress_unknown", error=str(error))
                self._stopping.wait(_READ_SECONDS)
            finally:
                consumer.close()

    def _read(self, consumer: Consumer) -> ComputedProgress:
        observed = wall_clock_micros()
        places = [(topic, number) for topic in self._stage.inputs for number in partitions_of(consumer, topic, _TIMEOUT_SECONDS)]
        wanted = [TopicPartition(*place) for place in places]
        found = committed(consumer, wanted, _TIMEOUT_SECONDS)
        reached = {(one.topic, one.partition): one.offset for one in found}
        starts = offsets(consumer, places, OFFSET_BEGINNING, _TIMEOUT_SECONDS)
        ends = offsets(consumer, places, OFFSET_END, _TIMEOUT_SECONDS)
        inputs = [place for place in places if place != _DEFINITIONS]
        done = sum(min(max(reached[place], starts[place]), ends[place]) - starts[place] for place in inputs)
        pending = max(reached[_DEFINITIONS], starts[_DEFINITIONS])
        since = self._recorded_at(consumer, pending) if pending < ends[_DEFINITIONS] else None
        total = sum(ends[place] - starts[place] for place in inputs)
        step = position_note(next(one.metadata for one in found if (one.topic, one.partition) == _DEFINITIONS))
        if since is not None and step.total:
            done, total = step.done, step.total
        return ComputedProgress(observed if since is None else since, done, total, _as_of_ms(found))

    def _recorded_at(self, consumer: Consumer, offset: int) -> int | None:
        """Return when the first definition from that offset on was recorded, in epoch microseconds; None if there is none."""
        consumer.assign([TopicPartition(*_DEFINITIONS, offset)])
        try:
            message = consumer.poll(_TIMEOUT_SECONDS)
        finally:
            consumer.unassign()
        if message is None:
            raise BrokerUnavailable(f"{TRAIT_DEFINITIONS}: the broker did not return the record {offset} in time")
        value = message.value()
        if message.error() is not None or value is None:
            return None  # the end of the partition, or a tombstone
        recorded: int = self._registry.codec(TRAIT_DEFINITIONS, "DefinitionChanged").decode(value)["recorded_at"]
        return recorded


def _as_of_ms(positions: Iterable[TopicPartition]) -> int | None:
    """Return the lowest stream time of the partitions. A partition without a stream time has no data and does not count."""
    times: dict[int, int] = {}
    for one in positions:
        time_ms = position_note(one.metadata).stream_time_ms
        if time_ms:
            times[one.partition] = max(time_ms, times.get(one.partition, 0))
    return min(times.values(), default=None)
