"""Edge: one task, in a worker of Spark. The past of a partition is folded by the plan of the language, its states are written."""

import time
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field, replace
from functools import cache
from typing import Any, Final, TypeAlias
from zlib import crc32

from confluent_kafka import KafkaError, KafkaException, Message, Producer

from starling_common.instants import wall_clock_micros
from starling_common.kafka import producer_config
from starling_common.topics import BACKFILL_STATES, BACKFILLS, load_catalogue
from starling_common.wire import Codec, Registry
from starling_rules.backfills import Part, Stored, states_of
from starling_rules.history import StreamTime, fold_past, in_order
from starling_rules.inputs import PastFormats, build_past_formats
from starling_rules.ledger import DONE, PARTITION, RUNNING, Share, report, report_key
from starling_segments import UserState, decode_state, encode_state
from starling_spark.backfill.planning import Assignment, leaves_of, topics_for
from starling_spark.backfill.reading import PastReader
from starling_stream.processor import Decoded, Inbound

Read: TypeAlias = Callable[[str, int, int, int], Iterator[Inbound]]
"""Topic, partition, two offsets -> the records from the one up to and without the other, in their order."""


_NOTHING: Final = Part(inputs={}, stream_time_ms=0, first=0, end=0, users=0)


class StatesGone(Exception):
    """What a pass was to go on from is not kept any more."""


@dataclass(frozen=True, slots=True)
class Place:
    """Where a worker finds the world."""

    brokers: str
    registry_url: str
    report_seconds: float


def folded(assignment: Assignment, place: Place) -> Share:
    """Read, fold and write one partition; its share, done. A repeat is safe: the last state of a user counts.

    Raises: KafkaException, RegistryUnavailable, SchemaMissing.
    """
    formats = _formats(place.registry_url)
    states = StateWriter(place.brokers, assignment, formats.states)
    teller = Teller(assignment, states.producer, formats.reports, place.report_seconds)
    decode, loaded, stream_time_ms = formats.decode, 0, 0
    for number in range(assignment.slices):
        mine = _slice(number, assignment.slices)
        base = _base(assignment, PastReader(place.brokers, decode, lambda _records: None, mine).records)
        loaded += len(base)
        past, stream_time_ms = gathered(assignment, PastReader(place.brokers, decode, teller.told, mine).records, base)
        states.write(past, keep_all=assignment.in_order)
    if assignment.base is not None and loaded != assignment.base.users:
        raise StatesGone(
            f"{loaded} of {assignment.base.users} states of {assignment.run.base} are left: cancel and resume this run"
        )
    part = states.part(assignment.share.inputs, stream_time_ms)
    records = teller.records // assignment.slices
    return replace(assignment.share, state=DONE, records_done=records, records_total=records, part=part)


def _slice(number: int, slices: int) -> Callable[[bytes], bool] | None:
    return None if slices == 1 else lambda key: crc32(key) % slices == number


@dataclass(frozen=True, slots=True)
class Formats:
    """The bytes that a task reads and writes."""

    past: PastFormats
    states: Codec
    reports: Codec

    def decode(self, topic: str, value: bytes) -> Decoded:
        """A record of the past, or a state. Raises: DecodeError."""
        if topic != BACKFILL_STATES:
            return self.past.decode(topic, value)
        record = self.states.decode(value)
        return Decoded(Stored(record["run"], record["state"]), record["recorded_at"], None)


@cache
def _formats(registry_url: str) -> Formats:
    """Asked for once in a worker, which does many partitions."""
    registry, topics = Registry(registry_url), load_catalogue().topics

    def codec(topic: str) -> Codec:
        return registry.codec(topic, topics[topic].schema)

    return Formats(build_past_formats(codec), codec(BACKFILL_STATES), codec(BACKFILLS))


def _base(assignment: Assignment, read: Read) -> dict[bytes, UserState]:
    """What the run before it left of this slice."""
    part, before = assignment.base, assignment.run.base
    if part is None or before is None:
        return {}
    records = read(BACKFILL_STATES, assignment.share.number, part.first, part.end)
    found = states_of(before, ((record.key, record.value) for record in records if record.value is not None))
    return {key: decode_state(state) for key, state in found.items()}


def gathered(assignment: Assignment, read: Read, base: dict[bytes, UserState] | None = None) -> tuple[dict[bytes, UserState], int]:
    """By key, what the partition's past left in the run's leaves; and stream time after it. `base`: gone on with."""
    rules = assignment.rules()
    share, leaves, before = assignment.share, leaves_of(assignment.run, rules), assignment.base or _NOTHING
    inputs = [
        read(topic, share.number, before.inputs.get(topic, 0), share.inputs.get(topic, 0))
        for topic in topics_for(in_order=assignment.in_order)
    ]
    # In order time begins with the first record; else a window ends up the same, and what it has left behind need not be kept.
    stream_time = StreamTime(assignment.clock, before.stream_time_ms if assignment.in_order else share.stream_time_ms)
    past = fold_past(in_order(inputs) if len(inputs) > 1 else inputs[0], leaves, rules, stream_time, base)
    return past, stream_time.so_far_ms


@dataclass
class StateWriter:
    """Writes the states of one partition, and knows where they lie."""

    brokers: str
    assignment: Assignment
    codec: Codec
    producer: Producer = field(init=False)
    _users: int = 0
    _first: int | None = None
    _end: int = 0
    _failed: KafkaError | None = None

    def __post_init__(self) -> None:
        more = {"linger.ms": 50, "queue.buffering.max.kbytes": 65_536}
        self.producer = Producer(producer_config(self.brokers, **more))

    def write(self, past: dict[bytes, UserState], *, keep_all: bool) -> None:
        """Returns when the broker has them. `keep_all`: those too of which no leaf keeps anything. Raises: KafkaException."""
        run, number = self.assignment.run.name, self.assignment.share.number
        for key, state in past.items():
            if not (keep_all or state.accumulators or state.waiting):
                continue
            self._users += 1
            value = self.codec.encode({"recorded_at": wall_clock_micros(), "run": run, "state": encode_state(state)})
            self._produce(key, value, number)
        self._flush()

    def part(self, inputs: Any, stream_time_ms: int) -> Part:
        """What was written."""
        self._flush()
        return Part(dict(inputs), stream_time_ms, self._first or 0, self._end, self._users)

    def _produce(self, key: bytes, value: bytes, number: int) -> None:
        while True:
            try:
                self.producer.produce(BACKFILL_STATES, value, key, number, on_delivery=self._delivered)
            except BufferError:
                self.producer.poll(0.5)
            else:
                self.producer.poll(0)
                return

    def _delivered(self, error: KafkaError | None, message: Message) -> None:
        if error is not None:
            self._failed = error
            return
        offset = message.offset() or 0
        self._first = offset if self._first is None else min(self._first, offset)
        self._end = max(self._end, offset + 1)

    def _flush(self) -> None:
        left = self.producer.flush(120)
        if self._failed is not None or left:
            raise KafkaException(self._failed or KafkaError(KafkaError._TIMED_OUT, f"{left} states were not acknowledged"))  # noqa: SLF001


class Teller:
    """Says now and then how far the partition is. That nobody hears it is no reason to stop."""

    def __init__(self, assignment: Assignment, producer: Producer, codec: Codec, seconds: float) -> None:
        self.records = 0
        self._assignment = assignment
        self._producer = producer
        self._codec = codec
        self._seconds = seconds
        self._told_at = time.monotonic()

    def told(self, records: int) -> None:
        """So many more were read."""
        self.records += records
        now = time.monotonic()
        if now - self._told_at < self._seconds:
            return
        self._told_at = now
        done = self.records // self._assignment.slices
        share = replace(self._assignment.share, records_done=min(done, self._assignment.share.records_total))
        record = report(self._assignment.run, PARTITION, RUNNING, wall_clock_micros(), share)
        self._producer.produce(BACKFILLS, self._codec.encode(record), report_key(record))
        self._producer.poll(0)


def fold_all(assignments: Iterable[Assignment], place: Place) -> Iterable[Share]:
    """As Spark calls it, for the assignments of one of its partitions."""
    return (folded(assignment, place) for assignment in assignments)
