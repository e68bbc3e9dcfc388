"""Faults of what the workers live on: broker, registry, Cassandra, and what they are given to eat."""

import time
from random import Random

from tests.faults.load import Load
from tests.faults.segments import BLOBS
from tests.faults.world import World


def broker_stopped(world: World, dice: Random) -> str:
    """The broker is shut down and comes back later."""
    broker = world.stack.servers["kafka"]
    with broker.lock:
        broker.stop()
        world.pause(world.scale.outage_seconds)
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
        world.pause(seconds)
        broker.resume()
        broker.wait_ready()
    return f"for {seconds:.1f} s"


def registry_away(world: World, dice: Random) -> str:
    """The schema registry is gone; a worker has to start meanwhile, and cannot until it is back."""
    registry = world.stack.servers["registry"]
    with registry.lock:
        registry.kill()
        with world.workers.joined("newcomer") as newcomer:
            refused = world.within(lambda: any(ended.code == 1 for ended in newcomer.exits), 30)
            registry.start()
            registry.wait_ready()
            world.within(lambda: newcomer.worker is not None and newcomer.worker.ready(), 30)
    return f"{newcomer.name} {'could not start until it was back' if refused else 'was not refused'}"


def cassandra_stopped(world: World, dice: Random) -> str:
    """The backing tier is shut down and comes back later."""
    node = world.stack.servers["cassandra"]
    with node.lock:
        node.stop()
        world.pause(world.scale.outage_seconds)
        node.start()
        node.wait_ready()
    return f"away for {world.scale.outage_seconds} s"


def cassandra_slow(world: World, dice: Random) -> str:
    """The backing tier gets a fraction of its time, in small slices."""
    node, deadline = world.stack.servers["cassandra"], time.monotonic() + 10
    with node.lock:
        while time.monotonic() < deadline and not world.over.is_set():
            node.pause()
            time.sleep(0.4)  # sleep: a slice without the node
            node.resume()
            time.sleep(0.05)  # sleep: a slice with the node
    return "a ninth of its time for 10 s"


def cassandra_times_out(world: World, dice: Random) -> str:
    """The backing tier holds its connections and does not answer, for longer than its clients wait."""
    node = world.stack.servers["cassandra"]
    with node.lock:
        node.pause()
        world.pause(15)
        node.resume()
        node.wait_ready()
    return "for 15 s"


def hot_user(world: World, dice: Random) -> str:
    """One user makes 20 % of the traffic."""
    world.load.maker.hot = True
    world.pause(10)
    world.load.maker.hot = False
    return "for 10 s"


def large_state(world: World, dice: Random) -> str:
    """One user's state grows beyond a megabyte."""

    def write(load: Load) -> None:
        for number in range(BLOBS):
            load.write(load.maker.blob(number))

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


def raising_record(world: World, dice: Random) -> str:
    """Records with which the code of the stage raises: in its decoder, in its fold, or when the broker refuses the output."""
    points = [dice.choice(["decode", "process", "output"]) for _ in range(dice.randrange(1, 4))]

    def write(load: Load) -> None:
        for point in points:
            load.write(load.maker.raising(point))

    world.load.ask(write)
    return f"in {', '.join(points)}"


def raise_in_fold(world: World, records: int) -> None:
    """Write that many records with which the code raises in its fold."""

    def write(load: Load) -> None:
        for _ in range(records):
            load.write(load.maker.raising("process"))

    world.load.ask(write)


def other_definition(world: World, dice: Random) -> str:
    """One more definition changes the plan, to which every task switches all of its users."""
    world.load.ask(lambda load: load.write(load.maker.other_definition()))
    return "without members"


def clock_jump(world: World, dice: Random) -> str:
    """Event time jumps ahead by hours, with or without a clock record first; or back, so that everything is late for a while."""
    ahead_ms = dice.choice([2, 20, 40]) * 3_600_000 if dice.random() < 0.7 else -600_000

    def jump(load: Load) -> None:
        if ahead_ms > 0 and dice.random() < 0.5:
            load.advance_clock(load.maker.now_ms() + ahead_ms - 55)
        load.maker.jumped_ms += ahead_ms

    world.load.ask(jump)
    return f"by {ahead_ms // 60_000} minutes"
