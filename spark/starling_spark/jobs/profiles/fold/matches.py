"""Pure core: records as they are in Kafka -> chunks of matches and dead letters, partition by partition."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import msgspec

from starling_common.failpoints.raising import Raising
from starling_common.failures import is_of_installation, poison
from starling_common.settings import Clock as ClockMode
from starling_common.values import record_key
from starling_common.wire import DecodeError
from starling_spark.jobs.profiles.definitions.plans import TraitPlan
from starling_spark.jobs.profiles.fold.chunks import Chunk, Refusal, Seeds, UserHits, decode_seeds
from starling_spark.kafka.sources import SEEDS, VISITS, Raw

CODE_BAD_EVENT = "bad_event"
EVENT_FIELDS = ("workspace", "user_id", "name", "event_time", "correlation_id", "properties")
"""What is read of every event; `context` and `traits` come behind where a plan reads them."""

_OBJECT = msgspec.json.Decoder(dict[str, Any])


class BadEvent(ValueError):
    """The event's properties, context or traits are no JSON object."""


class Event:
    """An event as leaves look at it; its JSON is read when the first of them does, and that may raise BadEvent."""

    def __init__(self, name: str, time_ms: int, texts: Sequence[str]) -> None:
        """`texts`: properties, context, traits, as far as they are read."""
        self.name = name
        self.time_ms = time_ms
        self._texts = texts

    @cached_property
    def properties(self) -> Mapping[str, Any]:
        """Return the properties of the event."""
        return _json_object("properties", self._texts[0])

    @cached_property
    def context(self) -> Mapping[str, Any]:
        """Return the context of the event."""
        return _json_object("context", self._texts[1])

    @cached_property
    def traits(self) -> Mapping[str, Any]:
        """Of the profile, as it was then."""
        return _json_object("traits", self._texts[2])


def _json_object(field: str, text: str) -> Mapping[str, Any]:
    try:
        return _OBJECT.decode(text)
    except (msgspec.DecodeError, RecursionError) as cause:
        raise BadEvent(f"{field} is no JSON object: {cause}") from cause


@dataclass(frozen=True, slots=True)
class RecordDecoders:
    """The functions that read records.

    `read_event(value)` gives the fields of an event, from bytes or what a table has instead, and `read_clock(value)` instant and
    correlation id of a clock record; both raise DecodeError. `refuse(raw, code, message)` makes a dead letter, None for a record
    that was refused before. `not_before_ms`: stream time under the wall clock is never less.
    """

    events_topic: str
    clock: ClockMode
    not_before_ms: int
    read_event: Callable[[Any], tuple[Any, ...]]
    read_clock: Callable[[bytes], tuple[int, str]]
    refuse: Callable[[Raw, str, str], Refusal | None]


class ChunkBuilder:
    """Gathers one run of records, in the order of their offsets."""

    def __init__(self, decoders: RecordDecoders, plans: Mapping[str, TraitPlan], raising: Raising | None = None) -> None:
        """`raising`: the failpoint of the process, which may be `match`."""
        self._decoders = decoders
        self._plans = plans
        self._raising = raising
        self._chunks: dict[int, Chunk] = {}

    def add(
        self,
        topic: str | None,
        partition: int,
        timestamp_ms: int,
        value: Any,
        whole: Callable[[], Raw],
        *,
        is_second: bool = False,
    ) -> None:
        """Take one record in; a bad one becomes a dead letter and nothing else. `whole`: all of it, which only that needs.

        `is_second`: the record made the code raise once; it is refused if it does so again.
        """
        chunk = self._chunks.get(partition)
        if chunk is None:
            chunk = self._chunks[partition] = Chunk(self._decoders.not_before_ms, "", {}, [])
        try:
            if topic == self._decoders.events_topic:
                self._take_event(chunk, timestamp_ms, self._decoders.read_event(value or b""))
            elif topic is None:
                _move(chunk, timestamp_ms, "")
            elif topic == VISITS:
                chunk.visits = timestamp_ms
            elif topic == SEEDS:
                _take_seeds(chunk, decode_seeds(value or b""))
            else:
                instant_ms, correlation_id = self._decoders.read_clock(value or b"")
                if self._decoders.clock is ClockMode.EVENT:
                    _move(chunk, instant_ms, correlation_id)
        except (DecodeError, BadEvent) as error:
            self._refuse(chunk, whole(), error.code if isinstance(error, DecodeError) else CODE_BAD_EVENT, str(error))
        except Exception as cause:
            if is_of_installation(cause):
                raise
            if is_second:
                why = poison(cause)
                self._refuse(chunk, whole(), why.code, why.message)
            else:
                self.add(topic, partition, timestamp_ms, value, whole, is_second=True)

    def chunks(self) -> dict[int, Chunk]:
        """By partition."""
        return self._chunks

    def _refuse(self, chunk: Chunk, raw: Raw, code: str, message: str) -> None:
        refused = self._decoders.refuse(raw, code, message)
        if refused is not None:
            chunk.refused.append(refused)

    def _take_event(self, chunk: Chunk, timestamp_ms: int, fields: tuple[Any, ...]) -> None:
        workspace, user_id, name, time_ms, correlation_id, *texts = fields
        plan = self._plans.get(workspace)
        if self._raising is not None:
            self._raising.passed("match", str(fields).encode())
        # An event that raises changes nothing: the chunk is changed after everything that depends on the event.
        matches = None if plan is None else plan.measures.matches(Event(name, time_ms, texts))
        key = record_key(workspace, user_id).decode() if matches else ""
        _move(chunk, time_ms if self._decoders.clock is ClockMode.EVENT else timestamp_ms, correlation_id)
        if not matches:
            return
        hit = (time_ms, chunk.now_ms, matches)
        user = chunk.users.get(key)
        if user is None:
            chunk.users[key] = UserHits(correlation_id, [hit])
        else:
            user.correlation_id = correlation_id
            user.hits.append(hit)


def _take_seeds(chunk: Chunk, seeds: Seeds) -> None:
    chunk.seeds.states.update(seeds.states)
    chunk.seeds.lost += seeds.lost
    _move(chunk, seeds.now_ms, "")


def _move(chunk: Chunk, now_ms: int, moved_by: str) -> None:
    if now_ms > chunk.now_ms:
        chunk.now_ms, chunk.moved_by = now_ms, moved_by
