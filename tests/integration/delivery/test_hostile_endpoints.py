"""Nine hostile endpoints do not delay the messages of a tenth, in the real process."""

import re
import sys
import time
from collections.abc import Iterator

import pytest

from starling_demo.receiver import Receiver
from tests.integration.delivery.endpoints import SILENT_RESOLVER, hostile_endpoints
from tests.integration.delivery.world import World, wait_for
from tests.unit.delivery.making import SECRET, change

ATTEMPT_SECONDS = 8
"""The deadline of an attempt. The measurement goes on until attempts have ended and circuits have opened."""

MOST_DELAY_SECONDS = 6.0
"""A message that waits for one attempt to a hostile endpoint takes longer. On a quiet machine the delay is less than two seconds.
The test does not require that, because a busy machine delays each message by some seconds."""

FAILING = {"drip-headers", "hang", "redirect", "never-accept", "refuse", "silent-name-server"}
"""The endpoints without an answer that takes the message. The others answer 200 and then misbehave."""


class TimedReceiver(Receiver):
    """Also keeps the time at which each message arrived first."""

    def __post_init__(self) -> None:
        self.arrived: dict[str, float] = {}
        super().__post_init__()

    def take(self, headers: dict[str, str], body: bytes) -> int:
        self.arrived.setdefault(headers["webhook-id"], time.monotonic())
        return super().take(headers, body)


@pytest.fixture
def tenth() -> Iterator[TimedReceiver]:
    made = TimedReceiver(SECRET)
    yield made
    made.close()


def delays(world: World, receiver: TimedReceiver, prefix: str, seconds: float) -> list[float]:
    """The delays of messages to the tenth endpoint, one every 100 ms."""
    sent: dict[str, float] = {}
    until = time.monotonic() + seconds
    while time.monotonic() < until:
        user = f"{prefix}{len(sent)}"
        sent[change(user, segment="good")["event_id"]] = time.monotonic()
        world.change(user, segment="good")
        time.sleep(0.1)  # sleep: the pace of the changes
    wait_for(lambda: sent.keys() <= receiver.arrived.keys())
    return [receiver.arrived[message] - begun for message, begun in sent.items()]


def open_circuits(world: World) -> float:
    [value] = re.findall(r'^starling_delivery_open_circuits\{channel="webhook"\} (.*)$', world.metrics(), re.MULTILINE)
    return float(value)


@pytest.mark.long
@pytest.mark.parametrize("workspace", ["hostile", "default"], ids=["another workspace", "the same workspace"])
def test_nine_hostile_endpoints_do_not_delay_a_tenth(world: World, tenth: TimedReceiver, workspace: str) -> None:
    world.define(tenth.url, "tenth", segments=["good"])
    command = (sys.executable, "-c", SILENT_RESOLVER)
    with hostile_endpoints() as urls, world.process(command, STARLING_TIMEOUT_SECONDS=str(ATTEMPT_SECONDS)) as process:
        quiet = delays(world, tenth, "quiet", 2.0)
        for name, url in urls.items():
            world.define(url, name, workspace, segments=["bad"])
        world.change("first", workspace=workspace, segment="bad")
        wait_for(lambda: any(record["target_key"] == "refuse" for record in world.records("outcome")))
        world.changes([f"bad{number}" for number in range(30)], workspace=workspace, segment="bad")
        beside = delays(world, tenth, "beside", ATTEMPT_SECONDS + 4.0)
        wait_for(lambda: open_circuits(world) >= len(FAILING))
        assert process.poll() is None
    assert max(beside) - max(quiet) <= MOST_DELAY_SECONDS
    reports = world.records("outcome")
    assert all(record["outcome"] == "DELIVERED" for record in reports if record["target_key"] == "tenth")
    postponed = {record["target_key"] for record in reports if (record["detail"] or "").startswith("postponed: the circuit")}
    assert postponed >= FAILING
