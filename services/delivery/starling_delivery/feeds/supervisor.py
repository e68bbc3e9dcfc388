"""Core: starts and stops the lanes, as targets are defined and as the group assigns them."""

import threading
import time
from collections.abc import Callable, Collection, Mapping
from typing import Final, Protocol

from confluent_kafka import KafkaException

from starling_common.telemetry.health import Degraded, Turns
from starling_common.telemetry.logs import log
from starling_common.telemetry.metrics import Metrics
from starling_delivery.feeds.lane import Lane
from starling_delivery.feeds.targets import FeedTarget, FeedTargets, TargetPlace

_TURN_SECONDS: Final = 0.2
_COMMIT_SECONDS: Final = 1.0
STOP_SECONDS: Final = 25.0
"""Maximum wait for the attempts in progress. A lane that goes on longer writes nothing once the next owner of its target starts."""
_MOST_TURN_SECONDS: Final = 120.0


class Ownership(Protocol):
    """The share of the targets that this process serves."""

    @property
    def is_assigned(self) -> bool:
        """Whether the group has assigned partitions, possibly none."""

    def join(self) -> None:
        """Join the group."""

    def turn(self, seconds: float) -> None:
        """Take part in the group for that time."""

    def has(self, place: TargetPlace) -> bool:
        """Return whether this process serves the target."""

    def commit(self, positions: Mapping[int, int]) -> None:
        """Store up to where the targets are done."""

    def leave(self) -> None:
        """Leave the group."""


class Supervisor:
    """Serves the targets of this process, each in a lane. A lane that fails delays no other one."""

    def __init__(
        self,
        targets: FeedTargets,
        new_lane: Callable[[FeedTarget], Lane],
        ends: Callable[[], Mapping[int, int]],
        max_targets: int,
        metrics: Metrics,
    ) -> None:
        """`ends`: partition of the feed -> its end, from the broker. Set `ownership` before `run`."""
        self.ownership: Ownership
        self.turns = Turns("the loop of the feeds", _MOST_TURN_SECONDS)
        self._targets = targets
        self._new_lane = new_lane
        self._ends = ends
        self._max_targets = max_targets
        self._lanes: dict[TargetPlace, Lane] = {}
        self._waiting: Collection[FeedTarget] = ()
        self._committed_at = 0.0
        self._served = metrics.gauge("starling_delivery_feed_targets")
        self._failing = metrics.gauge("starling_delivery_feed_failing_targets")
        self._lag = metrics.gauge("starling_delivery_feed_lag_records")

    def run(self, stopping: threading.Event) -> None:
        """Serve until `stopping` is set, then complete the attempts in progress. Raises: KafkaException."""
        self.ownership.join()
        try:
            while not stopping.is_set():
                self.turns.turned()
                self.ownership.turn(_TURN_SECONDS)
                self.arrange()
                self._report()
                if time.monotonic() - self._committed_at > _COMMIT_SECONDS:
                    self._commit()
        finally:
            self.turns.rest()
            self.stop_all()
            self.ownership.leave()

    def arrange(self) -> None:
        """Start the lanes of new targets, and stop those of targets that are changed, disabled, archived or another process's."""
        wanted = {target.place: target for target in self._targets.enabled() if self.ownership.has(target.place)}
        obsolete = [
            lane
            for place, lane in self._lanes.items()
            if place not in wanted or wanted[place].recorded_at != lane.target.recorded_at
        ]
        self._stop(obsolete)
        free = self._max_targets - len(self._lanes)
        missing = [target for place, target in wanted.items() if place not in self._lanes]
        for target in missing[: max(0, free)]:
            lane = self._new_lane(target)
            self._lanes[target.place] = lane
            lane.start()
            log(__name__).info("feed_started", workspace=target.workspace, target=target.key, channel=target.channel)
        self._waiting = missing[max(0, free) :]

    def stop_all(self) -> None:
        """Stop every lane, after its present attempt."""
        self._stop(list(self._lanes.values()))

    def problems(self) -> Mapping[str, str | None]:
        """Return the problems by their subject; the process goes on with other targets."""
        failing = [(lane.target, lane.problem) for lane in list(self._lanes.values()) if lane.problem is not None]
        first = None if not failing else f"{len(failing)} fail, such as {failing[0][0].key}: {failing[0][1]}"
        full = None
        if self._waiting:
            full = f"{len(self._waiting)} targets wait for a process: start another one, or raise STARLING_MAX_TARGETS"
        return {
            "group": None if self.ownership.is_assigned else "no partitions assigned yet",
            "targets": None if first is None else Degraded(first),
            "room": None if full is None else Degraded(full),
        }

    def _stop(self, lanes: Collection[Lane]) -> None:
        """Stop lanes, all at once."""
        for lane in lanes:
            lane.stopping.set()
        until = time.monotonic() + STOP_SECONDS
        for lane in lanes:
            if not lane.stop(max(0.0, until - time.monotonic())):
                log(__name__).warning("feed_still_attempts", workspace=lane.target.workspace, target=lane.target.key)
            del self._lanes[lane.target.place]

    def _commit(self) -> None:
        self._committed_at = time.monotonic()
        served = [lane for lane in self._lanes.values() if lane.target.problem is None]
        if not all(lane.done for lane in served):
            return  # a target whose feed is not open yet has an unknown position
        try:
            positions = dict(self._ends())
            for lane in served:
                positions = {number: min(end, lane.done.get(number, 0)) for number, end in positions.items()}
            self.ownership.commit(positions)
        except KafkaException as error:  # the lanes wait for the broker themselves
            log(__name__).warning("lag_not_committed", error=str(error))

    def _report(self) -> None:
        lanes, channels = list(self._lanes.values()), self._targets.channels
        for channel in channels:
            own = [lane for lane in lanes if lane.target.channel == channel]
            waiting = sum(target.channel == channel for target in self._waiting)
            self._served.labels(channel).set(len(own))
            self._failing.labels(channel).set(sum(lane.problem is not None for lane in own) + waiting)
            self._lag.labels(channel).set(max((lane.lag for lane in own), default=0))
