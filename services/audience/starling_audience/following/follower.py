"""Edge: follows the feed for one target: gathers a batch, sends it, stores its outcomes, commits its offsets."""

import threading
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from confluent_kafka import Consumer, KafkaError, KafkaException, Message, TopicPartition

from starling_audience.adapters.adapter import Adapter, Again, Ended
from starling_audience.changes import change_of, traits_of
from starling_audience.definitions import AudienceTarget
from starling_audience.failpoints import AFTER_COMMIT, BEFORE_COMMIT
from starling_audience.following.batches import Batch
from starling_audience.following.circuit import Circuit
from starling_audience.following.meters import Meters
from starling_audience.following.parts import Limits, Parts, Sends
from starling_audience.following.present import after_consent, after_replay
from starling_audience.following.sending import Sent
from starling_audience.positions import FOLLOWED, TOPICS, Committed, metadata_of, plan_of
from starling_audience.stores.outbox import Outcomes
from starling_common.kafka.clients import PARTITION_EOF, bounded_queue, committed, consumer_config
from starling_common.kafka.topics import AUDIENCE_RETRY, CONSENT, MEMBERSHIP, MEMBERSHIP_STATE, audience_group
from starling_common.outcome import Refused
from starling_common.telemetry.logs import log
from starling_common.wire import Codec, DecodeError

FIRST_SYNC: Final = "first_sync"
FOLLOWING: Final = "following"
PAUSED: Final = "paused"
ENDED: Final = "disabled"
STATES: Final = (FIRST_SYNC, FOLLOWING, PAUSED, ENDED)

_POLL_SECONDS: Final = 0.2
_RECORDS_A_POLL: Final = 500
_MOST_RECORDS: Final = 50_000
"""Records of one batch. Most of them may be of other segments."""
_ANSWER_SECONDS: Final = 30.0
_MOST_POLL_MS: Final = 600_000
"""The broker gives the partitions of a thread to another one if it does not poll for so long."""
_CURRENT_SECONDS: Final = 10.0
"""How long a look-up waits until the projector has written what was already read here."""
_RESTART_SECONDS: Final = 2.0
_LAG_SECONDS: Final = 15.0
_SESSION_MS: Final = 10_000
"""Time after which the broker gives the partitions of a killed process to another one."""
_OFFSET_LOST: Final = KafkaError._AUTO_OFFSET_RESET  # noqa: SLF001 - the library's public constant


@dataclass
class _Place:
    """One assigned partition number. `until`: the end of its first sync; None after it. `starts`: committed offsets by topic."""

    starts: dict[str, int]
    until: int | None
    seen: int = 0
    """The offset after the last record of the feed that was sent; 0 before the first one."""
    reached: dict[str, int] = field(default_factory=dict)
    """Topic -> the offset up to which it was read, after the markers of transactions at its end."""


@dataclass
class _State:
    """What other threads see of a follower."""

    name: str = FIRST_SYNC
    error: str | None = None


@dataclass(eq=False)
class Follower:
    """Follows the feed for one target in a thread of its own."""

    target: AudienceTarget
    adapter: Adapter
    sender: Sends
    parts: Parts
    limits: Limits
    state: _State = field(default_factory=_State)

    def __post_init__(self) -> None:
        self.group = group_of(self.target)
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._run, name=f"follow-{self.target.key}", daemon=True)
        self._circuit = Circuit(self.limits.first_retry_seconds, self.limits.probe_seconds)
        self._places: dict[int, _Place] = {}
        self._uncommitted: list[TopicPartition] = []
        """The first offsets of a first sync that are not committed yet."""
        self._rebalanced = False
        self._held = False
        self._failing = False
        """Whether the last batch was not taken. The target counts as paused until one is."""
        self._lag_at = 0.0
        self._meters = Meters(self.parts.metrics, self.target)
        self._codecs: dict[str, Codec] = {}

    def start(self) -> None:
        """Start to follow."""
        self._thread.start()

    def stop(self) -> None:
        """End after the present batch. The call does not wait."""
        self._stopping.set()

    def is_stopping(self) -> bool:
        """Return whether `stop` was called."""
        return self._stopping.is_set()

    def is_running(self) -> bool:
        """Return whether the thread runs."""
        return self._thread.is_alive()

    def join(self, timeout_seconds: float) -> None:
        """Wait until the thread has ended."""
        self._thread.join(timeout_seconds)

    def _run(self) -> None:
        while not self._stopping.is_set() and self.state.name != ENDED:
            try:
                self._follow()
            except Exception as error:  # noqa: BLE001 - whatever the failure, other targets go on and this one is read again
                self._note(error)
            self._stopping.wait(_RESTART_SECONDS)
        self._meters.ended()

    def _note(self, error: Exception) -> None:
        reason = error.args[0].str() if isinstance(error, KafkaException) else f"{type(error).__name__}: {error}"
        if reason != self.state.error:
            log(__name__).warning("audience_interrupted", workspace=self.target.workspace, target=self.target.key, reason=reason)
        self.state.error = reason

    def _follow(self) -> None:
        """Read until `stop`. Raises: KafkaException and the errors of the dependencies; nothing is lost."""
        own = {
            "partition.assignment.strategy": "range",  # a process gets the same partitions of each topic
            "enable.partition.eof": True,
            # Changes that expired are not skipped: the first sync is repeated instead.
            "auto.offset.reset": "error",
            "max.poll.interval.ms": _MOST_POLL_MS,
            "session.timeout.ms": _SESSION_MS,
            **bounded_queue(self.limits.queue_kbytes),
        }
        self._places, self._uncommitted, self._rebalanced, self._held = {}, [], False, False
        self._codecs = {topic: self.parts.codec(topic) for topic in TOPICS}
        consumer = Consumer(consumer_config(self.parts.brokers, self.group, **own))
        try:
            consumer.subscribe(list(TOPICS), on_assign=self._assigned, on_revoke=self._revoked, on_lost=self._revoked)
            while not self._stopping.is_set() and self.state.name != ENDED:
                if self._uncommitted:
                    self._begin_first_sync(consumer)
                batch = self._gather(consumer)
                if not batch.is_empty:
                    self._deliver(consumer, batch)
                self._show()
        finally:
            consumer.close()

    def _assigned(self, consumer: Consumer, partitions: list[TopicPartition]) -> None:
        numbers = sorted({one.partition for one in partitions if one.topic == MEMBERSHIP})
        whole = {(topic, number) for topic in TOPICS for number in numbers}
        if whole != {(one.topic, one.partition) for one in partitions}:
            raise RuntimeError(f"{self.group}: the topics {', '.join(TOPICS)} differ in their partitions: run the deploy step")
        known: dict[int, dict[str, Committed]] = {number: {} for number in numbers}
        for one in committed(consumer, partitions, _ANSWER_SECONDS):
            known[one.partition][one.topic] = Committed(one.offset, one.metadata or "")
        ends = self.parts.probe.ends(numbers)
        plans = {number: plan_of(known[number], ends[number], self.target.mapping) for number in numbers}
        self._places = {number: _Place(dict(plan.starts), plan.until) for number, plan in plans.items()}
        self._uncommitted = [
            self._committing(topic, number, offset, is_done=False)
            for number, plan in plans.items()
            if plan.is_new
            for topic, offset in plan.starts.items()
        ]
        self._rebalanced = True
        consumer.assign([] if self._uncommitted or self._held else self._active())

    def _revoked(self, _consumer: Consumer, _partitions: list[TopicPartition]) -> None:
        self._places, self._uncommitted, self._rebalanced = {}, [], True

    def _begin_first_sync(self, consumer: Consumer) -> None:
        """Commit the offsets from which the feed is followed, before the first record of the state is read."""
        # The changes of consent are followed from their end as of now: the earlier ones have to be known.
        self.parts.refreshed()
        consumer.commit(offsets=self._uncommitted, asynchronous=False)
        partitions, self._uncommitted = len(self._uncommitted) // len(TOPICS), []
        log(__name__).info("first_sync", workspace=self.target.workspace, target=self.target.key, partitions=partitions)
        self._rewind(consumer)

    def _active(self) -> list[TopicPartition]:
        """Return where to read: the state during the first sync, and the followed topics after it."""
        return [
            TopicPartition(topic, number, place.starts[topic])
            for number, place in self._places.items()
            for topic in ((MEMBERSHIP_STATE,) if place.until is not None else FOLLOWED)
        ]

    def _rewind(self, consumer: Consumer) -> None:
        """Read on from the committed offsets, whatever the client has buffered; nothing during a pause.

        The client reads the partitions that it is given here. In the group this process keeps all of its partitions.
        """
        for place in self._places.values():
            place.reached.clear()
        consumer.assign([] if self._held else self._active())

    def _gather(self, consumer: Consumer) -> Batch:
        """Return the changes of up to `batch_seconds`, or of a full batch."""
        batch, ends_at = Batch(), time.monotonic() + self.limits.batch_seconds
        while not self._stopping.is_set() and batch.size() < self.adapter.max_changes and batch.records < _MOST_RECORDS:
            first = consumer.poll(_POLL_SECONDS)
            # `consume` alone waits for the full batch or the timeout.
            messages = [] if first is None else [first, *consumer.consume(_RECORDS_A_POLL - 1, 0)]
            if self._rebalanced:
                self._rebalanced = False
                if not self._uncommitted:
                    self._rewind(consumer)
                return Batch()  # what was read before is read again, here or by another process
            for message in messages:
                self._take(batch, message)
            if batch.is_empty:
                ends_at = time.monotonic() + self.limits.batch_seconds
                if first is None:
                    break
            elif time.monotonic() >= ends_at or (batch.ended and not batch.size()):
                break
        return batch

    def _take(self, batch: Batch, message: Message) -> None:
        topic, number, offset, error = message.topic() or "", message.partition() or 0, message.offset() or 0, message.error()
        place = self._places.get(number)
        if error is not None and error.code() != PARTITION_EOF:
            if error.fatal() or error.code() == _OFFSET_LOST:
                raise KafkaException(error)
            return  # the client reconnects automatically
        is_state = topic == MEMBERSHIP_STATE
        if place is None or is_state != (place.until is not None):
            return  # of a topic that is not read now
        # The offset of an end-of-partition event is that of the next record, after any transaction markers.
        after = place.reached[topic] = offset + (1 if error is None else 0)
        if error is None:
            batch.records += 1
            batch.positions[topic, number] = after
            self._read(batch, message, topic, number)
        if is_state and place.until is not None and after >= place.until:
            batch.ended.add(number)

    def _read(self, batch: Batch, message: Message, topic: str, number: int) -> None:
        value = message.value()
        if value is None:
            return  # a tombstone of compaction: an earlier record has the exit
        try:
            record = self._codecs[topic].decode(value)
        except DecodeError as error:
            batch.unreadable.append((message, Refused(error.code, str(error))))
            return
        if record["workspace"] != self.target.workspace:
            return
        if topic == CONSENT:
            if self.parts.consent().apply(record):
                batch.consents[record["user_id"]] = (record, number)
        elif topic == AUDIENCE_RETRY:
            if record["target_key"] == self.target.key:
                batch.replays.append((record, number))
        elif record["segment_key"] in self.target.segments:
            traits = traits_of(record)
            is_allowed = self._allows(record["user_id"], traits)
            batch.add(change_of(record, traits, is_allowed=is_allowed, is_reported=topic == MEMBERSHIP))

    def _allows(self, user: str, traits: Mapping[str, Any]) -> bool:
        return self.parts.consent().allows(self.target.workspace, user, traits, opt_out=self.target.opt_out)

    def _deliver(self, consumer: Consumer, batch: Batch) -> None:
        """Send a batch, store its outcomes and commit its offsets; after a failure nothing is committed."""
        self._look_up(batch)
        findable = [change for change in batch.newest.values() if self.adapter.has_identifier(change)]
        lost = [change for change in batch.newest.values() if not self.adapter.has_identifier(change)]
        sent = self.sender.send(findable) if findable else Sent()
        if isinstance(sent.problem, Ended):
            self._end(sent.problem)
            return
        if isinstance(sent.problem, Again):
            self._meters.batch("failed")
            self._pause(consumer, self._circuit.failed(sent.problem.retry_after_seconds), sent.problem.why)
            return
        if findable:
            self._failing = False
            self._circuit.succeeded()
            self._meters.batch("sent")
        outcomes = Outcomes(sent.taken, sent.rejected, lost, batch.superseded, batch.unreadable)
        self.parts.outbox.store(self.target, outcomes)
        self._commit(consumer, batch)
        self._meters.count(outcomes)

    def _look_up(self, batch: Batch) -> None:
        """Add the changes that need the present state of their users."""
        if not batch.consents and not batch.replays:
            return
        users = list(dict.fromkeys([*batch.consents, *(record["user_id"] for record, _ in batch.replays)]))
        # A refusal needs no membership: it removes from every audience.
        granted = [number for user, (_, number) in batch.consents.items() if self._allows(user, {})]
        self._await_read_model(batch, {*granted, *(number for _, number in batch.replays)})
        known = self.parts.read_model.users(self.target.workspace, users)
        for record, _ in batch.replays:
            change, overtaken = after_replay(self.target, record, known[record["user_id"]], self._allows)
            if overtaken:
                batch.superseded.append(change)
            else:
                batch.add(change)
        for user, (record, _) in batch.consents.items():
            for change in after_consent(self.target, record, known[user], self._allows):
                batch.add(change)

    def _await_read_model(self, batch: Batch, numbers: set[int]) -> None:
        """Wait until the read model has what was read here. An older membership would otherwise be sent after a newer one."""
        positions = {}
        for number in numbers:
            seen = max(self._places[number].seen, batch.positions.get((MEMBERSHIP, number), 0))
            if seen:
                positions[number] = seen
        deadline = time.monotonic() + _CURRENT_SECONDS
        while not self.parts.read_model.is_current(positions) and time.monotonic() < deadline:
            if self._stopping.wait(_POLL_SECONDS):
                return

    def _commit(self, consumer: Consumer, batch: Batch) -> None:
        places = [
            self._committing(topic, number, offset, is_done=number in batch.ended)
            for (topic, number), offset in batch.positions.items()
        ]
        committed_state = {number for topic, number in batch.positions if topic == MEMBERSHIP_STATE}
        places += [
            self._committing(MEMBERSHIP_STATE, number, self._places[number].starts[MEMBERSHIP_STATE], is_done=True)
            for number in batch.ended - committed_state
        ]
        self.parts.passed(BEFORE_COMMIT)
        consumer.commit(offsets=places, asynchronous=False)
        self.parts.passed(AFTER_COMMIT)
        for (topic, number), offset in batch.positions.items():
            self._places[number].starts[topic] = offset
            if topic == MEMBERSHIP:
                self._places[number].seen = offset
        for number in batch.ended:
            self._places[number].until = None
            log(__name__).info("first_sync_done", workspace=self.target.workspace, target=self.target.key, partition=number)
        if batch.ended:
            self._rewind(consumer)

    def _committing(self, topic: str, number: int, offset: int, *, is_done: bool) -> TopicPartition:
        if topic == MEMBERSHIP_STATE:
            return TopicPartition(topic, number, offset, metadata_of(self.target.mapping, is_done=is_done))
        return TopicPartition(topic, number, offset)

    def _pause(self, consumer: Consumer, seconds: float, why: str) -> None:
        """Read nothing for a while. The membership in the group stays, so that other processes keep their partitions."""
        log(__name__).warning(
            "audience_paused", workspace=self.target.workspace, target=self.target.key, seconds=round(seconds, 1), reason=why
        )
        self._held = self._failing = True
        self._set_state(PAUSED)
        self._rewind(consumer)
        until = time.monotonic() + seconds
        while (left := until - time.monotonic()) > 0 and not self._stopping.is_set():
            consumer.poll(min(_POLL_SECONDS, left))  # for the membership in the group; there is nothing to read
            self._measure_lag()
        self._held = False
        self._rewind(consumer)

    def _end(self, ended: Ended) -> None:
        log(__name__).error("audience_disabled", workspace=self.target.workspace, target=self.target.key, reason=ended.why)
        if not self._stopping.is_set():  # a newer version of the target may have other credentials
            self.parts.outbox.disable(self.target, ended.why)
        self._set_state(ENDED)

    def _set_state(self, name: str) -> None:
        self.state.name = name
        self._meters.paused.set(name == PAUSED)

    def _show(self) -> None:
        if self.state.name == ENDED:
            return
        unfinished = sum(place.until is not None for place in self._places.values())
        self._meters.first_syncs.set(unfinished)
        self._set_state(PAUSED if self._failing else FIRST_SYNC if unfinished else FOLLOWING)
        if self._places:
            self.state.error = None
        self._measure_lag()

    def _measure_lag(self) -> None:
        now = time.monotonic()
        if now - self._lag_at < _LAG_SECONDS or not self._places:
            return
        self._lag_at = now
        ends = self.parts.probe.ends(list(self._places))
        lag = 0
        for one in self._active():
            known = ends[one.partition]
            end = known.state_end if one.topic == MEMBERSHIP_STATE else known.stable[one.topic]
            lag += max(0, end - max(one.offset, self._places[one.partition].reached.get(one.topic, 0)))
        self._meters.lag.set(lag)


def group_of(target: AudienceTarget) -> str:
    """Return the consumer group of a target."""
    return audience_group(target.workspace, target.key)
