"""Builds the broadcaster and its health server from the settings. No other module imports both."""

from dataclasses import dataclass
from functools import cache

from starling_broadcaster.agents import Broadcaster, Limits, Parts
from starling_broadcaster.backlog import Backlogs
from starling_broadcaster.failpoints import FAILPOINTS
from starling_broadcaster.members import Members
from starling_broadcaster.settings import BroadcasterSettings
from starling_broadcaster.writer import Writer
from starling_common.cassandra.database import Database
from starling_common.failpoints.ending import Ending
from starling_common.kafka.followed_topic import FollowedTopic
from starling_common.kafka.topics import DELIVERY_DEFINITIONS, MESSENGER_PROGRESS, load_catalogue
from starling_common.records.definitions import definitions_fold
from starling_common.telemetry.health import HealthServer
from starling_common.telemetry.metrics import Metrics
from starling_common.wire import Codec, Registry
from starling_messages.campaigns import Campaigns, fold_definition
from starling_messages.positions import Positions, fold_positions


@dataclass(slots=True)
class Process:
    """The loop, what it reads, and the health server."""

    broadcaster: Broadcaster
    definitions: FollowedTopic[Campaigns]
    messenger: FollowedTopic[Positions]
    backlogs: Backlogs
    database: Database
    health: HealthServer

    def run(self) -> None:
        """Run until `stop`. Raises: as `Broadcaster.run`."""
        self.health.start()
        self.definitions.start()
        self.messenger.start()
        try:
            self.broadcaster.run()
        finally:
            self.messenger.stop()
            self.definitions.stop()
            self.backlogs.close()
            self.database.close()
            self.health.stop()

    def stop(self) -> None:
        """End `run` after the present transaction."""
        self.broadcaster.stop()


def build_process(settings: BroadcasterSettings) -> Process:
    """Return a process that has opened only the port of its health server. Raises: OSError if the port is in use, ValueError."""
    catalogue = load_catalogue(settings.profile_partitions)
    registry, metrics, database = Registry(settings.registry.url), Metrics(), Database(settings.cassandra)
    brokers, ending = settings.kafka.brokers, Ending(settings.failpoint, FAILPOINTS)
    backlogs = Backlogs(brokers)

    @cache
    def codec(topic: str) -> Codec:
        return registry.codec(topic, catalogue.topics[topic].schema)

    definitions = FollowedTopic[Campaigns](
        (brokers, DELIVERY_DEFINITIONS), lambda: codec(DELIVERY_DEFINITIONS), Campaigns, definitions_fold(fold_definition)
    )
    messenger = FollowedTopic[Positions]((brokers, MESSENGER_PROGRESS), lambda: codec(MESSENGER_PROGRESS), dict, fold_positions)
    parts = Parts(
        members=Members(database),
        writer=Writer(brokers, settings.transactional_id, codec, ending.passed),
        backlogs=backlogs,
        definitions=lambda: definitions.value() if definitions.is_read() else None,
        messenger=messenger.value,
        partitions=catalogue.profile_partitions,
        metrics=metrics,
        passed=ending.passed,
    )
    broadcaster = Broadcaster(parts, Limits(settings.batch_records, settings.backlog_seconds))
    health = HealthServer(
        (settings.http.host, settings.http.port),
        metrics.registry,
        alive=broadcaster.failures,
        ready=lambda: {**broadcaster.problems(), "definitions": definitions.problem(), "messenger": messenger.problem()},
    )
    return Process(broadcaster, definitions, messenger, backlogs, database, health)
