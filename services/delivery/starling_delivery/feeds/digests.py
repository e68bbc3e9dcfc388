"""Core: the lane of a target that gets digests. A digest arrives at most once.

SENDING is stored with the positions behind the digest, in one record, before the request. A process that ends in between loses the
digest and never repeats it. If the endpoint surely has not taken the digest, the positions before it are stored again: its changes
become part of the next digest, also after a restart. So an endpoint that was away gets one digest and not a flood.
"""

import time
from collections.abc import Callable, Mapping
from typing import Any, Final, NamedTuple

from starling_campaigns.bounds import DEFAULT_DIGEST_SECONDS
from starling_campaigns.digests.digest import DEFAULT_TITLE, ENTERED, EXITED, Digest
from starling_common.cassandra.read_models import TARGET
from starling_common.headers import record_headers
from starling_common.records.definitions import Disabled, disabled_record
from starling_common.telemetry.logs import log
from starling_common.time.instants import wall_clock_micros, wall_clock_ms
from starling_common.values import deterministic_id, record_key
from starling_delivery.channel import Again, Answer, Delivered, Gone, Impossible, Message, Unknown
from starling_delivery.feeds.journal import Journal, Outgoing
from starling_delivery.feeds.lane import IDLE_SECONDS, PRODUCED_BY, Installation, Lane
from starling_delivery.feeds.progress import FAILED, READ, RETRYING, SENDING, SENT, UNKNOWN, Stored
from starling_delivery.feeds.reader import FeedReader
from starling_delivery.feeds.targets import FeedTarget

Render = Callable[[Digest, str, str], str]
"""(digest, title, id) -> the body of the request."""

Send = Callable[[Message], Answer]
"""Makes one attempt, in bounded time. Called from the threads of the lanes."""

_FIRST_RETRY_SECONDS: Final = 5.0
_LONGEST_RETRY_SECONDS: Final = 600.0
_LONGEST_RETRY_AFTER_SECONDS: Final = 3_600.0
_READ_SECONDS: Final = 0.5
_MOST_DETAIL: Final = 300


class Open(NamedTuple):
    """A digest that is not sent yet. `begin`: the positions before its first change."""

    digest: Digest
    begin: Mapping[int, int]


class Planned:
    """When the next digest is sent: an interval after its first change and after the last digest, or after a failure.

    Times are epoch ms.
    """

    def __init__(self, interval_seconds: int, sent_at_ms: int) -> None:
        """`sent_at_ms`: when the last digest was sent, also by a former process; 0 without one."""
        self._interval_ms = interval_seconds * 1000
        self._failures = 0
        self._not_before_ms = 0
        self.sent_at_ms = sent_at_ms

    def due_ms(self, since_ms: int) -> int:
        """Return when a digest with that first change is sent."""
        return max(max(since_ms, self.sent_at_ms) + self._interval_ms, self._not_before_ms)

    def sent(self, now_ms: int) -> None:
        """Note that the endpoint has answered about a digest, or never will."""
        self.sent_at_ms, self._failures, self._not_before_ms = now_ms, 0, 0

    def failed(self, now_ms: int, retry_after_seconds: float | None) -> None:
        """Note that the endpoint has not taken the digest."""
        seconds = min(_FIRST_RETRY_SECONDS * 2.0**self._failures, _LONGEST_RETRY_SECONDS)
        seconds = max(seconds, min(retry_after_seconds or 0.0, _LONGEST_RETRY_AFTER_SECONDS))
        self._failures += 1
        self._not_before_ms = now_ms + round(seconds * 1000)


def after(answer: Answer) -> tuple[str, str | None, int | None]:
    """Return the step after an answer, with its reason and the status code."""
    match answer:
        case Delivered(status_code):
            return SENT, None, status_code
        case Again(why, status_code):
            return RETRYING, why, status_code
        case Unknown(why):
            return UNKNOWN, why, None
        case _:
            return FAILED, answer.why, answer.status_code


class DigestLane(Lane):
    """Gathers the changes of an interval, and sends their digest."""

    def __init__(self, target: FeedTarget, installation: Installation, render: Render, send: Send) -> None:
        """`render`: the message of the channel."""
        super().__init__(target, installation)
        self._render = render
        self._send = send
        self._title = target.settings.get("title") or DEFAULT_TITLE
        self._interval_seconds = int(target.settings.get("interval_seconds") or DEFAULT_DIGEST_SECONDS)
        self._attempts = installation.metrics.counter("starling_delivery_attempts_total")
        self._seconds = installation.metrics.histogram("starling_delivery_attempt_seconds").labels(target.channel)

    def follow(self, reader: FeedReader, journal: Journal, stored: Stored) -> None:
        """Fold the feed into digests and send each when it is due."""
        self.opened()
        planned = Planned(self._interval_seconds, stored.sent_at_ms)
        current, idle_at, noted = Open(Digest(), stored.positions), time.monotonic(), dict(stored.positions)
        while not self.stopping.is_set():
            before = dict(reader.positions)
            changes, letters = self.changes(reader.read(_READ_SECONDS))
            if letters:
                # Before the position of their records is stored: after a restart they may be stored again, and never missed.
                journal.commit(letters)
            if changes and current.digest.is_empty:
                current = Open(current.digest, before)
            for change in changes:
                current.digest.add(change.record, _received_ms(change.message.timestamp()[1]))
            self.observe(reader, len(changes))
            if not current.digest.is_empty:
                if reader.is_current and wall_clock_ms() >= planned.due_ms(current.digest.since_ms):
                    sent = self._attempt(current, reader, journal, planned)
                    if sent is None:
                        return
                    current = Open(Digest(), {}) if sent else current
                    noted, idle_at = dict(reader.positions), time.monotonic()
            elif noted != reader.positions and time.monotonic() - idle_at > IDLE_SECONDS:
                journal.commit([self.progressed(READ, reader.positions, sent_at=planned.sent_at_ms)])
                noted, idle_at = dict(reader.positions), time.monotonic()

    def _attempt(self, current: Open, reader: FeedReader, journal: Journal, planned: Planned) -> bool | None:
        """Store SENDING, and send the digest. Return whether it is complete, or None if the target is disabled."""
        target, digest, now_ms = self.target, current.digest, wall_clock_ms()
        digest_id = deterministic_id("digest", *target.place, now_ms, *sorted(reader.positions.items()))
        counts = {"digest_id": digest_id, "entered": digest.total(ENTERED), "exited": digest.total(EXITED)}
        message = self._message(digest_id, self._render(digest, self._title, digest_id))
        positions = dict(reader.positions)
        journal.commit([self.progressed(SENDING, positions, digest_id, sent_at=now_ms, **counts)])
        self.installation.passed("after_sending")
        begun = time.monotonic()
        answer = self._answer(message)
        self._seconds.observe(time.monotonic() - begun)
        self.installation.passed("before_outcome")
        step, detail, status_code = after(answer)
        found: dict[str, Any] = {"detail": None if detail is None else detail[:_MOST_DETAIL], "status_code": status_code, **counts}
        outcome = {SENT: "SENT", RETRYING: "RETRYING"}.get(step, "FAILED")
        self._attempts.labels(target.channel, outcome).inc()
        if step == RETRYING:
            planned.failed(wall_clock_ms(), answer.retry_after_seconds if isinstance(answer, Again) else None)
            journal.commit([self.progressed(RETRYING, current.begin, digest_id, sent_at=planned.sent_at_ms, **found)])
            self._failed(detail)
            return False
        planned.sent(now_ms)
        records = [self.progressed(step, positions, digest_id, sent_at=now_ms, **found)]
        is_gone = isinstance(answer, Gone)
        if is_gone:
            records.append(self._disabled(detail or "", digest_id))
        journal.commit(records)
        if step == SENT:
            self.worked()
        else:
            self._failed(detail)
        return None if is_gone else True

    def _answer(self, message: Message) -> Answer:
        try:
            return self._send(message)
        except Exception as error:  # noqa: BLE001 - the digest may have been sent before
            log(__name__).exception("channel_failed", channel=self.target.channel, target=self.target.key)
            # The text of a digest that cannot be encoded has not left this process.
            if isinstance(error, UnicodeEncodeError):
                return Impossible(f"{type(error).__name__}: {error}")
            return Unknown(f"{type(error).__name__}: {error}")

    def _failed(self, detail: str | None) -> None:
        self.problem = detail or "the endpoint has not taken the digest"
        log(__name__).warning("digest_not_delivered", workspace=self.target.workspace, target=self.target.key, error=self.problem)

    def _message(self, digest_id: str, body: str) -> Message:
        target = self.target
        return Message(target.workspace, "", digest_id, digest_id, target.key, target.settings["url"], body, 1)

    def _disabled(self, why: str, correlation_id: str) -> Outgoing:
        """Return the record that disables the target."""
        target = self.target
        disabled = Disabled(TARGET, *target.place, target.version, target.document)
        record = disabled_record(disabled, why, correlation_id, PRODUCED_BY, wall_clock_micros())
        headers = record_headers(correlation_id, PRODUCED_BY)
        topic = self.installation.topics.definitions
        return Outgoing(topic, record_key(*target.place), self.codecs.definition(record), headers, wall_clock_ms())


def _received_ms(timestamp_ms: int) -> int:
    """Return when a change was received, which is never in the future of this process."""
    now_ms = wall_clock_ms()
    return min(timestamp_ms, now_ms) if timestamp_ms > 0 else now_ms
