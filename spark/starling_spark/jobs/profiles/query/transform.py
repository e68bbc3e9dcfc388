"""Computed traits as DataFrame in, DataFrame out: no session, no broker.

The state is in Spark's RocksDB state store, by bucket and then by user. A bucket has a part of the users of one Kafka partition.
Grouping by user is not possible: a window must end at the stream time of its partition, in the micro-batch that brings this time.
Spark has one watermark for the whole query, drops late events that may still be inside a window, and fires timers one batch late.
The state of a bucket has the clock of its partition and a timer wheel beside its users.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import cache, partial
from itertools import chain
from typing import Any

import msgspec
import pyarrow as pa
from pyspark.sql import DataFrame, Row, types
from pyspark.sql.streaming.stateful_processor import StatefulProcessor, StatefulProcessorHandle

from starling_common.outcome import Refused
from starling_common.records.dead_letters import FOLD_ORIGIN, SourceRecord, dead_letter, letter_correlation_id
from starling_common.settings import Clock as ClockMode
from starling_common.time.instants import wall_clock_micros
from starling_common.wire import FieldReader
from starling_spark.failpoints import raising, raising_before
from starling_spark.jobs.profiles.definitions.entries import Entries
from starling_spark.jobs.profiles.definitions.plans import TraitPlan, compile_entries
from starling_spark.jobs.profiles.fold.bucket import Computed, Unfoldable
from starling_spark.jobs.profiles.fold.chunks import Chunk, Refusal, decode_chunk, split
from starling_spark.jobs.profiles.fold.folding import BucketFold
from starling_spark.jobs.profiles.fold.matches import EVENT_FIELDS, ChunkBuilder, RecordDecoders
from starling_spark.jobs.profiles.fold.outputs import OutputBatches, computed_encoder
from starling_spark.jobs.profiles.query.buckets import SINGLE, Buckets
from starling_spark.jobs.profiles.query.reports import Counts, Times
from starling_spark.jobs.profiles.query.spark_store import SparkStore
from starling_spark.kafka.codec import Wire, collect_rarely
from starling_spark.kafka.dead_letters import letter
from starling_spark.kafka.refused_headers import HeaderReader
from starling_spark.kafka.sources import RECORDS, Raw

STAGE = "profiles"
_CHUNKS = types.StructType(
    [
        types.StructField("bucket", types.IntegerType()),
        types.StructField("partition", types.IntegerType()),
        types.StructField("chunk", types.BinaryType()),
    ]
)
_CHUNKS_IN_ARROW = pa.schema([("bucket", pa.int32()), ("partition", pa.int32()), ("chunk", pa.binary())])
_USERS = types.StructType([types.StructField("bucket", types.IntegerType()), types.StructField("users", types.BinaryType())])
_USERS_IN_ARROW = pa.schema([("bucket", pa.int32()), ("users", pa.binary())])
_PACKED = types.StructType([types.StructField("packed", types.BinaryType())])


@dataclass(frozen=True, slots=True)
class Topics:
    """The topics that the job reads and writes."""

    events: str
    clock: str
    aggregates: str
    dead_letters: str


@dataclass(frozen=True, slots=True)
class Job:
    """The configuration of a worker; small, and constant for all micro-batches of a query.

    `refused_before`: (topic, partition) -> offset up to which unreadable records are dead-lettered. `brokers`: for reading the
    headers of an unreadable record, "" if the records have headers. `published_to`: (partition, stream time in ms) of the
    last values of earlier queries. `epoch`: that of the values. `step`: the last change of the definitions, which
    `is_complete` when it is in force for all users. `query`: its name. `copy_megabytes`: the most disk for the copy of the states
    of a bucket; 0: no copies.
    """

    topics: Topics
    wire: Wire
    clock: ClockMode
    entries: Entries = ()
    started_ms: int = 0
    refused_before: tuple[tuple[str, int, int], ...] = ()
    brokers: str = ""
    published_to: tuple[tuple[int, int], ...] = ()
    buckets: Buckets = SINGLE
    epoch: int = 0
    step: int = 0
    is_complete: bool = True
    query: str = ""
    copy_megabytes: int = 0


def computed_traits(
    records: DataFrame,
    job: Job,
    published: DataFrame | None = None,
    times: Times | None = None,
    counts: Counts | None = None,
) -> DataFrame:
    """Return packs of the records to publish: changed values and dead letters. `unpack` yields the records.

    Shape:  in: records of Kafka, with headers only if the job has no brokers; `published`: the users with published values, read
            by the first micro-batch; `times`: gets the stream times; `counts`: gets the numbers of users by bucket; out:
            packs.
    Units:  `timestamp_ms` epoch ms. State only where `records` is a stream.
    """
    fields = [field.name for field in RECORDS.fields if field.name != "headers" or not job.brokers]
    chunks = records.select(*fields).mapInArrow(_match(job, times), _CHUNKS)
    before = None if published is None else published.groupBy("bucket")
    return chunks.groupBy("bucket").transformWithState(_Processor(job, counts), _PACKED, "Update", "None", before)


def published_users(values: DataFrame, buckets: Buckets) -> DataFrame:
    """Return (bucket, users): packs of the users of these records of `profiles.aggregates`."""

    def pack_users(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            users: dict[int, dict[str, None]] = {}
            for partition, key in zip(*(column.to_pylist() for column in batch.columns), strict=True):
                name = key.decode()
                users.setdefault(buckets.key(partition, buckets.slot(name)), {})[name] = None
            encoded = [msgspec.msgpack.encode(list(names)) for names in users.values()]
            yield pa.RecordBatch.from_pydict({"bucket": list(users), "users": encoded}, _USERS_IN_ARROW)

    return values.select("partition", "key").mapInArrow(pack_users, _USERS)


def _match(job: Job, times: Times | None) -> Callable[[Iterable[pa.RecordBatch]], Iterator[pa.RecordBatch]]:
    def match(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        collect_rarely()
        plans = plans_of(job)
        decoders = decoders_of(job, plans)
        for batch in batches:
            chunks = chunks_of(batch, ChunkBuilder(decoders, plans, raising()))
            if times is not None:
                times.add({partition: chunk.now_ms for partition, chunk in chunks.items()})
            rows = [row for partition, chunk in chunks.items() for row in _by_bucket(partition, chunk, job.buckets)]
            columns = dict(zip(_CHUNKS_IN_ARROW.names, zip(*rows, strict=True), strict=True)) if rows else {}
            yield pa.RecordBatch.from_pydict(columns or dict.fromkeys(_CHUNKS_IN_ARROW.names, ()), _CHUNKS_IN_ARROW)

    return match


def _by_bucket(partition: int, chunk: Chunk, buckets: Buckets) -> Iterator[tuple[int, int, bytes]]:
    """Yield (grouping key, partition, chunk) for every bucket of a partition: each gets the clock, also without users."""
    for slot, part in enumerate(split(chunk, buckets.slots, buckets.slot)):
        yield buckets.key(partition, slot), partition, msgspec.msgpack.encode(part)


def chunks_of(batch: pa.RecordBatch, builder: ChunkBuilder) -> Mapping[int, Chunk]:
    """Return by partition the matches of records."""

    def whole(index: int) -> Raw:
        return Raw(*(column[index].as_py() for column in batch.columns))

    # Hot: only a dead letter needs the key, so keys stay in Arrow.
    columns = [batch.column(name).to_pylist() for name in ("topic", "partition", "timestamp_ms", "value")]
    for index, (topic, partition, timestamp_ms, value) in enumerate(zip(*columns, strict=True)):
        builder.add(topic, partition, timestamp_ms, value, partial(whole, index))
    return builder.chunks()


def plans_of(job: Job) -> Mapping[str, TraitPlan]:
    """Return the plans by workspace, compiled once in a process."""
    return _compiled(job.entries, job.step, job.is_complete)


@cache
def _compiled(entries: Entries, step: int, is_complete: bool) -> Mapping[str, TraitPlan]:
    return compile_entries(entries, step, is_complete=is_complete)


def decoders_of(job: Job, plans: Mapping[str, TraitPlan]) -> RecordDecoders:
    """Return the functions that read the records of the job's topics."""
    topics, wire = job.topics, job.wire
    before = {(topic, partition): offset for topic, partition, offset in job.refused_before}
    header_reader = HeaderReader(job.brokers)

    def refuse(raw: Raw, code: str, message: str) -> Refusal | None:
        if raw.offset < before.get((raw.topic or "", raw.partition), 0):
            return None  # an earlier query has written it
        if job.brokers:
            raw = raw._replace(headers=header_reader.of(raw.topic or "", raw.partition, raw.offset))
        return Refusal(*letter(raw, STAGE, Refused(code, message), wire, topics.dead_letters), code)

    read_event = FieldReader(wire.codec(topics.events), (*EVENT_FIELDS, *more_fields(plans)))
    read_clock = FieldReader(wire.codec(topics.clock), ("instant", "correlation_id"))
    not_before_ms = job.started_ms if job.clock is ClockMode.WALL else 0
    return RecordDecoders(topics.events, job.clock, not_before_ms, raising_before("decode", read_event), read_clock, refuse)


def more_fields(plans: Mapping[str, TraitPlan]) -> tuple[str, ...]:
    """Return the fields of an event that are read behind `EVENT_FIELDS`."""
    if any(plan.measures.reads_traits for plan in plans.values()):
        return "context", "traits"
    return ("context",) if any(plan.measures.reads_context for plan in plans.values()) else ()


class _Processor(StatefulProcessor):
    """Runs `BucketFold` in Spark; the key is that of a bucket."""

    def __init__(self, job: Job, counts: Counts | None = None) -> None:
        self._job = job
        self._counts = counts

    def init(self, handle: StatefulProcessorHandle) -> None:
        """Declare the state; Spark calls it in the worker, before the first key."""
        self._store = SparkStore(handle, self._job.query, self._job.copy_megabytes)
        collect_rarely()
        self._plans = plans_of(self._job)
        self._encode = computed_encoder(self._job.wire.codec(self._job.topics.aggregates), self._job.epoch)
        self._published_to = dict(self._job.published_to)

    def handleInitialState(  # noqa: N802 - Spark's name
        self,
        key: Any,  # noqa: ARG002 - Spark's name
        initialState: Any,  # noqa: N803 - Spark's name
        timerValues: Any,  # noqa: ARG002, N803 - Spark's name
    ) -> None:
        """Store a pack of `published_users` until the bucket has input."""
        self._store.put_published(initialState["users"])

    def handleInputRows(  # noqa: N802 - Spark's name
        self,
        key: Any,
        rows: Any,
        timerValues: Any,  # noqa: ARG002, N803 - Spark's name
    ) -> Iterator[Row]:
        """Fold one bucket of a micro-batch, and yield packs of records."""
        outputs, chunks = OutputBatches(), iter(rows)
        first = next(chunks, None)
        if first is None:
            return  # only users of `published_users` so far
        partition = first["partition"]
        with self._store.opened(key[0]):
            folding = BucketFold(self._plans, self._store, self._published_to.get(partition, 0), raising())
            for row in chain((first,), chunks):
                encoded = row["chunk"]
                chunk = decode_chunk(encoded)
                for refusal in chunk.refused:
                    outputs.add(self._refused(refusal))
                for event in folding.fold(chunk, encoded):
                    outputs.add(self._refused(self._unfoldable(partition, event)))
            for one in folding.finish(wall_clock_micros()):
                if isinstance(one, Computed):
                    outputs.add(self._computed(partition, one))
                else:
                    outputs.add(self._refused(self._unfoldable(partition, one)))
        if self._counts is not None:
            self._counts.add({key[0]: folding.counts})
        for packed in outputs.packed():
            yield Row(packed=packed)

    def close(self) -> None:
        """Do nothing: there are no resources to release."""

    def _unfoldable(self, partition: int, event: Unfoldable) -> Refusal:
        """Return the dead letter of an event, or of a user's values. A chunk has only what its traits need of an event."""
        fields = {"correlation_id": event.correlation_id}
        source = SourceRecord(FOLD_ORIGIN, partition, -1, event.user.encode(), b"", (), max(0, event.time_ms) * 1000, fields)
        codec = self._job.wire.codec(self._job.topics.dead_letters)
        value = codec.encode(dead_letter(STAGE, source, event.why, wall_clock_micros() // 1000))
        return Refusal(source.key, value, source.received_at // 1000, letter_correlation_id(source), event.why.code)

    def _refused(self, refusal: Refusal) -> tuple[Any, ...]:
        topic = self._job.topics.dead_letters
        return topic, -1, refusal.key, refusal.value, refusal.timestamp_ms, refusal.correlation_id, refusal.code

    def _computed(self, partition: int, computed: Computed) -> tuple[Any, ...]:
        key, topic = computed.user.encode(), self._job.topics.aggregates
        return topic, partition, key, self._encode(computed), computed.received_at // 1000, computed.correlation_id, None
