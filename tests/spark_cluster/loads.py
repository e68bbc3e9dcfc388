"""The jobs that must survive the faults of a cluster: their input, and what must be there in the end."""

import json
import random
import struct
import sys
import threading
import time
from collections import Counter
from collections.abc import Mapping
from contextlib import ExitStack
from pathlib import Path
from typing import Any, Final, Protocol

from starling_common.kafka.topics import BEHAVIOUR
from starling_common.settings import Cassandra
from starling_common.testing import Service
from starling_common.values import record_key
from tests.conftest import Stack
from tests.integration.spark.instance import Instance
from tests.integration.spark.lake_instance import LakeInstance, behaviour, newer_writer, received
from tests.spark_cluster.lake_rows import lake_places
from tests.spark_cluster.rig import ENVIRONMENT, Rig
from tests.spark_cluster.story import DAY_MS, PATIENCE_SECONDS, START_MS, TRAITS, Story
from tests.unit.spark.evaluator import differences
from tests.unit.spark.keeping import Partition, defined

JUMP_MS: Final = 400 * DAY_MS
"""Beyond the windows of all traits."""
HOT_SHARE: Final = 0.2
"""Of all events, by one user."""
_LARGE: Final[Mapping[str, Mapping[str, Any]]] = {
    f"first_{number}": {"event": "Order *", "measure": {"first": "sku"}, "within": f"{350 + number}d"} for number in range(9)
}
"""A state of these traits has every value that the window may come to: 256 values, or 128 KB of each."""
_LARGE_EVENTS, _MOST_LARGE_EVENTS, _LARGE_CHARS = 20, 240, 500
_UNKNOWN_SCHEMA: Final = 9_999_999
_TRACK: Final = "ingest.track"


class Load(Protocol):
    """A job on the cluster, and its input. `is_held_down`: a fault has killed the driver and will start it."""

    cluster: Rig
    is_held_down: bool

    @property
    def log(self) -> Path:
        """Return the driver's log."""

    def begin(self) -> None:
        """Create the topics, send the first records, and start the job."""

    def more(self, count: int) -> None:
        """Send about this number of records."""

    def start(self, *, is_awaited: bool = True) -> None:
        """Start the job; return when it is ready, or at once."""

    def kill(self) -> None:
        """Kill the driver (SIGKILL)."""

    def is_running(self) -> bool:
        """Return whether the driver runs."""

    def settle(self) -> None:
        """Wait until the job has processed everything. Raises: AssertionError if it ends, or does not in time."""

    def log_tail(self) -> str:
        """Return the end of the driver's log."""

    def differences(self) -> list[str]:
        """Return where the outputs of the job differ from those of one fold over everything that was sent."""

    def remove(self) -> None:
        """End the job, and delete its topics."""


class Traits:
    """The job `profiles`. One user has a fifth of all events, another one a large state; one writer in two has a newer schema."""

    def __init__(self, cluster: Rig, directory: Path, dice: random.Random) -> None:
        self.cluster, self.is_held_down = cluster, False
        self._dice = dice
        self._story = Story(cluster, directory)
        self._documents: dict[str, Mapping[str, Any]] = {
            **TRAITS,
            "kinds": {"event": "Order *", "measure": {"distinct": "sku"}, "within": "365d"},
            **_LARGE,
        }
        self._large_events = 0
        self._edited: list[str] = []
        self._broken: set[bytes] = set()
        self._ahead_ms = 0
        self._sending = threading.Lock()
        """The order of the events is that of the records: several faults may send at once."""
        (directory / ENVIRONMENT).symlink_to(cluster.home / ENVIRONMENT)

    @property
    def _instance(self) -> Instance:
        return self._story.instance

    @property
    def log(self) -> Path:
        return self._instance.log

    def begin(self) -> None:
        self._instance.deploy()
        subject = f"{self._instance.topics['events']}-value"
        self._newer = newer_writer(self._instance.registry_url, subject, "region")
        for key, document in self._documents.items():
            self._instance.define(key, document)
        self.more(100)
        self._story.start()

    def more(self, count: int) -> None:
        dice = self._dice
        for _ in range(count):
            user = "hot" if dice.random() < HOT_SHARE else f"u{dice.randint(0, 40)}"
            self._send(user, f"s{dice.randint(0, 9)}")
        for number in range(min(_LARGE_EVENTS, _MOST_LARGE_EVENTS - self._large_events)):
            self._large_events += 1
            self._send("large", f"{len(self._story.events)}-{number}".ljust(_LARGE_CHARS, "x"), "Order Completed")

    def _send(self, user: str, sku: str, name: str | None = None) -> None:
        with self._sending:
            self._send_next(user, sku, name)

    def _send_next(self, user: str, sku: str, name: str | None) -> None:
        events, dice = self._story.events, self._dice
        time_ms = START_MS + self._ahead_ms + len(events) * DAY_MS // 12
        name = name or dice.choice(["Order Completed", "Order Cancelled", "Page Opened"])
        properties = {"revenue": dice.randint(1, 200) / 4, "sku": sku}
        value = self._instance.event_value(user, time_ms, name, properties)
        if dice.random() < 0.5:
            value = self._newer.value(value, "eu")
        events.append((user, time_ms, name, properties))
        self._instance.send("events", record_key("w", user), value)

    def send_broken(self) -> None:
        """Send records that no schema can read, among others."""
        good = self._instance.event_value("broken", START_MS, "Order Completed", {"revenue": 1})
        for value in (good[:-4], struct.pack(">bI", 0, _UNKNOWN_SCHEMA) + good[5:], self._dice.randbytes(12)):
            self._broken.add(value)
            self._instance.send("events", record_key("w", "broken"), value)
            self.more(5)

    def jump(self) -> None:
        """Send an event far ahead of all others."""
        self._ahead_ms += JUMP_MS
        self._send("hot", "s0")
        self._ahead_ms -= JUMP_MS

    def stay_ahead(self) -> None:
        """Let the time of the next events be that of the last jump."""
        self._ahead_ms += JUMP_MS

    def edit(self) -> None:
        """Define a trait, change it while its history is read, and archive the one of the last call."""
        if self._edited:
            key = self._edited[-1]
            self._instance.define(key, self._documents.pop(key), 2, "ARCHIVED")
        key = f"edited_{len(self._edited)}"
        self._edited.append(key)
        self._instance.define(key, {"event": "Order *"})
        time.sleep(self._dice.uniform(0, 8))  # sleep: a random instant of the change
        self._documents[key] = {"event": "Order *", "measure": {"sum": "revenue"}, "within": "60d"}
        self._instance.define(key, self._documents[key], 2, "REVISED")

    def start(self, *, is_awaited: bool = True) -> None:
        if is_awaited:
            self._story.start()
        else:
            self._instance.start(**self.cluster.settings("spark"))

    def kill(self) -> None:
        self._instance.kill()

    def is_running(self) -> bool:
        process = self._instance.process
        return process is not None and process.poll() is None

    def settle(self) -> None:
        self._instance.settle(PATIENCE_SECONDS)

    def log_tail(self) -> str:
        return self._instance.log_tail()

    def differences(self) -> list[str]:
        """Compare the last values, those that the normalizer keeps, and the dead letters."""
        until_ms = max(time_ms for _, time_ms, _, _ in self._story.events) + 10 * DAY_MS
        self._instance.advance(until_ms)
        catch_up(self)
        given = (self._instance.values(), accepted(self._instance))
        found = [one for values in given for one in differences(values, self._documents, self._story.events, until_ms)]
        letters = {one.record["value"] for one in self._instance.read("dead_letters")}
        largest = self._largest_state()
        report(
            f"{len(self._story.events)} events, {len(self._broken)} broken ones, {len(self._edited)} edited traits, "
            f"a state of {largest:,} bytes"
        )
        return [
            *(f"{user} {key}: published {published!r}, expected {expected!r}" for user, key, published, expected in found),
            *(f"no dead letter of {value!r}" for value in self._broken - letters),
            *(f"a dead letter of {value!r}" for value in letters - self._broken),
        ]

    def _largest_state(self) -> int:
        """Return the greatest size in bytes that a fold in this process gives the state of `large`, of the traits at the end."""
        partition = Partition(*(defined(key, document) for key, document in self._documents.items()))
        largest = 0
        for one in self._story.events:
            if one[0] == "large":
                partition.batch([one])
                largest = max(largest, *map(len, partition.store.users.values()))
        return largest

    def remove(self) -> None:
        self._instance.remove()


def accepted(instance: Instance) -> dict[tuple[str, str], Any]:
    """Return (user, trait) -> the value that the normalizer keeps: only a greater (version, epoch, sequence) replaces one."""
    found: dict[tuple[str, str], tuple[tuple[int, int, int], Any]] = {}
    for written in instance.read("aggregates"):
        record = written.record
        place, order = (record["user_id"], record["trait_key"]), (record["trait_version"], record["epoch"], record["sequence"])
        if place not in found or order > found[place][0]:
            found[place] = order, json.loads(record["value"] or "null")
    return {place: value for place, (_, value) in found.items()}


class Lake:
    """The job `lake` with its upkeep, in an object store with a catalog in a database. One writer in two has a newer schema."""

    def __init__(self, cluster: Rig, directory: Path, dice: random.Random) -> None:
        self.cluster, self.is_held_down = cluster, False
        self._dice, self._directory = dice, directory
        stack = Stack(cluster.broker.opened, cluster.registry_url, Cassandra(contact_points="127.0.0.1"))
        self._lake = LakeInstance(stack, directory)
        self._broken: set[bytes] = set()
        self._given: dict[str, Any] = {
            **cluster.settings("spark", "iceberg", "jdbc"),
            **cluster.lake_settings(),
            "STARLING_LAKE_BATCH_RECORDS": "300",
            "STARLING_LAKE_UPKEEP_MINUTES": "0.2",
            "STARLING_LAKE_KEEP_HOURS": "0.001",
        }
        self._last = ExitStack()
        self._service: Service | None = None

    @property
    def log(self) -> Path:
        return self._directory / "lake.log"

    def begin(self) -> None:
        self._lake.deploy()
        self._newer = self._lake.newer_writer(BEHAVIOUR, "region")
        self.more(100)
        self.start()

    def more(self, count: int) -> None:
        old = [self._lake.value(BEHAVIOUR, behaviour(f"e{self._dice.random()}")) for _ in range(count)]
        broken = self._dice.randbytes(12)
        self._broken.add(broken)
        self._lake.send(BEHAVIOUR, *[one for value in old for one in (value, self._newer.value(value, "eu"))], broken)
        items = [self._lake.value(_TRACK, received("track", {"event": f"item {number}"})) for number in range(count)]
        self._lake.send(_TRACK, *items, broken)

    def start(self, *, is_awaited: bool = True) -> None:
        self._last.close()
        self._service = self._last.enter_context(self._lake.running(ready=is_awaited, **self._given))

    def kill(self) -> None:
        assert self._service is not None
        self._service.kill()

    def is_running(self) -> bool:
        return self._service is not None and self._service.process.poll() is None

    def settle(self) -> None:
        assert self._service is not None
        self._lake.settle(self._service, PATIENCE_SECONDS)

    def log_tail(self) -> str:
        return self._lake.log_tail()

    def differences(self) -> list[str]:
        """Compare the rows of the tables, each once, with the records."""
        catch_up(self)
        assert self._service is not None
        assert self._service.stop() == 0
        expected: dict[str, Counter[tuple[str, int, int]]] = {
            name: Counter() for name in ("behaviour_events", "ingest_items", "quarantine")
        }
        for place, value in self._lake.sent.items():
            table = "behaviour_events" if place[0] == BEHAVIOUR else "ingest_items"
            expected["quarantine" if value in self._broken else table][place] += 1
        rows = lake_places(self.cluster, self._lake, self._directory)
        found = {name: Counter(rows[name]) for name in expected}
        report(f"sent {len(self._lake.sent)}, found { ({name: places.total() for name, places in found.items()}) }")
        return [
            f"{name}: {(expected[name] - found[name]).total()} are missing, {(found[name] - expected[name]).total()} too many"
            for name in expected
            if expected[name] != found[name]
        ]

    def remove(self) -> None:
        self._last.close()
        self._lake.remove()


def catch_up(load: Load) -> int:
    """Wait until the job has processed everything. Return how often it ended meanwhile and was started, as a supervisor does."""
    starts = 0
    while True:
        try:
            load.settle()
        except AssertionError:
            if not started_again(load):
                raise
            starts += 1
        else:
            return starts


def started_again(load: Load) -> bool:
    """Start the job if it has ended. Return whether it had."""
    if load.is_held_down or load.is_running():
        return False
    report(f"  the job ended: {last_error(load.log)}")
    load.start(is_awaited=False)
    return True


def last_error(log: Path) -> str:
    """Return the error with which a job ended, with its causes, shortened."""
    lines = log.read_text(errors="replace").splitlines()
    errors = [line for line in lines if line.startswith('{"error"')]
    if not errors:
        return "\n".join(lines[-5:])
    first, *more = json.loads(errors[-1])["error"].splitlines()
    causes = [line.strip() for line in more if line.startswith("Caused by:")]
    return "\n    ".join(line[:300] for line in (first, *causes))


def report(text: str) -> None:
    """Print a line."""
    sys.stdout.write(f"{time.strftime('%H:%M:%S')} {text}\n")
    sys.stdout.flush()
