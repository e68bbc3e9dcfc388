"""Builds a projector and its health server from the settings. No other module imports both."""

import threading
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace

from starling_common.cassandra.database import Database
from starling_common.failpoints.raising import Raising
from starling_common.kafka.group_requests import GroupAddress, GroupRequests
from starling_common.kafka.topics import BEHAVIOUR, DELIVERY, stage
from starling_common.telemetry.health import HealthServer
from starling_common.telemetry.metrics import Metrics
from starling_common.wire import Record, Registry
from starling_projector.agents import Limits, Parts, Projector
from starling_projector.dead_letters import DeadLetters
from starling_projector.decoder import Decoder
from starling_projector.projection.rows import Position, Rows, rows_of
from starling_projector.projection.tallies import Change, Tally, TallyKey, count
from starling_projector.settings import EVENTS_STAGE, STAGE, ProjectorSettings
from starling_projector.source import Source
from starling_projector.store import Store


@dataclass(slots=True)
class Worker:
    """Two projectors, each with its own group and thread, and their health server."""

    main: Projector
    events: Projector
    health: HealthServer
    database: Database
    groups: tuple[GroupRequests, ...]
    _errors: list[BaseException] = field(default_factory=list)

    def run(self) -> None:
        """Run until both are stopped. If one fails, stop the other too. Raises: the error of the failed projector."""
        self.health.start()
        for group in self.groups:
            group.start()
        events = threading.Thread(target=self._run_events, name="events")
        events.start()
        try:
            self.main.run()
        finally:
            self.stop()
            events.join()
            for group in self.groups:
                group.stop()
            self.health.stop()
            self.database.close()
        if self._errors:
            raise self._errors[0]

    def stop(self) -> None:
        """Write the current batches, commit them, and end `run`."""
        self.main.stop()
        self.events.stop()

    def _run_events(self) -> None:
        try:
            self.events.run()
        except BaseException as error:  # noqa: BLE001 - `run` raises it in the main thread
            self._errors.append(error)
        finally:
            self.main.stop()


def build_worker(settings: ProjectorSettings) -> Worker:
    """Return a worker that has opened only the port of its health server. Raises: OSError if the port is in use."""
    registry, metrics, database = Registry(settings.registry.url), Metrics(), Database(settings.cassandra)

    def projector(group: str, name: str) -> Projector:
        topics = stage(name).inputs
        decoder = Decoder(registry, topics)
        parts = Parts(
            source=Source(settings.kafka.brokers, group, topics, settings.client_failure_seconds),
            decoder=decoder,
            store=Store(database, settings.history_days),
            dead_letters=DeadLetters(settings.kafka.brokers, registry, metrics),
            metrics=metrics,
            discarded=frozenset() if settings.history_days else frozenset({BEHAVIOUR, DELIVERY}),
        )
        raising, limits = Raising.of(settings.failpoint), Limits(settings.batch_records, settings.linger_ms / 1000)
        return Projector(parts if raising is None else _raising_parts(parts, raising), limits, name)

    def group_requests(group: str, name: str) -> GroupRequests:
        report = metrics.gauge("starling_group_refused_seconds").labels(group).set
        return GroupRequests(
            GroupAddress(settings.kafka.brokers, group, stage(name).inputs[0]), settings.group_failure_seconds, report
        )

    main = projector(settings.group, STAGE)
    events = projector(settings.events_group, EVENTS_STAGE)
    groups = group_requests(settings.group, STAGE), group_requests(settings.events_group, EVENTS_STAGE)
    health = HealthServer(
        # A failed process ends. Until then the liveness check informs its supervisor.
        (settings.http.host, settings.http.port),
        metrics.registry,
        alive=lambda: _of_both(main.failures() | {"group": groups[0].problem}, events.failures() | {"group": groups[1].problem}),
        ready=lambda: _of_both(main.problems(), events.problems()),
    )
    return Worker(main, events, health, database, groups)


def _raising_parts(parts: Parts, raising: Raising) -> Parts:
    """Return parts that raise for records with the failpoint's text, at one of the points `decode`, `rows` and `count`."""
    parts.decoder.decode = raising.before("decode", parts.decoder.decode)  # type: ignore[method-assign]

    def make_rows(topic: str, record: Record, position: Position) -> Rows:
        raising.passed("rows", str(record).encode())
        return rows_of(topic, record, position)

    def counted(tallies: Mapping[TallyKey, Tally], changes: Iterable[Change]) -> Mapping[TallyKey, Tally]:
        for change in changes:
            raising.passed("count", str(change).encode())
        return count(tallies, changes)

    return replace(parts, make_rows=make_rows, count=counted)


def _of_both(main: Mapping[str, str | None], events: Mapping[str, str | None]) -> dict[str, str | None]:
    return {**main, **{f"events {name}": problem for name, problem in events.items()}}
