"""Adapter: brings a task's store to the state of the last committed transaction, from the changelog's tail."""

import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from threading import Event
from typing import Final, NamedTuple, cast

from confluent_kafka import OFFSET_BEGINNING, Consumer, KafkaError, KafkaException, Message, TopicPartition

from starling_common.kafka import committed, consumer_config, is_passing, watermarks
from starling_common.logs import log
from starling_stream.model.backing_store import Standing
from starling_stream.model.changelog import decode_state_changed
from starling_stream.model.meta import TaskMeta, decode_meta
from starling_stream.model.ports import BackingTier, Changed, Tail
from starling_stream.model.records import ReadRecord
from starling_stream.model.rows import META_KEY, row_of
from starling_stream.state.local_store import Origin, StoreMemory, TaskStore
from starling_stream.state.restore_point import Base, Choice, OnDisk, Span, choose_base
from starling_stream.state.unflushed import Lacking

_ASK_SECONDS: Final = 30.0
_BATCH: Final = 10_000
_READER: Final = {"enable.partition.eof": True, "check.crcs": True, "fetch.wait.max.ms": 20}
"""The end of a log is told after that wait; half a second, the client's own, was most of a short restore."""
_BATCH_SECONDS: Final = 0.05
"""A batch is waited for until it is full or this is over: a short tail takes no longer than that."""


class Interrupted(Exception):
    """The partition was taken away, or the worker stops."""


class Plan(NamedTuple):
    """What to restore. `inputs` are the topics whose committed offsets the task goes on from."""

    brokers: str
    group: str
    changelog: str
    partition: int
    inputs: Sequence[str]
    origin: Origin
    path: Path
    header: bytes
    decode: Callable[[bytes], tuple[int, bytes]]
    """For changelog records of another schema version."""
    tier: BackingTier
    replay_records: int
    """So much of the changelog is replayed rather than users left cold."""


class Restored(NamedTuple):
    """A task's store, ready. `offsets`: the next record of each input that has a committed one; of the first, where none has."""

    store: TaskStore
    meta: TaskMeta
    offsets: Mapping[str, int]
    base: Base
    tail: Tail
    due_from_ms: int
    """Of the users that are not local, none is due before this."""
    records: int
    seconds: Mapping[str, float]
    """By phase: offsets, open, base, replay."""


class _Laps:
    """How long each phase took."""

    def __init__(self) -> None:
        self.seconds: dict[str, float] = {}
        self._at = time.monotonic()

    def ends(self, phase: str) -> None:
        """The phase that is over now."""
        now = time.monotonic()
        self.seconds[phase], self._at = round(now - self._at, 3), now


def restore(plan: Plan, memory: StoreMemory, stop: Event, opened: TaskStore | None = None) -> Restored:
    """Open the store, or take the one that is open already, and replay what it lacks. Blocks; only this task waits for it.

    Whatever it raises, no store stays open. Raises: StoreMismatch, Interrupted, KafkaException.
    """
    lap = _Laps()
    consumer = Consumer(consumer_config(plan.brokers, plan.group, **_READER))
    try:
        offsets = _stable_offsets(consumer, plan, stop)
        if not offsets:
            # The consumer resumes at the first record there is; a unit of work that consumes none sends this offset.
            offsets = {plan.inputs[0]: _watermarks(consumer, plan.inputs[0], plan.partition).start}
        # Whatever a committed transaction wrote lies before this, for its offsets are stable by now; its markers may still
        # be on their way, so the tail is read up to here and not only up to what is stable at the moment.
        span = span_of(plan)
        lap.ends("offsets")
        opened = opened or open_or_begin_anew(plan, memory)
        opened.check_origin(plan.origin)
        lap.ends("open")
        choice, standing = _choose(plan, opened, span)
        opened = _based_on(choice, standing, plan, memory, opened)
        lap.ends("base")
        tail = Lacking(choice.track_from if plan.tier.on else None)
        records = _replay(consumer, plan, opened, (choice.replay_from, span.end), stop, tail)
        lap.ends("replay")
        meta = opened.meta()
        incarnation = None if standing is None else choice.incarnation
        lacking = Tail(incarnation, tail.rows, max(span.end, opened.position() or 0), meta, tail.whole)
        due_from_ms = standing.due_from_ms if standing else 0
        return Restored(opened, meta, offsets, choice.base, lacking, due_from_ms, records, lap.seconds)
    except BaseException:
        if opened is not None:
            opened.close()
        raise
    finally:
        consumer.close()


def history(brokers: str, topic: str, partition: int, stretch: tuple[int, int], stop: Event) -> Iterator[ReadRecord]:
    """The records of a partition from an offset, or the first that is left after it, up to another, exclusive.

    Raises: Interrupted, KafkaException.
    """
    first, until = stretch
    # A partition that switches stands still meanwhile: the end of a topic is not waited for long.
    more = {"enable.partition.eof": True, "fetch.wait.max.ms": 50}
    consumer = Consumer(consumer_config(brokers, f"history-{topic}", **more))
    try:
        _watermarks(consumer, topic, partition)  # asked first, as in `_replay`
        consumer.assign([TopicPartition(topic, partition, first or OFFSET_BEGINNING)])
        for messages, position in _batches(consumer, until, stop):
            yield from (_record(message) for message in messages if (message.offset() or 0) < until)
            if position >= until:
                return
    finally:
        consumer.close()


def changelog_records(
    brokers: str, changelog: str, partition: int, decode: Callable[[bytes], tuple[int, bytes]]
) -> Iterator[tuple[int, bytes, bytes]]:
    """(offset, key, row) of every committed record there is, but for the task's own; at last (end, b"", b""). For operators."""
    consumer = Consumer(consumer_config(brokers, f"audit-{changelog}", **{"enable.partition.eof": True}))
    try:
        place = TopicPartition(changelog, partition, OFFSET_BEGINNING)
        span = _watermarks(consumer, changelog, partition)
        consumer.assign([place])
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


def _stable_offsets(consumer: Consumer, plan: Plan, stop: Event) -> dict[str, int]:
    """Committed offsets, no transaction that holds some being open: a `read_committed` client waits for those."""
    wanted = [TopicPartition(topic, plan.partition) for topic in plan.inputs]
    while not stop.is_set():
        try:
            found = committed(consumer, wanted, 5)
        except KafkaException as cause:
            if not is_passing(cause) and cause.args[0].code() != KafkaError._TIMED_OUT:  # noqa: SLF001
                raise
            log(__name__).warning("offsets_not_stable_yet", partition=plan.partition, error=cause.args[0].str())
            continue
        return {offset.topic: offset.offset for offset in found if offset.offset >= 0}
    raise Interrupted


def span_of(plan: Plan) -> Span:
    """First offset and end of the changelog, open transactions included."""
    reader = Consumer(consumer_config(plan.brokers, plan.group, **{"isolation.level": "read_uncommitted"}))
    try:
        return _watermarks(reader, plan.changelog, plan.partition)
    finally:
        reader.close()


def _watermarks(reader: Consumer, topic: str, partition: int) -> Span:
    return Span(*watermarks(reader, topic, partition, _ASK_SECONDS))


def _choose(plan: Plan, store: TaskStore, span: Span) -> tuple[Choice, Standing | None]:
    position = store.position()
    disk = None if position is None else OnDisk(position, store.incarnation(), bool(store.cold()))
    standing = plan.tier.standing(plan.partition)
    choice = choose_base(disk, standing, span, plan.replay_records)
    if choice.begin and not plan.tier.begin(plan.partition, choice.incarnation or 0):
        standing = None
        choice = choose_base(disk, standing, span, plan.replay_records)
    if position is not None and choice.base is not Base.DISK:
        # Behind the log's start, beyond its end, of another incarnation, or so old that the tier is the quicker way.
        log(__name__).warning("store_started_over", partition=plan.partition, position=position, base=choice.base, span=span)
    return choice, standing


def _based_on(choice: Choice, standing: Standing | None, plan: Plan, memory: StoreMemory, store: TaskStore) -> TaskStore:
    """The store itself where it is the base, else an empty one in its place."""
    if choice.base is not Base.DISK and store.position() is not None:
        store = begun_anew(plan, memory, store)
    if choice.base is Base.TIER and standing is not None:
        store.begin_cold(standing.floor or 0, decode_meta(standing.meta), plan.tier.buckets, choice.incarnation or 0)
    elif choice.incarnation is not None:
        store.set_incarnation(choice.incarnation)
    return store


def open_or_begin_anew(plan: Plan, memory: StoreMemory) -> TaskStore:
    """A store that is broken is not repaired: the changelog has everything. One that is in use is left alone."""
    try:
        return TaskStore(plan.path, memory)
    except Exception as cause:
        if "Corruption" not in str(cause):
            raise
        log(__name__).exception("store_corrupted", partition=plan.partition)
    TaskStore.destroy(plan.path)
    return TaskStore(plan.path, memory)


def begun_anew(plan: Plan, memory: StoreMemory, store: TaskStore) -> TaskStore:
    """An empty store in the place of this one."""
    store.close()
    TaskStore.destroy(plan.path)
    store = TaskStore(plan.path, memory)
    store.check_origin(plan.origin)
    return store


def _replay(consumer: Consumer, plan: Plan, store: TaskStore, stretch: tuple[int, int], stop: Event, lacking: Lacking) -> int:
    """Read a stretch of the changelog; what the store has already is only looked at for what the tier lacks."""
    (start, end), count = stretch, 0
    if start >= end:
        return 0
    # Asked first, for the client then knows who leads the partition; else it may find that out a second later.
    _watermarks(consumer, plan.changelog, plan.partition)
    consumer.assign([TopicPartition(plan.changelog, plan.partition, start)])
    for messages, reached in _batches(consumer, end, stop):
        apply_messages(plan, store, messages, reached, lacking)
        count += len(messages)
        if reached >= end:
            break
    return count


def _batches(consumer: Consumer, end: int, stop: Event) -> Iterator[tuple[list[Message], int]]:
    """Messages, and the position after them, until stopped or the caller has seen the end."""
    position = 0
    while not stop.is_set():
        messages: list[Message] = []
        for message in consumer.consume(_BATCH, _BATCH_SECONDS):
            error = message.error()
            if error is None:
                messages.append(message)
                position = (message.offset() or 0) + 1
            elif error.code() == KafkaError._PARTITION_EOF:  # noqa: SLF001
                # The offset of an end is beyond any markers; the last record's own would not be.
                position = max(position, message.offset() or 0)
            elif error.fatal() or not error.retriable():
                raise KafkaException(error)
        if messages or position >= end:
            yield messages, position
    raise Interrupted


def apply_messages(plan: Plan, store: TaskStore, messages: Iterable[Message], reached: int, lacking: Lacking | None = None) -> None:
    """Records of the changelog into the store, in one write, which then goes up to `reached`; those it has already are left out."""
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
        if lacking is not None:
            lacking.add(key, row, offset)
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
