"""Edge: a stateful service as a worker process. A service's `__main__` calls `run_service`."""

import asyncio
import faulthandler
import gc
import logging
import sys
from collections.abc import Mapping
from dataclasses import replace
from signal import SIGINT, SIGTERM, SIGUSR1
from time import monotonic
from typing import Any, Final, NamedTuple

import faust
import uvloop

from starling_common.failpoints.raising import Raising
from starling_common.kafka.group_requests import GroupAddress, GroupRequests
from starling_common.telemetry.health import HealthServer
from starling_common.telemetry.logs import configure_logs, log
from starling_common.telemetry.metrics import Metrics
from starling_common.telemetry.traces import open_traces
from starling_common.wire import RegistryUnavailable, SchemaMissing
from starling_stream.fold.batches import Batches, Limits
from starling_stream.kafka.transactions import Transactions
from starling_stream.model.failpoints import Failpoints, RaisingProcessor
from starling_stream.model.phase import Phase
from starling_stream.model.processor import Service
from starling_stream.model.records import all_topics
from starling_stream.model.settings import StreamSettings
from starling_stream.model.traced import TracedProcessor
from starling_stream.state.flush.flusher import FlusherDependencies, LayoutChanged
from starling_stream.state.local_store import StoreMemory, store_memory
from starling_stream.state.metrics import BackingStoreGauges, Gauges
from starling_stream.state.restore.restore import Plan
from starling_stream.state.restore.standby import Standbys
from starling_stream.worker.arenas import share_arenas
from starling_stream.worker.assigned_tasks import AssignedTasks, AssignedTasksDependencies
from starling_stream.worker.backing_store import WorkerBackingStore
from starling_stream.worker.group import Group
from starling_stream.worker.installation import CannotStart, Installation, look_up
from starling_stream.worker.runner import Runner, RunnerDependencies
from starling_stream.worker.sources import SourceFollower, SourceFollowerDependencies

_SILENT_SECONDS: Final = 300.0
"""A worker whose loop has not turned, and whose transactions have had no result, for this long hangs."""

_GC_SECONDS: Final = 60.0
_SAMPLE_SECONDS: Final = 2.0

_LEAVE_SECONDS: Final = 10.0
"""A worker that stops and cannot reach the broker ends after this; nothing is lost."""


def run_service(service: Service[Any], settings: StreamSettings) -> int:
    """Run until SIGTERM or SIGINT, or SIGUSR1, which also leaves the group permanently.

    Returns the exit code: 0 after a graceful stop, 1 after an error. After a 1 the supervisor must start the process again; an
    unfinished batch was not committed.
    """
    share_arenas()  # for services that start no thread before this
    configure_logs(service.stage, settings.log_level)
    if settings.log_level == "INFO":
        for chatty in ("faust", "mode", "aiokafka"):
            logging.getLogger(chatty).setLevel(logging.WARNING)
    try:
        return uvloop.run(_Worker(service, settings).live())
    except (CannotStart, LayoutChanged, RegistryUnavailable, SchemaMissing) as cause:
        log(__name__).error("cannot_start", error=str(cause))
        return 1


class _Working(NamedTuple):
    """The parts of a started worker."""

    transactions: Transactions
    assigned_tasks: AssignedTasks[Any]
    runner: Runner
    group: Group
    backing_store: WorkerBackingStore
    gauges: Gauges
    memory: StoreMemory
    sources: SourceFollower | None


class _Worker:
    """One process from its start to its end: builds the parts, and closes them in the right order."""

    def __init__(self, service: Service[Any], settings: StreamSettings) -> None:
        raising = Raising.of(settings.failpoint)
        if raising is not None:
            service = replace(service, processor=RaisingProcessor(service.processor, raising, service.stage))
        traces = open_traces(settings.traces, service.stage, settings.instance_id)
        if traces is not None:
            service = replace(service, processor=TracedProcessor(service.processor, traces, service.stage))
        self._service = service
        self._settings = settings
        self._metrics = Metrics()
        self._stop = asyncio.Event()
        self._leaves_group = settings.leave_group
        """Whether the stop also leaves the group. A worker that restarts soon stays a member and keeps its partitions."""
        self._loop: asyncio.AbstractEventLoop
        self._broken: asyncio.Future[None]
        self._working: _Working | None = None
        self._beginning: Transactions | None = None
        """While the worker waits for the broker to accept its transactional id."""
        self._group_requests: GroupRequests | None = None

    async def live(self) -> int:
        """Run the worker from start to end; return the exit code."""
        loop = self._loop = asyncio.get_running_loop()
        self._broken = loop.create_future()
        for number in (SIGTERM, SIGINT):
            loop.add_signal_handler(number, self._stop.set)
        loop.add_signal_handler(SIGUSR1, self._stop_and_leave)
        _tune_interpreter()
        http = self._settings.http
        health = HealthServer((http.host, http.port), self._metrics.registry, alive=self._alive, ready=self._ready)
        health.start()
        try:
            topics = all_topics(self._service)
            watermarks = bool(self._service.sourced)
            found = await loop.run_in_executor(None, look_up, self._service.stage, topics, self._settings, watermarks)
            self._group_requests = self._requests_of(found)
            self._group_requests.start()
            backing_store = self._open_backing_store(found)
            await loop.run_in_executor(None, backing_store.start)
            working = self._build(found, backing_store)
            self._beginning = working.transactions
            if not await self._begin(working.transactions):
                return 0
            self._working = working
            return await self._work(working)
        finally:
            if self._group_requests is not None:
                self._group_requests.stop()
            health.stop()

    def _requests_of(self, found: Installation) -> GroupRequests:
        """Return the check that runs until the end: a start waits for the group too."""
        report = self._metrics.gauge("starling_group_refused_seconds").labels(found.group).set
        settings = self._settings
        return GroupRequests(
            GroupAddress(settings.kafka.brokers, found.group, found.topics[0]), settings.group_failure_seconds, report
        )

    def _open_backing_store(self, found: Installation) -> "WorkerBackingStore":
        failpoints = Failpoints(self._settings.failpoint)
        dependencies = FlusherDependencies(BackingStoreGauges(self._metrics), failpoints, self._crash_from_thread)
        return WorkerBackingStore(found, self._settings, dependencies, self._wake)

    def _build(self, found: Installation, backing_store: WorkerBackingStore) -> _Working:
        settings, service, gauges = self._settings, self._service, Gauges(self._metrics)
        settings.state_dir.mkdir(parents=True, exist_ok=True)
        failpoints = Failpoints(settings.failpoint)
        transactions = Transactions(
            settings.kafka.brokers,
            f"{found.group}-{settings.instance_id}",
            settings.transaction_timeout_seconds,
            found.naming,
            failpoints,
        )
        memory = store_memory(settings.state_cache_bytes, settings.state_buffer_bytes)
        flusher = backing_store.flusher

        def plan(partition: int) -> Plan:
            return found.restore_plan(partition, flusher)

        dependencies = AssignedTasksDependencies(
            plan=plan,
            memory=memory,
            gauges=gauges,
            directory=settings.state_dir / found.stage,
            keep_seconds=settings.state_keep_seconds,
            standbys=Standbys(plan, memory, gauges),
            replicas=settings.standby_replicas,
            flusher=flusher,
            lazy_restore=backing_store.lazy_restore,
            wake=self._wake,
            crash=self._crash,
            failpoints=failpoints,
        )
        assigned_tasks = AssignedTasks(service, dependencies)
        limits = Limits(settings.unit_max_records, settings.switch_keys_per_unit, settings.timers_per_unit)
        batches = Batches(limits, service.processor.adopt_plan)
        group = Group(found)
        runner_dependencies = RunnerDependencies(assigned_tasks, batches, transactions, flusher, gauges, failpoints)
        runner = Runner(runner_dependencies, group.regulate, settings.session_timeout_seconds + settings.rebalance_timeout_seconds)
        group.connect(assigned_tasks, runner, self._crash)
        sources = self._sources(found, assigned_tasks)
        return _Working(transactions, assigned_tasks, runner, group, backing_store, gauges, memory, sources)

    def _sources(self, found: Installation, assigned_tasks: AssignedTasks[Any]) -> SourceFollower | None:
        """Return the follower of the low watermarks; None for a service whose inputs have none."""
        if found.watermark_codec is None:
            return None
        followed = SourceFollowerDependencies(assigned_tasks.tasks, self._wake, self._crash)
        service = self._service
        return SourceFollower(self._settings.kafka.brokers, found.watermark_codec, service.sourced, service.hold_ms, followed)

    async def _begin(self, transactions: Transactions) -> bool:
        """Fence the former producer; return False if stopped while the broker does not respond."""
        begun = asyncio.get_running_loop().run_in_executor(None, transactions.begin)
        stopped: asyncio.Task[Any] = asyncio.create_task(self._stop.wait())
        either: set[asyncio.Future[Any]] = {begun, stopped}
        await asyncio.wait(either, return_when=asyncio.FIRST_COMPLETED)
        if not begun.done():
            transactions.leave()
            await asyncio.wait({begun})
            return False
        stopped.cancel()
        await begun
        return True

    async def _work(self, working: _Working) -> int:
        """Join the group and work until stopped or broken; return the exit code."""
        app = working.group.app
        if working.sources is not None:
            working.sources.start()
        begun = asyncio.create_task(_begin_app(app))
        batches = asyncio.create_task(working.runner.run())
        samples = asyncio.create_task(_sample_metrics(working))
        collections = asyncio.create_task(_collect_garbage())
        stopped: asyncio.Task[Any] = asyncio.create_task(self._stop.wait())
        crashed: asyncio.Task[Any] = asyncio.create_task(app.wait_until_stopped())
        waited: set[asyncio.Future[Any]] = {begun, batches, samples, stopped, crashed, self._broken}
        done, _ = await asyncio.wait(waited, return_when=asyncio.FIRST_COMPLETED)
        for task in done - {stopped}:
            if task.exception() is not None:
                log(__name__).error("worker_failed", exc_info=task.exception())
        if crashed in done:
            log(__name__).error("faust_stopped", reason=str(app.crash_reason))
        for task in (begun, samples, collections, stopped, crashed):
            task.cancel()
        ok = await self._leave(working, batches)
        return 0 if ok and done == {stopped} else 1

    async def _leave(self, working: _Working, batches: "asyncio.Task[None]") -> bool:
        """Await the last commit, close the stores, leave the group. Returns False if the last batch was not committed."""
        if working.sources is not None:
            working.sources.stop()
        leave_later = asyncio.get_running_loop().call_later(_LEAVE_SECONDS, working.transactions.leave)
        ok = True
        try:
            await working.runner.stop()
            await batches
        except Exception:  # noqa: BLE001 - it stops anyway, and the batch was not committed
            log(__name__).exception("last_batch_not_committed")
            ok = False
        finally:
            leave_later.cancel()
        if ok and self._leaves_group:
            await _leave_group(working.group)
        await working.assigned_tasks.close()
        await asyncio.get_running_loop().run_in_executor(None, working.backing_store.close)
        working.transactions.close()
        # All states are stored and flushed. Faust's stop can outlive its cancellation after an outage of the broker.
        faulthandler.dump_traceback_later(2 * _LEAVE_SECONDS, exit=True)
        try:
            await asyncio.wait_for(working.group.app.stop(), _LEAVE_SECONDS)
        except TimeoutError:
            log(__name__).warning("faust_slow_to_stop")
        return ok

    def _stop_and_leave(self) -> None:
        self._leaves_group = True
        self._stop.set()

    def _alive(self) -> Mapping[str, str | None]:
        working = self._working
        # While a transaction waits for the broker its calls return and are repeated.
        last = None if working is None else max(working.runner.last_turn, working.transactions.returned_at)
        silent = 0.0 if last is None else monotonic() - last
        partition, waited = (-1, 0.0) if working is None else working.runner.silent_history()
        return {
            "batches": f"none for {silent:.0f} s" if silent > _SILENT_SECONDS else None,
            "history": None if waited < _SILENT_SECONDS else f"partition {partition}: no records for {waited:.0f} s",
            "group": None if self._group_requests is None else self._group_requests.problem,
        }

    def _ready(self) -> Mapping[str, str | None]:
        working = self._working
        if working is None or not working.group.assigned or working.runner.fenced:
            beginning = self._beginning
            return {"group": "no assignment yet", "transactions": None if beginning is None else beginning.problem}
        waiting = [task.partition for task in working.assigned_tasks.tasks() if task.phase is not Phase.RUNNING]
        refused = working.assigned_tasks.refusals()
        return {
            "group": None,
            "tasks": f"partitions {waiting} are not running yet" if waiting else None,
            "offsets": "; ".join(f"partition {number}: {why}" for number, why in refused.items()) or None,
        }

    def _wake(self) -> None:
        if self._working is not None:
            self._working.runner.wake()

    def _crash(self, cause: BaseException) -> None:
        if not self._broken.done():
            self._broken.set_exception(cause)

    def _crash_from_thread(self, cause: BaseException) -> None:
        self._loop.call_soon_threadsafe(self._crash, cause)


async def _begin_app(app: faust.App) -> None:
    """Start Faust's app; ends only with an error. The start waits for the first assignment, and so for the broker."""
    await app.start()
    await asyncio.Event().wait()


async def _leave_group(group: Group) -> None:
    """Leave after the last batch: the others continue while this process still flushes and closes its stores."""
    try:
        await asyncio.wait_for(group.leave(), _LEAVE_SECONDS)
        log(__name__).info("group_left")
    except TimeoutError:
        log(__name__).warning("group_not_left", error="the broker does not respond: the partitions move when the session ends")


async def _collect_garbage() -> None:
    """Collect reference cycles once a minute: automatic collection is off. The fold pauses meanwhile."""
    while True:
        await asyncio.sleep(_GC_SECONDS)
        gc.collect()


async def _sample_metrics(working: _Working) -> None:
    """Set the metrics that are sampled every few seconds rather than in every batch."""
    while True:
        if working.sources is not None:
            working.gauges.sources(working.sources.sources.behind_seconds())
        working.gauges.sampled(working.group.lags(), working.memory.cache_reads())
        await asyncio.sleep(_SAMPLE_SECONDS)


def _tune_interpreter() -> None:
    """Set two options of the interpreter that speed up the hot path; measured on the segmenter's benchmark."""
    # Records and states have no cycles, and the collector scanned everything that was read ahead again and again. Medians of three,
    # minutes apart: 26.7k events/s when it ran after a million new objects, 29.5k and 27.9k without it. The few cycles of other
    # code are collected once a minute.
    gc.collect()
    gc.freeze()
    gc.disable()
    # Threads share the interpreter: after a blocking call a thread waits for its turn, by default up to 5 ms. That cost a fifth
    # while the commit thread encoded the batch (5 ms 26.9k events/s, 0.2 ms 31.2k). Since the fold does that it costs nothing
    # measurable (26.7k both), but the consumer, the health check and the commit still get their turn sooner.
    sys.setswitchinterval(0.0002)
