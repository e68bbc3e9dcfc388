"""Edge: a stateful service as a Faust worker. `run_service` is all that a service's `__main__` calls."""

import asyncio
import gc
from collections.abc import Callable, Mapping, Sequence
from signal import SIGINT, SIGTERM
from typing import Any, Final, Generic, cast

import faust
import uvloop
from confluent_kafka import KafkaException
from faust.types import TP, StreamT
from yarl import URL

from starling_common.health import HealthServer
from starling_common.instants import wall_clock_ms
from starling_common.logs import configure_logs, log
from starling_common.metrics import Metrics
from starling_common.wire import Registry
from starling_stream.deadletters import dead_letter
from starling_stream.decoding import all_topics
from starling_stream.failpoints import Failpoints
from starling_stream.gauges import Gauges
from starling_stream.holdings import Holdings, Means
from starling_stream.ports import BackingTier, NoBackingTier, Refusal
from starling_stream.processor import S, Service
from starling_stream.restore import Plan
from starling_stream.rounds import Limits, Rounds
from starling_stream.runner import Parts, Runner
from starling_stream.settings import StreamSettings
from starling_stream.store import Origin, store_memory
from starling_stream.task import Phase
from starling_stream.transactions import Naming, Transactions, topic_ids
from starling_stream.transport import Consumer, Fetch, Fetched

_LEAVE_SECONDS: Final = 10.0
"""A worker that is told to stop and cannot reach the broker leaves after this; nothing is lost by it."""


class CannotStart(Exception):
    """The installation is not as the service needs it; the message says what to do."""


def run_service(service: Service[Any], settings: StreamSettings, tier: BackingTier | None = None) -> int:
    """Run until SIGTERM or SIGINT. Returns the exit code: 0 after a graceful stop, 1 when something broke.

    After a 1 the supervisor is to start the process again: nothing of an unfinished round has happened.
    """
    configure_logs(service.stage, settings.log_level)
    try:
        return uvloop.run(_Worker(service, settings, tier or NoBackingTier()).run())
    except CannotStart as cause:
        log(__name__).error("cannot_start", error=str(cause))
        return 1


class _Worker(Generic[S]):
    """Puts the parts together, and takes them apart in the right order."""

    def __init__(self, service: Service[S], settings: StreamSettings, tier: BackingTier) -> None:
        self._service = service
        self._settings = settings
        self._tier = tier
        self._topics = all_topics(service)
        self._metrics = Metrics()
        self._gauges = Gauges(self._metrics)
        self._failpoints = Failpoints(settings.failpoint)
        self._assignment: object = None
        self._assigned = False
        self._paused: set[Any] = set()
        self._broken: asyncio.Future[None]

    async def run(self) -> int:
        """The whole life of the process."""
        loop = asyncio.get_running_loop()
        self._broken = loop.create_future()
        stop = asyncio.Event()
        for number in (SIGTERM, SIGINT):
            loop.add_signal_handler(number, stop.set)
        _calm_collector()
        health = self._health()
        health.start()
        try:
            naming = await loop.run_in_executor(None, self._naming)
            self._build(naming)
            await loop.run_in_executor(None, self._transactions.begin)
            return await self._live(stop)
        finally:
            health.stop()

    async def _live(self, stop: asyncio.Event) -> int:
        """From joining the group until told to stop or broken."""
        await self._app.start()
        rounds = asyncio.create_task(self._runner.run())
        stopped: asyncio.Task[Any] = asyncio.create_task(stop.wait())
        crashed: asyncio.Task[Any] = asyncio.create_task(self._app.wait_until_stopped())
        waited: set[asyncio.Future[Any]] = {rounds, stopped, crashed, self._broken}
        done, _ = await asyncio.wait(waited, return_when=asyncio.FIRST_COMPLETED)
        code = 0 if done == {stopped} else 1
        for task in done - {stopped}:
            if task.exception() is not None:
                log(__name__).error("worker_broke", exc_info=task.exception())
        if crashed in done:
            log(__name__).error("faust_stopped", reason=str(self._app.crash_reason))
        await self._leave(rounds)
        stopped.cancel()
        crashed.cancel()
        return code

    async def _leave(self, rounds: "asyncio.Task[None]") -> None:
        """Finish the round on its way, close the stores, leave the group."""
        hurry = asyncio.get_running_loop().call_later(_LEAVE_SECONDS, self._transactions.leave)
        try:
            if not rounds.done():
                await self._runner.stop()
                await rounds
        except Exception:  # noqa: BLE001 - it is leaving anyway, and an unfinished round has not happened
            log(__name__).exception("last_round_lost")
        finally:
            hurry.cancel()
        await self._holdings.close()
        self._transactions.close()
        try:
            await asyncio.wait_for(self._app.stop(), _LEAVE_SECONDS)
        except TimeoutError:
            log(__name__).warning("faust_slow_to_stop")

    def _build(self, naming: Naming) -> None:
        settings, service = self._settings, self._service
        settings.state_dir.mkdir(parents=True, exist_ok=True)
        group = f"starling-{service.stage}"
        self._transactions = Transactions(
            settings.kafka.brokers,
            f"{group}-{settings.instance_id}",
            settings.transaction_timeout_seconds,
            naming,
            self._failpoints,
        )
        self._app = faust_app(group, self._topics, settings)
        self._consumer = cast("Consumer", self._app.consumer)
        self._consumer.on_fetch = self._on_fetch
        memory = store_memory(settings.state_cache_bytes, settings.state_buffer_bytes)
        self._holdings = Holdings(
            service,
            Means(self._restore_plan(naming), memory, self._gauges, settings.timers_per_unit, self._wake, self._crash),
        )
        rounds = Rounds(Limits(settings.unit_max_records, settings.switch_keys_per_unit), service.processor.adopt_plan)
        parts = Parts(self._holdings, rounds, self._transactions, self._tier, self._gauges, self._failpoints)
        self._runner = Runner(parts, self._flow, settings.session_timeout_seconds + settings.rebalance_timeout_seconds)
        self._connect()

    def _connect(self) -> None:
        """Faust's agent and signals to our loop."""
        app, holdings, runner = self._app, self._holdings, self._runner
        channel = app.topic(*self._topics, key_serializer="raw", value_serializer="raw", acks=False)

        async def take(stream: StreamT[Fetched]) -> None:
            async for event in stream.events():
                fetched = cast("Fetched", event.value)
                if fetched.assignment is self._assignment:
                    holdings.arrive(event.message.topic, event.message.partition, fetched.records)
                    runner.wake()

        app.agent(channel, name=f"{self._service.stage}-inputs")(take)

        @app.on_partitions_assigned.connect
        async def assigned(_: Any, /, *given: Any, signal: Any, **__: Any) -> None:  # noqa: ARG001
            tps: Sequence[TP] = given[0]
            await runner.assigned(sorted({tp.partition for tp in tps}), self._consumer.membership())
            self._assignment = self._consumer.assignment_held()
            self._assigned = True

        @app.on_partitions_revoked.connect
        async def revoked(_: Any, /, *__: Any, signal: Any, **___: Any) -> None:  # noqa: ARG001
            self._assigned = False
            self._assignment = None
            self._paused.clear()
            await runner.revoked()

    async def _on_fetch(self, fetch: Fetch) -> bool:
        while fetch.assignment is not self._assignment:
            if fetch.assignment is not self._consumer.assignment_held():
                return False
            await asyncio.sleep(0.01)
        self._holdings.announce(fetch.records, fetch.ends)
        self._wake()
        return True

    def _flow(self) -> None:
        """Hold back topics that are read far ahead of what is processed, and let go those that are not any more."""
        limit = self._settings.buffered_records
        for task in self._holdings.tasks():
            for topic in self._topics:
                tp, size = TP(topic, task.partition), task.merge.size(topic)
                if size > limit and tp not in self._paused:
                    self._paused.add(tp)
                    self._consumer.pause_partitions({tp})
                elif size <= limit // 2 and tp in self._paused:
                    self._paused.discard(tp)
                    self._consumer.resume_partitions({tp})

    def _wake(self) -> None:
        self._runner.wake()

    def _crash(self, cause: BaseException) -> None:
        if not self._broken.done():
            self._broken.set_exception(cause)

    def _naming(self) -> Naming:
        """Look up what this service's own records need. Raises: CannotStart, RegistryUnavailable, SchemaMissing."""
        stage, registry = self._service.stage, Registry(self._settings.registry.url)
        changelog, dead_letters = f"{stage}-state-changelog", f"{stage}.dlq"
        state = registry.codec(changelog, "StateChanged")
        letters = registry.codec(dead_letters, "DeadLetter")
        self._state_codec = state
        self._origin = self._check_topics(changelog, dead_letters)

        def encode_refusal(refusal: Refusal) -> bytes:
            return letters.encode(dead_letter(stage, refusal, wall_clock_ms()))

        return Naming(changelog, dead_letters, b"\0" + state.schema_id.to_bytes(4, "big"), encode_refusal)

    def _check_topics(self, changelog: str, dead_letters: str) -> Origin:
        try:
            found = topic_ids(self._settings.kafka.brokers, [*self._topics, changelog, dead_letters])
        except KafkaException as cause:
            raise CannotStart(f"{cause.args[0].str()}: run `python -m starling_common.deploy` against this broker") from cause
        counts = {topic: found[topic][1] for topic in (*self._topics, changelog)}
        if len(set(counts.values())) != 1:
            raise CannotStart(f"these topics must have the same number of partitions, and have {counts}: users would be split")
        topic_id, partitions = found[changelog]
        return Origin(changelog, topic_id, partitions)

    def _restore_plan(self, naming: Naming) -> Callable[[int], Plan]:
        settings, stage = self._settings, self._service.stage
        codec = self._state_codec

        def decode(value: bytes) -> tuple[int, bytes]:
            record = codec.decode(value)
            return record["version"], record["state"] or b""

        def plan(partition: int) -> Plan:
            return Plan(
                brokers=settings.kafka.brokers,
                group=f"starling-{stage}",
                changelog=naming.changelog,
                partition=partition,
                inputs=self._topics,
                origin=self._origin,
                path=settings.state_dir / stage / str(partition),
                header=naming.changelog_header,
                decode=decode,
            )

        return plan

    def _health(self) -> HealthServer:
        http = self._settings.http
        return HealthServer((http.host, http.port), self._metrics.registry, alive=dict, ready=self._ready)

    def _ready(self) -> Mapping[str, str | None]:
        if not self._assigned or self._runner.fenced:
            return {"group": "no assignment yet"}
        waiting = [task.partition for task in self._holdings.tasks() if task.phase is not Phase.RUNNING]
        return {"group": None, "tasks": f"partitions {waiting} are not running yet" if waiting else None}


def _calm_collector() -> None:
    """Let the cycle collector run seldom: what records become has no cycles, and looking for some took a third of the time."""
    gc.collect()
    gc.freeze()
    gc.set_threshold(100_000, 50, 100)


def faust_app(group: str, topics: Sequence[str], settings: StreamSettings) -> faust.App:
    """The Faust app of a worker: group membership, agents and life cycle; no tables, no web, no commits of its own."""
    app = faust.App(
        group,
        broker=[URL(f"batched://{broker}?fetch_wait_ms={settings.fetch_wait_ms}") for broker in settings.kafka.brokers.split(",")],
        web_enabled=False,
        canonical_url=f"http://{settings.instance_id}",
        topic_disable_leader=True,
        topic_allow_declare=False,
        table_standby_replicas=0,
        stream_wait_empty=False,
        consumer_auto_offset_reset="earliest",
        consumer_max_fetch_size=settings.fetch_max_bytes,
        consumer_group_instance_id=settings.instance_id,
        broker_session_timeout=settings.session_timeout_seconds,
        broker_request_timeout=max(90.0, settings.session_timeout_seconds),
        broker_rebalance_timeout=settings.rebalance_timeout_seconds,
        broker_heartbeat_interval=settings.heartbeat_interval_seconds,
        datadir=str(settings.state_dir / "faust"),
    )
    log(__name__).info("subscribing", group=group, topics=list(topics), instance=settings.instance_id)
    return app
