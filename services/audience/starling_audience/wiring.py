"""Builds audience sync and its health server from the settings. No other module imports both."""

import asyncio
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache, partial
from threading import Thread
from typing import Final, NamedTuple

from starling_audience.adapters.adapter import Adapter, Again
from starling_audience.adapters.google_tokens import GoogleToken
from starling_audience.adapters.http import HttpExchange
from starling_audience.adapters.table import adapter_of
from starling_audience.changes import Change
from starling_audience.consent import Consent, fold_consent
from starling_audience.definitions import AudienceTarget, Definitions, TargetKey, fold_definition
from starling_audience.failpoints import FAILPOINTS
from starling_audience.following.follower import Follower
from starling_audience.following.parts import Limits, Parts
from starling_audience.following.sending import Sender, Sent
from starling_audience.settings import AudienceSettings
from starling_audience.stores.outbox import Outbox
from starling_audience.stores.probe import Probe
from starling_audience.stores.read_model import ReadModel
from starling_audience.supervisor import Supervisor
from starling_campaigns.definitions.targets import GOOGLE
from starling_common.cassandra.database import Database
from starling_common.failpoints.ending import Ending
from starling_common.kafka.followed_topic import FollowedTopic
from starling_common.kafka.topics import CONSENT, DELIVERY_DEFINITIONS, load_catalogue
from starling_common.records.definitions import definitions_fold
from starling_common.security.sealing import CURE, Sealer
from starling_common.telemetry.health import Degraded, HealthServer
from starling_common.telemetry.logs import log
from starling_common.telemetry.metrics import Metrics
from starling_common.wire import Codec, Registry

_MOST_BATCH_SECONDS: Final = 240.0
"""Less than the time after which the broker gives the partitions of a silent thread to another one."""
_REFRESH_SECONDS: Final = 60.0


class EventLoop:
    """An event loop in a thread of its own, for the requests of all targets."""

    def __init__(self) -> None:
        self.loop = asyncio.new_event_loop()
        self._thread = Thread(target=self.loop.run_forever, name="requests", daemon=True)

    def start(self) -> None:
        """Start the loop."""
        self._thread.start()

    def stop(self) -> None:
        """End the loop."""
        self.loop.call_soon_threadsafe(self.loop.stop)
        self._thread.join(timeout=5)


class LoopSender:
    """Sends batches on an event loop, and waits for them in the thread of the caller."""

    def __init__(self, loop: asyncio.AbstractEventLoop, make: Callable[[], Sender]) -> None:
        """`make` is called on the loop, once."""
        self._loop = loop
        self._make = make
        self._sender: Sender | None = None

    def send(self, changes: Sequence[Change]) -> Sent:
        """Send a batch. One that takes minutes is given up, and sent again later."""
        return asyncio.run_coroutine_threadsafe(self._send(changes), self._loop).result()

    async def _send(self, changes: Sequence[Change]) -> Sent:
        if self._sender is None:
            self._sender = self._make()
        try:
            async with asyncio.timeout(_MOST_BATCH_SECONDS):
                return await self._sender.send(changes)
        except TimeoutError:
            return Sent(problem=Again(f"a batch was not sent within {_MOST_BATCH_SECONDS:g} s"))


@dataclass(slots=True)
class Process:
    """The supervisor, what it reads, and the health server."""

    supervisor: Supervisor
    definitions: FollowedTopic[Definitions]
    consent: FollowedTopic[Consent]
    probe: Probe
    read_model: ReadModel
    database: Database
    exchange: HttpExchange
    loop: EventLoop
    health: HealthServer

    def run(self) -> None:
        """Run until `stop`."""
        self.health.start()
        self.loop.start()
        self.definitions.start()
        self.consent.start()
        try:
            self.supervisor.run()
        finally:
            self.consent.stop()
            self.definitions.stop()
            asyncio.run_coroutine_threadsafe(self.exchange.close(), self.loop.loop).result(timeout=5)
            self.loop.stop()
            self.probe.close()
            self.read_model.close()
            self.database.close()
            self.health.stop()

    def stop(self) -> None:
        """End `run` after the present batches."""
        self.supervisor.stop()


class _Followed(NamedTuple):
    """The folded topics of the process."""

    definitions: FollowedTopic[Definitions]
    consent: FollowedTopic[Consent]

    def wanted(self) -> Mapping[TargetKey, AudienceTarget] | None:
        """Return the targets to follow; None until both topics are read."""
        if not self.definitions.is_read() or not self.consent.is_read():
            return None
        return dict(self.definitions.value().wanted())

    def refreshed_consent(self) -> Consent:
        """Return the consent with every change that was written before the call."""
        return self.consent.refresh(_REFRESH_SECONDS)

    def unreadable(self) -> str | None:
        """Return the first target whose secrets cannot be decrypted."""
        found = self.definitions.value().problems()
        return Degraded(f"{len(found)} targets are not synchronised: {found[0]}") if found else None


@dataclass(frozen=True)
class _Requests:
    """What sends the batches of a target: its requests run on the event loop of all targets."""

    loop: EventLoop
    exchange: HttpExchange
    concurrent: int
    passed: Callable[[str], None]

    def follower(self, parts: Parts, limits: Limits, target: AudienceTarget) -> Follower:
        """Return the follower of a target, not started."""
        adapter = adapter_of(target)
        return Follower(target, adapter, LoopSender(self.loop.loop, partial(self._sender, target, adapter)), parts, limits)

    def _sender(self, target: AudienceTarget, adapter: Adapter) -> Sender:
        token = GoogleToken(target.workspace, target.settings) if target.adapter == GOOGLE else None
        return Sender(target.workspace, adapter, self.exchange, token, concurrent=self.concurrent, passed=self.passed)


def build_process(settings: AudienceSettings) -> Process:
    """Return a process that has opened only the port of its health server. Raises: OSError if the port is in use, ValueError."""
    catalogue = load_catalogue(settings.profile_partitions)
    registry, metrics, database = Registry(settings.registry.url), Metrics(), Database(settings.cassandra)
    brokers, ending, loop = settings.kafka.brokers, Ending(settings.failpoint, FAILPOINTS), EventLoop()
    sealer, exchange = _sealer(settings), _exchange(settings)

    def codec(topic: str) -> Codec:
        return registry.codec(topic, catalogue.topics[topic].schema)

    followed = _followed(brokers, codec, sealer)
    probe, read_model = Probe(brokers), ReadModel(database, brokers, catalogue.profile_partitions)
    parts = Parts(
        brokers=brokers,
        codec=codec,
        consent=followed.consent.value,
        refreshed=followed.refreshed_consent,
        probe=probe,
        read_model=read_model,
        outbox=Outbox(brokers, cache(codec)),
        metrics=metrics,
        passed=ending.passed,
    )
    limits = Limits(settings.batch_seconds, settings.queue_kbytes, settings.first_retry_seconds, settings.probe_seconds)
    make = partial(_Requests(loop, exchange, settings.concurrent_requests, ending.passed).follower, parts, limits)
    definitions, consent = followed
    supervisor = Supervisor(followed.wanted, make, metrics, settings.max_targets, lambda: definitions.value().disabled())
    health = _health(settings, metrics, supervisor, followed)
    return Process(supervisor, definitions, consent, probe, read_model, database, exchange, loop, health)


def _sealer(settings: AudienceSettings) -> Sealer:
    sealer = Sealer.of(settings.secrets)
    if sealer.key_id is None:
        log(__name__).warning("no_secrets_key", consequence="targets with encrypted secrets are not synchronised", cure=CURE)
    return sealer


def _exchange(settings: AudienceSettings) -> HttpExchange:
    return HttpExchange.open(
        allow_private=settings.allow_private_addresses,
        timeout_seconds=settings.timeout_seconds,
        lookup_seconds=settings.lookup_timeout_seconds,
        connections=settings.max_targets * settings.concurrent_requests,
    )


def _followed(brokers: str, codec: Callable[[str], Codec], sealer: Sealer) -> _Followed:
    definitions = FollowedTopic[Definitions](
        (brokers, DELIVERY_DEFINITIONS),
        lambda: codec(DELIVERY_DEFINITIONS),
        lambda: Definitions(sealer),
        definitions_fold(fold_definition),
    )
    return _Followed(definitions, FollowedTopic[Consent]((brokers, CONSENT), lambda: codec(CONSENT), Consent, fold_consent))


def _health(settings: AudienceSettings, metrics: Metrics, supervisor: Supervisor, followed: _Followed) -> HealthServer:
    """Return the health server, not started."""
    return HealthServer(
        (settings.http.host, settings.http.port),
        metrics.registry,
        alive=supervisor.failures,
        ready=lambda: {
            **supervisor.problems(),
            "definitions": followed.definitions.problem(),
            "consent": followed.consent.problem(),
            "secrets": followed.unreadable(),
        },
    )
