"""Settings -> a projector and its health server; the only module that knows both."""

import threading
from collections.abc import Mapping
from dataclasses import dataclass, field

from starling_common.database import Database
from starling_common.health import HealthServer
from starling_common.metrics import Metrics
from starling_common.topics import stage
from starling_common.wire import Registry
from starling_projector.agents import Parts, Projector
from starling_projector.dead_letters import DeadLetters
from starling_projector.decoder import Decoder
from starling_projector.settings import EVENTS_GROUP_END, EVENTS_STAGE, STAGE, ProjectorSettings
from starling_projector.source import Source
from starling_projector.store import Store


@dataclass(slots=True)
class Worker:
    """Two projectors, each with its own group and thread, and the server that tells how they are."""

    main: Projector
    events: Projector
    health: HealthServer
    database: Database
    _broken: list[BaseException] = field(default_factory=list)

    def run(self) -> None:
        """Until both are stopped; when one breaks, the other is stopped too. Raises: whatever broke it."""
        self.health.start()
        beside = threading.Thread(target=self._run_events, name="events")
        beside.start()
        try:
            self.main.run()
        finally:
            self.stop()
            beside.join()
            self.health.stop()
            self.database.close()
        if self._broken:
            raise self._broken[0]

    def stop(self) -> None:
        """Finish the batches at hand, commit, and end."""
        self.main.stop()
        self.events.stop()

    def _run_events(self) -> None:
        try:
            self.events.run()
        except BaseException as error:  # noqa: BLE001 - told by `run`, in the thread that everybody watches
            self._broken.append(error)
        finally:
            self.main.stop()


def build_worker(settings: ProjectorSettings) -> Worker:
    """Nothing is opened yet but the port of the health server. Raises: OSError when that is taken."""
    registry, metrics, database = Registry(settings.registry.url), Metrics(), Database(settings.cassandra)

    def projector(group: str, name: str) -> Projector:
        topics = stage(name).inputs
        parts = Parts(
            source=Source(settings.kafka.brokers, group, topics, settings.client_failure_seconds),
            decoder=Decoder(registry, topics),
            store=Store(database),
            dead_letters=DeadLetters(settings.kafka.brokers, registry, metrics),
            metrics=metrics,
        )
        return Projector(parts, settings.batch_records)

    main = projector(settings.group, STAGE)
    events = projector(f"{settings.group}{EVENTS_GROUP_END}", EVENTS_STAGE)
    health = HealthServer(
        # A process that cannot work ends. The check serves a supervisor while the end takes its time.
        (settings.http.host, settings.http.port),
        metrics.registry,
        alive=lambda: _of_both(main.failures(), events.failures()),
        ready=lambda: _of_both(main.problems(), events.problems()),
    )
    return Worker(main, events, health, database)


def _of_both(main: Mapping[str, str | None], events: Mapping[str, str | None]) -> dict[str, str | None]:
    return {**main, **{f"events {name}": problem for name, problem in events.items()}}
