"""A broadcaster on members, topics and queues in memory, with a clock of its own."""

import json
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

from prometheus_client import CollectorRegistry

from starling_broadcaster.agents import Broadcaster, Limits, Parts
from starling_broadcaster.members import Members
from starling_broadcaster.pace import Queue
from starling_broadcaster.plan import Broadcast
from starling_common.cassandra.read_models import member_bucket
from starling_common.kafka.clients import BrokerUnavailable
from starling_common.outcome import Done
from starling_common.telemetry.metrics import Metrics
from starling_messages.broadcast_progress import BroadcastProgress, Written
from starling_messages.campaigns import Campaigns, fold_definition
from tests.unit.messages.stories import campaign

AT = 1_796_115_600_000
"""2026-12-01T09:00:00Z."""
PARTITIONS = 2
EMPTY = Queue(0, 0)


@dataclass
class World:
    """Everything outside of the broadcaster. `failing`: whether the broker refuses the next write."""

    members: dict[str, int] = field(default_factory=dict)
    as_of: int = AT + 1
    now: float = 0.0
    definitions_end: int = 0
    known_to_messenger: int = 1_000
    messenger: Queue = EMPTY
    channel: Queue = EMPTY
    listed: list[str] = field(default_factory=list)
    progress: dict[tuple[str, str], Written] = field(default_factory=dict)
    failing: Callable[[], bool] = lambda: False
    campaigns: Campaigns = field(default_factory=Campaigns)
    metrics: Metrics = field(default_factory=lambda: Metrics(CollectorRegistry()))
    channels: list[str] = field(default_factory=list)

    def define(self, action: str = "ACTIVATED", **fields: Any) -> None:
        document = campaign(**{"trigger": {"broadcast": "vip", "at": "2026-12-01T09:00:00Z"}, "rate": 100, **fields})
        record = {"workspace": "default", "kind": "campaign", "key": document["key"], "version": 1, "action": action}
        outcome = fold_definition(self.campaigns, {**record, "recorded_at": 0, "document": json.dumps(document)})
        assert isinstance(outcome, Done)
        self.campaigns = outcome.value
        self.definitions_end += 1

    def start(self, batch_records: int = 1_000) -> Broadcaster:
        parts = Parts(
            members=Members(self),  # type: ignore[arg-type]
            writer=Writer(self),
            backlogs=Queues(self),
            definitions=lambda: self.campaigns,
            messenger=lambda: dict.fromkeys(range(PARTITIONS), self.known_to_messenger),
            partitions=PARTITIONS,
            metrics=self.metrics,
        )
        return Broadcaster(parts, Limits(batch_records, 60.0), lambda: self.now)

    def run(self, broadcaster: Broadcaster, seconds: float) -> None:
        """Let the broadcaster turn for so many seconds."""
        until = self.now + seconds
        while self.now < until:
            self.now += max(0.001, broadcaster._turn())

    def gauge(self, name: str, **labels: str) -> float:
        found = self.metrics.registry.get_sample_value(name, labels)
        assert found is not None
        return found

    def counts(self) -> Counter[str]:
        return Counter(self.listed)

    def read(self, statement: str, values: Sequence[Any] = ()) -> list[dict[str, Any]]:
        """Answer as the database."""
        if "segmenter_progress" in statement:
            return [{"stream_time_ms": self.as_of}, {"stream_time_ms": 0}]
        workspace, segment, bucket, after, most = values
        assert (workspace, segment) == ("default", "vip")
        found = sorted(user for user in self.members if member_bucket(user) == bucket and user > after)
        return [{"user_id": user, "entered_at_ms": self.members[user]} for user in found[:most]]


@dataclass
class Writer:
    """The topics. What was written is the progress of the next process."""

    world: World

    def start(self) -> BroadcastProgress:
        return dict(self.world.progress)

    def write(self, broadcast: Broadcast, users: list[str], after: Written) -> None:
        if self.world.failing():
            raise BrokerUnavailable("away")
        self.world.listed += users
        self.world.progress[broadcast.place] = after


@dataclass
class Queues:
    """The offsets at the broker."""

    world: World

    def messenger(self) -> Queue:
        return self.world.messenger

    def channel(self, channel: str) -> Queue:
        self.world.channels.append(channel)
        return self.world.channel

    def definitions_end(self) -> int:
        return self.world.definitions_end
