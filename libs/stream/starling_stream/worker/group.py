"""Edge: the Faust app of a worker. It passes assignments to the runner and fetches to their tasks."""

import asyncio
from collections.abc import Callable, Collection, Mapping
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
from starling_stream.kafka.transport import Assignment, Consumer, End, Fetch, Fetched
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
        self._assignments: Mapping[TP, Assignment] = {}
        """Those of the tasks; the consumer's may be newer."""
        self._paused: set[TP] = set()
        self._ends: Mapping[TP, End] = {}
        self.assigned = False
        """Whether an assignment is in force."""

    def connect(self, assigned_tasks: AssignedTasks[Any], runner: Runner, crash: Callable[[BaseException], None]) -> None:
        """Connect the parts. Called once, before the app is started; `crash` ends the worker.

        The signals of the app come with the first assignment; the consumer calls this object for later ones.
        """
        self._assigned_tasks, self._runner, self._crash = assigned_tasks, runner, crash
        self._consumer.on_fetch = self._on_fetch
        self._consumer.rebalances = self
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
        """Pass a fetch to its task, unless the partition moved meanwhile; waits for the registry if decoding needs it."""
        while True:
            try:
                async with self._runner.processor:
                    task = self._assigned_tasks.task(partition)
                    if task is not None and fetched.assignment is self._assignments.get(TP(topic, partition)):
                        task.receive(topic, fetched.records, Arrival(wall_clock_micros(), fetched.answered_ms), fetched.after)
            except RegistryUnavailable as cause:
                log(__name__).warning("registry_unavailable", topic=topic, partition=partition, error=str(cause))
                await asyncio.sleep(_REGISTRY_SECONDS)
            else:
                return

    async def _on_fetch(self, fetch: Fetch) -> Collection[TP]:
        while self._precedes_tasks(fetch):  # noqa: ASYNC110 - or until another assignment, of which only the consumer's thread knows
            await asyncio.sleep(0.01)
        records, ends = fetch.records, fetch.ends
        if fetch.assignments is not self._assignments:
            # A rebalance is in progress, or was meanwhile; the partitions that stay are not affected.
            stays = {tp for tp, assignment in self._assignments.items() if fetch.assignments.get(tp) is assignment}
            records = {tp: batch for tp, batch in records.items() if tp in stays}
            ends = {tp: end for tp, end in ends.items() if tp in stays}
        self._ends = ends
        self._assigned_tasks.note_fetch(records, ends)
        self._runner.wake()
        return records.keys()

    def _precedes_tasks(self, fetch: Fetch) -> bool:
        """Return whether the fetch has records for tasks that are about to be created: it waits for them."""
        if fetch.assignments is self._assignments:
            return False
        present = self._consumer.assignments()
        return any(
            fetch.assignments[tp] is not self._assignments.get(tp) and fetch.assignments[tp] is present.get(tp)
            for tp in fetch.records
        )

    def rejoining(self) -> None:
        """Report what this worker has to the next assignment; its tasks continue meanwhile."""
        self._assigned_tasks.update_claim()

    async def lost(self) -> None:
        """Stop all tasks: the group has removed this worker."""
        self.assigned = False
        self._assignments = {}
        self._paused.clear()
        await self._runner.revoked()

    async def reassigned(self, tps: Collection[TP], *, continued: bool) -> None:
        """Take over these partitions. `continued`: tasks of partitions that were assigned before go on as they are."""
        partitions, standbys = sorted({tp.partition for tp in tps}), self._assignor.standbys
        await self._runner.assigned(partitions, standbys, self._consumer.membership(), continued=continued)
        self._assignments = self._consumer.assignments()
        self._paused.intersection_update(tps if continued else ())
        self.assigned = True

    async def _on_assigned(self, _: Any, /, *given: Any, signal: Any, **__: Any) -> None:  # noqa: ARG002
        await self.reassigned(given[0], continued=False)

    async def _on_revoked(self, _: Any, /, *__: Any, signal: Any, **___: Any) -> None:  # noqa: ARG002
        await self.lost()


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
