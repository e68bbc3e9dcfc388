"""The faults, one small function each. An injector returns what it did; it raises `NotInjected` when it could not do it.

Each leaves the world whole again: what it took away is back, or comes back by itself, when it returns.
"""

import shutil
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from random import Random

from starling_stream.failpoints import FAILPOINTS
from tests.faults.load import BLOBS, Load
from tests.faults.workers import SESSION_SECONDS, Slot
from tests.faults.world import World

_REACHED_SECONDS = 60.0


class NotInjected(Exception):
    """The fault could not be brought about this time; it is not counted."""


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
    """kill -9 of a worker by itself, at a place in the code."""

    def inject(world: World, dice: Random) -> str:
        slot, passage = _slot(world, dice), dice.randrange(1, 6)
        with slot.away():
            slot.armed = f"{place}:{passage}"
        before = len(slot.exits)
        if not _within(world, lambda: len(slot.exits) > before, _REACHED_SECONDS):
            raise NotInjected(f"{slot.name} did not come by {place} {passage} times")
        code = slot.exits[before].code
        if code != -9:
            raise NotInjected(f"{slot.name} ended with {code} before it came by {place}")
        return f"{slot.name} at its passage {passage}"

    return inject


def kill_anywhere(world: World, dice: Random) -> str:
    """kill -9 at no place in particular."""
    slot = _slot(world, dice)
    _pause(world, dice.uniform(0.0, 0.5))
    slot.kill()
    return slot.name


def zombie(world: World, dice: Random) -> str:
    """SIGSTOP for longer than the session, then SIGCONT."""
    slot, seconds = _slot(world, dice), SESSION_SECONDS + dice.uniform(1, 4)
    slot.pause()
    _pause(world, seconds)
    slot.resume()
    return f"{slot.name} slept for {seconds:.1f} s"


def graceful_stop(world: World, dice: Random) -> str:
    """SIGTERM in the middle of a batch, then a new process."""
    slot = _slot(world, dice)
    if slot.worker is None:
        raise NotInjected("it does not run")
    _pause(world, dice.uniform(0.0, 0.3))
    code = slot.stop()
    return f"{slot.name} ended with {code}"


def worker_lost(world: World, dice: Random) -> str:
    """kill -9, and nobody of that name for longer than the session: its partitions move, and move back."""
    slot = _slot(world, dice)
    with slot.away():
        _pause(world, SESSION_SECONDS + 2)
    return slot.name


def disk_lost(world: World, dice: Random) -> str:
    """The worker's local disk is empty when it starts again."""
    slot = _slot(world, dice)
    with slot.away(gracefully=dice.random() < 0.5):
        shutil.rmtree(slot.disk)
    return slot.name


def disk_old(world: World, dice: Random) -> str:
    """A copy of the disk from before is put back."""
    slot, kept = _slot(world, dice), world.directory / f"kept-{dice.getrandbits(32):08x}"
    with slot.away():
        shutil.copytree(slot.disk, kept)
    _pause(world, dice.uniform(5, 9))
    with slot.away():
        shutil.rmtree(slot.disk)
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
    if not _within(world, lambda: len(slot.exits) > before, _REACHED_SECONDS):
        slot.kill()
        return f"{slot.name} did not notice"
    return f"{slot.name} ended with {slot.exits[before].code}"


def rebalance_during_restore(world: World, dice: Random) -> str:
    """A worker with an empty disk restores; meanwhile another one joins, and leaves again."""
    slot = _slot(world, dice)
    with slot.away():
        shutil.rmtree(slot.disk)
    with world.workers.joined("extra") as extra:
        if not _within(world, lambda: extra.worker is not None and extra.worker.ready(), 60):
            raise NotInjected("the extra worker was never ready")
        with slot.away():
            shutil.rmtree(slot.disk)
        _pause(world, dice.uniform(1.5, 4.0))
    return f"{slot.name} and {extra.name}"


def ten_rebalances(world: World, dice: Random) -> str:
    """Workers join and leave ten times in a minute."""
    for _ in range(5):
        with world.workers.joined("extra") as extra:
            if not _within(world, lambda: extra.worker is not None and extra.worker.ready(), 60):
                raise NotInjected("the extra worker was never ready")
            _pause(world, dice.uniform(0.2, 1.0))
            if dice.random() < 0.5:
                extra.wanted = False
                extra.stop()
        _pause(world, SESSION_SECONDS)  # a static member is gone when its session is
    return "five joins, five leaves"


def broker_stopped(world: World, dice: Random) -> str:
    """The broker is shut down and comes back later."""
    broker = world.stack.servers["kafka"]
    with broker.lock:
        broker.stop()
        _pause(world, world.scale.outage_seconds)
        broker.start()
        broker.wait_ready()
    return f"away for {world.scale.outage_seconds} s"


def broker_killed(world: World, dice: Random) -> str:
    """kill -9 of the broker; it is started again at once."""
    broker = world.stack.servers["kafka"]
    with broker.lock:
        broker.kill()
        broker.start()
        broker.wait_ready()
    return "started again at once"


def broker_hangs(world: World, dice: Random) -> str:
    """The broker holds its connections and does not answer, for some seconds."""
    broker, seconds = world.stack.servers["kafka"], dice.uniform(3, min(15.0, world.scale.outage_seconds))
    with broker.lock:
        broker.pause()
        _pause(world, seconds)
        broker.resume()
        broker.wait_ready()
    return f"for {seconds:.1f} s"


def registry_away(world: World, dice: Random) -> str:
    """The schema registry is gone; a worker has to start meanwhile, and cannot until it is back."""
    registry = world.stack.servers["registry"]
    with registry.lock:
        registry.kill()
        with world.workers.joined("newcomer") as newcomer:
            refused = _within(world, lambda: any(ended.code == 1 for ended in newcomer.exits), 30)
            registry.start()
            registry.wait_ready()
            _within(world, lambda: newcomer.worker is not None and newcomer.worker.ready(), 30)
    return f"{newcomer.name} {'could not start until it was back' if refused else 'was not refused'}"


def cassandra_stopped(world: World, dice: Random) -> str:
    """The backing tier is shut down and comes back later."""
    node = world.stack.servers["cassandra"]
    with node.lock:
        node.stop()
        _pause(world, world.scale.outage_seconds)
        node.start()
        node.wait_ready()
    return f"away for {world.scale.outage_seconds} s"


def cassandra_slow(world: World, dice: Random) -> str:
    """The backing tier gets a fraction of its time, in small slices."""
    node, deadline = world.stack.servers["cassandra"], time.monotonic() + 10
    with node.lock:
        while time.monotonic() < deadline and not world.over.is_set():
            node.pause()
            time.sleep(0.4)
            node.resume()
            time.sleep(0.05)
    return "a ninth of its time for 10 s"


def cassandra_times_out(world: World, dice: Random) -> str:
    """The backing tier holds its connections and does not answer, for longer than its clients wait."""
    node = world.stack.servers["cassandra"]
    with node.lock:
        node.pause()
        _pause(world, 15)
        node.resume()
        node.wait_ready()
    return "for 15 s"


def hot_user(world: World, dice: Random) -> str:
    """One user makes 20 % of the traffic."""
    world.load.maker.hot = True
    _pause(world, 10)
    world.load.maker.hot = False
    return "for 10 s"


def large_state(world: World, dice: Random) -> str:
    """One user's state grows beyond a megabyte."""

    def write(load: Load) -> None:
        for _ in range(BLOBS):
            load.write(load.maker.blob())

    world.load.ask(write)
    return f"{BLOBS} values"


def poison(world: World, dice: Random) -> str:
    """Records that cannot be decoded, or whose JSON cannot be read."""
    count = dice.randrange(1, 6)

    def write(load: Load) -> None:
        for _ in range(count):
            load.write(load.maker.poison())

    world.load.ask(write)
    return f"{count} records"


def clock_jump(world: World, dice: Random) -> str:
    """Event time jumps ahead by hours, with or without a clock record first; or back, so that everything is late for a while."""
    ahead_ms = dice.choice([2, 20, 40]) * 3_600_000 if dice.random() < 0.7 else -600_000

    def jump(load: Load) -> None:
        if ahead_ms > 0 and dice.random() < 0.5:
            load.advance_clock(load.maker.now_ms() + ahead_ms - 55)
        load.maker.jumped_ms += ahead_ms

    world.load.ask(jump)
    return f"by {ahead_ms // 60_000} minutes"


CATALOGUE: tuple[Fault, ...] = (
    *(Fault(f"kill {place}", kill_at(place), "worker", 4) for place in FAILPOINTS),
    Fault("kill anywhere", kill_anywhere, "worker", 8),
    Fault("zombie", zombie, "worker", 3),
    Fault("graceful stop", graceful_stop, "worker", 4),
    Fault("worker lost", worker_lost, "worker", 2),
    Fault("disk lost", disk_lost, "worker", 3),
    Fault("disk old", disk_old, "worker", 2),
    Fault("store corrupted", store_corrupted, "worker", 4),
    Fault("disk full", disk_full, "worker", 2),
    Fault("rebalance during restore", rebalance_during_restore, "worker", 2),
    Fault("ten rebalances", ten_rebalances, "worker"),
    Fault("broker stopped", broker_stopped, "broker", 1, "kafka"),
    Fault("broker killed", broker_killed, "broker", 3, "kafka"),
    Fault("broker hangs", broker_hangs, "broker", 2, "kafka"),
    Fault("registry away", registry_away, "broker", 2, "registry"),
    Fault("cassandra stopped", cassandra_stopped, "cassandra", 1, "cassandra"),
    Fault("cassandra slow", cassandra_slow, "cassandra", 1, "cassandra"),
    Fault("cassandra times out", cassandra_times_out, "cassandra", 1, "cassandra"),
    Fault("hot user", hot_user, "load"),
    Fault("large state", large_state, "load"),
    Fault("poison record", poison, "load", 2),
    Fault("clock jump", clock_jump, "load", 2),
)
"""`partition count changed` is not here: it ends a run, see `test_fault_partition_count.py`."""


def _slot(world: World, dice: Random) -> Slot:
    return world.workers.slots[f"w{dice.randrange(world.scale.workers)}"]


def _pause(world: World, seconds: float) -> None:
    world.over.wait(seconds)


def _within(world: World, condition: Callable[[], bool], seconds: float) -> bool:
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline and not world.over.is_set():
        if condition():
            return True
        time.sleep(0.05)
    return condition()


def _flip(file: Path, dice: Random) -> None:
    data = bytearray(file.read_bytes())
    for _ in range(max(3, len(data) // 2000)):
        data[dice.randrange(len(data))] ^= 1 << dice.randrange(8)
    file.write_bytes(data)
