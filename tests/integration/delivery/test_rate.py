"""The rate of a webhook, with two real processes against the real broker."""

import re
import time
from collections.abc import Iterator
from dataclasses import dataclass, field

import httpx
import pytest

from starling_demo.receiver import Receiver
from tests.integration.delivery.world import World, wait_for
from tests.unit.delivery.making import SECRET

RATE, CHANGES = 20, 120
DELAY_SECONDS = 0.5
"""The time by which the first request may be late."""


@dataclass
class TimedReceiver(Receiver):
    """Keeps the time of each request."""

    times: list[float] = field(default_factory=list)

    def take(self, headers: dict[str, str], body: bytes) -> int:
        """Return the status of the answer."""
        with self._lock:
            self.times.append(time.monotonic())
        return super().take(headers, body)


@pytest.fixture
def receiver() -> Iterator[TimedReceiver]:
    made = TimedReceiver(SECRET)
    yield made
    made.close()


def delivered(port: int) -> float:
    """The messages that the process at this port has delivered."""
    text = httpx.get(f"http://127.0.0.1:{port}/metrics", trust_env=False).text
    found = re.search(r'starling_delivery_attempts_total\{channel="webhook",outcome="DELIVERED"\} (\S+)', text)
    return float(found[1]) if found else 0.0


@pytest.mark.long
def test_two_processes_together_stay_below_the_rate(wide_world: World, receiver: TimedReceiver) -> None:
    world = wide_world
    world.define(receiver.url, rate=RATE)
    with world.process():
        first = world.port
        with world.process(STARLING_INSTANCE_ID="delivery-1"):
            second = world.port
            world.changes([f"u{number}" for number in range(CHANGES)])
            wait_for(lambda: len(receiver.calls) == CHANGES)
            counts = delivered(first), delivered(second)
    assert min(counts) > 0
    assert sum(counts) == len(receiver.times) == CHANGES
    # A slow machine only makes it longer. Each process may send the tokens of a tenth of a second at once, one at least.
    first_at, last_at = receiver.times[0], receiver.times[-1]
    allowed = RATE * (last_at - first_at + DELAY_SECONDS) + 2 + RATE * 0.1
    assert sum(counts) <= allowed
