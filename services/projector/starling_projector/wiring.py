"""Settings -> a projector and its health server; the only module that knows both."""

from dataclasses import dataclass

from starling_common.database import Database
from starling_common.health import HealthServer
from starling_common.metrics import Metrics
from starling_common.topics import stage
from starling_common.wire import Registry
from starling_projector.agents import Parts, Projector
from starling_projector.dead_letters import DeadLetters
from starling_projector.decoder import Decoder
from starling_projector.settings import STAGE, ProjectorSettings
from starling_projector.source import Source
from starling_projector.store import Store


@dataclass(frozen=True, slots=True)
class Worker:
    """A projector, and the server that tells how it is."""

    projector: Projector
    health: HealthServer
    database: Database

    def run(self) -> None:
        """Until the projector is stopped."""
        self.health.start()
        try:
            self.projector.run()
        finally:
            self.health.stop()
            self.database.close()


def build_worker(settings: ProjectorSettings) -> Worker:
    """Nothing is opened yet but the port of the health server. Raises: OSError when that is taken."""
    topics = stage(STAGE).inputs
    registry, metrics, database = Registry(settings.registry.url), Metrics(), Database(settings.cassandra)
    parts = Parts(
        source=Source(settings.kafka.brokers, settings.group, topics),
        decoder=Decoder(registry, topics),
        store=Store(database),
        dead_letters=DeadLetters(settings.kafka.brokers, registry, metrics),
        metrics=metrics,
    )
    projector = Projector(parts, settings.batch_records)
    health = HealthServer(
        # That it answers shows that the process lives; one that cannot work ends.
        (settings.http.host, settings.http.port),
        metrics.registry,
        alive=dict,
        ready=projector.problems,
    )
    return Worker(projector, health, database)
