"""Adapter: restores a task's store to the state of the last committed transaction, by a replay of the changelog's tail."""

import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from threading import Event
from typing import Final, NamedTuple, cast

from confluent_kafka import OFFSET_BEGINNING, OFFSET_END, Consumer, KafkaError, KafkaException, Message, TopicPartition

from starling_common.kafka.clients import committed, consumer_config, is_passing, watermarks
from starling_common.kafka.clients import offsets as offsets_of
from starling_common.telemetry.logs import log
from starling_stream.model.backing_store import Checkpoint
from starling_stream.model.changelog import decode_state_changed
from starling_stream.model.errors import OffsetsMisfit
from starling_stream.model.meta import TaskMeta, decode_meta
from starling_stream.model.ports import Changed, StateFlusher, Tail
from starling_stream.model.records import ReadRecord
from starling_stream.model.rows import META_KEY, row_of
from starling_stream.state.flush.unflushed import TailCollector
from starling_stream.state.local_store import Origin, StoreMemory, TaskStore
from starling_stream.state.restore.input_offsets import InputRange, misfits
from starling_stream.state.restore.range_consumers import RangeConsumers
from starling_stream.state.restore.restore_point import Base, Choice, OnDisk, Span, choose_base

_REQUEST_SECONDS: Final = 30.0
_NEW_LEADER_SECONDS: Final = 5.0
"""How long a topic may end before the committed offset: the high watermark of a new leader is behind at first."""
_BATCH: Final = 10_000
_READER: Final = {"enable.partition.eof": True, "check.crcs": True, "fetch.wait.max.ms": 20}
"""The broker reports the end of a log after that wait; the client's default of half a second dominated short restores."""
_BATCH_SECONDS: Final = 0.05
"""The longest wait for a full batch: a short tail is read in this time."""


class Interrupted(Exception):
    """The partition was revoked, or the worker stops."""


class Plan(NamedTuple):
    """The input of a restore. `inputs` are the topics whose committed offsets the task resumes from."""

    brokers: str
    group: str
    changelog: str
    partition: int
    inputs: Sequence[str]
    stage: str
    origin: Origin
    path: Path
    header: bytes
    decode: Callable[[bytes], tuple[int, bytes]]
    """Decodes changelog records of another schema version."""
    flusher: StateFlusher
    replay_records: int
    """Up to this many changelog records are replayed instead of loading users lazily."""


class Restored(NamedTuple):
    """A restored store. `offsets`: the next record of each input, the first retained one without a committed offset."""

    store: TaskStore
    meta: TaskMeta
    offsets: Mapping[str, int]
    base: Base
    tail: Tail
    due_from_ms: int
    """No user that is only in the backing store is due before this."""
    records: int
    seconds: Mapping[str, float]
    """Duration by phase: offsets, open, base, replay."""


class _Laps:
    """The duration of each phase."""

    def __init__(self) -> None:
        self.seconds: dict[str, float] = {}
        self._at = time.monotonic()

    def ends(self, phase: str) -> None:
        """Note the end of a phase."""
        now = time.monotonic()
        self.seconds[phase], self._at = round(now - self._at, 3), now


def restore(plan: Plan, memory: StoreMemory, stop: Event, opened: TaskStore | None = None) -> Restored:
    """Open the store, unless it is `opened`, and replay the missing records. Blocks; only this task waits for it.

    After an exception no store is open. Raises: StoreMismatch, OffsetsMisfit, Interrupted, KafkaException.
    """
    lap = _Laps()
    consumer = Consumer(consumer_config(plan.brokers, plan.group, **_READER))
    try:
        committed_offsets = _stable_offsets(consumer, plan, stop)
        # The records of committed transactions lie before the end of this span, because their input offsets are stable. Their
        # markers may still be in transit, so the tail is read to the end and not only to the last stable offset.
        span, inputs = _ranges(plan, committed_offsets, stop)
        # Without a committed offset the consumer resumes at the first retained record.
        offsets = {topic: one.start if one.committed is None else one.committed for topic, one in inputs.items()}
        lap.ends("offsets")
        opened = opened or open_or_recreate(plan, memory)
        opened.check_origin(plan.origin)
        lap.ends("open")
        choice, checkpoint = _choose(plan, opened, span)
        opened = _based_on(choice, checkpoint, plan, memory, opened)
        lap.ends("base")
        tail = TailCollector(choice.track_from if plan.flusher.on else None)
        records = _replay(consumer, plan, opened, (choice.replay_from, span.end), stop, tail)
        lap.ends("replay")
        meta = opened.meta()
        _check_offsets(plan, meta, inputs, stop)
        incarnation = None if checkpoint is None else choice.incarnation
        unflushed = Tail(incarnation, tail.rows, max(span.end, opened.position() or 0), meta, tail.whole)
        due_from_ms = checkpoint.due_from_ms if checkpoint else 0
        return Restored(opened, meta, offsets, choice.base, unflushed, due_from_ms, records, lap.seconds)
    except BaseException:
        if opened is not None:
            opened.close()
        raise
    finally:
        consumer.close()


def read_range(
    consumers: RangeConsumers, topic: str, partition: int, offsets_range: tuple[int, int], stop: Event
) -> Iterator[list[ReadRecord]]:
    """Yield the records of a partition from an offset, or the first retained one after it, to another, exclusive, in batches.

    A batch may be empty. Raises: Interrupted, KafkaException.
    """
    first, until = offsets_range
    # `topic_range.read_range` cannot end with the assignment of the partition, which `stop` does within one poll.
    with consumers.borrowed() as consumer:
        _watermarks(consumer, topic, partition)  # requested first, as in `_replay`
        consumer.assign([TopicPartition(topic, partition, first or OFFSET_BEGINNING)])
        for messages, position in _batches(consumer, until, stop, (topic, partition)):
            yield [_record(message) for message in messages if (message.offset() or 0) < until]
            if position >= until:
                break


def changelog_records(
    brokers: str, changelog: str, partition: int, decode: Callable[[bytes], tuple[int, bytes]]
) -> Iterator[tuple[int, bytes, bytes]]:
    """Return (offset, key, row) of every committed record except the task's own, then (end, b"", b""). For operators."""
    consumer = Consumer(consumer_config(brokers, f"audit-{changelog}", **{"enable.partition.eof": True}))
    try:
        start = TopicPartition(changelog, partition, OFFSET_BEGINNING)
        span = _watermarks(consumer, changelog, partition)
        consumer.assign([start])
        for messages, position in _batches(consumer, span.end, Event()) if span.end > span.start else ():
            for message in messages:
                key = message.key() or b""
                if key != META_KEY:
                    yield message.offset() or 0, key, row_of(*decode(message.value() or b""))
            if position >= span.end:
                break
        yield span.end, b"", b""
    finally:
        consumer.close()


def _check_offsets(plan: Plan, meta: TaskMeta, inputs: Mapping[str, InputRange], stop: Event) -> None:
    """Raise OffsetsMisfit if the task would skip records or fold some a second time."""

    def has_records(topic: str, first: int, until: int) -> bool:
        found = read_range(RangeConsumers(plan.brokers), topic, plan.partition, (first, until), stop)
        return any(found)

    wrong = misfits(meta, inputs, has_records)
    if wrong:
        raise OffsetsMisfit(
            "; ".join(f"{topic}: {why}" for topic, why in wrong.items())
            + f". Stop the workers of {plan.stage}, run `starling stage resume {plan.stage}` to continue where the states end, or "
            + f"`starling stage accept-loss {plan.stage}` if records are lost, and start the workers again"
        )


def _ranges(plan: Plan, committed_offsets: Mapping[str, tuple[int, str]], stop: Event) -> tuple[Span, dict[str, InputRange]]:
    """Return the span of the changelog, open transactions included, and the range of each input."""
    reader = Consumer(consumer_config(plan.brokers, plan.group, **{"isolation.level": "read_uncommitted"}))
    try:
        span = _watermarks(reader, plan.changelog, plan.partition)
        deadline = time.monotonic() + _NEW_LEADER_SECONDS
        while True:
            inputs = input_ranges(reader, plan.inputs, plan.partition, committed_offsets)
            is_behind = any(one.committed is not None and one.committed > one.end for one in inputs.values())
            if not is_behind or time.monotonic() > deadline or stop.wait(_BATCH_SECONDS):
                return span, inputs
    finally:
        reader.close()


def input_ranges(
    reader: Consumer, topics: Sequence[str], partition: int, committed_offsets: Mapping[str, tuple[int, str]]
) -> dict[str, InputRange]:
    """Return the range of each input. `reader` reads uncommitted records too; `committed_offsets` have their metadata."""
    parts = [(topic, partition) for topic in topics]
    starts = offsets_of(reader, parts, OFFSET_BEGINNING, _REQUEST_SECONDS)
    ends = offsets_of(reader, parts, OFFSET_END, _REQUEST_SECONDS)
    found = {}
    for topic, number in parts:
        offset, metadata = committed_offsets.get(topic, (None, ""))
        found[topic] = InputRange(offset, metadata, starts[topic, number], ends[topic, number])
    return found


def _stable_offsets(consumer: Consumer, plan: Plan, stop: Event) -> dict[str, tuple[int, str]]:
    """Return the committed offsets with metadata once no open transaction contains one: a `read_committed` client waits for it."""
    wanted = [TopicPartition(topic, plan.partition) for topic in plan.inputs]
    while not stop.is_set():
        try:
            found = committed(consumer, wanted, 5)
        except KafkaException as cause:
            if not is_passing(cause) and cause.args[0].code() != KafkaError._TIMED_OUT:  # noqa: SLF001
                raise
            log(__name__).warning("offsets_not_stable_yet", partition=plan.partition, error=cause.args[0].str())
            continue
        return {offset.topic: (offset.offset, offset.metadata or "") for offset in found if offset.offset >= 0}
    raise Interrupted


def span_of(plan: Plan) -> Span:
    """Return the first offset and the end of the changelog, open transactions included."""
    reader = Consumer(consumer_config(plan.brokers, plan.group, **{"isolation.level": "read_uncommitted"}))
    try:
        return _watermarks(reader, plan.changelog, plan.partition)
    finally:
        reader.close()


def _watermarks(reader: Consumer, topic: str, partition: int) -> Span:
    return Span(*watermarks(reader, topic, partition, _REQUEST_SECONDS))


def _choose(plan: Plan, store: TaskStore, span: Span) -> tuple[Choice, Checkpoint | None]:
    position = store.position()
    disk = None if position is None else OnDisk(position, store.incarnation(), bool(store.unloaded()))
    checkpoint = plan.flusher.checkpoint(plan.partition)
    choice = choose_base(disk, checkpoint, span, plan.replay_records)
    if choice.begin and not plan.flusher.begin(plan.partition, choice.incarnation or 0):
        checkpoint = None
        choice = choose_base(disk, checkpoint, span, plan.replay_records)
    if position is not None and choice.base is not Base.DISK:
        # The position is before the log's start, after its end, of another incarnation, or so old that the backing store is faster.
        log(__name__).warning("store_recreated", partition=plan.partition, position=position, base=choice.base, span=span)
    return choice, checkpoint


def _based_on(choice: Choice, checkpoint: Checkpoint | None, plan: Plan, memory: StoreMemory, store: TaskStore) -> TaskStore:
    """Return the store if it is the base, else an empty one in its place."""
    if choice.base is not Base.DISK and store.position() is not None:
        store = recreated(plan, memory, store)
    if choice.base is Base.BACKING_STORE and checkpoint is not None:
        meta = decode_meta(checkpoint.meta)
        store.begin_unloaded(checkpoint.flushed_offset or 0, meta, plan.flusher.buckets, choice.incarnation or 0)
    elif choice.incarnation is not None:
        store.set_incarnation(choice.incarnation)
    return store


def open_or_recreate(plan: Plan, memory: StoreMemory) -> TaskStore:
    """Open the store. A corrupted one is deleted, since the changelog contains everything; one in use is not."""
    try:
        return TaskStore(plan.path, memory)
    except Exception as cause:
        if "Corruption" not in str(cause):
            raise
        log(__name__).exception("store_corrupted", partition=plan.partition)
    TaskStore.destroy(plan.path)
    return TaskStore(plan.path, memory)


def recreated(plan: Plan, memory: StoreMemory, store: TaskStore) -> TaskStore:
    """Return an empty store in the place of this one."""
    store.close()
    TaskStore.destroy(plan.path)
    store = TaskStore(plan.path, memory)
    store.check_origin(plan.origin)
    return store


def _replay(
    consumer: Consumer, plan: Plan, store: TaskStore, offsets_range: tuple[int, int], stop: Event, unflushed: TailCollector
) -> int:
    """Replay a range of the changelog; records that the store has are only passed to the collector."""
    (start, end), count = offsets_range, 0
    if start >= end:
        return 0
    # Requested first, because the client then knows the partition's leader; else it may learn that a second later.
    _watermarks(consumer, plan.changelog, plan.partition)
    consumer.assign([TopicPartition(plan.changelog, plan.partition, start)])
    for messages, reached in _batches(consumer, end, stop):
        apply_messages(plan, store, messages, reached, unflushed)
        count += len(messages)
        if reached >= end:
            break
    return count


def _batches(
    consumer: Consumer, end: int, stop: Event, place: tuple[str, int] | None = None
) -> Iterator[tuple[list[Message], int]]:
    """Return messages and the position after them, until stopped or the caller has seen the end.

    `place`: the topic and partition of the range, for a consumer that has read others.
    """
    position = 0
    while not stop.is_set():
        messages: list[Message] = []
        # `consume` alone waits for a full batch or for the whole timeout, and the records of all users wait for a switch.
        first = consumer.poll(_BATCH_SECONDS)
        for message in [] if first is None else [first, *consumer.consume(_BATCH - 1, 0)]:
            error = message.error()
            if place is not None and (message.topic(), message.partition()) != place and (error is None or _is_end(error)):
                continue
            if error is None:
                messages.append(message)
                position = (message.offset() or 0) + 1
            elif _is_end(error):
                # The offset of an end includes transaction markers; that of the last record does not.
                position = max(position, message.offset() or 0)
            elif error.fatal() or not error.retriable():
                raise KafkaException(error)
        if messages or position >= end:
            yield messages, position
    raise Interrupted


def _is_end(error: KafkaError) -> bool:
    return error.code() == KafkaError._PARTITION_EOF  # noqa: SLF001


def apply_messages(
    plan: Plan, store: TaskStore, messages: Iterable[Message], reached: int, unflushed: TailCollector | None = None
) -> None:
    """Write records of the changelog to the store, which is then at `reached`; records that it has are skipped."""
    meta: TaskMeta | None = None
    last: dict[bytes, bytes] = {}
    known = store.position() or 0
    for message in messages:
        key, value, offset = message.key() or b"", message.value() or b"", message.offset() or 0
        version, state = decode_state_changed(value) if value.startswith(plan.header) else plan.decode(value)
        if key == META_KEY:
            meta = decode_meta(state[8:]) if offset >= known else meta
            continue
        row = row_of(version, state)
        if unflushed is not None:
            unflushed.add(key, row, offset)
        if offset >= known:
            last[key] = row
    before = store.rows(list(last))
    changes = {key: Changed(was, row) for (key, row), was in zip(last.items(), before, strict=True)}
    store.apply(changes, meta, max(reached, known))


def _record(message: Message) -> ReadRecord:
    pairs = cast("list[tuple[str, str | bytes | None]]", message.headers() or [])
    headers = [(name, value if isinstance(value, bytes) else None) for name, value in pairs]
    topic, partition, offset = message.topic() or "", message.partition() or 0, message.offset() or 0
    return ReadRecord(topic, partition, offset, message.timestamp()[1], message.key(), message.value(), headers)
