"""Settings -> concrete objects, and the life of the process; the only module that knows both."""

import asyncio
import signal
from collections.abc import Mapping
from contextlib import suppress
from typing import Final

from granian.constants import HTTPModes, Interfaces
from granian.server.embed import Server
from prometheus_client import REGISTRY

from starling_common.instants import wall_clock_micros
from starling_common.kafka import BrokerUnavailable
from starling_common.logs import log
from starling_common.topics import INGEST_TOPICS
from starling_common.wire import Codec, ReceivedEncoder, Registry, RegistryUnavailable, SchemaMissing
from starling_ingest.app import App, Doorway
from starling_ingest.counts import Counts
from starling_ingest.intake import DEAD_LETTERS, ArrivalClock, Intake
from starling_ingest.limits import RateLimits
from starling_ingest.publish import Publisher
from starling_ingest.settings import Settings

_BACKLOG: Final = 2048
"""Connections that may wait to be taken, and requests that may be open at once."""

_LOOK_AGAIN_SECONDS: Final = 1.0
_NOT_YET_THERE: Final = (BrokerUnavailable, RegistryUnavailable, SchemaMissing)


class Service:
    """One edge process: `run` serves until SIGTERM or SIGINT, then ends what was begun."""

    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        self._address = f"{settings.http.host}:{settings.http.port}"
        self._publisher = Publisher(
            settings.kafka.brokers,
            ack_timeout_ms=settings.ack_timeout_ms,
            high_water_records=settings.queue_high_water_records,
            high_water_bytes=settings.queue_high_water_bytes,
        )
        self._waiting_for: str | None = "schemas and topics are being looked up"
        self._stopping = asyncio.Event()
        counts = Counts(REGISTRY, lambda: self._publisher.records_under_way)
        limits = RateLimits(settings.rate_items_per_second, settings.rate_burst_items)
        self.app = App(Doorway(settings.write_keys, settings.instance_id, limits, counts, self._alive, self._ready))

    async def run(self) -> int:
        """The exit code: 0 after a stop that was asked for, 1 when nobody can be served or the producer can no longer be used."""
        loop = asyncio.get_running_loop()
        for number in (signal.SIGTERM, signal.SIGINT):
            loop.add_signal_handler(number, self._stopping.set)
        server = _server(self.app, self._settings)
        serving = loop.create_task(server.serve())
        background = [loop.create_task(work) for work in (self._open(), self._publisher.watch())]
        ends = [loop.create_task(self._stopping.wait()), loop.create_task(self._publisher.fatal.wait()), serving]
        await asyncio.wait(ends, return_when=asyncio.FIRST_COMPLETED)
        for task in (*background, *ends[:2]):
            task.cancel()
        await self._drain()
        if not serving.done():
            server.stop()  # type: ignore[no-untyped-call]  # granian gives it no types
        try:
            await serving
        except RuntimeError as refused:  # what the system said of the socket, and behind it a stack of the server's own
            if "os error" not in str(refused):
                raise
            reason = str(refused).partition("\n")[0]
            log(__name__).error("cannot_listen", address=self._address, reason=reason, cure="another STARLING_HTTP__PORT")
            return 1
        return 1 if self._publisher.problem else 0

    async def _open(self) -> None:
        while True:
            try:
                intake = await asyncio.to_thread(self._look_up)
            except _NOT_YET_THERE as away:
                self._waiting_for = str(away)
                log(__name__).warning("not_ready", reason=self._waiting_for)
                await asyncio.sleep(_LOOK_AGAIN_SECONDS)
            else:
                break
        self._waiting_for = None
        self.app.open(intake)
        log(__name__).info("ready", address=self._address)

    def _look_up(self) -> Intake:
        missing = sorted({*INGEST_TOPICS, DEAD_LETTERS} - self._publisher.topics(timeout_seconds=5))
        if missing:
            raise BrokerUnavailable(f"no topic {', '.join(missing)}: run `python -m starling_common.deploy`")
        registry = Registry(self._settings.registry.url)
        encoder = ReceivedEncoder(_codecs(registry))
        return Intake(encoder, registry.codec(DEAD_LETTERS, "DeadLetter"), self._publisher.publish, ArrivalClock(wall_clock_micros))

    async def _drain(self) -> None:
        """Take nothing more, let open requests have their answers, and let the broker have what is on its way."""
        self._waiting_for = "stopping"
        loop = asyncio.get_running_loop()
        deadline = loop.time() + self._settings.drain_timeout_seconds
        with suppress(TimeoutError):
            await asyncio.wait_for(self.app.close(), self._settings.drain_timeout_seconds)
        left = await self._publisher.close(max(0.0, deadline - loop.time()))
        log(__name__).info("stopped", requests_given_up=self.app.requests_open, records_given_up=left)

    def _alive(self) -> Mapping[str, str | None]:
        return {"producer": self._publisher.problem}

    def _ready(self) -> Mapping[str, str | None]:
        return {"producer": self._publisher.problem, "start": self._waiting_for}


def _codecs(registry: Registry) -> dict[str, Codec]:
    return {topic.removeprefix("ingest."): registry.codec(topic, "IngestReceived") for topic in INGEST_TOPICS}


def _server(app: App, settings: Settings) -> Server:
    return Server(
        app,
        address=settings.http.host,
        port=settings.http.port,
        interface=Interfaces.RSGI,
        http=HTTPModes.http1,
        websockets=False,
        backlog=_BACKLOG,
        backpressure=_BACKLOG,
        log_enabled=False,
    )
