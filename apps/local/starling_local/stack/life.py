"""Pure core: the state machine of a part: start, probe, exit, back-off. The caller passes the time."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from enum import Enum

from starling_local.stack.parts import Part

FIRST_DELAY_SECONDS = 0.5
LONGEST_DELAY_SECONDS = 30.0
HEALTHY_AFTER_SECONDS = 60.0
"""A part that was ready for this time restarts with the first delay after its exit."""


class Phase(Enum):
    """Phase of a part; `status` prints the values."""

    WAITING = "waiting"
    STARTING = "starting"
    READY = "ready"
    UNREADY = "unready"
    BACKOFF = "backoff"
    DONE = "done"
    STOPPED = "stopped"


RUNNING = frozenset({Phase.STARTING, Phase.READY, Phase.UNREADY})


@dataclass(frozen=True, slots=True)
class Life:
    """State of one part.

    Shape: `failures` counts consecutive exits; `restarts` counts all starts except the first.
    Units: `since` and `retry_at` are seconds of a monotonic clock.
    """

    phase: Phase = Phase.WAITING
    since: float = 0.0
    retry_at: float = 0.0
    failures: int = 0
    restarts: int = 0
    message: str = ""


def delay_seconds(failures: int) -> float:
    """Return the delay of the start after `failures` consecutive failures: it doubles up to a maximum."""
    return float(min(LONGEST_DELAY_SECONDS, FIRST_DELAY_SECONDS * 2 ** max(0, min(failures, 16) - 1)))


def started(life: Life, now: float) -> Life:
    """Return the state after the start of the process."""
    again = 1 if life.phase is Phase.BACKOFF else 0
    return replace(life, phase=Phase.STARTING, since=now, restarts=life.restarts + again)


def probed(life: Life, ok: bool, now: float) -> Life:
    """Return the state after a probe. A part that was ready and does not answer becomes `unready`; it is not restarted."""
    if life.phase not in RUNNING:
        return life
    if ok:
        return life if life.phase is Phase.READY else replace(life, phase=Phase.READY, since=now, message="")
    return replace(life, phase=Phase.UNREADY, since=now) if life.phase is Phase.READY else life


def exited(life: Life, part: Part, code: int, now: float) -> Life:
    """Return the state after an exit: a step that ended with 0 is done, any other part restarts after a delay."""
    if part.is_step and code == 0:
        return replace(life, phase=Phase.DONE, since=now, failures=0, message="")
    was_healthy = life.phase is Phase.READY and now - life.since >= HEALTHY_AFTER_SECONDS
    failures = 1 if was_healthy else life.failures + 1
    wait = delay_seconds(failures)
    message = f"{_ending(code)}; starts again in {wait:g} s"
    return replace(life, phase=Phase.BACKOFF, since=now, failures=failures, retry_at=now + wait, message=message)


def due(parts: Sequence[Part], lives: Mapping[str, Life], now: float) -> list[Part]:
    """Return the parts to start now: new parts whose dependencies are ready, and parts whose back-off has ended.

    A restart does not wait for dependencies, because a service must tolerate the loss of a store.
    """
    ready = {name for name, life in lives.items() if life.phase in (Phase.READY, Phase.DONE)}
    return [part for part in parts if _is_due(part, lives[part.name], ready, now)]


def probe_interval_seconds(phase: Phase) -> float:
    """Return the interval between probes: short until the part is ready, then long."""
    return 5.0 if phase is Phase.READY else 0.3


def _is_due(part: Part, life: Life, ready: set[str], now: float) -> bool:
    if life.phase is Phase.WAITING:
        return set(part.depends_on) <= ready
    return life.phase is Phase.BACKOFF and now >= life.retry_at


def _ending(code: int) -> str:
    return f"killed by signal {-code}" if code < 0 else f"ended with exit code {code}"
