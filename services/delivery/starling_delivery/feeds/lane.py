"""Core: the lane of one target: a thread that reads the feed from the target's position, and what it needs."""

import threading
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, NamedTuple

from confluent_kafka import Message

from starling_common.failures import poison
from starling_common.headers import record_headers
from starling_common.outcome import Refused
from starling_common.records.dead_letters import dead_letter, dead_letter_headers, source_record
from starling_common.telemetry.logs import log
from starling_common.telemetry.metrics import Metrics
from starling_common.time.instants import record_timestamp_ms, wall_clock_micros, wall_clock_ms
from starling_common.values import deterministic_id, record_key
from starling_common.wire import DecodeError, Record
from starling_delivery.feeds.journal import Journal, Outgoing
from starling_delivery.feeds.progress import ProgressView, Stored, progress_record
from starling_delivery.feeds.reader import FeedReader
from starling_delivery.feeds.targets import FeedTarget

PRODUCED_BY: Final = "delivery"

_CURRENT_SECONDS: Final = 60.0
_LONGEST_PAUSE_SECONDS: Final = 60.0

IDLE_SECONDS: Final = 30.0
"""How often the position of a target without changes is stored, so that a restart does not read the same records again."""


class Topics(NamedTuple):
    """The names of the topics."""

    membership: str
    definitions: str
    progress: str
    dead_letters: str


class Codecs(NamedTuple):
    """The codecs of one thread."""

    change: Callable[[bytes], Record]
    progress: Callable[[Record], bytes]
    definition: Callable[[Record], bytes]
    letter: Callable[[Record], bytes]


@dataclass(frozen=True)
class Installation:
    """What all lanes of a process share. `codecs` returns those of a new thread. `passed` is called at each failpoint."""

    brokers: str
    topics: Topics
    transactional_id: str
    codecs: Callable[[], Codecs]
    progress: ProgressView
    metrics: Metrics
    passed: Callable[[str], None]
    allow_private: bool


class Change(NamedTuple):
    """A membership change that the target gets, with its record."""

    record: Record
    message: Message


class Lane(ABC):
    """Serves one target until `stop`. A failure concerns this target alone: the lane opens it again after a pause."""

    def __init__(self, target: FeedTarget, installation: Installation) -> None:
        """`start` opens the connections."""
        self.target = target
        self.problem: str | None = target.problem
        """Why the last attempt failed; None while the target takes what it gets."""
        self.done: Mapping[int, int] = {}
        """Partition -> next offset: everything before it is counted or written. Empty before the feed is open."""
        self.lag = 0
        self.installation = installation
        self.codecs: Codecs
        self.stopping = threading.Event()
        self._failures = 0
        self._thread = threading.Thread(target=self._run, name=f"feed-{target.workspace}-{target.key}", daemon=True)
        self._counted = installation.metrics.counter("starling_delivery_feed_records_total").labels(target.channel)
        self._lost = installation.metrics.counter("starling_delivery_feed_lost_records_total").labels(target.channel)

    def start(self) -> None:
        """Start the thread."""
        self._thread.start()

    def stop(self, timeout_seconds: float) -> bool:
        """End the thread after its present attempt. Return whether it has ended in that time."""
        self.stopping.set()
        if self._thread.ident is not None:
            self._thread.join(timeout_seconds)
        return not self._thread.is_alive()

    @abstractmethod
    def follow(self, reader: FeedReader, journal: Journal, stored: Stored) -> None:
        """Send what the reader yields, until `stopping` is set. An exception opens the target again, at its stored position."""

    def opened(self) -> None:
        """Note that the feed is open again after a failure. What the endpoint has last answered is not known any more."""
        if self._failures:
            self.worked()

    def worked(self) -> None:
        """Note that the target takes what it gets."""
        if self._failures or self.problem is not None:
            log(__name__).info("feed_goes_on", workspace=self.target.workspace, target=self.target.key)
        self._failures, self.problem = 0, None

    def observe(self, reader: FeedReader, counted: int = 0) -> None:
        """Note the position of the reader, and how many changes were counted or written."""
        self.done = dict(reader.positions)
        self.lag = reader.lag()
        self._counted.inc(counted)

    def changes(self, messages: Sequence[Message]) -> tuple[list[Change], list[Outgoing]]:
        """Return the changes that the target gets, and the dead letters of records that cannot be decoded."""
        found, letters = [], []
        for message in messages:
            try:
                record = self.codecs.change(message.value() or b"")
            except DecodeError as error:
                letters.append(self.letter(message, Refused(error.code, str(error))))
                continue
            except (ValueError, TypeError, KeyError, IndexError) as error:
                letters.append(self.letter(message, poison(error)))
                continue
            if self.target.wants(record):
                found.append(Change(record, message))
        return found, letters

    def letter(self, message: Message, refused: Refused) -> Outgoing:
        """Return the dead letter of a record of the feed."""
        log(__name__).error(
            "record_refused",
            origin=(message.topic(), message.partition(), message.offset()),
            target=self.target.key,
            code=refused.code,
            reason=refused.message,
        )
        self.installation.metrics.counter("starling_delivery_refused_total").labels(refused.code).inc()
        source = source_record(message)
        letter, headers = dead_letter(PRODUCED_BY, source, refused, wall_clock_ms()), dead_letter_headers(PRODUCED_BY, source)
        stamp_ms = record_timestamp_ms(source.received_at, wall_clock_ms())
        return Outgoing(self.installation.topics.dead_letters, source.key or b"", self.codecs.letter(letter), headers, stamp_ms)

    def progressed(self, step: str, positions: Mapping[int, int], correlation_id: str | None = None, **more: Any) -> Outgoing:
        """Return the record of how far the target is."""
        target, topic = self.target, self.installation.topics.progress
        correlation_id = correlation_id or deterministic_id("feed", *target.place, *sorted(positions.items()))
        record = progress_record(target, step, positions, correlation_id, wall_clock_micros(), **more)
        headers = record_headers(correlation_id, PRODUCED_BY)
        return Outgoing(topic, record_key(*target.place), self.codecs.progress(record), headers, 0)

    def _run(self) -> None:
        while not self.stopping.is_set():
            try:
                self._serve()
            except Exception as error:  # noqa: BLE001 - whatever it is, it concerns this target alone
                self._failures += 1
                self.problem = f"{type(error).__name__}: {error}"
                log(__name__).warning(
                    "feed_failed",
                    workspace=self.target.workspace,
                    target=self.target.key,
                    error=self.problem,
                    failures=self._failures,
                )
                self.stopping.wait(min(2.0**self._failures, _LONGEST_PAUSE_SECONDS))
            else:
                return

    def _serve(self) -> None:
        installation, target = self.installation, self.target
        if target.problem is not None:  # a new secret is a new version of the target, and a new key needs a restart
            return
        self.codecs = installation.codecs()
        own = deterministic_id("feed", *target.place)
        journal = Journal(installation.brokers, f"{installation.transactional_id}-{own}")
        journal.start()
        # Read after the start: the former owner writes nothing any more.
        stored = installation.progress.current(target.place, _CURRENT_SECONDS) or Stored({})
        reader = FeedReader(installation.brokers, installation.topics.membership)
        try:
            reader.open(stored.positions, target.since_ms)
            if reader.lost_records:
                self._lost.inc(reader.lost_records)
            self.observe(reader)
            self.follow(reader, journal, stored)
        finally:
            reader.close()
