"""Pure core: when a process may create, take or renew the Lease, and until when it leads. The rules are those of client-go."""

from dataclasses import dataclass
from enum import StrEnum


@dataclass(frozen=True, slots=True)
class LeaseRecord:
    """The Lease as it was read. `version` changes with every write."""

    holder: str
    duration_seconds: float
    version: str
    transitions: int = 0
    acquired_at: str | None = None


class Turn(StrEnum):
    """What to do with the Lease now."""

    CREATE = "create"
    TAKE = "take"
    RENEW = "renew"
    WAIT = "wait"


class Election:
    """One candidate. One thread takes its turns, and any thread may ask whether it leads.

    Times are seconds on the candidate's own clock, which never goes back: clocks are not compared.
    """

    def __init__(self, identity: str, duration_seconds: float, deadline_seconds: float) -> None:
        """`deadline_seconds`: a leader that has not renewed for that long stops to lead; below the duration."""
        if deadline_seconds >= duration_seconds:
            raise ValueError(f"a deadline of {deadline_seconds} s has to be below the duration of {duration_seconds} s")
        self.identity = identity
        self.duration_seconds = duration_seconds
        self._deadline_seconds = deadline_seconds
        self._seen: LeaseRecord | None = None
        self._seen_at = 0.0
        self._leads_until: float | None = None

    def turn(self, found: LeaseRecord | None, now: float) -> Turn:
        """Return what to do with the Lease that was found at `now`; None: there is none."""
        if found is None:
            self._seen = self._leads_until = None
            return Turn.CREATE
        if self._seen is None or found.version != self._seen.version:
            self._seen, self._seen_at = found, now
        if found.holder == self.identity:
            return Turn.RENEW
        self._leads_until = None
        expired = now >= self._seen_at + found.duration_seconds
        return Turn.TAKE if not found.holder or expired else Turn.WAIT

    def won(self, begun_at: float) -> None:
        """Note that the Lease was written with this candidate as holder. `begun_at`: before the request was sent."""
        self._leads_until = begun_at + self._deadline_seconds

    def lost(self) -> None:
        """Note that another candidate wrote the Lease, or that this one gives it up."""
        self._leads_until = None

    def leads(self, now: float) -> bool:
        """Return whether this candidate may act."""
        until = self._leads_until  # one read: another thread may write it
        return until is not None and now < until
