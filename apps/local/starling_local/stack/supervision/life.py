"""Pure core: the state machine of a part: start, probe, liveness check, exit, back-off. The caller passes the time."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from enum import Enum

from starling_local.stack.parts.part import Part

FIRST_DELAY_SECONDS = 0.5
LONGEST_DELAY_SECONDS = 30.0
HEALTHY_AFTER_SECONDS = 60.0
"""A part that was ready for this time restarts with the first delay after its exit."""
CHECK_INTERVAL_SECONDS = 5.0
MOST_FAILED_CHECKS = 3
"""A part is restarted after so many consecutive liveness checks that failed."""
MOST_START_SECONDS = 300.0
"""The limit of silence before the first answer: imports and the first start of a JVM take a minute on a busy machine."""
SILENT_GRACE_SECONDS = 10.0
"""Time from TERM to KILL of a part that does not answer."""
LONGEST_WAIT_SECONDS = 3.0
"""Most silence between two calls of `waited`: the supervisor itself may have been stopped meanwhile."""


class Phase(Enum):
    """Phase of a part; `status` prints the values."""

    WAITING = "waiting"
    STARTING = "starting"
    READY = "ready"
    UNREADY = "unready"
    ENDING = "ending"
    BACKOFF = "backoff"
    DONE = "done"
    STOPPED = "stopped"


RUNNING = frozenset({Phase.STARTING, Phase.READY, Phase.UNREADY})


@dataclass(frozen=True, slots=True)
class Life:
    """State of one part.

    Shape: `failures` counts consecutive exits; `restarts` counts all starts except the first; `last_end` is the reason of the
           last exit. `answered`: the process has answered a liveness check; `check_failures`: consecutive checks that failed.
    Units: `since` and `retry_at` are seconds of a monotonic clock; `silent_seconds`: time without an answer to a check.
    """

    phase: Phase = Phase.WAITING
    since: float = 0.0
    retry_at: float = 0.0
    failures: int = 0
    restarts: int = 0
    message: str = ""
    last_end: str = ""
    answered: bool = False
    check_failures: int = 0
    check_failure: str = ""
    silent_seconds: float = 0.0


def delay_seconds(failures: int) -> float:
    """Return the delay of the start after `failures` consecutive failures: it doubles up to a maximum."""
    return float(min(LONGEST_DELAY_SECONDS, FIRST_DELAY_SECONDS * 2 ** max(0, min(failures, 16) - 1)))


def started(life: Life, now: float) -> Life:
    """Return the state after the start of the process."""
    again = 1 if life.phase is Phase.BACKOFF else 0
    restarted = replace(life, phase=Phase.STARTING, since=now, restarts=life.restarts + again)
    return replace(restarted, answered=False, check_failures=0, check_failure="", silent_seconds=0.0)


def probed(life: Life, ok: bool, now: float) -> Life:
    """Return the state after a probe. A part that was ready and does not answer becomes `unready`; it is not restarted."""
    if life.phase not in RUNNING:
        return life
    if ok:
        # It has answered, so that the shorter limit holds even if it hangs before its first liveness check.
        ready = replace(life, phase=Phase.READY, since=now, message="", answered=True, silent_seconds=0.0)
        return life if life.phase is Phase.READY else ready
    return replace(life, phase=Phase.UNREADY, since=now, failures=_failures(life, now)) if life.phase is Phase.READY else life


def checked(life: Life, failure: str | None) -> Life:
    """Return the state after an answer to a liveness check. `failure`: the problem in the answer, None if the process is alive."""
    failures = 0 if failure is None else life.check_failures + 1
    return replace(life, answered=True, silent_seconds=0.0, check_failures=failures, check_failure=failure or "")


def waited(life: Life, seconds: float) -> Life:
    """Return the state after so many seconds in which a liveness check had no answer."""
    return replace(life, silent_seconds=life.silent_seconds + min(seconds, LONGEST_WAIT_SECONDS))


def hang(life: Life, part: Part) -> str | None:
    """Return why the process has to be restarted; None if there is no reason."""
    if life.check_failures >= MOST_FAILED_CHECKS:
        return f"failed {life.check_failures} liveness checks: {life.check_failure}"
    if life.silent_seconds >= (part.most_silent_seconds if life.answered else MOST_START_SECONDS):
        return f"answered no liveness check for {life.silent_seconds:.0f} s"
    return None


def ending(life: Life, reason: str, now: float) -> Life:
    """Return the state of a part that is being ended for this reason."""
    return replace(
        life, phase=Phase.ENDING, since=now, failures=_failures(life, now), last_end=reason, message=f"{reason}; is being ended"
    )


def exited(life: Life, part: Part, code: int, now: float) -> Life:
    """Return the state after an exit: a step that ended with 0 is done, any other part restarts after a delay."""
    if part.is_step and code == 0:
        return replace(life, phase=Phase.DONE, since=now, failures=0, message="")
    failures = _failures(life, now) + 1
    wait = delay_seconds(failures)
    reason = life.last_end if life.phase is Phase.ENDING else _ending(code)
    message = f"{reason}; starts again in {wait:g} s"
    return replace(life, phase=Phase.BACKOFF, since=now, failures=failures, retry_at=now + wait, message=message, last_end=reason)


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


def _failures(life: Life, now: float) -> int:
    """Return the consecutive failures; 0 if the part was ready for long."""
    return 0 if life.phase is Phase.READY and now - life.since >= HEALTHY_AFTER_SECONDS else life.failures


def _ending(code: int) -> str:
    return f"killed by signal {-code}" if code < 0 else f"ended with exit code {code}"
