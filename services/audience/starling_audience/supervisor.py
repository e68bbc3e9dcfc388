"""Edge: one follower for each target: started, replaced and ended as the definitions change."""

import threading
from collections.abc import Callable, Mapping
from typing import Final

from starling_audience.definitions import AudienceTarget, TargetKey
from starling_audience.following.follower import ENDED, STATES, Follower
from starling_common.telemetry.health import Degraded, Turns
from starling_common.telemetry.logs import log
from starling_common.telemetry.metrics import Metrics

_LOOK_SECONDS: Final = 0.5
_MOST_TURN_SECONDS: Final = 120.0
JOIN_SECONDS: Final = 25.0
"""Longer than a request; a thread that waits for a broker ends with the process."""


class Supervisor:
    """Runs in one thread until `stop`. A target that fails delays no other one: each has a thread and a consumer of its own."""

    def __init__(
        self,
        wanted: Callable[[], Mapping[TargetKey, AudienceTarget] | None],
        make: Callable[[AudienceTarget], Follower],
        metrics: Metrics,
        max_targets: int,
        disabled: Callable[[], int] = lambda: 0,
    ) -> None:
        """`wanted`: the targets; None until they are known. `make`: a follower that has not been started.

        `disabled`: how many targets are disabled.
        """
        self._disabled = disabled
        self._wanted = wanted
        self._make = make
        self._max_targets = max_targets
        self._followers: dict[TargetKey, Follower] = {}
        self._stopping = threading.Event()
        self._turns = Turns("the loop of targets", _MOST_TURN_SECONDS)
        self._beyond = 0
        self._targets = metrics.gauge("starling_audience_targets")

    def run(self) -> None:
        """Run until `stop`; then let each follower end its batch."""
        try:
            while not self._stopping.is_set():
                self._turns.turned()
                self.step()
                self._stopping.wait(_LOOK_SECONDS)
        finally:
            self._turns.rest()
            for follower in self._followers.values():
                follower.stop()
            for follower in self._followers.values():
                follower.join(JOIN_SECONDS)

    def stop(self) -> None:
        """End `run`."""
        self._stopping.set()

    def step(self) -> None:
        """Start, replace and end followers."""
        wanted = self._wanted()
        if wanted is None:
            return
        for place, follower in list(self._followers.items()):
            if wanted.get(place) != follower.target:
                follower.stop()
                if not follower.is_running():
                    del self._followers[place]
        missing = [one for place, one in sorted(wanted.items()) if place not in self._followers]
        room = max(0, self._max_targets - len(self._followers))
        self._beyond = max(0, len(missing) - room)
        for target in missing[:room]:
            log(__name__).info("target_followed", workspace=target.workspace, target=target.key, adapter=target.adapter)
            follower = self._followers[target.place] = self._make(target)
            follower.start()
        states = [follower.state.name for follower in self._followers.values()]
        for name in STATES:
            self._targets.labels(name).set(self._disabled() if name == ENDED else states.count(name))

    def failures(self) -> dict[str, str | None]:
        """Return the failed checks by name that only a restart of the process corrects."""
        dead = [
            follower.group
            for follower in list(self._followers.values())
            if not follower.is_running() and follower.state.name != ENDED and not follower.is_stopping()
        ]
        return {"loop": self._turns.problem(), "followers": f"the threads of {', '.join(dead)} have ended" if dead else None}

    def problems(self) -> dict[str, str | None]:
        """Return the failed readiness checks by name. A target that cannot be followed is degraded: others are."""
        found = {follower.group: follower.state.error for follower in list(self._followers.values()) if follower.state.error}
        targets = None
        if found:
            group, reason = next(iter(sorted(found.items())))
            targets = Degraded(f"{len(found)} targets are interrupted; {group}: {reason}")
        elif self._beyond:
            targets = Degraded(f"{self._beyond} targets are beyond STARLING_MAX_TARGETS ({self._max_targets}): raise it")
        return {"targets": targets}
