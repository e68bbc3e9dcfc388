"""The faults, one small function each. An injector returns what it did; it raises `NotInjected` when it could not do it.

Each restores the world: when it returns, the removed parts run again or restart automatically.
"""

import shutil
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from random import Random

from starling_stream.model.failpoints import (
    AFTER_FAILURE,
    AFTER_FOLD,
    AFTER_RESTORE,
    AFTER_SLICE,
    AFTER_TIMERS,
    BEFORE_RELEASE,
    FAILPOINTS,
)
from tests.faults import outages
from tests.faults.workers import SESSION_SECONDS, Slot
from tests.faults.world import NotInjected, World

_REACHED_SECONDS = 25.0

_MOST_PASSAGES = {AFTER_SLICE: 1, AFTER_TIMERS: 3, AFTER_RESTORE: 2, AFTER_FAILURE: 1, BEFORE_RELEASE: 1}
"""A worker passes these places rarely; the others up to five times before the fault."""
_ON_EACH_WORKER = 16
"""So many records of random users: a worker without one of them is improbable."""


Inject = Callable[[World, Random], str]


@dataclass(frozen=True)
class Fault:
    """`lane`: faults of one lane follow one another, the lanes run side by side. `weight`: how often it is chosen."""

    name: str
    inject: Inject
    lane: str
    weight: int = 1
    part: str | None = None
    """The part it takes away: without it in the stack there is no such fault."""


def kill_at(place: str) -> Inject:
    """A worker kills itself with -9 at a place in the code."""

    def inject(world: World, dice: Random) -> str:
        slot, passage = _slot(world, dice), dice.randrange(1, _MOST_PASSAGES.get(place, 5) + 1)
        before = _armed(world, slot, f"{place}:{passage}")
        if place == AFTER_SLICE:
            outages.other_definition(world, dice)
        if place == AFTER_FAILURE:
            outages.raise_in_fold(world, _ON_EACH_WORKER)
        with _led_to(place, world):
            is_reached = world.within(lambda: len(slot.exits) > before, _REACHED_SECONDS)
        if not is_reached:
            slot.kill()  # it is still armed, and a graceful stop would end it at that place
            raise NotInjected(f"{slot.name} did not come by {place} {passage} times")
        code = slot.exits[before].code
        if code != -9:
            raise NotInjected(f"{slot.name} ended with {code} before it came by {place}")
        return f"{slot.name} at its passage {passage}"

    return inject


def zombie_at(place: str) -> Inject:
    """A worker is suspended at a place in the code until its session has ended and others have its partitions."""

    def inject(world: World, dice: Random) -> str:
        slot, passage = _slot(world, dice), dice.randrange(1, _MOST_PASSAGES.get(place, 5) + 1)
        seconds = SESSION_SECONDS + dice.uniform(1, 4)
        before = _armed(world, slot, f"{place}:{passage}:stop")
        if place == AFTER_SLICE:
            outages.other_definition(world, dice)
        with _led_to(place, world):
            if not world.within(lambda: slot.asleep() or len(slot.exits) > before, _REACHED_SECONDS) or not slot.asleep():
                slot.resume()
                slot.kill()  # it may still be armed
                raise NotInjected(f"{slot.name} did not come by {place} {passage} times")
            world.pause(seconds)
            slot.resume()
        return f"{slot.name} at its passage {passage}, for {seconds:.1f} s"

    return inject


@contextmanager
def _led_to(place: str, world: World) -> Iterator[None]:
    """Let another worker join meanwhile, if the place is reached only by a worker that loses partitions."""
    if place != BEFORE_RELEASE:
        yield
        return
    with world.workers.joined(f"extra-{world.mine[0]}"):
        yield


def promoted(world: World, dice: Random) -> str:
    """SIGSTOP of a worker until another one runs its partitions from a standby, then SIGCONT in the same moment."""
    slot = _slot(world, dice)
    before = {name: other.promotions() for name, other in world.workers.slots.items()}
    slot.pause()
    try:
        if not world.within(lambda: _promoted_since(world, slot, before), _REACHED_SECONDS):
            raise NotInjected(f"no other worker ran a partition of {slot.name} from its disk")
    finally:
        slot.resume()
    return slot.name


def _promoted_since(world: World, slot: Slot, before: Mapping[str, int]) -> bool:
    return any(other.promotions() > before.get(name, 0) for name, other in world.workers.slots.items() if other is not slot)


def _armed(world: World, slot: Slot, failpoint: str) -> int:
    """Restart the worker with a failpoint; return the number of its ends so far."""
    with slot.away():
        slot.armed = failpoint
    return len(slot.exits)


def kill_anywhere(world: World, dice: Random) -> str:
    """kill -9 at no place in particular."""
    slot = _slot(world, dice)
    world.pause(dice.uniform(0.0, 0.5))
    slot.kill()
    return slot.name


def zombie(world: World, dice: Random) -> str:
    """SIGSTOP for longer than the session, then SIGCONT."""
    slot, seconds = _slot(world, dice), SESSION_SECONDS + dice.uniform(1, 4)
    slot.pause()
    world.pause(seconds)
    slot.resume()
    return f"{slot.name} slept for {seconds:.1f} s"


def graceful_stop(world: World, dice: Random) -> str:
    """SIGTERM in the middle of a batch, then a new process."""
    slot = _slot(world, dice)
    if slot.worker is None:
        raise NotInjected("it does not run")
    world.pause(dice.uniform(0.0, 0.3))
    code = slot.stop()
    return f"{slot.name} ended with {code}"


def left_group(world: World, dice: Random) -> str:
    """SIGUSR1: out of its group at once, its partitions move; then it is back as a newcomer."""
    slot = _slot(world, dice)
    with slot.away(leaves_group=True):
        world.pause(dice.uniform(0.0, 3.0))
    return slot.name


def worker_lost(world: World, dice: Random) -> str:
    """kill -9 without a restart for longer than the session time-out: its partitions move, and move back."""
    slot = _slot(world, dice)
    with slot.away():
        world.pause(SESSION_SECONDS + 2)
    return slot.name


def disk_lost(world: World, dice: Random) -> str:
    """The worker's local disk is empty when it starts again."""
    slot = _slot(world, dice)
    with slot.away(gracefully=dice.random() < 0.5):
        _lose(slot)
    return slot.name


def disk_old(world: World, dice: Random) -> str:
    """A copy of the disk from before is put back."""
    slot, kept = _slot(world, dice), world.directory / f"kept-{dice.getrandbits(32):08x}"
    with slot.away():
        if not slot.disk.exists():
            raise NotInjected(f"{slot.name} has no disk yet")
        shutil.copytree(slot.disk, kept)
    world.pause(dice.uniform(5, 9))
    with slot.away():
        _lose(slot)
        shutil.move(kept, slot.disk)
    return slot.name


def store_corrupted(world: World, dice: Random) -> str:
    """Bytes of a store are flipped while its worker is down: in a table, the manifest, the log, or CURRENT."""
    slot = _slot(world, dice)
    with slot.away(gracefully=dice.random() < 0.7):
        kind = dice.choice(["*.sst", "*.sst", "*.sst", "MANIFEST-*", "*.log", "CURRENT"])
        files = sorted(file for store in slot.stores for file in store.glob(kind) if file.stat().st_size)
        if not files:
            raise NotInjected(f"{slot.name} has no {kind}")
        chosen = files if dice.random() < 0.5 else [dice.choice(files)]
        for file in chosen:
            _flip(file, dice)
    return f"{slot.name}: {kind} of {len(chosen)} stores"


def disk_full(world: World, dice: Random) -> str:
    """No file of a running worker can grow any more (RLIMIT_FSIZE: the write fails as on a full disk); the next has room again."""
    slot = _slot(world, dice)
    before = len(slot.exits)
    if not slot.limit_file_bytes(dice.randrange(0, 200_000)):
        raise NotInjected("it does not run")
    if not world.within(lambda: len(slot.exits) > before, _REACHED_SECONDS):
        slot.kill()
        return f"{slot.name} did not notice"
    return f"{slot.name} ended with {slot.exits[before].code}"


def rebalance_during_restore(world: World, dice: Random) -> str:
    """A worker with an empty disk restores; meanwhile another one joins, and leaves again."""
    slot = _slot(world, dice)
    with slot.away():
        _lose(slot)
    with world.workers.joined(f"extra-{world.mine[0]}") as extra:
        if not world.within(lambda: extra.worker is not None and extra.worker.ready(), 25):
            raise NotInjected("the extra worker was never ready")
        with slot.away():
            _lose(slot)
        world.pause(dice.uniform(1.5, 4.0))
    return f"{slot.name} and {extra.name}"


def ten_rebalances(world: World, dice: Random) -> str:
    """Workers join and leave ten times in a minute."""
    for _ in range(5):
        with world.workers.joined(f"extra-{world.mine[0]}") as extra:
            world.within(lambda: extra.worker is not None and extra.worker.ready(), 10)
            world.pause(dice.uniform(0.2, 1.0))
            if dice.random() < 0.5:
                extra.wanted = False
                extra.stop()
        world.pause(SESSION_SECONDS)  # a static member is gone when its session is
    return "five joins, five leaves"


CATALOGUE: tuple[Fault, ...] = (
    *(Fault(f"kill {place}", kill_at(place), "worker", 4) for place in FAILPOINTS),
    Fault("kill anywhere", kill_anywhere, "worker", 8),
    Fault("zombie", zombie, "worker", 3),
    Fault("zombie after a fold", zombie_at(AFTER_FOLD), "worker", 2),
    Fault("zombie with timers only", zombie_at(AFTER_TIMERS), "worker", 2),
    Fault("zombie in a switch", zombie_at(AFTER_SLICE), "worker", 2),
    Fault("zombie after its restore", zombie_at(AFTER_RESTORE), "worker", 2),
    Fault("zombie before it stops what moved", zombie_at(BEFORE_RELEASE), "worker", 2),
    Fault("zombie at a promotion", promoted, "worker", 2),
    Fault("graceful stop", graceful_stop, "worker", 4),
    Fault("left the group", left_group, "worker", 2),
    Fault("worker lost", worker_lost, "worker", 2),
    Fault("disk lost", disk_lost, "worker", 3),
    Fault("disk old", disk_old, "worker", 2),
    Fault("store corrupted", store_corrupted, "worker", 4),
    Fault("disk full", disk_full, "worker", 2),
    Fault("rebalance during restore", rebalance_during_restore, "worker", 2),
    Fault("ten rebalances", ten_rebalances, "worker"),
    Fault("broker stopped", outages.broker_stopped, "broker", 1, "kafka"),
    Fault("broker killed", outages.broker_killed, "broker", 3, "kafka"),
    Fault("broker hangs", outages.broker_hangs, "broker", 2, "kafka"),
    Fault("registry away", outages.registry_away, "broker", 2, "registry"),
    Fault("cassandra stopped", outages.cassandra_stopped, "cassandra", 1, "cassandra"),
    Fault("cassandra slow", outages.cassandra_slow, "cassandra", 1, "cassandra"),
    Fault("cassandra times out", outages.cassandra_times_out, "cassandra", 1, "cassandra"),
    Fault("hot user", outages.hot_user, "load"),
    Fault("large state", outages.large_state, "load"),
    Fault("poison record", outages.poison, "load", 2),
    Fault("record that raises", outages.raising_record, "load", 2),
    Fault("definition", outages.other_definition, "load"),
    Fault("clock jump", outages.clock_jump, "load", 2),
)
"""`partition count changed` is not here: it ends a run, see `test_partition_count.py`."""


def _slot(world: World, dice: Random) -> Slot:
    return world.workers.slots[dice.choice(world.mine)]


def _lose(slot: Slot) -> None:
    if slot.disk.exists():
        shutil.rmtree(slot.disk)


def _flip(file: Path, dice: Random) -> None:
    data = bytearray(file.read_bytes())
    for _ in range(max(3, len(data) // 2000)):
        data[dice.randrange(len(data))] ^= 1 << dice.randrange(8)
    file.write_bytes(data)
