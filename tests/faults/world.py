"""One fault run: parts, workers and load together, and the end of it, at which everything is compared."""

import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from confluent_kafka import KafkaException

from starling_common.kafka.topics import BEHAVIOUR, CLOCK, PROFILE
from tests.faults.findings import Findings, checked
from tests.faults.load import Load
from tests.faults.log import lag
from tests.faults.parts import Stack, running
from tests.faults.workers import Workers

GROUP = "starling-segmenter"
_YEAR_MS = 366 * 86_400_000


@dataclass(frozen=True)
class Scale:
    """How large a run is. `outage_seconds`: how long a part is away; `rate` in records a second."""

    workers: int = 4
    rate: int = 300
    users: int = 300
    outage_seconds: float = 30.0


class NotInjected(Exception):
    """A fault could not be brought about this time; it is not counted."""


@dataclass
class World:
    """What injectors work on. `mine`: the workers that they may take down; another lane has the others. `over` is set when
    a run's time is up: who waits for long then stops waiting.
    """

    stack: Stack
    workers: Workers
    load: Load
    scale: Scale
    directory: Path
    mine: tuple[str, ...]
    over: threading.Event = field(default_factory=threading.Event)

    def pause(self, seconds: float) -> None:
        self.over.wait(seconds)

    def within(self, condition: Callable[[], bool], seconds: float) -> bool:
        """Whether it came to hold in that time."""
        deadline = time.monotonic() + seconds
        while time.monotonic() < deadline and not self.over.is_set():
            if condition():
                return True
            time.sleep(0.05)
        return condition()

    def lag(self, topics: Sequence[str] = (BEHAVIOUR, PROFILE)) -> int | None:
        """Return the number of unprocessed records; None while the broker does not answer."""
        try:
            return lag(self.stack.brokers, GROUP, topics, self.load.partitions)
        except KafkaException:
            return None

    def settle(self, topics: Sequence[str] = (BEHAVIOUR, PROFILE), seconds: float = 240.0) -> None:
        """Returns when the group has processed everything; fails when it stops getting on."""
        deadline, least = time.monotonic() + seconds, None
        while (left := self.lag(topics)) != 0:
            if left is not None and (least is None or left < least):
                deadline, least = time.monotonic() + seconds, left
            if time.monotonic() > deadline:
                self.workers.dump_stacks()
                raise AssertionError(f"{left} records left, and no progress for {seconds} s: see the logs in {self.directory}")
            time.sleep(0.2)

    def finish(self) -> Findings:
        """Let all be processed and every timer fire, stop gracefully, compare."""
        self.load.stop()
        self.settle()
        self.load.advance_clock(self.load.maker.now_ms() + _YEAR_MS + 5)
        self.settle((BEHAVIOUR, PROFILE, CLOCK))
        for slot in self.workers.slots.values():
            if slot.wanted:
                slot.wait_ready()
        codes = self.workers.stop_all()
        disks = [slot.disk for slot in self.workers.slots.values()]
        cassandra = self.stack.cassandra if "cassandra" in self.stack.servers else None
        findings = checked(self.stack.brokers, self.stack.registry_url, disks, cassandra)
        if any(code not in (0, None) for code in codes.values()):
            findings.found("wrong", f"a graceful stop with nothing to do ended with {codes}")
        return findings


@contextmanager
def resumed(directory: Path, parts: tuple[str, ...]) -> Iterator[World]:
    """A run that was kept and has ended: its parts and workers started again on what they left, without load or faults."""
    with running(parts, directory / "parts") as stack:
        names = tuple(sorted(path.name for path in (directory / "workers").glob("w[0-9]*")))
        with Workers(directory / "workers", stack.environment(), names) as workers:
            for slot in workers.slots.values():
                slot.wait_ready(300)
            load = Load(stack.brokers, stack.registry_url, 0, rate=0, users=1)
            load.maker.jumped_ms = 10 * _YEAR_MS
            yield World(stack, workers, load, Scale(workers=len(names)), directory, names)


@contextmanager
def world(directory: Path, seed: int, scale: Scale, parts: tuple[str, ...] = ("kafka", "registry")) -> Iterator[World]:
    """Everything started, every worker ready, the load running. Ends what it started."""
    with running(parts, directory / "parts") as stack:
        load = Load(stack.brokers, stack.registry_url, seed, rate=scale.rate, users=scale.users)
        load.define()
        names = tuple(f"w{number}" for number in range(scale.workers))
        with Workers(directory / "workers", stack.environment(), names) as workers:
            for slot in workers.slots.values():
                slot.wait_ready()
            load.start()
            yield World(stack, workers, load, scale, directory, names)
