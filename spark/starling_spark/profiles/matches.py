"""Pure core: records as they are in Kafka -> chunks of matches and dead letters, partition by partition."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple

from starling_common.settings import Clock as ClockMode
from starling_common.values import record_key
from starling_common.wire import DecodeError
from starling_spark.profiles.folding import Chunk, Hit, Refusal
from starling_spark.profiles.matching import BadEvent, EventView, Matcher

CODE_BAD_EVENT = "bad_event"


class Raw(NamedTuple):
    """One record of an input topic; without a topic it is a heartbeat and only tells the time."""

    topic: str | None
    partition: int
    offset: int
    timestamp_ms: int
    key: bytes | None
    value: bytes | None
    headers: list[Mapping[str, Any]] | None


@dataclass(frozen=True, slots=True)
class Reading:
    """How records are read.

    `decode(topic, value)` raises DecodeError; `refuse(raw, code, message)` makes a dead letter, None for a record that
    was refused before. `not_before_ms`: stream time under the wall clock is never less.
    """

    events_topic: str
    clock: ClockMode
    not_before_ms: int
    decode: Callable[[str, bytes], Mapping[str, Any]]
    refuse: Callable[[Raw, str, str], Refusal | None]


class ChunkBuilder:
    """Gathers one run of records, in the order of their offsets."""

    def __init__(self, reading: Reading, matcher: Matcher) -> None:
        self._reading = reading
        self._matcher = matcher
        self._chunks: dict[int, Chunk] = {}

    def add(self, raw: Raw) -> None:
        """Take one record in; a bad one becomes a dead letter and nothing else."""
        chunk = self._chunks.get(raw.partition)
        if chunk is None:
            chunk = self._chunks[raw.partition] = Chunk(self._reading.not_before_ms, "", [], [])
        if raw.topic is None:
            _move(chunk, raw.timestamp_ms, "")
            return
        try:
            record = self._reading.decode(raw.topic, raw.value or b"")
            if raw.topic == self._reading.events_topic:
                self._take_event(chunk, raw, record)
            elif self._reading.clock is ClockMode.EVENT:
                _move(chunk, record["instant"], record["correlation_id"])
        except (DecodeError, BadEvent) as error:
            refused = self._reading.refuse(raw, error.code if isinstance(error, DecodeError) else CODE_BAD_EVENT, str(error))
            if refused is not None:
                chunk.refused.append(refused)

    def chunks(self) -> dict[int, Chunk]:
        """By partition."""
        return self._chunks

    def _take_event(self, chunk: Chunk, raw: Raw, record: Mapping[str, Any]) -> None:
        event = EventView(record)
        matches = self._matcher.match(record["workspace"], event)
        now_ms = event.time_ms if self._reading.clock is ClockMode.EVENT else raw.timestamp_ms
        _move(chunk, now_ms, record["correlation_id"])
        if matches:
            user = record_key(record["workspace"], record["user_id"]).decode()
            chunk.hits.append(Hit(user, event.time_ms, chunk.now_ms, record["correlation_id"], matches))


def _move(chunk: Chunk, now_ms: int, moved_by: str) -> None:
    if now_ms > chunk.now_ms:
        chunk.now_ms, chunk.moved_by = now_ms, moved_by
