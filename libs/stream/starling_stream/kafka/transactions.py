"""Adapter: one Kafka transaction a batch, with outputs, changelog, dead letters and input offsets."""

import faulthandler
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from threading import Event
from time import monotonic
from typing import Any, Final, NamedTuple

from confluent_kafka import KafkaError, KafkaException, Message, Producer, TopicPartition

from starling_common.failures import InstallationFailure, is_of_installation
from starling_common.kafka.access.check import cure, is_refused
from starling_common.kafka.clients import RECORD_REFUSED, producer_config
from starling_common.telemetry.logs import log
from starling_common.time.instants import record_timestamp_ms, wall_clock_ms
from starling_stream.kafka.membership import Membership
from starling_stream.model.changelog import encode_state_changed
from starling_stream.model.dead_letters import dead_letter_headers
from starling_stream.model.failpoints import AFTER_COMMIT, AFTER_PRODUCE, Failpoints
from starling_stream.model.meta import encode_meta
from starling_stream.model.ports import Refusal, Sealed
from starling_stream.model.rows import META_KEY, NEVER, row_state, row_version

_REPLACED: Final = frozenset({KafkaError.FENCED_INSTANCE_ID, KafkaError._FENCED, KafkaError.PRODUCER_FENCED})  # noqa: SLF001
_OF_SOME_RECORD: Final = RECORD_REFUSED | {KafkaError._INCONSISTENT, KafkaError._STATE}  # noqa: SLF001 - public constants
"""Errors of a transaction in which a record was refused: the error itself, that of the commit, or that of the next call."""
_WATCHED_TRANSACTIONS: Final = 100
"""Transactions with reports after one in which a record was refused: the same record may be in a later one."""
_CLIENT_FAILURE_SECONDS: Final = 120.0
"""Time of retries after which a new client makes a request. If that has an answer and the next retry has none, a restart helps."""
_REFUSED_SECONDS: Final = 5.0
_HANGS_SECONDS: Final = 5.0
"""A call of the client that exceeds its time-out by this does not return."""


class Aborted(Exception):
    """The transaction was aborted for a transient reason; the same records can be tried again. `reason` is one word."""

    def __init__(self, reason: str, message: str) -> None:
        super().__init__(message)
        self.reason = reason


class OutputRefused(Aborted):
    """The transaction was aborted because a record of this partition's unit can never be written; the cause is the error."""

    def __init__(self, partition: int, cause: Exception) -> None:
        super().__init__("output_refused", f"{type(cause).__name__}: {cause}")
        self.partition = partition
        self.cause = cause


class NoPartition(InstallationFailure):
    """A topic has fewer partitions than the inputs."""


class NotOwner(Exception):
    """The broker refused the membership: no transaction is possible before the next assignment, which decides about the tasks."""


class NextGeneration(NotOwner):
    """The group has formed its next generation, of which this worker is a member; its assignment follows soon."""


class Replaced(Exception):
    """Another process uses this worker's transactional id, or the producer cannot recover: the worker must end."""


_NOT_OURS: Final[Mapping[int, type[NotOwner]]] = {
    KafkaError.UNKNOWN_MEMBER_ID: NotOwner,
    KafkaError.ILLEGAL_GENERATION: NextGeneration,
    KafkaError.REBALANCE_IN_PROGRESS: NextGeneration,
}
"""The broker compares the generation of a member only."""


class Offset(NamedTuple):
    """The next record of an input to read after a restart. `units`: the task's number of units, which a restart compares."""

    topic: str
    partition: int
    next_offset: int
    units: int = 0


class Submitted(NamedTuple):
    """An open transaction. `positions`: partition -> changelog position after its unit, set as records are delivered.

    `failures`: (partition, error) of records that the client did not accept, or that were not delivered.
    """

    positions: dict[int, int]
    offsets: Sequence[Offset]
    failures: list[tuple[int, Exception]]


class Naming(NamedTuple):
    """The names of a service's own topics, the changelog's wire header, and the encoder of refusals."""

    stage: str
    changelog: str
    dead_letters: str
    changelog_header: bytes
    encode_refusal: Callable[[Refusal], bytes]


class Transactions:
    """One transactional producer. Not for use by several threads at once; every call may block."""

    def __init__(self, brokers: str, transactional_id: str, timeout_seconds: float, naming: Naming, failpoints: Failpoints) -> None:
        """Opens no connection; `begin` does."""
        self._brokers = brokers
        self._timeout_seconds = timeout_seconds
        self._naming = naming
        self._failpoints = failpoints
        self._transactional_id = transactional_id
        self._partitions: dict[str, int] = {}
        self._producer: Producer | None = None
        self._leaving = Event()
        self._sending = False
        self.problem: str | None = None
        """Why the broker refuses the transactional id; None once it has accepted it."""
        self.returned_at = monotonic()
        """When a call of the client last returned. A wait for the broker consists of calls that return within half a minute."""
        self._watched = 0
        """The number of transactions to come in which the delivery of each record is reported, which is slow."""

    def begin(self) -> None:
        """Fence the former producer with this id and abort its open transaction. Called before the group is joined.

        Waits while the broker refuses the id to this user. Raises: KafkaException, Replaced.
        """
        while True:
            self._producer = self._new_producer()
            try:
                self._until_done(lambda: self._open().init_transactions(30))
            except KafkaException as cause:
                if not is_refused(cause):
                    raise
                self._note_refusal(cause.args[0])
                self._check_leaving()
                self._leaving.wait(_REFUSED_SECONDS)  # a producer that was refused once does not recover
            else:
                self.problem = None
                return

    def _note_refusal(self, error: KafkaError) -> None:
        problem = f"the broker refuses the transactional id {self._transactional_id} ({error.name()}): {cure(self._naming.stage)}"
        if problem != self.problem:
            log(__name__).error("not_ready", reason=problem)
        self.problem = problem

    def _new_producer(self) -> Producer:
        timeout_ms = int(self._timeout_seconds * 1000)
        return Producer(
            producer_config(
                self._brokers,
                **{
                    "transactional.id": self._transactional_id,
                    "transaction.timeout.ms": timeout_ms,
                    "message.timeout.ms": timeout_ms,
                    "queue.buffering.max.messages": 2_000_000,
                    # The broker may still complete the last transaction when the next one begins and sends its offsets, and returns
                    # a retriable error. With the client's default the transaction would wait 100 ms for the retry.
                    "retry.backoff.ms": 10,
                },
            )
        )

    def submit(self, units: Sequence[Sealed], offsets: Sequence[Offset]) -> Submitted:
        """Open a transaction and pass the units' records to the client, which sends them in the background; `commit` must follow.

        The work is in Python, so it belongs to the thread that folds: two busy threads would alternate at the interpreter. It waits
        for the broker in two cases: the first record of a topic needs the topic's number of partitions, and a full queue of the
        client is sent first. Errors of the broker are raised by `commit`.

        `offsets`: at least one of each unit's partition, advanced or not. The group refuses a transaction of a former generation
        when its offsets are sent, and returns a partition's offsets to its next worker only when no open transaction contains one.

        Raises: RuntimeError for a partition without an offset, before a transaction is begun.
        """
        unfenced = {sealed.partition for sealed in units} - {offset.partition for offset in offsets}
        if unfenced or not offsets:
            raise RuntimeError(
                f"no input offset of partitions {sorted(unfenced)} in the transaction: the broker could not fence a second worker"
            )
        submitted = Submitted({}, offsets, [])
        partition = units[0].partition if units else offsets[0].partition
        try:
            self._open().begin_transaction()
            for sealed in units:
                partition = sealed.partition
                self._produce(sealed, submitted)
        except Exception as cause:  # noqa: BLE001 - `commit` raises it, after the abort
            submitted.failures.append((partition, cause))
        return submitted

    def commit(self, submitted: Submitted, membership: Membership) -> dict[int, int]:
        """Commit; return the changelog position of each task after it. `membership`: that under which the records were read.

        Raises: Aborted, NotOwner, Replaced, NoPartition. After any of them nothing of the batch is visible.
        """
        for _, failure in submitted.failures:
            raise self._given_up(failure, submitted) from failure
        try:
            self._commit(submitted.offsets, membership)
        except KafkaException as cause:
            raise self._given_up(cause, submitted) from cause
        self._watched = max(0, self._watched - 1)
        self._failpoints.passed(AFTER_COMMIT)
        return submitted.positions

    def close(self) -> None:
        """Discard an open transaction; a restart would abort it too."""
        if self._producer is not None:
            self._producer.purge()
            self._producer = None

    def partitions(self, topic: str) -> int:
        """Return the number of partitions of a topic. Raises: KafkaException if it does not exist."""
        if topic not in self._partitions:
            found = self._open().list_topics(topic, timeout=30).topics[topic]
            if found.error is not None:
                raise KafkaException(found.error)
            self._partitions[topic] = len(found.partitions)
        return self._partitions[topic]

    def _open(self) -> Producer:
        if self._producer is None:
            raise RuntimeError("the producer is not open")
        return self._producer

    def _commit(self, offsets: Sequence[Offset], membership: Membership) -> None:
        if membership.generation < 0:
            # A group without members accepts offsets without a generation, also those of a worker that it removed.
            raise KafkaException(KafkaError(KafkaError.UNKNOWN_MEMBER_ID, "this worker is no member of its group"))
        producer = self._open()
        positions = [TopicPartition(*offset[:3], metadata=str(offset.units)) for offset in offsets]
        metadata = group_metadata(membership)
        self._until_done(lambda: self._send_offsets(producer, positions, metadata))
        while producer.flush(1) > 0:
            self.returned_at = monotonic()
            self._check_leaving()  # each record is delivered or times out; the commit reports a failure
        self._failpoints.passed(AFTER_PRODUCE)
        self._until_done(lambda: producer.commit_transaction(30))

    def _send_offsets(self, producer: Producer, offsets: list[TopicPartition], metadata: bytes) -> None:
        """Send the offsets; end the process if the call hangs.

        After a restart of the group's coordinator the client sometimes waits endlessly, whatever its time-out, and cannot be
        interrupted. The transaction is not committed then.
        """
        faulthandler.dump_traceback_later(self._timeout_seconds + _HANGS_SECONDS, exit=True)
        self._sending = True
        try:
            producer.send_offsets_to_transaction(offsets, metadata, self._timeout_seconds)
        finally:
            self._sending = False
            faulthandler.cancel_dump_traceback_later()

    def _produce(self, sealed: Sealed, submitted: Submitted) -> None:
        # Hot: once for each output and changed key; the client's own call takes a third of a microsecond.
        naming, partition, produce = self._naming, sealed.partition, self._open().produce
        watch: dict[str, Any] = {}
        if self._watched:
            watch = {
                "on_delivery": lambda error, _: submitted.failures.append((partition, KafkaException(error))) if error else None
            }
            produce = partial(produce, **watch)
        targets = {topic: self._partition(topic, partition) for topic in {output.topic for output in sealed.outputs}}
        for topic, key, value, received_at, headers in sealed.outputs:
            try:
                produce(topic, value, key or None, targets[topic], timestamp=received_at // 1000, headers=headers)
            except BufferError:
                self._write(topic, value, key or None, targets[topic], timestamp=received_at // 1000, headers=headers, **watch)
        for topic, key, value, received_at, headers in sealed.sent:
            # To the partition of its key.
            self._write(topic, value, key, -1, timestamp=received_at // 1000, headers=headers, **watch)
        for refusal in sealed.refusals:
            target, key = self._partition(naming.dead_letters, partition), refusal.record.key
            stamp = record_timestamp_ms(refusal.record.received_at, wall_clock_ms())
            more = {"timestamp": stamp, "headers": dead_letter_headers(naming.stage, refusal)}
            self._write(naming.dead_letters, naming.encode_refusal(refusal), key, target, **more, **watch)
        changelog, header = naming.changelog, naming.changelog_header
        for key, (_, after) in sealed.changes.items():
            value = encode_state_changed(header, row_version(after), row_state(after))
            try:
                produce(changelog, value, key, partition)
            except BufferError:
                self._write(changelog, value, key, partition, **watch)

        def delivered(error: KafkaError | None, message: Message) -> None:
            if error is None:
                submitted.positions[partition] = (message.offset() or 0) + 1

        own = encode_state_changed(header, sealed.meta.units, NEVER + encode_meta(sealed.meta))
        # The task's last record: its offset is the position after the unit.
        self._write(changelog, own, META_KEY, partition, on_delivery=delivered)

    def _write(self, topic: str, value: bytes, key: bytes | None, partition: int, **more: object) -> None:
        """Produce as soon as the client's queue has room."""
        producer = self._open()
        while True:
            try:
                producer.produce(topic, value, key, partition, **more)  # type: ignore[arg-type]
            except BufferError:
                producer.poll(0.05)
            else:
                return

    def _partition(self, topic: str, same: int) -> int:
        count = self._partitions.get(topic) or self.partitions(topic)
        if count == 1:
            return 0
        if same >= count:
            raise NoPartition(f"{topic} has {count} partitions and needs partition {same}: create it as large as the inputs")
        return same

    def _given_up(self, cause: Exception, submitted: Submitted) -> Exception:
        """Abort the transaction and return the error to raise."""
        if is_of_installation(cause) and not isinstance(cause, KafkaException):
            return cause
        error: KafkaError = cause.args[0] if isinstance(cause, KafkaException) else KafkaError(KafkaError._FAIL, str(cause))  # noqa: SLF001
        if error.fatal() or error.code() in _REPLACED:
            return Replaced(error.str())
        try:
            self._until_done(lambda: self._open().abort_transaction(30))
            self._open().poll(0)  # the reports of undelivered records
        except KafkaException as failed:
            return Replaced(f"{error.str()}; and the abort failed: {failed.args[0].str()}")
        if error.code() in _NOT_OURS:
            return _NOT_OURS[error.code()](error.str())
        for partition, failure in submitted.failures:
            if not isinstance(failure, KafkaException) or failure.args[0].code() in RECORD_REFUSED:
                return OutputRefused(partition, failure)
        if error.code() in _OF_SOME_RECORD:
            self._watched = _WATCHED_TRANSACTIONS  # the error does not name the record
        return Aborted(error.name().lower(), error.str())

    def leave(self) -> None:
        """Called from another thread: calls that wait for the broker end soon, and the transaction is not committed."""
        self._leaving.set()
        if self._sending:
            faulthandler.dump_traceback_later(_HANGS_SECONDS, exit=True)

    def _check_leaving(self) -> None:
        if self._leaving.is_set():
            raise Replaced("the worker stops while the broker does not respond")

    def _until_done(self, call: Callable[[], None]) -> None:
        """Repeat the call while its error is retriable. Raises: KafkaException for any other error, Replaced."""
        compare_at = monotonic() + _CLIENT_FAILURE_SECONDS
        other_answered = False
        while True:
            self.returned_at = monotonic()
            try:
                call()
            except KafkaException as cause:
                error = cause.args[0]
                if not error.retriable() or error.txn_requires_abort() or error.fatal():
                    raise
                log(__name__).warning("transaction_retried", error=error.str())
                self._check_leaving()
                if other_answered:
                    raise Replaced(f"{error.str()} after a new client had an answer: the worker restarts") from cause
                if monotonic() >= compare_at:
                    other_answered = self._answers_new_client()  # the broker may have come back since: the next call decides
                    compare_at = monotonic() + _CLIENT_FAILURE_SECONDS
            else:
                self.returned_at = monotonic()
                return

    def _answers_new_client(self) -> bool:
        # Another id, because a second producer with the same one would fence this worker.
        other = Producer(producer_config(self._brokers, **{"transactional.id": f"{self._transactional_id}-check"}))
        try:
            other.init_transactions(_HANGS_SECONDS)
        except KafkaException:
            return False
        return True


def group_metadata(membership: Membership) -> bytes:
    """Return the group's metadata in librdkafka's format; aiokafka has the values and confluent-kafka needs the bytes.

    Layout: `CGMDv2:`, generation (int32, little-endian), group `\\0`, member `\\0`, then 1 for no instance or 0, instance, `\\0`.
    """
    generation = membership.generation.to_bytes(4, "little", signed=True)
    names = membership.group.encode() + b"\0" + membership.member_id.encode() + b"\0"
    instance = b"\1" if membership.instance_id is None else b"\0" + membership.instance_id.encode() + b"\0"
    return b"CGMDv2:" + generation + names + instance
