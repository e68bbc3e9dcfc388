"""Edge: a stateful service as a worker process. `run_service` is all that a service's `__main__` calls."""

import asyncio
import faulthandler
import gc
import logging
import sys
from collections.abc import Mapping
from signal import SIGINT, SIGTERM, SIGUSR1
from time import monotonic
from typing import Any, Final, NamedTuple

import faust
import uvloop

from starling_common.health import HealthServer
from starling_common.logs import configure_logs, log
from starling_common.metrics import Metrics
from starling_common.wire import RegistryUnavailable, SchemaMissing
from starling_stream.fold.batches import Limits, Rounds
from starling_stream.kafka.transactions import Transactions
from starling_stream.model.failpoints import Failpoints
from starling_stream.model.phase import Phase
from starling_stream.model.processor import Service
from starling_stream.model.records import all_topics
from starling_stream.model.settings import StreamSettings
from starling_stream.state.flusher import FactsDiffer, Surroundings
from starling_stream.state.local_store import StoreMemory, store_memory
from starling_stream.state.metrics import Gauges, TierGauges
from starling_stream.state.restore import Plan
from starling_stream.state.standby import Standbys
from starling_stream.worker.arenas import share_arenas
from starling_stream.worker.assigned_tasks import Holdings, Means
from starling_stream.worker.backing import SecondTier
from starling_stream.worker.group import Group
from starling_stream.worker.installation import CannotStart, Installation, look_up
from starling_stream.worker.runner import Parts, Runner

_SILENT_SECONDS: Final = 300.0
"""A worker whose loop has not turned for so long hangs; longer than any wait for the broker that ends well."""

_SWEEP_SECONDS: Final = 60.0
_LOOK_SECONDS: Final = 2.0

_LEAVE_SECONDS: Final = 10.0
"""A worker that is told to stop and cannot reach the broker leaves after this; nothing is lost by it."""


def run_service(service: Service[Any], settings: StreamSettings) -> int:
    """Run until SIGTERM or SIGINT, or SIGUSR1, which leaves the group for good as well.

    Returns the exit code: 0 after a graceful stop, 1 when something broke.
    After a 1 the supervisor is to start the process again: nothing of an unfinished round has happened.
    """
    share_arenas()  # for services that start no thread before this
    configure_logs(service.stage, settings.log_level)
    if settings.log_level == "INFO":
        for chatty in ("faust", "mode", "aiokafka"):
            logging.getLogger(chatty).setLevel(logging.WARNING)
    try:
        return uvloop.run(_Life(service, settings).live())
    except (CannotStart, FactsDiffer, RegistryUnavailable, SchemaMissing) as cause:
        log(__name__).error("cannot_start", error=str(cause))
        return 1


class _Working(NamedTuple):
    """The parts of a worker that has begun."""

    transactions: Transactions
    holdings: Holdings[Any]
    runner: Runner
    group: Group
    second: SecondTier
    gauges: Gauges
    memory: StoreMemory


class _Life:
    """One process from its start to its end: puts the parts together, and takes them apart in the right order."""

    def __init__(self, service: Service[Any], settings: StreamSettings) -> None:
        self._service = service
        self._settings = settings
        self._metrics = Metrics()
        self._stop = asyncio.Event()
        self._for_good = settings.leave_group
        """Whether the group is left with the stop. A worker that comes back soon stays a member, and keeps its partitions."""
        self._loop: asyncio.AbstractEventLoop
        self._broken: asyncio.Future[None]
        self._working: _Working | None = None

    async def live(self) -> int:
        """The whole life; returns the exit code."""
        loop = self._loop = asyncio.get_running_loop()
        self._broken = loop.create_future()
        for number in (SIGTERM, SIGINT):
            loop.add_signal_handler(number, self._stop.set)
        loop.add_signal_handler(SIGUSR1, self._stop_for_good)
        _tune_interpreter()
        http = self._settings.http
        health = HealthServer((http.host, http.port), self._metrics.registry, alive=self._alive, ready=self._ready)
        health.start()
        try:
            topics = all_topics(self._service)
            found = await loop.run_in_executor(None, look_up, self._service.stage, topics, self._settings)
            second = self._second(found)
            await loop.run_in_executor(None, second.start)
            working = self._put_together(found, second)
            if not await self._begin(working.transactions):
                return 0
            self._working = working
            return await self._work(working)
        finally:
            health.stop()

    def _second(self, found: Installation) -> "SecondTier":
        around = Surroundings(TierGauges(self._metrics), Failpoints(self._settings.failpoint), self._crash_from_thread)
        return SecondTier(found, self._settings, around, self._wake)

    def _put_together(self, found: Installation, second: SecondTier) -> _Working:
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
        tier = second.tier

        def plan(partition: int) -> Plan:
            return found.restore_plan(partition, tier)

        means = Means(
            plan=plan,
            memory=memory,
            gauges=gauges,
            directory=settings.state_dir / found.stage,
            keep_seconds=settings.state_keep_seconds,
            standbys=Standbys(plan, memory, gauges),
            replicas=settings.standby_replicas,
            tier=tier,
            warming=second.warming,
            wake=self._wake,
            crash=self._crash,
        )
        holdings = Holdings(service, means)
        rounds = Rounds(
            Limits(settings.unit_max_records, settings.switch_keys_per_unit, settings.timers_per_unit), service.processor.adopt_plan
        )
        group = Group(found)
        parts = Parts(holdings, rounds, transactions, tier, gauges, failpoints)
        runner = Runner(parts, group.regulate, settings.session_timeout_seconds + settings.rebalance_timeout_seconds)
        group.connect(holdings, runner, self._crash)
        return _Working(transactions, holdings, runner, group, second, gauges, memory)

    async def _begin(self, transactions: Transactions) -> bool:
        """Fence our predecessor; False when told to stop while the broker does not answer."""
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
        """From joining the group until told to stop or broken."""
        app = working.group.app
        begun = asyncio.create_task(_begin_app(app))
        rounds = asyncio.create_task(working.runner.run())
        looks = asyncio.create_task(_look(working))
        sweeps = asyncio.create_task(_sweep())
        stopped: asyncio.Task[Any] = asyncio.create_task(self._stop.wait())
        crashed: asyncio.Task[Any] = asyncio.create_task(app.wait_until_stopped())
        waited: set[asyncio.Future[Any]] = {begun, rounds, looks, stopped, crashed, self._broken}
        done, _ = await asyncio.wait(waited, return_when=asyncio.FIRST_COMPLETED)
        for task in done - {stopped}:
            if task.exception() is not None:
                log(__name__).error("worker_broke", exc_info=task.exception())
        if crashed in done:
            log(__name__).error("faust_stopped", reason=str(app.crash_reason))
        for task in (begun, looks, sweeps, stopped, crashed):
            task.cancel()
        well = await self._leave(working, rounds)
        return 0 if well and done == {stopped} else 1

    async def _leave(self, working: _Working, rounds: "asyncio.Task[None]") -> bool:
        """Finish the round on its way, close the stores, leave the group. False when the round could not be finished."""
        hurry = asyncio.get_running_loop().call_later(_LEAVE_SECONDS, working.transactions.leave)
        well = True
        try:
            await working.runner.stop()
            await rounds
        except Exception:  # noqa: BLE001 - it is leaving anyway, and an unfinished round has not happened
            log(__name__).exception("last_round_lost")
            well = False
        finally:
            hurry.cancel()
        if well and self._for_good:
            await _leave_group(working.group)
        await working.holdings.close()
        await asyncio.get_running_loop().run_in_executor(None, working.second.close)
        working.transactions.close()
        # All is stored and given back by now. Faust's stop can outlive its cancellation after an outage of the broker.
        faulthandler.dump_traceback_later(2 * _LEAVE_SECONDS, exit=True)
        try:
            await asyncio.wait_for(working.group.app.stop(), _LEAVE_SECONDS)
        except TimeoutError:
            log(__name__).warning("faust_slow_to_stop")
        return well

    def _stop_for_good(self) -> None:
        self._for_good = True
        self._stop.set()

    def _alive(self) -> Mapping[str, str | None]:
        silent = 0.0 if self._working is None else monotonic() - self._working.runner.last_turn
        return {"rounds": f"none for {silent:.0f} s" if silent > _SILENT_SECONDS else None}

    def _ready(self) -> Mapping[str, str | None]:
        working = self._working
        if working is None or not working.group.assigned or working.runner.fenced:
            return {"group": "no assignment yet"}
        waiting = [task.partition for task in working.holdings.tasks() if task.phase is not Phase.RUNNING]
        return {"group": None, "tasks": f"partitions {waiting} are not running yet" if waiting else None}

    def _wake(self) -> None:
        if self._working is not None:
            self._working.runner.wake()

    def _crash(self, cause: BaseException) -> None:
        if not self._broken.done():
            self._broken.set_exception(cause)

    def _crash_from_thread(self, cause: BaseException) -> None:
        self._loop.call_soon_threadsafe(self._crash, cause)


async def _begin_app(app: faust.App) -> None:
    """Ends only when that fails. Faust's start comes back with the first assignment, and a broker that went away gives none."""
    await app.start()
    await asyncio.Event().wait()


async def _leave_group(group: Group) -> None:
    """Once the last round is done: the others go on from there while this process still flushes and closes its stores."""
    try:
        await asyncio.wait_for(group.leave(), _LEAVE_SECONDS)
        log(__name__).info("group_left")
    except TimeoutError:
        log(__name__).warning("group_not_left", error="the broker does not answer: the partitions move when the session is over")


async def _sweep() -> None:
    """Look for cycles now and then, see `_tune_interpreter`. The fold stands still meanwhile."""
    while True:
        await asyncio.sleep(_SWEEP_SECONDS)
        gc.collect()


async def _look(working: _Working) -> None:
    """Tell what is looked at now and then rather than in every round."""
    while True:
        working.gauges.looked(working.group.lags(), working.memory.cache_reads())
        await asyncio.sleep(_LOOK_SECONDS)


def _tune_interpreter() -> None:
    """Two settings of the interpreter that the hot path gains from; measured on the segmenter's benchmark."""
    # What records become has no cycles, and whatever is read ahead was looked through again and again for some. Medians of three,
    # minutes apart: 26.7k events/s when it ran after a million new objects, 29.5k and 27.9k without it. The few cycles of others
    # are looked for once a minute.
    gc.collect()
    gc.freeze()
    gc.disable()
    # Threads share the interpreter; one that comes back from a call waits for its turn, by default up to 5 ms. That cost a fifth
    # while the commit thread wrote out the round (5 ms 26.9k events/s, 0.2 ms 31.2k); since the fold does that it costs nothing
    # that could be measured (26.7k both), but the consumer, the health check and the commit still get their turn sooner.
    sys.setswitchinterval(0.0002)
