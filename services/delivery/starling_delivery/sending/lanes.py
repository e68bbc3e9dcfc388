"""Pure core: the lanes of all targets: which of their messages is sent next.

Attempts and memory are shares of a workspace and, within it, of a target. Workspaces take turns, and so do the targets of one.
Messages of one user to one target are sent in order, one after another. A target with batches gathers messages: an attempt sends
several of them, also of one user. A target with a rate begins an attempt for each token of its bucket.

The requests of broadcasts, which are bulk, have a half of the room of a lane. They are sent when no other message waits there, and
each fifth message is one of them.
"""

import heapq
from collections import defaultdict, deque
from collections.abc import Iterator
from dataclasses import dataclass, field
from enum import Enum
from typing import Final

from starling_common.shares import Shares
from starling_delivery.item import Item
from starling_delivery.sending.lane import LEAST_WAIT_SECONDS, Batch, Lane
from starling_delivery.sending.rates import Bucket, Rates

_SHARE_OF_TARGET: Final = 4
"""The divisor of the slots that one target alone may use."""

_ROOM_OF_BULK: Final = 2
"""The divisor of the room and of the memory that bulk messages may use."""


class Admission(Enum):
    """What becomes of a message: it enters its lane, waits outside for a moment, or is postponed, SLOW and RATED until its turn."""

    ENTER = "enter"
    HOLD = "hold"
    POSTPONE = "postpone"
    SLOW = "slow"
    RATED = "rated"


@dataclass(eq=False)
class _Workspace:
    lanes: dict[str, Lane] = field(default_factory=lambda: defaultdict(Lane))
    turns: deque[tuple[str, Lane]] = field(default_factory=deque)
    """The lanes with a ready user, the next one first."""
    in_turn: bool = False


class Lanes:
    """The messages in memory by workspace and target. `take` decides which attempt begins next."""

    def __init__(self, slots: int, memory_bytes: int, lane_messages: int, rates: Rates | None = None) -> None:
        """`slots`: concurrent attempts. `lane_messages`: waiting messages of one lane. `memory_bytes`: of all messages.

        `rates`: the buckets of targets with a rate; None: without a limit.
        """
        self._rates = rates
        self._slots = Shares(slots)
        self._slots_of_target = max(1, slots // _SHARE_OF_TARGET)
        self._memory = Shares(memory_bytes)
        self._bulk_memory = Shares(memory_bytes // _ROOM_OF_BULK)
        self._lane_messages = lane_messages
        self._workspaces: dict[str, _Workspace] = defaultdict(_Workspace)
        self._turns: deque[_Workspace] = deque()
        self._gathering: list[tuple[float, int, _Workspace, str, Lane]] = []
        """Heap of the lanes whose next attempt is due later, by that time. The number is unique."""
        self._added = 0
        self._looks = 0

    def __len__(self) -> int:
        return sum(lane.messages for _, lane in self._all())

    def admission(self, item: Item, now: float) -> Admission:
        """Return whether a message may enter its lane.

        A full lane of a prompt endpoint has room soon: the message and those after it in its partition wait for that. A full lane
        of a slow endpoint must not delay others: the message is postponed until its turn by the throughput of the endpoint. That
        of a workspace with more messages than its share is postponed too. A target with a rate has messages for a few seconds in
        its lane, at most a half of them new ones. Others are postponed until their turn. Bulk messages have a half of the room, so
        that they never fill a lane for other messages.
        """
        workspace = self._workspaces.get(item.workspace)
        lane = workspace.lanes.get(item.target) if workspace else None
        part = _ROOM_OF_BULK if item.bulk else 1
        waiting = 0 if lane is None else lane.bulk_messages if item.bulk else lane.messages
        slow = lane is not None and lane.is_slow(now)
        if lane is not None and slow and waiting >= lane.slow_waiting // part:
            return Admission.SLOW
        bucket, most = self._bucket(item), self._lane_messages
        if bucket is not None:
            most = min(most, bucket.most_waiting * item.of_batch // (2 if item.tier is None else 1))
        if waiting < max(1, most // part) and self._has_memory(item):
            return Admission.ENTER
        if item.size_bytes > self._memory.free:
            return Admission.HOLD
        if bucket is not None:
            return Admission.RATED
        if slow:
            return Admission.SLOW
        return Admission.HOLD if waiting else Admission.POSTPONE

    def _has_memory(self, item: Item) -> bool:
        place = item.workspace, item.target, item.size_bytes
        return self._memory.may_take(*place) and (not item.bulk or self._bulk_memory.may_take(*place))

    def slow_seconds(self, item: Item, now: float) -> float:
        """Return the seconds until a message has its turn that is SLOW."""
        return self._workspaces[item.workspace].lanes[item.target].turn_seconds(now, self._slots_of_target)

    def turn_seconds(self, item: Item, now: float) -> float:
        """Return the seconds until a message has its turn that is RATED."""
        bucket = self._bucket(item)
        assert bucket is not None  # noqa: S101 - only then it is RATED
        waiting = self._workspaces[item.workspace].lanes[item.target].messages
        return bucket.turn_seconds(now, waiting / item.of_batch, 1 / item.of_batch)

    def pace(self, item: Item, now: float) -> float:
        """Count a further request of an attempt. Return the seconds until it may be sent."""
        bucket = self._bucket(item)
        if bucket is None:
            return 0.0
        bucket.take(now)
        return bucket.behind_seconds(now)

    def add(self, item: Item, now: float) -> None:
        """Put a message at the end of its lane."""
        self._added += 1
        item.sequence, item.since = self._added, now
        if item.batching is not None:
            item.body_bytes = len(item.request["payload"].encode(errors="replace")) + 1
        self._memory.take(item.workspace, item.target, item.size_bytes)
        if item.bulk:
            self._bulk_memory.take(item.workspace, item.target, item.size_bytes)
        workspace = self._workspaces[item.workspace]
        lane = workspace.lanes[item.target]
        lane.add(item, now)
        self._give_turn(workspace, item.target, lane, now)

    def take(self, now: float) -> Batch | None:
        """Return the messages whose attempt begins now. None: nothing is due, or no waiting message may use a slot."""
        self._end_gathering(now)
        for _ in range(len(self._turns) if self._slots.free > 0 else 0):
            workspace = self._turns[0]
            self._turns.rotate(-1)
            batch = self._next_of(workspace, now)
            if not workspace.turns:
                self._turns.pop()
                workspace.in_turn = False
            if batch is not None:
                return batch
        return None

    def next_at(self) -> float | None:
        """Return when `take` has a further message, if none is added before; None if a lane has to end an attempt first."""
        return self._gathering[0][0] if self._gathering else None

    def finish(self, batch: Batch, now: float) -> None:
        """Give back the slot of an ended attempt."""
        name, target = batch[0].workspace, batch[0].target
        self._slots.give_back(name, target)
        workspace = self._workspaces[name]
        lane = workspace.lanes[target]
        lane.finish(batch, now)
        self._give_turn(workspace, target, lane, now)

    def stop_clock(self, batch: Batch, now: float) -> None:
        """Begin a wait for the broker in an attempt: it is no time of the endpoint."""
        lane = self._lane_of(batch)
        lane.stopped[batch] = now - lane.running.pop(batch)

    def run_clock(self, batch: Batch, now: float) -> None:
        """End a wait for the broker in an attempt."""
        lane = self._lane_of(batch)
        lane.running[batch] = now - lane.stopped.pop(batch)

    def _lane_of(self, batch: Batch) -> Lane:
        return self._workspaces[batch[0].workspace].lanes[batch[0].target]

    def settle(self, item: Item) -> None:
        """Give back the memory of a message whose step is stored."""
        self._memory.give_back(item.workspace, item.target, item.size_bytes)
        if item.bulk:
            self._bulk_memory.give_back(item.workspace, item.target, item.size_bytes)

    def drain(self, workspace: str, target: str, now: float) -> list[Item]:
        """Remove and return all waiting messages of a target."""
        return self._workspaces[workspace].lanes[target].keep(0, now)

    def shed(self, now: float) -> list[Item]:
        """Remove and return the waiting messages of slow targets, except the first 64, or two batches, of each."""
        slow = [lane for _, lane in self._all() if lane.messages > lane.slow_waiting and lane.is_slow(now)]
        return [item for lane in slow for item in lane.keep(lane.slow_waiting, now)]

    def forget_idle(self, now: float) -> None:
        """Drop the lanes without messages, so that the memory is bounded by the number of targets in use."""
        if self._rates is not None:
            self._rates.forget_full(now)
        for workspace in self._workspaces.values():
            idle = [
                key
                for key, lane in workspace.lanes.items()
                if not (lane.messages or lane.running or lane.stopped or lane.in_turn or lane.gathers)
            ]
            for key in idle:
                del workspace.lanes[key]
        for name in [name for name, workspace in self._workspaces.items() if not (workspace.lanes or workspace.in_turn)]:
            del self._workspaces[name]

    def _next_of(self, workspace: _Workspace, now: float) -> Batch | None:
        for _ in range(len(workspace.turns)):
            target, lane = workspace.turns[0]
            workspace.turns.rotate(-1)
            batch = self._start(lane, target, now) if lane.is_due(now) else None
            if not lane.is_due(now):
                workspace.turns.pop()
                lane.in_turn = False
                self._gather(workspace, target, lane)
            if batch is not None:
                return batch
        return None

    def _start(self, lane: Lane, target: str, now: float) -> Batch | None:
        first = lane.waiting[lane.ready.next()][0]
        if not self._slots.may_take(first.workspace, target):
            return None
        bucket = self._bucket(first)
        if bucket is not None:
            if (seconds := bucket.wait(now)) > 0:
                lane.next_at = now + max(seconds, LEAST_WAIT_SECONDS)
                return None
            bucket.take(now)
        self._slots.take(first.workspace, target)
        return lane.start(now)

    def _bucket(self, item: Item) -> Bucket | None:
        return None if self._rates is None or item.rate is None else self._rates.of(item.workspace, item.target, item.rate)

    def _give_turn(self, workspace: _Workspace, target: str, lane: Lane, now: float) -> None:
        if lane.is_due(now):
            if not lane.in_turn:
                lane.in_turn = True
                workspace.turns.append((target, lane))
        else:
            self._gather(workspace, target, lane)
        if workspace.turns and not workspace.in_turn:
            workspace.in_turn = True
            self._turns.append(workspace)

    def _gather(self, workspace: _Workspace, target: str, lane: Lane) -> None:
        """Look at the lane again when its next attempt is due."""
        if lane.ready and not lane.gathers:
            lane.gathers = True
            self._looks += 1
            heapq.heappush(self._gathering, (lane.next_at, self._looks, workspace, target, lane))

    def _end_gathering(self, now: float) -> None:
        while self._gathering and self._gathering[0][0] <= now:
            _, _, workspace, target, lane = heapq.heappop(self._gathering)
            lane.gathers = False
            self._give_turn(workspace, target, lane, now)

    def _all(self) -> Iterator[tuple[str, Lane]]:
        for workspace in self._workspaces.values():
            yield from workspace.lanes.items()
