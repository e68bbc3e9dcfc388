"""Edge: one task in a Spark worker: fold the history of a partition and write its states."""

import pickle
import tempfile
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from functools import cache
from itertools import chain
from typing import Any, Final, NamedTuple, TypeAlias
from zlib import crc32

import pyarrow as pa
from confluent_kafka import KafkaError, KafkaException, Message, Producer

from starling_common.failures import is_of_installation, poison
from starling_common.kafka.clients import RECORD_REFUSED, producer_config
from starling_common.kafka.topics import BACKFILL_STATES, BACKFILLS, load_catalogue
from starling_common.outcome import Refused
from starling_common.time.instants import wall_clock_micros
from starling_common.wire import Codec, Registry
from starling_rules.backfills import Part, Stored, states_of
from starling_rules.history import Isolation, Place, StreamTime, fold_past, in_order, user_place
from starling_rules.inputs import PastFormats, build_past_formats
from starling_rules.ledger import DONE, PARTITION, RUNNING, Share, report, report_key
from starling_segments import WRITTEN_FORMAT, UserState, decode_state, state_encoder
from starling_spark.failpoints import raising
from starling_spark.jobs.backfill.history import LakeRecords
from starling_spark.jobs.backfill.planning import Assignment, leaves_of
from starling_spark.jobs.backfill.reading import PastReader
from starling_stream.model.processor import Decoded, Inbound

Read: TypeAlias = Callable[..., Iterator[Inbound]]
"""As `reading.PastReader.records`: topic, partition, two offsets -> the records from the first offset to before the second."""


SHARE: Final = "share BINARY"
"""The columns that `fold_with_lake` returns."""

_NOTHING: Final = Part(inputs={}, stream_time_ms=0, first=0, end=0, users=0)

# Segmenters of the release before may read the run: during an upgrade, or after a rollback.
_encode_state = state_encoder(WRITTEN_FORMAT)


class StatesGone(Exception):
    """The states of the previous pass are no longer available."""


@dataclass(frozen=True, slots=True)
class WorkerSettings:
    """The settings of a worker. `topic_prefix`: for installations that share a broker."""

    brokers: str
    registry_url: str
    report_seconds: float
    topic_prefix: str = ""


class Folded(NamedTuple):
    """The result of a task. With `failed` users the share is not finished, and the task is repeated with them as fragile."""

    share: Share
    failed: frozenset[bytes]
    refused: Mapping[Place, Refused]


def folded(assignment: Assignment, settings: WorkerSettings, lake_batches: Iterable[pa.RecordBatch] = ()) -> Folded:
    """Read, fold and write one partition, and return its finished share. A repetition is safe: the last state of a user counts.

    `lake_batches`: the records that the lake provides (`history.LakeHistory.rows`).
    Raises: KafkaException, RegistryUnavailable, SchemaMissing, PastGone.
    """
    formats = _formats(settings.registry_url, settings.topic_prefix)
    states = StateWriter(settings, assignment, formats.states)
    reporter = ProgressReporter(assignment, states.producer, formats.reports, settings)
    loaded, stream_time_ms = 0, 0
    isolation = Isolation(assignment.fragile, armed=raising())
    refuse, decode = isolation.refused.setdefault, _decoder(formats)
    with _repeatable(lake_batches, assignment.slices) as batches:
        for number in range(assignment.slices):
            mine = _slice(number, assignment.slices)
            reader = PastReader(settings.brokers, decode, reporter.add, mine, settings.topic_prefix, refuse)
            silent = PastReader(settings.brokers, decode, lambda _records: None, mine, settings.topic_prefix)
            base = _base(assignment, silent.records)
            loaded += len(base)
            from_lake = LakeRecords(batches(), reporter.add, mine, refuse).records()
            past, stream_time_ms = gathered(assignment, reader.records, base, from_lake, isolation)
            states.write(past, isolation, keep_all=assignment.in_order)
    if isolation.failed:
        return Folded(assignment.share, frozenset(isolation.failed), isolation.refused)
    if assignment.base is not None and loaded != assignment.base.users:
        raise StatesGone(f"{loaded} of {assignment.base.users} states of {assignment.run.base} remain: cancel and resume this run")
    part = states.part(assignment.share.inputs, stream_time_ms)
    records, refused = reporter.records // assignment.slices, len(isolation.refused)
    share = replace(assignment.share, state=DONE, records_done=records, records_total=records, part=part, refused=refused)
    return Folded(share, frozenset(), isolation.refused)


def _decoder(formats: "Formats") -> Callable[[str, bytes], Decoded]:
    armed = raising()
    return formats.decode if armed is None else armed.before("decode", formats.decode)


@contextmanager
def _repeatable(batches: Iterable[pa.RecordBatch], times: int) -> Iterator[Callable[[], Iterable[pa.RecordBatch]]]:
    """Yield a function that returns the batches once for each slice. Spark provides them once, so a file stores them."""
    if times == 1:
        yield lambda: batches
        return
    with tempfile.TemporaryFile() as file:
        writer: pa.RecordBatchStreamWriter | None = None
        for batch in batches:
            writer = writer or pa.ipc.new_stream(file, batch.schema)
            writer.write_batch(batch)
        if writer is not None:
            writer.close()

        def stored() -> Iterable[pa.RecordBatch]:
            file.seek(0)
            return () if writer is None else pa.ipc.open_stream(file)

        yield stored


def _slice(number: int, slices: int) -> Callable[[bytes], bool] | None:
    return None if slices == 1 else lambda key: crc32(key) % slices == number


@dataclass(frozen=True, slots=True)
class Formats:
    """The codecs of a task."""

    past: PastFormats
    states: Codec
    reports: Codec

    def decode(self, topic: str, value: bytes) -> Decoded:
        """Decode a past record, or a state. Raises: DecodeError."""
        if topic != BACKFILL_STATES:
            return self.past.decode(topic, value)
        record = self.states.decode(value)
        return Decoded(Stored(record["run"], record["state"]), record["recorded_at"], None)


@cache
def _formats(registry_url: str, prefix: str) -> Formats:
    """Return the codecs, cached in a worker, which folds many partitions."""
    registry, topics = Registry(registry_url), load_catalogue().topics

    def codec(topic: str) -> Codec:
        return registry.codec(prefix + topic, topics[topic].schema)

    return Formats(build_past_formats(codec), codec(BACKFILL_STATES), codec(BACKFILLS))


def _base(assignment: Assignment, read: Read) -> dict[bytes, UserState]:
    """Return the states of the previous run in this slice."""
    part, before = assignment.base, assignment.run.base
    if part is None or before is None:
        return {}
    records = read(BACKFILL_STATES, assignment.share.number, part.first, part.end)
    found = states_of(before, ((record.key, record.value) for record in records if record.value is not None))
    return {key: decode_state(state) for key, state in found.items()}


def gathered(
    assignment: Assignment,
    read: Read,
    base: dict[bytes, UserState] | None = None,
    from_lake: Iterable[Inbound] = (),
    isolation: Isolation | None = None,
) -> tuple[dict[bytes, UserState], int]:
    """Return by key the state of the run's leaves after the partition's history, and the stream time after it.

    `base`: states to continue from; `from_lake`: the records that the lake provides instead of `read`.
    """
    rules = assignment.rules()
    share, leaves, before = assignment.share, leaves_of(assignment.run, rules), assignment.base or _NOTHING
    inputs = [from_lake] if assignment.from_lake else []
    for topic in assignment.topics:
        first, until = before.inputs.get(topic, 0), share.inputs.get(topic, 0)
        more = {"is_there": True} if topic in assignment.starts else {}
        inputs.append(read(topic, share.number, assignment.starts.get(topic, first), until, **more))
    # Ordered folding starts with the time of the first record. Otherwise the final stream time gives the same windows without
    # storing expired entries.
    stream_time = StreamTime(assignment.clock, before.stream_time_ms if assignment.in_order else share.stream_time_ms)
    past = fold_past(_merged(inputs, assignment), leaves, rules, stream_time, base, isolation)
    return past, stream_time.so_far_ms


def _merged(inputs: list[Iterable[Inbound]], assignment: Assignment) -> Iterable[Inbound]:
    """Return the records in their processing order. The inputs of a single topic follow one another: the lake first, then Kafka."""
    return in_order(inputs) if len(assignment.topics) > 1 else chain.from_iterable(inputs)


@dataclass
class StateWriter:
    """Writes the states of one partition, and records their offsets."""

    settings: WorkerSettings
    assignment: Assignment
    codec: Codec
    producer: Producer = field(init=False)
    _users: int = 0
    _first: int | None = None
    _end: int = 0
    _failed: KafkaError | None = None
    _refused: dict[Place, Refused] = field(default_factory=dict)

    def __post_init__(self) -> None:
        more = {"linger.ms": 50, "queue.buffering.max.kbytes": 65_536}
        self.producer = Producer(producer_config(self.settings.brokers, **more))

    def write(self, past: dict[bytes, UserState], isolation: Isolation, *, keep_all: bool) -> None:
        """Write the states; returns after the broker has acknowledged. `keep_all`: empty states too. Raises: KafkaException.

        With failed users nothing is written. A user whose state cannot be encoded fails; one that the broker refuses is refused.
        """
        self._refused = isolation.refused
        run, number = self.assignment.run.name, self.assignment.share.number
        for key, state in past.items():
            if isolation.failed:
                return
            if not (keep_all or state.accumulators or state.waiting):
                continue
            try:
                encoded = _encode_state(state)
            except Exception as cause:
                if is_of_installation(cause):
                    raise
                isolation.failed.add(key)
                return
            self._users += 1
            self._produce(key, self.codec.encode({"recorded_at": wall_clock_micros(), "run": run, "state": encoded}), number)
        self._flush()

    def part(self, inputs: Any, stream_time_ms: int) -> Part:
        """Return the offsets and the number of written states."""
        self._flush()
        return Part(dict(inputs), stream_time_ms, self._first or 0, self._end, self._users)

    def _produce(self, key: bytes, value: bytes, number: int) -> None:
        topic = self.settings.topic_prefix + BACKFILL_STATES
        while True:
            try:
                self.producer.produce(topic, value, key, number, on_delivery=self._delivered)
            except BufferError:
                self.producer.poll(0.5)
            except KafkaException as cause:
                self._not_written(key, cause.args[0])
                return
            else:
                self.producer.poll(0)
                return

    def _delivered(self, error: KafkaError | None, message: Message) -> None:
        if error is not None:
            self._not_written(message.key() or b"", error)
            return
        offset = message.offset() or 0
        self._first = offset if self._first is None else min(self._first, offset)
        self._end = max(self._end, offset + 1)

    def _not_written(self, key: bytes, error: KafkaError) -> None:
        if error.code() in RECORD_REFUSED:
            self._users -= 1
            self._refused[user_place(self.assignment.share.number, key)] = poison(KafkaException(error))
        else:
            self._failed = error

    def _flush(self) -> None:
        left = self.producer.flush(120)
        if self._failed is not None or left:
            raise KafkaException(self._failed or KafkaError(KafkaError._TIMED_OUT, f"{left} states were not acknowledged"))  # noqa: SLF001


class ProgressReporter:
    """Publishes the progress of a partition at an interval. A failed publication does not fail the task."""

    def __init__(self, assignment: Assignment, producer: Producer, codec: Codec, settings: WorkerSettings) -> None:
        self.records = 0
        self._assignment = assignment
        self._producer = producer
        self._codec = codec
        self._settings = settings
        self._reported_at = time.monotonic()

    def add(self, records: int) -> None:
        """Count read records, and publish the progress when it is due."""
        self.records += records
        now = time.monotonic()
        if now - self._reported_at < self._settings.report_seconds:
            return
        self._reported_at = now
        done = self.records // self._assignment.slices
        share = replace(self._assignment.share, records_done=min(done, self._assignment.share.records_total))
        record = report(self._assignment.run, PARTITION, RUNNING, wall_clock_micros(), share)
        self._producer.produce(self._settings.topic_prefix + BACKFILLS, self._codec.encode(record), report_key(record))
        self._producer.poll(0)


def fold_all(assignments: Iterable[Assignment], settings: WorkerSettings) -> Iterable[Folded]:
    """Fold the assignments of one Spark partition."""
    return (folded(assignment, settings) for assignment in assignments)


def fold_with_lake(batches: Iterable[pa.RecordBatch], assignment: Assignment, settings: WorkerSettings) -> Iterator[pa.RecordBatch]:
    """Fold one assignment with records of the lake; yield the pickled result as `SHARE`."""
    yield pa.RecordBatch.from_pydict({"share": [pickle.dumps(folded(assignment, settings, batches))]})
