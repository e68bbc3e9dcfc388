"""Adapter: transactions of records and the offsets of the records that they complete."""

import asyncio
import queue
import threading
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial
from typing import Any, Final

from confluent_kafka import Consumer, KafkaError, KafkaException, Message, Producer, TopicPartition

from starling_common.kafka.clients import RECORD_REFUSED, BrokerUnavailable
from starling_common.telemetry.health import Turns
from starling_common.telemetry.logs import log
from starling_delivery.progress import Claim, Origin, Place, Positions
from starling_delivery.records import Output

TRANSACTION_MS: Final = 20_000
"""Time after which the broker aborts the transaction of a process that is gone. Its offsets are not readable until then."""

_TICK_SECONDS: Final = 0.2
"""Interval at which offsets of skipped records are committed."""

_PAUSE_SECONDS: Final = 0.002
"""Pause between two transactions. The broker still completes the former one, and the next one would be sent again after 10 ms."""

_MOST_ENTRIES: Final = 1_000
_CALL_SECONDS: Final = 30.0
_AGAIN_SECONDS: Final = 0.1
_GIVE_UP_SECONDS: Final = 60.0
_STOP_SECONDS: Final = 30.0


@dataclass(eq=False, slots=True)
class Entry:
    """Records that become visible together. `origin`: the record that they complete, which this process must still have.

    `done` is called in the event loop: with True after the commit, with False if another process has the record. `instead` returns
    the dead letter that replaces the records if the broker refuses one of them.
    """

    outputs: Sequence[Output]
    origin: Origin | None
    done: Callable[[bool], None]
    instead: Callable[[KafkaException], Output] | None = None
    refusal: KafkaException | None = None


@dataclass(eq=False)
class Source:
    """One consumer, and the progress of its partitions."""

    positions: Positions
    consumer: Consumer
    _known: tuple[int, Any] | None = None

    def membership(self) -> Any:
        """Return the group metadata of the consumer, as it was after the last assignment. Raises: RuntimeError if it is closed.

        The client takes about 100 ms for it, several times as long as for a transaction. The group refuses older metadata.
        """
        assignments = self.positions.assignments
        if self._known is None or self._known[0] != assignments:
            self._known = assignments, self.consumer.consumer_group_metadata()
        return self._known[1]

    def forget(self) -> None:
        """Let the next transaction ask the client, and commit every partition."""
        self._known = None
        self.positions.mark_changed()


class Ledger:
    """Commits entries in transactions, many in one. A thread of its own waits for the broker.

    The group of a source refuses the offsets of a process that it has removed, and with them the transaction. So an entry with an
    origin is visible only if no other process has read the record since.
    """

    def __init__(self, producer: Producer, sources: Sequence[Source]) -> None:
        """`producer` has a transactional id of this process: the start of another one with it ends this one's transactions."""
        self.turns = Turns("the loop of the transactions", 2 * _GIVE_UP_SECONDS + _CALL_SECONDS)
        self._producer = producer
        self._sources = sources
        self._entries: queue.SimpleQueue[Entry] = queue.SimpleQueue()
        self._stopping = threading.Event()
        self._failure: Exception | None = None
        self._committed_at = 0.0
        self._loop: asyncio.AbstractEventLoop | None = None
        self._thread = threading.Thread(target=self._run, name="ledger", daemon=True)

    def start(self) -> None:
        """Abort what a former process with the transactional id left open. Blocks. Raises: KafkaException."""
        self._producer.init_transactions(_CALL_SECONDS)

    def run_in(self, loop: asyncio.AbstractEventLoop) -> None:
        """Begin to commit; `done` is called in this event loop."""
        self._loop = loop
        self._thread.start()

    def stop(self) -> None:
        """Stop after the transaction in progress."""
        self._stopping.set()
        if self._thread.ident is not None:
            self._thread.join(_STOP_SECONDS)

    def put(self, entry: Entry) -> None:
        """Add an entry to the next transaction."""
        self._entries.put(entry)

    def check(self) -> None:
        """Raise what has ended the transactions."""
        if self._failure is not None:
            raise self._failure

    def flush(self) -> None:
        """Return when everything that was put before is committed. Not in the event loop. Raises as `check`."""
        flushed = threading.Event()
        self.put(Entry((), None, lambda _: flushed.set()))
        while not flushed.wait(_TICK_SECONDS):
            self.check()
            if not self._thread.is_alive():
                raise BrokerUnavailable("the transactions have ended")

    def _run(self) -> None:
        try:
            while not self._stopping.is_set():
                self.turns.turned()
                self._commit(self._gathered())
        except Exception as failure:  # noqa: BLE001 - `check` raises it in the event loop
            log(__name__).exception("transactions_failed")
            self._failure = failure
        finally:
            self.turns.rest()

    def _gathered(self) -> list[Entry]:
        """Return the waiting entries. Without one, return none after a moment."""
        found: list[Entry] = []
        with suppress(queue.Empty):
            found.append(self._entries.get(timeout=_TICK_SECONDS))
            time.sleep(max(0.0, self._committed_at + _PAUSE_SECONDS - time.monotonic()))
            while len(found) < _MOST_ENTRIES:
                found.append(self._entries.get_nowait())
        return found

    def _commit(self, entries: list[Entry]) -> None:
        """Commit the entries; repeat the transaction until the broker has decided on each of them. Raises: BrokerUnavailable."""
        deadline = time.monotonic() + _GIVE_UP_SECONDS
        while True:
            attempt = _Attempt(self._producer, self._sources, entries)
            try:
                granted = attempt.commit()
            except KafkaException as cause:
                error: KafkaError = cause.args[0]
                for source in self._sources:
                    source.forget()
                if error.fatal():
                    raise
                attempt.abort()
                log(__name__).warning("transaction_aborted", error=error.str())
                if time.monotonic() > deadline:
                    raise BrokerUnavailable(f"no transaction was committed for {_GIVE_UP_SECONDS:g} s: {error.str()}") from cause
                time.sleep(_AGAIN_SECONDS)
            else:
                self._committed_at = time.monotonic()
                self._report(entries, granted)
                return

    def _report(self, entries: Sequence[Entry], granted: set[Entry]) -> None:
        for entry in granted:
            if entry.origin is not None:
                entry.origin.positions.finish(entry.origin.place, entry.origin.offset)
        if entries and self._loop is not None:
            self._loop.call_soon_threadsafe(partial(_call, [(entry, entry in granted) for entry in entries]))


def _call(decided: Sequence[tuple[Entry, bool]]) -> None:
    for entry, is_granted in decided:
        entry.done(is_granted)


@dataclass(eq=False)
class _Attempt:
    """One transaction."""

    producer: Producer
    sources: Sequence[Source]
    entries: Sequence[Entry]
    has_begun: bool = False
    claims: list[tuple[Source, Any, Claim]] = field(default_factory=list)

    def commit(self) -> set[Entry]:
        """Commit, and return the entries that are visible. Raises: KafkaException."""
        granted = self._granted()
        if not any(entry.outputs for entry in granted) and not any(claim.commits for _, _, claim in self.claims):
            return granted
        self.producer.begin_transaction()
        self.has_begun = True
        for entry in granted:
            self._produce(entry)
        for _, metadata, claim in self.claims:
            if claim.commits:
                offsets = [TopicPartition(*place, position, text) for place, position, text in claim.commits]
                self.producer.send_offsets_to_transaction(offsets, metadata, _CALL_SECONDS)
        while self.producer.flush(1) > 0:
            pass  # each record is delivered or times out; the commit reports a failure
        self._until_done(lambda: self.producer.commit_transaction(_CALL_SECONDS))
        return granted

    def abort(self) -> None:
        """Abort the transaction if it has begun. Raises: KafkaException, after which no further transaction is possible."""
        if self.has_begun:
            self._until_done(lambda: self.producer.abort_transaction(_CALL_SECONDS))
            self.producer.poll(0)  # the reports of undelivered records

    def _granted(self) -> set[Entry]:
        """Return the entries whose records this process may complete.

        The membership is read before the assigned partitions: a rebalance in between makes the group refuse the offsets.
        """
        wanted: dict[int, dict[Place, dict[int, Entry]]] = {id(source.positions): {} for source in self.sources}
        granted = set[Entry]()
        for entry in self.entries:
            if entry.origin is None:
                granted.add(entry)
                continue
            positions, place, offset = entry.origin
            wanted[id(positions)].setdefault(place, {}).setdefault(offset, entry)  # of a record that was read twice, the first
        for source in self.sources:
            offsets = wanted[id(source.positions)]
            try:
                metadata = source.membership()
            except RuntimeError:  # the consumer is closed: its partitions are gone
                continue
            claim = source.positions.claim({place: found.keys() for place, found in offsets.items()})
            granted.update(offsets[place][offset] for place, offset in claim.granted)
            self.claims.append((source, metadata, claim))
        return granted

    def _produce(self, entry: Entry) -> None:
        outputs = entry.outputs
        if entry.refusal is not None and entry.instead is not None:
            outputs = [entry.instead(entry.refusal)]
        for output in outputs:
            more: dict[str, Any] = {"timestamp": output.stamp_ms, "headers": output.headers}
            try:
                self._produce_one(output, entry, more)
            except KafkaException as cause:
                self._note(entry, cause.args[0])
                raise

    def _produce_one(self, output: Output, entry: Entry, more: dict[str, Any]) -> None:
        more |= {"on_delivery": partial(self._delivered, entry)}
        while True:
            try:
                self.producer.produce(output.topic, output.value, output.key, **more)
            except BufferError:  # the client's queue is full
                self.producer.poll(0.05)
            else:
                return

    def _delivered(self, entry: Entry, error: KafkaError | None, _message: Message) -> None:
        if error is not None:
            self._note(entry, error)

    @staticmethod
    def _note(entry: Entry, error: KafkaError) -> None:
        if error.code() in RECORD_REFUSED and entry.refusal is None:
            entry.refusal = KafkaException(error)

    def _until_done(self, call: Callable[[], object]) -> None:
        """Repeat a call whose result the client does not know yet."""
        deadline = time.monotonic() + _GIVE_UP_SECONDS
        while True:
            try:
                call()
            except KafkaException as cause:
                if not cause.args[0].retriable() or time.monotonic() > deadline:
                    raise
            else:
                return
