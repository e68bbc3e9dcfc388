"""Pure core: the circuit breaker of each target. A target whose attempts fail gets probes only, at growing intervals.

A target that has asked for a pause (429 with Retry-After) gets nothing until its end. That is no failure.
"""

from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

from starling_delivery.sending.destinations import Destination

_RECENT: Final = 20
_FAILURES_OF_RECENT: Final = 10
_LONGEST_FACTOR: Final = 20


@dataclass(frozen=True, slots=True)
class CircuitRule:
    """A circuit opens after `failures_in_a_row`, or if half of the last 20 attempts failed.

    The first probe follows after `probe_seconds`. The interval doubles with each failed probe, up to 20 times the first.
    """

    failures_in_a_row: int
    probe_seconds: float


class Circuit:
    """The circuit of one target. It is closed, or open with the time of the next probe. Times are monotonic, in seconds."""

    def __init__(self, rule: CircuitRule) -> None:
        self._rule = rule
        self._in_a_row = 0
        self._recent: deque[bool] = deque(maxlen=_RECENT)
        self._interval = rule.probe_seconds
        self._probe_at: float | None = None
        self._paused_until = 0.0
        self._why = ""

    @property
    def is_open(self) -> bool:
        """Whether messages are postponed."""
        return self._probe_at is not None

    @property
    def is_new(self) -> bool:
        """Whether no failure is remembered, so that the object can be dropped."""
        return not self.is_open and not any(self._recent)

    @property
    def reason(self) -> str:
        """Why the circuit is open, for the outcome of a postponed message."""
        return f"the circuit of the target is open: {self._why}"

    def admits(self, now: float) -> bool:
        """Return whether a message may be sent: the circuit is closed, or a probe is due."""
        return self._probe_at is None or now >= self._probe_at

    def pause(self, until: float) -> None:
        """Send nothing before that time. A later end of a former pause stays."""
        self._paused_until = max(self._paused_until, until)

    def paused_seconds(self, now: float) -> float:
        """Return the seconds until the end of the pause; 0 without one."""
        if now >= self._paused_until:
            self._paused_until = 0.0
        return max(0.0, self._paused_until - now)

    def begin_attempt(self, now: float) -> bool:
        """Return whether the admitted attempt is a probe. The next one is due after the interval in any case."""
        if self._probe_at is None:
            return False
        self._probe_at = now + self._interval
        return True

    def succeeded(self) -> None:
        """Close the circuit after a response of the endpoint that takes the message."""
        if self.is_open:
            self._recent.clear()
        self._in_a_row, self._interval, self._probe_at = 0, self._rule.probe_seconds, None
        self._recent.append(False)

    def failed(self, now: float, *, probe: bool) -> bool:
        """Count a failed attempt. Return whether it has opened the circuit."""
        self._in_a_row += 1
        self._recent.append(True)
        if self._probe_at is not None:
            if probe:
                self._interval = min(2 * self._interval, _LONGEST_FACTOR * self._rule.probe_seconds)
                self._probe_at = now + self._interval
            return False
        if self._in_a_row >= self._rule.failures_in_a_row:
            self._why = f"{self._in_a_row} attempts in a row failed"
        elif sum(self._recent) >= _FAILURES_OF_RECENT:
            self._why = f"{sum(self._recent)} of the last {len(self._recent)} attempts failed"
        else:
            return False
        self._probe_at = now + self._interval
        return True


class Circuits:
    """The circuits of all targets with a failed attempt. A new version of a target begins with a closed circuit."""

    def __init__(self, rule: CircuitRule) -> None:
        self._rule = rule
        self._circuits: dict[tuple[str, str], tuple[int, Circuit]] = {}

    def of(self, target: Destination) -> Circuit:
        """Return the circuit of a target."""
        version, circuit = self._circuits.get((target.workspace, target.key), (None, None))
        if circuit is None or version != target.version:
            circuit = Circuit(self._rule)
            self._circuits[target.workspace, target.key] = target.version, circuit
        return circuit

    def open_keys(self) -> Iterator[tuple[str, str]]:
        """Yield (workspace, key) of each target whose circuit is open."""
        yield from (key for key, (_, circuit) in self._circuits.items() if circuit.is_open)

    def forget(self, workspace: str, key: str) -> None:
        """Drop the circuit of a target that is archived or disabled."""
        self._circuits.pop((workspace, key), None)

    def forget_new(self, now: float) -> None:
        """Drop the circuits without a failure or a pause, so that the memory is bounded by the number of failing targets."""
        self._circuits = {
            key: entry for key, entry in self._circuits.items() if not entry[1].is_new or entry[1].paused_seconds(now)
        }
