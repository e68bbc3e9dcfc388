"""Adapter: a thread that holds the Lease, so that one of several scalers acts."""

from collections.abc import Callable
from dataclasses import replace
from threading import Event, Thread
from typing import Final

from starling_common.telemetry.health import Turns
from starling_common.telemetry.logs import log
from starling_scaler.cluster import CALL_SECONDS, Cluster, Conflict, KubernetesUnavailable, NotFound
from starling_scaler.election import Election, LeaseRecord, Turn

_DEADLINE: Final = 2 / 3
"""Of the Lease's duration: a leader without an answer stops to act this early, before another may take the Lease."""

_TURNS: Final = 6
"""Attempts in the duration of a Lease."""

_SILENT_SECONDS: Final = 120.0
"""A thread that has not turned for this long has ended: a turn is two calls, each with a time-out."""


class Leadership:
    """Takes and renews the Lease until `stop`. `problem` is None while the API server answers."""

    def __init__(self, cluster: Cluster, lease: str, election: Election, clock: Callable[[], float]) -> None:
        self._cluster = cluster
        self._lease = lease
        self._election = election
        self._clock = clock
        self._stopping = Event()
        self._thread = Thread(target=self._run, name="leadership", daemon=True)
        self._turns = Turns("the loop of the Lease", _SILENT_SECONDS + election.duration_seconds, clock)
        self._led = False
        self.problem: str | None = None
        self.holder: str | None = None

    def start(self) -> None:
        """Apply for the Lease, then start the thread that continues."""
        self._turns.turned()
        self._turn()
        self._report()
        self._thread.start()

    def stop(self) -> None:
        """Give the Lease up, so that another scaler need not wait, and end."""
        self._stopping.set()
        self._thread.join(timeout=2 * CALL_SECONDS)

    def failure(self) -> str | None:
        """Return the error that only a restart of the process corrects."""
        return self._turns.problem()

    def leads(self) -> bool:
        """Return whether this process may act now."""
        return self._election.leads(self._clock())

    def may_call(self) -> bool:
        """Return whether this process will still lead when a call that begins now has ended."""
        return self._election.leads(self._clock() + min(CALL_SECONDS, self._election.duration_seconds / _TURNS))

    def _run(self) -> None:
        while not self._stopping.wait(self._election.duration_seconds / _TURNS):
            self._turns.turned()
            self._turn()
            self._report()
        self._turns.rest()
        self._release()

    def _turn(self) -> None:
        begun_at = self._clock()
        try:
            found = self._cluster.lease(self._lease)
            self._write(found, self._election.turn(found, begun_at), begun_at)
            self.problem = None
        except (Conflict, NotFound):
            # Another candidate was first; the next turn reads what it wrote.
            self._election.lost()
            self.problem = None
        except KubernetesUnavailable as error:
            self.problem = str(error)

    def _write(self, found: LeaseRecord | None, turn: Turn, begun_at: float) -> None:
        election = self._election
        if turn is Turn.WAIT:
            self.holder = None if found is None else found.holder
            return
        if found is None:
            self._cluster.create_lease(self._lease, election.identity, election.duration_seconds)
        else:
            record = replace(found, holder=election.identity, duration_seconds=election.duration_seconds)
            if turn is Turn.TAKE:
                record = replace(record, transitions=found.transitions + 1, acquired_at=None)
            self._cluster.write_lease(self._lease, record)
        election.won(begun_at)
        self.holder = election.identity

    def _report(self) -> None:
        leads = self.leads()
        if leads != self._led:
            self._led = leads
            log(__name__).info("leadership_won" if leads else "leadership_lost", lease=self._lease, holder=self.holder)

    def _release(self) -> None:
        if not self.leads():
            return
        self._election.lost()
        try:
            found = self._cluster.lease(self._lease)
            if found is not None and found.holder == self._election.identity:
                self._cluster.write_lease(self._lease, replace(found, holder="", duration_seconds=1))
                log(__name__).info("leadership_released", lease=self._lease)
        except (Conflict, NotFound, KubernetesUnavailable) as error:
            log(__name__).warning("leadership_not_released", lease=self._lease, error=str(error))


def election_of(identity: str, lease_seconds: float) -> Election:
    """Return a candidate whose deadline fits the duration of its Lease."""
    return Election(identity, lease_seconds, lease_seconds * _DEADLINE)
