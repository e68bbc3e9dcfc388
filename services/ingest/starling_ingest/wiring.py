"""Build the service from its settings and run it until it stops; the only module that knows settings and concrete classes."""

import asyncio
import signal
from collections.abc import Coroutine, Mapping
from contextlib import suppress
from typing import Any, Final

from granian.constants import Interfaces
from prometheus_client import REGISTRY

from starling_common.http.rate_limits import Rate
from starling_common.http.server import ConnectionCap, http_server
from starling_common.kafka.clients import BrokerUnavailable
from starling_common.kafka.followed_topic import FollowedTopic
from starling_common.kafka.topics import INGEST_TOPICS, WATERMARKS, WRITE_KEYS
from starling_common.records.credentials import Credentials, fold_credentials
from starling_common.retries import retrying_async
from starling_common.telemetry.logs import log
from starling_common.telemetry.traces import open_traces
from starling_common.time.instants import wall_clock_micros
from starling_common.wire import Codec, ReceivedEncoder, Registry, RegistryUnavailable, SchemaMissing
from starling_ingest.app import App, AppDependencies
from starling_ingest.bodies import SlowBodies
from starling_ingest.counts import Counts
from starling_ingest.limits import RateLimits, Rates
from starling_ingest.publishing.intake import DEAD_LETTERS, ArrivalClock, Intake
from starling_ingest.publishing.publish import Publisher
from starling_ingest.publishing.watermarks import Watermarks
from starling_ingest.requests.request import MAX_BODY_BYTES
from starling_ingest.settings import Settings
from starling_ingest.write_keys import WriteKeys

_KEYS_SECONDS: Final = 2.0
_RETRIED_ERRORS: Final = (BrokerUnavailable, RegistryUnavailable, SchemaMissing)


class Service:
    """One ingest process. `run` serves until SIGTERM or SIGINT, then drains open requests."""

    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        self._address = f"{settings.http.host}:{settings.http.port}"
        self._publisher = Publisher(
            settings.kafka.brokers,
            ack_timeout_ms=settings.ack_timeout_ms,
            high_water_records=settings.queue_high_water_records,
            high_water_bytes=settings.queue_high_water_bytes,
        )
        self._clock = ArrivalClock(wall_clock_micros)
        self._watermarks = Watermarks(
            settings.kafka.brokers, settings.instance_id, settings.ack_timeout_ms, self._clock, self._publisher
        )
        registry = Registry(settings.registry.url)
        self._keys = FollowedTopic[Credentials](
            (settings.kafka.brokers, WRITE_KEYS),
            lambda: registry.codec(WRITE_KEYS, "CredentialChanged"),
            Credentials,
            fold_credentials,
        )
        self._not_ready: str | None = "the process is looking up schemas and topics"
        self._stopping = asyncio.Event()
        self._background: list[asyncio.Task[None]] = []
        counts = Counts(REGISTRY, lambda: self._publisher.records_in_flight)
        self._bodies = SlowBodies(settings.body_timeout_seconds)
        self.app = App(
            AppDependencies(
                WriteKeys(settings.write_keys, self._keys),
                settings.instance_id,
                _limits(settings),
                self._bodies,
                counts,
                self._alive,
                self._ready,
                open_traces(settings.traces, "ingest", settings.instance_id),
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
        self._keys.start()
        serving = loop.create_task(server.serve())
        self._background = [loop.create_task(work) for work in (self._open(), *self._watches(), cap.watch())]
        ends = [loop.create_task(self._stopping.wait()), loop.create_task(self._publisher.fatal.wait()), serving]
        await asyncio.wait(ends, return_when=asyncio.FIRST_COMPLETED)
        for task in (*self._background, *ends[:2]):
            task.cancel()
        await self._drain()
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

    def _watches(self) -> tuple[Coroutine[Any, Any, None], ...]:
        return self._publisher.watch(), self._watermarks.run(), self._bodies.watch()

    async def _open(self) -> None:
        intake, watermark = await retrying_async(None)(self._is_retried, asyncio.to_thread, self._build_intake)
        await retrying_async(None)(self._is_retried, self._watermarks.join, watermark)
        # Without them a request with a created key would be refused, and its client would drop the items.
        await retrying_async(None)(self._is_retried, asyncio.to_thread, self._keys.refresh, _KEYS_SECONDS)
        self._not_ready = None
        self.app.open(intake)
        log(__name__).info("ready", address=self._address)

    def _is_retried(self, error: Exception) -> bool:
        if not isinstance(error, _RETRIED_ERRORS):
            return False
        self._not_ready = str(error)
        log(__name__).warning("not_ready", reason=self._not_ready)
        return True

    def _build_intake(self) -> tuple[Intake, Codec]:
        """Return the intake and the codec of the watermarks."""
        missing = sorted({*INGEST_TOPICS, WATERMARKS, DEAD_LETTERS, WRITE_KEYS} - self._publisher.topics(timeout_seconds=5))
        if missing:
            raise BrokerUnavailable(f"missing topics {', '.join(missing)}: run `python -m starling_common.deploy`")
        registry = Registry(self._settings.registry.url)
        encoder = ReceivedEncoder(_codecs(registry))
        dead_letters, watermark = registry.codec(DEAD_LETTERS, "DeadLetter"), registry.codec(WATERMARKS, "SourceWatermark")
        return Intake(encoder, dead_letters, self._publisher.publish, self._clock, self._watermarks.check), watermark

    async def _drain(self) -> None:
        """Refuse new requests, finish open requests, then flush the producer; all within the drain timeout."""
        self._not_ready = "the process is stopping"
        loop = asyncio.get_running_loop()
        deadline = loop.time() + self._settings.drain_timeout_seconds
        with suppress(TimeoutError):
            await asyncio.wait_for(self.app.close(), self._settings.drain_timeout_seconds)
        self._keys.stop()
        unacknowledged = await self._publisher.close(max(0.0, deadline - loop.time()))
        if not unacknowledged:
            # Otherwise the lease must end first: the broker may still receive one of these records.
            self._watermarks.retire()
        log(__name__).info("stopped", requests_given_up=self.app.requests_open, records_given_up=unacknowledged)

    def _alive(self) -> Mapping[str, str | None]:
        """Return the failed checks that only a restart corrects. The server answers on the event loop, which therefore turns."""
        broken = [task for task in self._background if task.done() and not task.cancelled() and task.exception() is not None]
        failed = "; ".join(repr(task.exception()) for task in broken)
        return {"producer": self._publisher.problem, "watermarks": self._watermarks.client_failure, "background": failed or None}

    def _ready(self) -> Mapping[str, str | None]:
        return {"producer": self._publisher.problem, "start": self._not_ready, "write keys": self._keys.problem()}


def _limits(settings: Settings) -> RateLimits:
    key = Rates(Rate.of(settings.key_rate_requests_per_second), Rate.of(settings.key_rate_bytes_per_second, MAX_BODY_BYTES))
    workspace = Rates(
        Rate.of(settings.rate_requests_per_second),
        Rate.of(settings.rate_bytes_per_second, MAX_BODY_BYTES),
        Rate(settings.rate_items_per_second, settings.rate_burst_items),
    )
    return RateLimits(key, workspace)


def _codecs(registry: Registry) -> dict[str, Codec]:
    return {topic.removeprefix("ingest."): registry.codec(topic, "IngestReceived") for topic in INGEST_TOPICS}
