"""kill -9 of the driver of the job `profiles`, many times at random moments; then its values against one go over all events.

Meanwhile events come late and out of order, definitions are made, changed and archived, and the clock moves on. Run:
python -m tests.faults_spark.profiles [--kills 20] [--seed 1]
"""

import argparse
import random
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from starling_local.testing import embedded
from tests.integration.spark.instance import Instance, wait_for
from tests.unit.spark.evaluator import differences

DAY_MS = 86_400_000
START_MS = 1_700_000_000_000
NAMES = ("Order Completed", "Order Completed", "Order Refunded", "Page Viewed")
PATIENCE_SECONDS = 600.0
"""A JVM and its Python workers may start beside much else; no claim about speed."""
MEASURES: Sequence[Any] = (
    "count", {"sum": "revenue"}, {"avg": "revenue"}, {"min": "revenue"}, {"max": "revenue"}, {"first": "sku"}, {"last": "sku"},
    {"distinct": "sku"}, {"most_frequent": "sku"}, {"percentile": "revenue", "q": 0.9}, {"days": True}, "last_time",
)  # fmt: skip
WINDOWS: Sequence[Mapping[str, Any]] = (
    {}, {"within": "2d"}, {"within": "30d"}, {"within": "365d"}, {"between_ago": ["20d", "3d"]}, {"calendar": "this_month"},
)  # fmt: skip


class World:
    """What was sent, what is in force, and the dice."""

    def __init__(self, instance: Instance, seed: int) -> None:
        self._instance = instance
        self._dice = random.Random(seed)
        self._versions: dict[str, int] = {}
        self.documents: dict[str, Mapping[str, Any]] = {}
        self.events: list[tuple[str, int, str, dict[str, Any]]] = []

    def happen(self, count: int) -> None:
        """Events: three a day, one in four of them days late."""
        dice = self._dice
        for _ in range(count):
            number = len(self.events)
            # No two at the same instant: which of them came first would then depend on the order of partitions.
            time_ms = START_MS + (number // 3 - dice.choice((0, 0, 0, dice.randrange(20)))) * DAY_MS + number
            event = (
                f"u{dice.randrange(40)}",
                time_ms,
                dice.choice(NAMES),
                {"revenue": dice.randrange(100), "sku": dice.choice("abcde")},
            )
            self.events.append(event)
            self._instance.event(event[0], time_ms, event[2], **event[3])

    def change(self) -> None:
        """A definition comes, changes or goes."""
        dice = self._dice
        if self.documents and dice.random() < 0.2:
            key = dice.choice(sorted(self.documents))
            self._instance.define(key, self.documents.pop(key), self._versions[key], "ARCHIVED")
            return
        fresh = f"t{len(self._versions)}"
        key = dice.choice([fresh, fresh, *self.documents])
        self.documents[key] = {"event": dice.choice((*NAMES, "*")), "measure": dice.choice(MEASURES), **dice.choice(WINDOWS)}
        self._versions[key] = self._versions.get(key, 0) + 1
        self._instance.define(key, self.documents[key], self._versions[key], "DEFINED" if key == fresh else "REVISED")

    def newest_ms(self) -> int:
        return max(time_ms for _, time_ms, _, _ in self.events)


def kill_many_times(instance: Instance, kills: int, seed: int) -> list[Any]:
    """Where the last published values differ from one go over all events."""
    dice, world = random.Random(seed), World(instance, seed)
    for _ in range(6):
        world.change()
    for number in range(kills):
        world.happen(30)
        instance.start()
        # One in three dies while it starts or reads the history, the others amid work.
        if dice.random() < 0.66:
            wait_for(instance.is_ready, PATIENCE_SECONDS, instance.log_tail)
        until = time.monotonic() + dice.uniform(0, 15)
        while time.monotonic() < until:
            world.happen(dice.randrange(1, 10))
            if dice.random() < 0.1:
                world.change()
            if dice.random() < 0.1:
                instance.advance(world.newest_ms())
            time.sleep(dice.uniform(0, 1))  # sleep: a random instant of the kill
        instance.kill()
        report(f"kill {number + 1}: {len(world.events)} events, {len(world.documents)} traits")
    instance.start()
    until_ms = world.newest_ms() + 10 * DAY_MS
    instance.advance(until_ms)
    instance.settle(PATIENCE_SECONDS)
    return differences(instance.values(), world.documents, world.events, until_ms)


def main() -> int:
    parser = argparse.ArgumentParser()
    parser.add_argument("--kills", type=int, default=20)
    parser.add_argument("--seed", type=int, default=1)
    asked = parser.parse_args()
    with (
        tempfile.TemporaryDirectory(dir="/var/tmp") as directory,
        embedded({"kafka", "registry"}, Path(directory) / "stack") as found,
    ):
        instance = Instance(found.kafka, found.registry_url, Path(directory))
        instance.deploy()
        try:
            wrong = kill_many_times(instance, asked.kills, asked.seed)
        finally:
            instance.remove()
    for user, key, published, expected in wrong:
        report(f"{user} {key}: published {published!r}, expected {expected!r}")
    report(f"{asked.kills} kills, seed {asked.seed}: {len(wrong)} values differ")
    return 1 if wrong else 0


def report(text: str) -> None:
    sys.stdout.write(text + "\n")
    sys.stdout.flush()


if __name__ == "__main__":
    sys.exit(main())
