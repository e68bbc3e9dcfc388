"""Core: takes requests into lanes, sends them as slots become free, and determines the step after each attempt."""

import asyncio
import random
import time
from collections.abc import Iterable
from typing import Final, NamedTuple, TypeGuard

from starling_common.telemetry.logs import log
from starling_common.telemetry.metrics import Metrics
from starling_common.time.instants import wall_clock_ms
from starling_delivery.batches import after_batch, is_refusal, limited
from starling_delivery.channel import Again, Answer, Bounced, Channel, Delivered, Gone, Impossible, Message, Park, Unknown
from starling_delivery.item import Item
from starling_delivery.policy import TARGET_DISABLED, Request, Schedule, Step, delayed
from starling_delivery.sending.circuit import Circuits
from starling_delivery.sending.destinations import Destination, Destinations
from starling_delivery.sending.lane import Batch
from starling_delivery.sending.lanes import Admission, Lanes
from starling_delivery.sending.results import CIRCUIT_OPEN, SECRET_UNREADABLE, SLOW, SLOW_TARGET, Results, Steps
from starling_delivery.sending.semantics import AtLeastOnce, Attempted, Lost, Semantics

_CHECK_SECONDS: Final = 0.05
_LONGEST_PAUSE_SECONDS: Final = 3600.0
_BURST: Final = 16
_TURNS: Final = 4
"""So many attempts of one task follow one another before the event loop turns, if the channel never waits."""

_PACE_SECONDS: Final = 0.5
"""How long a wait for the rate goes on before the end of the process is considered."""


class Traffic(NamedTuple):
    """What decides whether a message may be sent now, and what an attempt is."""

    lanes: Lanes
    circuits: Circuits
    semantics: Semantics = AtLeastOnce()


class Dispatcher:
    """Sends requests through one channel: concurrently, but sequentially for each user and target.

    A message of a target with an open circuit, or of a slow one whose lane is full, is postponed: it goes to a tier of retries
    without an attempt. So no target delays the messages of others.

    A target with batches gets several messages in one attempt. If its endpoint refuses one, the halves of the batch are sent, and
    so on: one message that it refuses costs the others nothing but these requests.
    """

    def __init__(
        self, channel: Channel, targets: Destinations, schedule: Schedule, traffic: Traffic, steps: Steps, metrics: Metrics
    ) -> None:
        """`steps`: where the results are published."""
        self._channel = channel
        self._targets = targets
        self._schedule = schedule
        self._lanes = traffic.lanes
        self._circuits = traffic.circuits
        self._semantics = traffic.semantics
        self._steps = steps
        self._attempts: asyncio.TaskGroup | None = None
        self._running = 0
        self._ended = asyncio.Event()
        self._ended.set()
        self._stopping = False
        self._in_burst = False
        self._unreadable: dict[tuple[str, str], int] = {}
        """(workspace, key) -> the version whose unreadable secret is logged."""
        self._wake: asyncio.TimerHandle | None = None
        self._attempt_seconds = metrics.histogram("starling_delivery_attempt_seconds").labels(channel.name)
        self._results = Results(channel.name, schedule, traffic.lanes, steps, metrics)
        self._waiting_messages = metrics.gauge("starling_delivery_waiting_messages").labels(channel.name)
        self._open_circuits = metrics.gauge("starling_delivery_open_circuits").labels(channel.name)

    async def run(self, stopping: asyncio.Event) -> None:
        """Send until `stopping` is set, then complete the attempts in progress. Raises: BrokerUnavailable, in a group."""
        async with asyncio.TaskGroup() as attempts:
            self._attempts = attempts
            try:
                self._start()
                while not stopping.is_set():
                    self._steps.check()
                    self._look_after()
                    await asyncio.sleep(_CHECK_SECONDS)
            finally:
                # After a failure too: the group cancels its attempts, but none that begins while they end.
                self._stopping = True
        if self._wake is not None:
            self._wake.cancel()

    async def drained(self) -> None:
        """Return when no attempt is in progress."""
        self._stopping = True
        await self._ended.wait()

    def offer(self, item: Item) -> bool:
        """Take a request. Return False if it must be offered again: its lane is full, and has room soon."""
        target = self._targets.find(item.workspace, item.target)
        if target is None or _gets_nothing(target, item.request):
            self._results.publish(item, _unsent(target, item.request))
            return True
        now = time.monotonic()
        if self._is_postponed(item, target, now):
            return True
        item.batching, item.rate = target.batching, target.rate
        admission = self._lanes.admission(item, now)
        if admission is Admission.HOLD:
            return False
        if admission is Admission.ENTER:
            item.is_probe = self._circuits.of(target).begin_attempt(now)
            self._lanes.add(item, now)
            self._start()
        elif admission is Admission.RATED:
            self._results.postpone_rated(item, now)
        elif admission is Admission.SLOW:
            self._results.postpone_slow(item, now)
        else:
            self._results.postpone(item, SLOW, SLOW_TARGET)
        return True

    def _is_postponed(self, item: Item, target: Destination, now: float) -> bool:
        """Postpone a message that its target cannot get now, whatever is in its lane. Return whether it was."""
        circuit = self._circuits.of(target)
        if target.problem is not None:
            self._postpone_unreadable([item], target)
        elif circuit.paused_seconds(now):
            self._results.postpone_paused([item], circuit)
        elif not circuit.admits(now):
            self._results.postpone(item, circuit.reason, CIRCUIT_OPEN)
        else:
            return False
        return True

    def delay(self, item: Item) -> None:
        """Store a retry in a tier until it is due."""
        self._results.publish(item, delayed(item.request, self._schedule, wall_clock_ms()))

    def _start(self) -> None:
        """Begin attempts while slots are free. The event loop takes turns after each burst, so that others do not wait for many."""
        if self._attempts is None or self._stopping or self._in_burst:
            return
        for _ in range(_BURST):
            batch = self._lanes.take(time.monotonic())
            if batch is None:
                self._continue_later()
                return
            self._running += 1
            self._ended.clear()
            self._attempts.create_task(self._attempts_from(batch))
        self._in_burst = True
        asyncio.get_running_loop().call_soon(self._continue)

    def _continue(self) -> None:
        self._in_burst = False
        self._start()

    def _continue_later(self) -> None:
        """Begin the next attempt of a target that gathers messages when it is due."""
        at = self._lanes.next_at()
        if self._wake is not None:
            if self._wake.when() == at:
                return
            self._wake.cancel()
            self._wake = None
        if at is not None:
            self._wake = asyncio.get_running_loop().call_at(at, self._start)

    async def _attempts_from(self, batch: Batch) -> None:
        """Send a batch, and then others while any is due: a task for each attempt would cost more than the lanes do."""
        following: Batch | None = batch
        turns = 0
        try:
            while following is not None:
                try:
                    await self._send(following)
                finally:
                    self._lanes.finish(following, time.monotonic())
                turns += 1
                if turns % _TURNS == 0:
                    await asyncio.sleep(0)
                following = None if self._stopping else self._lanes.take(time.monotonic())
                self._start()  # the slot may be worth more than one attempt to others
        finally:
            self._running -= 1
            if not self._running:
                self._ended.set()

    async def _send(self, batch: Batch) -> None:
        """Send a batch, or its halves if it is refused, and so on. Publish the step of each message."""
        parts = [batch]
        while parts:
            part = parts.pop()
            if self._stopping and part is not batch:
                return  # their records are not committed, so the next process sends them
            target = self._targets.find(part[0].workspace, part[0].target)
            if target is None or _gets_nothing(target, part[0].request):
                self._results.publish_all(part, _unsent(target, part[0].request))
                continue
            if target.problem is not None:
                self._postpone_unreadable(part, target)
                continue
            circuit = self._circuits.of(target)
            if circuit.paused_seconds(time.monotonic()):
                self._results.postpone_paused(part, circuit)
                continue
            if part is not batch and circuit.is_open:
                for item in part:
                    item.request = limited(item.request, len(part))
                    self._results.postpone(item, circuit.reason, CIRCUIT_OPEN)
                continue
            if part is not batch and not await self._paced(part[0]):
                return
            attempted = await self._answer(target, part)
            if attempted is None:
                middle = (len(part) + 1) // 2
                parts += [part[middle:], part[:middle]]
            else:
                await self._complete(part, attempted)

    async def _paced(self, item: Item) -> bool:
        """Wait until the rate of the target allows a further request. Return False if the process ends before."""
        seconds = self._lanes.pace(item, time.monotonic())
        while seconds > 0 and not self._stopping:
            await asyncio.sleep(min(seconds, _PACE_SECONDS))
            seconds -= _PACE_SECONDS
        return not self._stopping or seconds <= 0

    async def _complete(self, part: Batch, attempted: Attempted) -> None:
        """Publish what became of the messages of an attempt."""
        match attempted:
            case Step():
                self._results.publish_all(part, attempted)
            case Park(why, reason):
                for item in part:
                    self._results.postpone(item, why, reason)
            case Lost.LOST:
                for item in part:
                    self._lanes.settle(item)
            case _:
                stored = [_when_stored(item) for item in part] if self._semantics.awaits_outcome else []
                self._publish_answer(part, attempted)
                for event in stored:
                    await event.wait()

    async def _answer(self, target: Destination, part: Batch) -> Attempted | None:
        """Make one attempt. Return None if a single message may be the reason why all of them were refused."""
        begun = time.monotonic()
        try:
            answer = await self._attempted(part)
        except Exception as error:  # noqa: BLE001 - a failing message must not stop the delivery of others
            if len(part) > 1:
                return None
            delivery_id = part[0].request["delivery_id"]
            log(__name__).exception("channel_failed", channel=self._channel.name, delivery_id=delivery_id)
            answer = Impossible(f"the channel failed with {type(error).__name__}: {error}")
        _raise_swallowed_cancellation()
        if isinstance(answer, Step | Park | Lost):
            return answer
        self._attempt_seconds.observe(time.monotonic() - begun)
        if len(part) > 1 and is_refusal(answer):
            return None
        self._count_attempt(target, answer, part)
        return answer

    async def _attempted(self, part: Batch) -> Attempted:
        if not self._semantics.awaits_outcome:
            return await self._semantics.attempt(part, self._channel.send)

        async def send(message: Message) -> Answer:
            self._lanes.run_clock(part, time.monotonic())
            try:
                return await self._channel.send(message)
            finally:
                self._lanes.stop_clock(part, time.monotonic())

        # The transactions around the request are not the endpoint's time: a slow broker makes no target slow.
        self._lanes.stop_clock(part, time.monotonic())
        return await self._semantics.attempt(part, send)

    def _publish_answer(self, part: Batch, answer: Answer) -> None:
        # The messages of a batch are due together again, so that they can be a batch again.
        now_ms, jitter = wall_clock_ms(), random.random()  # noqa: S311 - not used for security
        for item in part:
            request = item.request if item.batching is None else after_batch(item.request, answer, len(part))
            self._results.publish(item, self._semantics.after(request, answer, self._schedule, now_ms, jitter))

    def _count_attempt(self, target: Destination, answer: Answer, part: Batch) -> None:
        """Count the attempt in the target's circuit. An impossible message is no failure of its target, and a pause neither."""
        # Looked up again: without a failure, the circuit from before the attempt may be forgotten.
        circuit = self._circuits.of(target)
        if isinstance(answer, Delivered | Gone | Bounced):
            if circuit.is_open:
                log(__name__).info("circuit_closed", workspace=target.workspace, target=target.key)
            circuit.succeeded()
        elif isinstance(answer, Again) and answer.is_of_target and answer.status_code == 429 and answer.retry_after_seconds:
            now = time.monotonic()
            circuit.pause(now + min(answer.retry_after_seconds, _LONGEST_PAUSE_SECONDS))
            log(__name__).info(
                "target_paused", workspace=target.workspace, target=target.key, seconds=round(answer.retry_after_seconds)
            )
            self._results.postpone_paused(self._lanes.drain(target.workspace, target.key, now), circuit)
        elif _is_failure_of_target(answer) and circuit.failed(time.monotonic(), probe=any(item.is_probe for item in part)):
            log(__name__).warning("circuit_opened", workspace=target.workspace, target=target.key, error=answer.why)
            for item in self._lanes.drain(target.workspace, target.key, time.monotonic()):
                self._results.postpone(item, circuit.reason, CIRCUIT_OPEN)

    def _postpone_unreadable(self, items: Iterable[Item], target: Destination) -> None:
        """Postpone messages that cannot be signed. They are sent by a process that has the key, or after a new secret."""
        if self._unreadable.get((target.workspace, target.key)) != target.version:
            self._unreadable[target.workspace, target.key] = target.version
            log(__name__).error("secret_unreadable", workspace=target.workspace, target=target.key, error=target.problem)
        for item in items:
            self._results.postpone(item, f"a secret cannot be decrypted: {target.problem}", SECRET_UNREADABLE)

    def _look_after(self) -> None:
        now = time.monotonic()
        for item in self._lanes.shed(now):
            self._results.postpone_slow(item, now)
        self._lanes.forget_idle(now)
        self._forget_circuits()
        self._waiting_messages.set(len(self._lanes))

    def _forget_circuits(self) -> None:
        self._circuits.forget_new(time.monotonic())
        for workspace, key in list(self._circuits.open_keys()):
            target = self._targets.find(workspace, key)
            if target is None or target.disabled:
                self._circuits.forget(workspace, key)
        self._open_circuits.set(sum(1 for _ in self._circuits.open_keys()))


def _raise_swallowed_cancellation() -> None:
    """End an attempt that was cancelled and got an answer all the same: its outcome is never stored, and it would wait for it.

    `asyncio.wait_for` of Python 3.11 returns a result that arrives with the cancellation, and the library of SMTP uses it.
    """
    task = asyncio.current_task()
    if task is not None and task.cancelling():
        raise asyncio.CancelledError


def _when_stored(item: Item) -> asyncio.Event:
    """Return an event that is set when the records of the item's step are stored."""
    event, settled = asyncio.Event(), item.settled

    def stored() -> None:
        settled()
        event.set()

    item.settled = stored
    return event


def _is_failure_of_target(answer: Answer) -> TypeGuard[Again | Unknown]:
    return isinstance(answer, Unknown | Again) and answer.is_of_target


def _gets_nothing(target: Destination, request: Request) -> bool:
    """Return whether a target is disabled for a message. A test reaches it, as the test of a webhook does."""
    return target.disabled and not request.get("is_test")


def _unsent(target: Destination | None, request: Request) -> Step:
    """Return what becomes of a message whose target is archived (None) or disabled."""
    if target is None:
        return Step("SUPPRESSED", "the target is archived")
    return Step("SUPPRESSED", "the target is disabled") if request.get("campaign") is None else Step("FAILED", TARGET_DISABLED)
