"""Edge: the loop that waits for the instants of broadcasts and writes their members."""

import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final, Protocol

from starling_broadcaster.failpoints import AFTER_READ, AFTER_START
from starling_broadcaster.members import Page
from starling_broadcaster.pace import Meter, Pace, Queue
from starling_broadcaster.plan import Broadcast, unwritten
from starling_common.cassandra.sessions import DatabaseUnavailable
from starling_common.kafka.clients import BrokerUnavailable
from starling_common.telemetry.health import Turns
from starling_common.telemetry.logs import log
from starling_common.telemetry.metrics import Metrics
from starling_common.wire import RegistryUnavailable
from starling_messages.broadcast_progress import BroadcastProgress, Written
from starling_messages.campaigns import Campaigns
from starling_messages.positions import Positions, behind_of

WAITING: Final = "waiting"
WRITING: Final = "writing"
PAUSED: Final = "paused"
HELD: Final = "held"
STATES: Final = (WAITING, WRITING, PAUSED, HELD)

_TRANSIENT_ERRORS: Final = (DatabaseUnavailable, RegistryUnavailable, BrokerUnavailable)
_LOOK_SECONDS: Final = 0.5
"""Interval at which the instants and the queues are looked at."""
_AGAIN_SECONDS: Final = 1.0
_MOST_TURN_SECONDS: Final = 300.0
"""A turn is a page, a transaction, and a few requests to the broker, each with a time-out."""


class Reads(Protocol):
    """The members of segments, as the projector wrote them."""

    def as_of(self) -> int | None:
        """Return the stream time, epoch ms, up to which the members are known; None if there are none."""

    def page(self, broadcast: Broadcast, written: Written, most: int) -> Page:
        """Return the next members."""


class Writes(Protocol):
    """The topics of members and of progress."""

    def start(self) -> BroadcastProgress:
        """Exclude other processes, and return what was written."""

    def write(self, broadcast: Broadcast, users: list[str], after: Written) -> None:
        """Write members and progress in one transaction."""


class Queues(Protocol):
    """What is queued behind a broadcast."""

    def messenger(self) -> Queue:
        """Return the queue before the messenger."""

    def channel(self, channel: str) -> Queue:
        """Return the queue before a channel."""

    def definitions_end(self) -> int:
        """Return the offset after the last record of `delivery.definitions`."""


@dataclass(frozen=True, slots=True)
class Limits:
    """`batch_records`: members of one transaction. `backlog_seconds`: see the settings."""

    batch_records: int
    backlog_seconds: float


@dataclass(frozen=True)
class Parts:
    """The dependencies of a broadcaster.

    `definitions` returns the campaigns; None until they have been read. `messenger` returns the definitions that each of the
    messenger's partitions has; there are so many `partitions`.
    """

    members: Reads
    writer: Writes
    backlogs: Queues
    definitions: Callable[[], Campaigns | None]
    messenger: Callable[[], Positions]
    partitions: int
    metrics: Metrics
    passed: Callable[[str], None] = lambda _point: None
    """Called at each failpoint."""


@dataclass(slots=True)
class _Open:
    """A broadcast that is not written whole.

    `needs`: an offset of definitions before which the campaign is. `moved_at`: when it was last written to or had a reason to wait.
    """

    needs: int
    moved_at: float
    pace: Pace | None = None


class Broadcaster:
    """Runs in one thread until `stop`. What does not respond delays it; nothing is written twice or left out."""

    def __init__(self, parts: Parts, limits: Limits, clock: Callable[[], float] = time.monotonic) -> None:
        self._parts = parts
        self._limits = limits
        self._clock = clock
        self._stopping = threading.Event()
        self._progress: dict[tuple[str, str], Written] | None = None
        self._open: dict[tuple[str, str], _Open] = {}
        self._meters: dict[str | None, Meter] = {}
        """Of the channels, and of the messenger (None)."""
        self._as_of: int | None = None
        self._looked_at = float("-inf")
        self._problem: str | None = "the progress of earlier broadcasts is being read"
        self._turns = Turns("the loop of broadcasts", _MOST_TURN_SECONDS)
        self._members_total = parts.metrics.counter("starling_broadcaster_members_total")
        self._broadcasts = parts.metrics.gauge("starling_broadcaster_broadcasts")
        self._stalled = parts.metrics.gauge("starling_broadcaster_stalled_seconds")

    def run(self) -> None:
        """Run until `stop`.

        Raises: KafkaException if another process has replaced this one, or if the result of a transaction is not known;
        SchemaMissing, ProgressUnreadable.
        """
        try:
            while not self._stopping.is_set():
                self._turns.turned()
                self._stopping.wait(self._turn())
        finally:
            self._turns.rest()

    def stop(self) -> None:
        """End `run` after the present transaction."""
        self._stopping.set()

    def problems(self) -> dict[str, str | None]:
        """Return the failed readiness checks by name."""
        return {"broadcasts": self._problem}

    def failures(self) -> dict[str, str | None]:
        """Return the failed checks by name that only a restart of the process corrects."""
        return {"loop": self._turns.problem()}

    def _turn(self) -> float:
        """Take one step. Return the seconds until the next one."""
        try:
            if self._progress is None:
                self._progress = dict(self._parts.writer.start())
                self._parts.passed(AFTER_START)
            wait = self.step()
        except _TRANSIENT_ERRORS as error:
            if str(error) != self._problem:
                log(__name__).warning("broadcasts_wait", error=str(error))
            self._problem = str(error)
            wait = _AGAIN_SECONDS
        else:
            self._problem = None
        self._measure()
        return wait

    def step(self) -> float:
        """Write the next members of each broadcast that may be written. Return the seconds until the next step.

        Raises: DatabaseUnavailable, RegistryUnavailable, BrokerUnavailable; nothing is lost.
        """
        campaigns = self._parts.definitions()
        found = [] if campaigns is None else unwritten(campaigns, self._progress or {})
        self._open = {one.place: self._open.get(one.place) or self._opened() for one in found}
        if self._clock() - self._looked_at >= _LOOK_SECONDS:
            self._look({one.channel for one in found})
        counts, wait = dict.fromkeys(STATES, 0), _LOOK_SECONDS
        for one in found:
            state = self._state(one)
            counts[state] += 1
            if state == WRITING:
                wait = min(wait, self._write(one))
            elif not (state == WAITING and self._has_come(one)):
                self._open[one.place].moved_at = self._clock()
        for name, count in counts.items():
            self._broadcasts.labels(name).set(count)
        return wait

    def _opened(self) -> _Open:
        return _Open(self._parts.backlogs.definitions_end(), self._clock())

    def _look(self, channels: set[str]) -> None:
        if channels:
            self._as_of = self._parts.members.as_of()
            self._meter(None).observe(self._parts.backlogs.messenger(), self._clock())
            for channel in channels:
                self._meter(channel).observe(self._parts.backlogs.channel(channel), self._clock())
        self._looked_at = self._clock()

    def _state(self, one: Broadcast) -> str:
        if one.paused:
            return PAUSED
        if not self._has_come(one) or not self._is_known_to_messenger(one):
            return WAITING
        queues = (self._meter(None), self._meter(one.channel))
        is_behind = any(queue.is_behind(one.rate, self._limits.backlog_seconds) for queue in queues)
        return HELD if is_behind else WRITING

    def _has_come(self, one: Broadcast) -> bool:
        """Return whether every change up to its instant is known. One at the very instant may come as long as time is there."""
        return self._as_of is not None and self._as_of > one.listed_at

    def _is_known_to_messenger(self, one: Broadcast) -> bool:
        """Return whether no partition of the messenger would skip the members, because it does not have the campaign yet."""
        if one.place in (self._progress or {}):
            return True
        return not behind_of(self._parts.messenger(), self._parts.partitions, self._open[one.place].needs)

    def _write(self, one: Broadcast) -> float:
        """Write the next members, if the pace allows. Return the seconds until the next ones."""
        assert self._progress is not None  # noqa: S101 - read before the first step
        opened, now = self._open[one.place], self._clock()
        if opened.pace is None:
            opened.pace = Pace(one.rate, self._limits.batch_records, now)
        allowed = opened.pace.allowed(now)
        if not allowed:
            return opened.pace.wait_seconds()
        page = self._parts.members.page(one, self._progress.get(one.place, Written()), allowed)
        self._parts.passed(AFTER_READ)
        if one.place not in self._progress:
            log(__name__).info("broadcast_begins", workspace=one.workspace, campaign=one.campaign, segment=one.segment)
        if page.users or page.after.done:
            self._parts.writer.write(one, page.users, page.after)
        self._progress[one.place] = page.after
        opened.pace.spend(len(page.users))
        opened.moved_at = self._clock()
        self._members_total.labels(one.channel).inc(len(page.users))
        if page.after.done:
            log(__name__).info("broadcast_done", workspace=one.workspace, campaign=one.campaign, members=page.after.members)
        return 0.0 if not page.users else opened.pace.wait_seconds()

    def _measure(self) -> None:
        now = self._clock()
        self._stalled.set(max((now - one.moved_at for one in self._open.values()), default=0.0))

    def _meter(self, channel: str | None) -> Meter:
        return self._meters.setdefault(channel, Meter())
