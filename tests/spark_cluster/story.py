"""The job `profiles` on a cluster, with events whose traits the segment language computes too."""

import random
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Final

from tests.integration.spark.instance import Instance, wait_for
from tests.spark_cluster.rig import Rig
from tests.unit.spark.evaluator import differences

DAY_MS: Final = 86_400_000
START_MS: Final = 1_700_000_000_000
PATIENCE_SECONDS: Final = 600.0
TRAITS: Final[dict[str, dict[str, Any]]] = {
    "spent": {"event": "Order Completed", "measure": {"sum": "revenue"}, "within": "30d"},
    "orders": {"event": "Order Completed"},
    "skus": {"event": "Order *", "measure": {"distinct": "sku"}},
    "largest": {"event": "Order Completed", "measure": {"max": "revenue"}, "within": "90d"},
}


class Story:
    """A `profiles` job on the cluster, and all events that were sent."""

    def __init__(self, cluster: Rig, directory: Path) -> None:
        self.cluster = cluster
        self.instance = Instance(cluster.broker.opened, cluster.registry_url, directory)
        self.events: list[tuple[str, int, str, dict[str, Any]]] = []
        self._chance = random.Random(3)

    def more(self, count: int) -> None:
        """Send events of random users."""
        for _ in range(count):
            time_ms = START_MS + len(self.events) * DAY_MS // 12
            properties = {"revenue": self._chance.randint(1, 200) / 4, "sku": f"s{self._chance.randint(0, 9)}"}
            name = self._chance.choice(["Order Completed", "Order Cancelled", "Page Opened"])
            self.send(f"u{self._chance.randint(0, 40)}", time_ms, name, properties)

    def send(self, user: str, time_ms: int, name: str, properties: dict[str, Any]) -> None:
        """Send an event."""
        self.events.append((user, time_ms, name, properties))
        self.instance.event(user, time_ms, name, **properties)

    def start(self, command: Sequence[str] | None = None, **more: str) -> None:
        """Start the job, by `python -m` without a command."""
        given = self.cluster.settings("spark") | more
        if command is None:
            self.instance.start(**given)
        else:
            self.instance.start(command, **given)
        wait_for(self.instance.is_ready, PATIENCE_SECONDS, self.instance.log_tail)

    def assert_exact(self, documents: Mapping[str, dict[str, Any]], until_ms: int | None = None) -> None:
        """Wait until all is processed; the values are then those that the segment language computes from all events."""
        until_ms = self.events[-1][1] if until_ms is None else until_ms
        self.instance.advance(until_ms)  # each partition has a stream time of its own
        self.instance.settle(PATIENCE_SECONDS)
        assert differences(self.instance.values(), documents, self.events, until_ms) == []
