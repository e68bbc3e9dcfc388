"""Core: publishes what becomes of messages, and postpones those that cannot be sent now."""

import random
import time
from collections.abc import Callable, Iterable
from functools import partial
from typing import Final, Protocol

from starling_common.outcome import Refused
from starling_common.telemetry.metrics import Metrics
from starling_common.time.instants import wall_clock_ms
from starling_delivery.item import Item
from starling_delivery.poison import tried_twice
from starling_delivery.policy import Schedule, Step, paused, postponed
from starling_delivery.sending.circuit import Circuit
from starling_delivery.sending.lane import Batch
from starling_delivery.sending.lanes import Lanes

SLOW: Final = "the target answers slowly, and its lane is full"

_RATED: Final = "the target has as many messages as its rate allows"

_PAUSED: Final = "the target asked for a pause (429 with Retry-After)"

CIRCUIT_OPEN: Final = "circuit_open"
TARGET_PAUSED: Final = "target_paused"
SLOW_TARGET: Final = "slow_target"
RATE: Final = "rate"
SECRET_UNREADABLE: Final = "secret_unreadable"  # noqa: S105 - a reason


class Steps(Protocol):
    """Publishes the steps of requests. The methods must not block for long. `stored` is called once the broker has the records."""

    def record(self, item: Item, step: Step, stored: Callable[[], None]) -> None:
        """Publish the step of a request."""

    def refuse(self, item: Item, why: Refused, stored: Callable[[], None]) -> None:
        """Publish the dead letter of a request that cannot be processed."""

    def check(self) -> None:
        """Receive the broker's acknowledgements. Raises: BrokerUnavailable."""


class Results:
    """Publishes the steps of the messages of one channel. A step that is stored gives back the memory of its message."""

    def __init__(self, channel: str, schedule: Schedule, lanes: Lanes, steps: Steps, metrics: Metrics) -> None:
        self._channel = channel
        self._schedule = schedule
        self._lanes = lanes
        self._steps = steps
        self._postponed = metrics.counter("starling_delivery_postponed_total")

    def postpone_paused(self, items: Iterable[Item], circuit: Circuit) -> None:
        """Store messages in tiers until the pause ends for which their target has asked."""
        seconds, now_ms = circuit.paused_seconds(time.monotonic()), wall_clock_ms()
        for item in items:
            self._postponed.labels(self._channel, TARGET_PAUSED).inc()
            jitter = random.random()  # noqa: S311 - not used for security
            self.publish(item, paused(item.request, _PAUSED, seconds, self._schedule, now_ms, jitter))

    def postpone_rated(self, item: Item, now: float) -> None:
        """Store a message in a tier until its turn by the rate of its target."""
        self._postponed.labels(self._channel, RATE).inc()
        seconds = self._lanes.turn_seconds(item, now)
        self.publish(item, paused(item.request, _RATED, seconds, self._schedule, wall_clock_ms(), 0.0))

    def postpone_slow(self, item: Item, now: float) -> None:
        """Store a message in a tier until its turn by the throughput of its target."""
        self._postponed.labels(self._channel, SLOW_TARGET).inc()
        seconds = max(self._lanes.slow_seconds(item, now), self._schedule.tiers[0])
        self.publish(item, paused(item.request, SLOW, seconds, self._schedule, wall_clock_ms(), 0.0))

    def postpone(self, item: Item, why: str, reason: str) -> None:
        """Store a message in a tier. `why`: for its report; `reason`: counted."""
        self._postponed.labels(self._channel, reason).inc()
        jitter = random.random()  # noqa: S311 - not used for security
        self.publish(item, postponed(item.request, why, item.tier, self._schedule, wall_clock_ms(), jitter))

    def publish(self, item: Item, step: Step) -> None:
        """Publish the step of a message, or the dead letter of one whose step cannot be published."""
        stored = partial(self._stored, item)
        refused = tried_twice(partial(self._steps.record, item, step, stored))
        if refused is not None:
            self._steps.refuse(item, refused, stored)

    def publish_all(self, part: Batch, step: Step) -> None:
        """Publish the same step of several messages."""
        for item in part:
            self.publish(item, step)

    def _stored(self, item: Item) -> None:
        if item.sequence:  # it was in a lane
            self._lanes.settle(item)
        item.settled()
