"""Edge: the Faust app of a worker. It passes assignments to the runner and fetches to their tasks."""

import asyncio
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final, cast

import faust
from faust.auth import SASLCredentials, SSLCredentials
from faust.types import TP, StreamT
from yarl import URL

from starling_common.kafka.security import aiokafka_security, kafka_security
from starling_common.telemetry.logs import log
from starling_common.time.instants import wall_clock_micros
from starling_common.wire import RegistryUnavailable
from starling_stream.fold.merge import Arrival
from starling_stream.kafka.assignor import StickyAssignor
from starling_stream.kafka.transport import Consumer, End, Fetch, Fetched
from starling_stream.model.settings import StreamSettings
from starling_stream.worker.assigned_tasks import AssignedTasks
from starling_stream.worker.installation import Installation
from starling_stream.worker.runner import Runner

_REGISTRY_SECONDS: Final = 1.0
"""The interval of retries for a fetch whose schema cannot be looked up."""


class Group:
    """Membership, fetches, and the limit of reading ahead. Used on the event loop only."""

    def __init__(self, installation: Installation) -> None:
        self._topics = installation.topics
        self._buffered_records = installation.settings.buffered_records
        self.app = faust_app(installation.group, installation.settings)
        self._consumer = cast("Consumer", self.app.consumer)
        self._assignment: object = None
        self._paused: set[TP] = set()
        self._ends: Mapping[TP, End] = {}
        self.assigned = False
        """Whether an assignment is in force."""

    def connect(self, assigned_tasks: AssignedTasks[Any], runner: Runner, crash: Callable[[BaseException], None]) -> None:
        """Connect the parts. Called once, before the app is started; `crash` ends the worker."""
        self._assigned_tasks, self._runner, self._crash = assigned_tasks, runner, crash
        self._consumer.on_fetch = self._on_fetch
        self._assignor = self._consumer.assignor = StickyAssignor(lambda: assigned_tasks.claim)
        self.app.on_partitions_assigned.connect(self._on_assigned)
        self.app.on_partitions_revoked.connect(self._on_revoked)
        # No acks: Faust would track every message for commits of its own.
        channel = self.app.topic(*self._topics, key_serializer="raw", value_serializer="raw", acks=False)
        self.app.agent(channel, name="inputs")(self._take)

    def regulate(self) -> None:
        """Pause topics that are read far ahead of processing, and resume them when they are not."""
        limit = self._buffered_records
        for task in self._assigned_tasks.tasks():
            for topic in self._topics:
                tp, size = TP(topic, task.partition), task.merge.size(topic)
                if tp not in self._paused:
                    if size > limit and not task.merge.is_needed(topic):
                        self._paused.add(tp)
                        self._consumer.pause_partitions({tp})
                elif size <= limit // 2 or task.merge.is_needed(topic):
                    self._paused.discard(tp)
                    self._consumer.resume_partitions({tp})

    def lags(self) -> dict[tuple[str, int], int]:
        """Return (topic, partition) -> unprocessed records, transaction markers included, where it is known."""
        running = {task.partition: task for task in self._assigned_tasks.running()}
        return {
            (tp.topic, tp.partition): max(0, end.last_stable_offset - running[tp.partition].committed_offset(tp.topic))
            for tp, end in self._ends.items()
            if tp.partition in running and end.last_stable_offset is not None
        }

    async def leave(self) -> None:
        """Leave the group permanently: the others get the partitions at once, without waiting for the session to end."""
        await self._consumer.leave()

    async def _take(self, stream: StreamT[Fetched]) -> None:
        # After an exception Faust restarts an agent with the next message: the present fetch would be lost.
        async for event in stream.events():
            try:
                await self._deliver(event.message.topic, event.message.partition, cast("Fetched", event.value))
            except Exception as cause:  # noqa: BLE001 - the error ends the worker
                self._crash(cause)
                return
            self._runner.wake()

    async def _deliver(self, topic: str, partition: int, fetched: Fetched) -> None:
        """Pass a fetch to its task, unless its assignment is over; waits for the registry if decoding needs it."""
        while True:
            try:
                async with self._runner.processor:
                    task = self._assigned_tasks.task(partition)
                    if task is not None and fetched.assignment is self._assignment:
                        task.receive(topic, fetched.records, Arrival(wall_clock_micros(), fetched.answered_ms), fetched.after)
            except RegistryUnavailable as cause:
                log(__name__).warning("registry_unavailable", topic=topic, partition=partition, error=str(cause))
                await asyncio.sleep(_REGISTRY_SECONDS)
            else:
                return

    async def _on_fetch(self, fetch: Fetch) -> bool:
        while fetch.assignment is not self._assignment:
            if fetch.assignment is not self._consumer.assignment_held():
                return False
            # The assignment is new and its tasks are about to be created: the fetch waits for them.
            await asyncio.sleep(0.01)
        self._ends = fetch.ends
        self._assigned_tasks.note_fetch(fetch.records, fetch.ends)
        self._runner.wake()
        return True

    async def _on_assigned(self, _: Any, /, *given: Any, signal: Any, **__: Any) -> None:  # noqa: ARG002
        tps: Sequence[TP] = given[0]
        partitions, standbys = sorted({tp.partition for tp in tps}), self._assignor.standbys
        await self._runner.assigned(partitions, standbys, self._consumer.membership())
        self._assignment = self._consumer.assignment_held()
        self.assigned = True

    async def _on_revoked(self, _: Any, /, *__: Any, signal: Any, **___: Any) -> None:  # noqa: ARG002
        self.assigned = False
        self._assignment = None
        self._paused.clear()
        await self._runner.revoked()


def faust_app(group: str, settings: StreamSettings) -> faust.App:
    """Return the app: group membership, agents and life cycle; no tables, no web, no commits."""
    brokers = settings.kafka.brokers.split(",")
    return faust.App(
        group,
        broker=[URL(f"batched://{broker}?fetch_wait_ms={settings.fetch_wait_ms}") for broker in brokers],
        web_enabled=False,
        # Static membership: a restarted worker is the same member to its group, and continues at once.
        consumer_group_instance_id=settings.instance_id,
        canonical_url=f"http://{settings.instance_id}",
        topic_disable_leader=True,
        topic_allow_declare=False,
        table_standby_replicas=0,
        stream_wait_empty=False,
        consumer_auto_offset_reset="earliest",
        consumer_max_fetch_size=settings.fetch_max_bytes,
        broker_session_timeout=settings.session_timeout_seconds,
        broker_request_timeout=max(90.0, settings.session_timeout_seconds),
        broker_rebalance_timeout=settings.rebalance_timeout_seconds,
        broker_heartbeat_interval=settings.heartbeat_interval_seconds,
        datadir=str(settings.state_dir / "faust"),
        broker_credentials=_credentials(),  # of the clients that the framework creates itself
    )


def _credentials() -> SASLCredentials | SSLCredentials | None:
    security = aiokafka_security(kafka_security())
    context = security.get("ssl_context")
    if "sasl_mechanism" in security:
        return SASLCredentials(
            username=security["sasl_plain_username"],
            password=security["sasl_plain_password"],
            mechanism=security["sasl_mechanism"],
            ssl_context=context,
        )
    return None if context is None else SSLCredentials(context)
