"""Build the service from its settings and run it until it stops; the only module that knows settings and concrete classes."""

import asyncio
import signal
from collections.abc import Mapping
from contextlib import suppress
from typing import Final

from granian.constants import Interfaces
from prometheus_client import CONTENT_TYPE_LATEST, REGISTRY, generate_latest

from starling_common.http.rate_limits import Rate
from starling_common.http.server import ConnectionCap, http_server
from starling_common.kafka.clients import BrokerUnavailable
from starling_common.kafka.folded_topic import FoldedTopic
from starling_common.kafka.topics import DELIVERY_DEFINITIONS, load_catalogue
from starling_common.records.definitions import definitions_fold
from starling_common.retries import retrying_async
from starling_common.security.sealing import CURE, Sealer
from starling_common.telemetry.health import Degraded
from starling_common.telemetry.logs import log
from starling_common.telemetry.metrics import Metrics
from starling_common.time.instants import wall_clock_micros
from starling_common.wire import Registry, RegistryUnavailable, SchemaMissing
from starling_messages.links import Links
from starling_tracker.app import App, AppDependencies
from starling_tracker.callbacks.certificates import Certificates
from starling_tracker.callbacks.endpoint import CallbackDependencies
from starling_tracker.callbacks.receiver import Receiver
from starling_tracker.callbacks.targets import CallbackTargets, fold_target
from starling_tracker.publishing import TOPICS, Publisher
from starling_tracker.settings import Settings

_RETRIED_ERRORS: Final = (BrokerUnavailable, RegistryUnavailable, SchemaMissing)


class Service:
    """One tracker process. `run` serves until SIGTERM or SIGINT, then finishes open requests."""

    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        self._address = f"{settings.http.host}:{settings.http.port}"
        self._publisher = Publisher(
            settings.kafka.brokers,
            ack_timeout_ms=settings.ack_timeout_ms,
            queue_records=settings.queue_records,
            partitions=load_catalogue(settings.profile_partitions).profile_partitions,
        )
        self._not_ready: str | None = "the process is looking up schemas and topics"
        self._stopping = asyncio.Event()
        self._background: list[asyncio.Task[None]] = []
        self._sealer = Sealer.of(settings.secrets)
        if self._sealer.key_id is None:
            log(__name__).warning("no_secrets_key", consequence="callbacks of targets with encrypted secrets get 503", cure=CURE)
        self._targets: FoldedTopic[CallbackTargets] | None = None
        self._certificates = Certificates()
        links, url = Links(settings.link_keys), settings.public_url
        self.app = App(
            AppDependencies(
                links,
                CallbackDependencies(
                    Receiver(links, self._certificates, wall_clock_micros),
                    settings.callback_max_bytes,
                    None if url is None else str(url).rstrip("/"),
                ),
                Rate.of(settings.address_requests_per_second),
                settings.body_timeout_seconds,
                Metrics(),
                lambda: (CONTENT_TYPE_LATEST, generate_latest(REGISTRY)),
                self._alive,
                self._ready,
            )
        )

    async def run(self) -> int:
        """Serve until a stop; return the exit code: 0 after a signal, 1 after a fatal producer error or if the port is unusable."""
        loop = asyncio.get_running_loop()
        for number in (signal.SIGTERM, signal.SIGINT):
            loop.add_signal_handler(number, self._stopping.set)
        http = self._settings.http
        server = http_server(self.app, http, Interfaces.RSGI)
        cap = ConnectionCap(http.port, http.max_connections_per_address)
        serving = loop.create_task(server.serve())
        self._background = [loop.create_task(work) for work in (self._open(), self._publisher.watch(), cap.watch())]
        ends = [loop.create_task(self._stopping.wait()), loop.create_task(self._publisher.fatal.wait()), serving]
        await asyncio.wait(ends, return_when=asyncio.FIRST_COMPLETED)
        await self._drain()
        for task in (*self._background, *ends[:2]):
            task.cancel()
        if not serving.done():
            server.stop()  # type: ignore[no-untyped-call]  # granian gives it no types
        try:
            await serving
        except RuntimeError as error:  # the first line is the system's error, the lines after it are granian's own stack
            if "os error" not in str(error):
                raise
            reason = str(error).partition("\n")[0]
            log(__name__).error("cannot_listen", address=self._address, reason=reason, cure="another STARLING_HTTP__PORT")
            return 1
        return 1 if self._publisher.problem else 0

    async def _open(self) -> None:
        targets = await retrying_async(None)(self._is_retried, asyncio.to_thread, self._check)
        self._not_ready, self._targets = None, targets
        self.app.open(self._publisher, targets.value().targets.get)
        log(__name__).info("ready", address=self._address)

    def _check(self) -> FoldedTopic[CallbackTargets]:
        missing = sorted({*TOPICS, DELIVERY_DEFINITIONS} - self._publisher.topics(timeout_seconds=5))
        if missing:
            raise BrokerUnavailable(f"missing topics {', '.join(missing)}: run `python -m starling_common.deploy`")
        registry = Registry(self._settings.registry.url)
        self._publisher.open(registry)
        targets: FoldedTopic[CallbackTargets] = FoldedTopic(
            (self._settings.kafka.brokers, DELIVERY_DEFINITIONS),
            registry.codec(DELIVERY_DEFINITIONS, "DefinitionChanged"),
            CallbackTargets(self._sealer, {}),
            definitions_fold(fold_target),
        )
        try:
            targets.start()
        except BrokerUnavailable:
            targets.stop()
            raise
        return targets

    def _is_retried(self, error: Exception) -> bool:
        if not isinstance(error, _RETRIED_ERRORS):
            return False
        self._not_ready = str(error)
        log(__name__).warning("not_ready", reason=self._not_ready)
        return True

    async def _drain(self) -> None:
        """Finish open requests, then flush the producer; all within the drain timeout."""
        self._not_ready = "the process is stopping"
        loop = asyncio.get_running_loop()
        deadline = loop.time() + self._settings.drain_timeout_seconds
        with suppress(TimeoutError):
            await asyncio.wait_for(self.app.close(), self._settings.drain_timeout_seconds)
        unacknowledged = await self._publisher.close(max(0.0, deadline - loop.time()))
        await self._certificates.close()
        if self._targets is not None:
            await asyncio.to_thread(self._targets.stop)
        log(__name__).info("stopped", requests_given_up=self.app.requests_open, records_given_up=unacknowledged)

    def _alive(self) -> Mapping[str, str | None]:
        """Return the failed checks that only a restart corrects. The server answers on the event loop, which therefore turns."""
        broken = [task for task in self._background if task.done() and not task.cancelled() and task.exception() is not None]
        failed = "; ".join(repr(task.exception()) for task in broken)
        return {"producer": self._publisher.problem, "background": failed or None, "definitions": self._lost()}

    def _ready(self) -> Mapping[str, str | None]:
        return {
            "producer": self._publisher.problem,
            "start": self._not_ready,
            "definitions": self._lost(),
            "secrets": self._unreadable(),
        }

    def _lost(self) -> str | None:
        return None if self._targets is None else self._targets.problem()

    def _unreadable(self) -> str | None:
        found = [] if self._targets is None else self._targets.value().problems()
        return Degraded(f"the callbacks of {len(found)} targets are not taken: {found[0]}") if found else None
