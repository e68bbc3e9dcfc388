"""Batches of the real process against the real broker: whole, refused in part, and killed at each point of their way."""

import subprocess
import threading
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from starling_delivery.policy import delivery_id
from tests.integration.delivery.receivers import BatchReceiver, users_of
from tests.integration.delivery.world import World, wait_for
from tests.unit.delivery.making import SECRET, change

BATCH = {"max_items": 50, "max_wait_ms": 300}


class Killer:
    """Kills a process while it waits for the answer to its n-th request."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._process: subprocess.Popen[bytes] | None = None
        self._started = threading.Event()
        self._left = 0

    @contextmanager
    def after(self, requests: int, process: subprocess.Popen[bytes]) -> Iterator[None]:
        self._left, self._process = requests, process
        self._started.set()
        yield
        self._started.clear()

    def stand_aside(self) -> None:
        self._process = None
        self._started.set()

    def look(self, _number: int) -> None:
        self._started.wait(10)  # the process may send before it is ready
        with self._lock:
            self._left -= 1
            if self._left == 0 and self._process is not None:
                self._process.kill()
                self._process.wait()


@pytest.fixture
def receiver() -> Iterator[BatchReceiver]:
    made = BatchReceiver(SECRET)
    yield made
    made.close()


def test_changes_share_requests_and_a_refused_one_holds_up_no_other(world: World, receiver: BatchReceiver) -> None:
    receiver.bad = {"u17"}
    world.define(receiver.url, batch=BATCH)
    users = [f"u{number}" for number in range(120)]
    world.changes(users)
    with world.process(STARLING_RETRY_DELAYS_SECONDS="[20]"):
        wait_for(lambda: Counter(world.outcomes()) == {"DELIVERED": 119, "RETRYING": 1})
        wait_for(world.has_read_all)
    assert sorted(receiver.users()) == sorted({*users} - receiver.bad)
    assert receiver.forged == 0
    assert receiver.requests <= 3 + 2 * 6
    assert {message["type"] for message in receiver.batches} == {"segment.changes"}
    [retry] = world.records("retry.20s")
    assert (retry["user_id"], retry["attempt"], retry["batch_limit"]) == ("u17", 2, 1)


@pytest.mark.long
def test_a_process_killed_at_each_point_of_a_batch_loses_no_change_and_keeps_the_order_of_each_user(
    world: World, receiver: BatchReceiver
) -> None:
    killer = Killer()
    receiver.before, receiver.bad = killer.look, {"u17"}
    world.define(receiver.url, batch=BATCH)
    users = [f"u{number}" for number in range(200)]
    world.changes(users)
    world.changes(users, sequence=2, status="EXITED")
    for requests in (1, 2, 5):
        with world.process() as process, killer.after(requests, process):
            process.wait(60)
    receiver.bad = set()
    killer.stand_aside()
    expected = {delivery_id(change(user, status)["event_id"], "hook") for user in users for status in ("ENTERED", "EXITED")}
    with world.process():
        wait_for(lambda: expected == {one["delivery_id"] for one in world.records("outcome") if one["outcome"] == "DELIVERED"})
        wait_for(world.has_read_all)
    first, second = dict[str, int](), dict[str, int]()
    changes = [one["data"] for message in receiver.batches for one in message["data"]]
    for position, one in enumerate(changes):
        (first if one["sequence"] == 1 else second).setdefault(one["user_id"], position)
    assert first.keys() == second.keys() == set(users)
    assert all(first[user] < second[user] for user in users if user != "u17")  # a retry may be later
    assert all(len(users_of(message)) <= BATCH["max_items"] for message in receiver.batches)
