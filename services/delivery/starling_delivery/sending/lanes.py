"""Pure core: the lane of each target: its messages in memory, and which of them is sent next.

Attempts and memory are shares of a workspace and, within it, of a target. Workspaces take turns, and so do the targets of one.
Messages of one user to one target are sent in order, one after another.
"""

from collections import defaultdict, deque
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from enum import Enum
from typing import Final

from starling_delivery.policy import Request
from starling_delivery.shares import Shares

_SLOW_SECONDS: Final = 1.0
"""An endpoint is slow if its attempts take longer on average. It then has so many waiting messages at most:"""

_SLOW_WAITING: Final = 64

_HANGING_SECONDS: Final = 2.0
"""An endpoint is slow while an attempt has taken longer."""

_RECORD_BYTES: Final = 2_048
"""Memory of a request beside its payload."""


@dataclass(eq=False, slots=True)
class Item:
    """A request on its way. `settled` is called after the broker has acknowledged the records of its step.

    `tier` is the position of the tier it was read from; None if it was in none. `is_probe`: its attempt decides on an open circuit.
    """

    request: Request
    settled: Callable[[], None]
    tier: int | None = None
    due_ms: int = 0
    is_probe: bool = False
    size_bytes: int = 0
    sequence: int = 0

    def __post_init__(self) -> None:
        self.size_bytes = len(self.request["payload"]) + _RECORD_BYTES

    @property
    def workspace(self) -> str:
        """The workspace of the request."""
        return str(self.request["workspace"])

    @property
    def target(self) -> str:
        """The key of the target within its workspace."""
        return str(self.request["target_key"])


class Admission(Enum):
    """What becomes of a message: it enters its lane, waits outside for a moment, or is postponed."""

    ENTER = "enter"
    HOLD = "hold"
    POSTPONE = "postpone"


@dataclass(eq=False)
class _Lane:
    waiting: dict[str, deque[Item]] = field(default_factory=dict)
    """User -> messages that are not sent yet, in order."""
    ready: deque[str] = field(default_factory=deque)
    """The users with waiting messages and no attempt in progress."""
    running: dict[Item, float] = field(default_factory=dict)
    """Attempt in progress -> its start; the oldest is first."""
    busy: set[str] = field(default_factory=set)
    """The users of the attempts in progress."""
    messages: int = 0
    mean_seconds: float = 0.0
    in_turn: bool = False

    def is_slow(self, now: float) -> bool:
        """Whether waiting messages leave the lane too slowly for others to wait for them."""
        oldest = next(iter(self.running.values()), now)
        return self.mean_seconds > _SLOW_SECONDS or now - oldest > _HANGING_SECONDS

    def add(self, item: Item) -> None:
        user = item.request["user_id"]
        if user not in self.waiting:
            self.waiting[user] = deque()
            if user not in self.busy:
                self.ready.append(user)
        self.waiting[user].append(item)
        self.messages += 1

    def start(self, now: float) -> Item:
        user = self.ready.popleft()
        items = self.waiting[user]
        item = items.popleft()
        if not items:
            del self.waiting[user]
        self.busy.add(user)
        self.running[item] = now
        self.messages -= 1
        return item

    def finish(self, item: Item, now: float) -> None:
        user = item.request["user_id"]
        self.mean_seconds += 0.1 * (now - self.running.pop(item) - self.mean_seconds)
        self.busy.discard(user)
        if user in self.waiting:
            self.ready.append(user)

    def keep(self, count: int) -> list[Item]:
        """Remove and return the waiting messages after the first `count`."""
        items = sorted((item for queue in self.waiting.values() for item in queue), key=lambda item: item.sequence)
        self.waiting, self.messages = {}, 0
        self.ready.clear()
        for item in items[:count]:
            self.add(item)
        return items[count:]


@dataclass(eq=False)
class _Workspace:
    lanes: dict[str, _Lane] = field(default_factory=lambda: defaultdict(_Lane))
    turns: deque[tuple[str, _Lane]] = field(default_factory=deque)
    """The lanes with a ready user, the next one first."""
    in_turn: bool = False


class Lanes:
    """The messages in memory by workspace and target. `take` decides which attempt begins next."""

    def __init__(self, slots: int, memory_bytes: int, lane_messages: int) -> None:
        """`slots`: concurrent attempts. `lane_messages`: waiting messages of one lane. `memory_bytes`: of all messages."""
        self._slots = Shares(slots)
        self._memory = Shares(memory_bytes)
        self._lane_messages = lane_messages
        self._workspaces: dict[str, _Workspace] = defaultdict(_Workspace)
        self._turns: deque[_Workspace] = deque()
        self._added = 0

    def __len__(self) -> int:
        return sum(lane.messages for _, lane in self._all())

    def admission(self, item: Item, now: float) -> Admission:
        """Return whether a message may enter its lane.

        A full lane of a prompt endpoint has room soon: the message and those after it in its partition wait for that. A full lane
        of a slow endpoint, or a workspace with more messages than its share, must not delay others: the message is postponed.
        """
        workspace = self._workspaces.get(item.workspace)
        lane = workspace.lanes.get(item.target) if workspace else None
        waiting = lane.messages if lane else 0
        slow = lane is not None and lane.is_slow(now)
        if slow and waiting >= _SLOW_WAITING:
            return Admission.POSTPONE
        if waiting < self._lane_messages and self._memory.may_take(item.workspace, item.target, item.size_bytes):
            return Admission.ENTER
        if item.size_bytes > self._memory.free or (waiting and not slow):
            return Admission.HOLD
        return Admission.POSTPONE

    def add(self, item: Item) -> None:
        """Put a message at the end of its lane."""
        self._added += 1
        item.sequence = self._added
        self._memory.take(item.workspace, item.target, item.size_bytes)
        workspace = self._workspaces[item.workspace]
        lane = workspace.lanes[item.target]
        lane.add(item)
        self._give_turn(workspace, item.target, lane)

    def take(self, now: float) -> Item | None:
        """Return the message whose attempt begins now. None: nothing waits, or no waiting one may use a slot."""
        for _ in range(len(self._turns) if self._slots.free > 0 else 0):
            workspace = self._turns[0]
            self._turns.rotate(-1)
            item = self._next_of(workspace, now)
            if not workspace.turns:
                self._turns.pop()
                workspace.in_turn = False
            if item is not None:
                return item
        return None

    def finish(self, item: Item, now: float) -> None:
        """Give back the slot of an ended attempt."""
        self._slots.give_back(item.workspace, item.target)
        workspace = self._workspaces[item.workspace]
        lane = workspace.lanes[item.target]
        lane.finish(item, now)
        self._give_turn(workspace, item.target, lane)

    def settle(self, item: Item) -> None:
        """Give back the memory of a message whose step is stored."""
        self._memory.give_back(item.workspace, item.target, item.size_bytes)

    def drain(self, workspace: str, target: str) -> list[Item]:
        """Remove and return all waiting messages of a target."""
        return self._workspaces[workspace].lanes[target].keep(0)

    def shed(self, now: float) -> list[Item]:
        """Remove and return the waiting messages of slow targets, except the first 64 of each."""
        slow = [lane for _, lane in self._all() if lane.messages > _SLOW_WAITING and lane.is_slow(now)]
        return [item for lane in slow for item in lane.keep(_SLOW_WAITING)]

    def forget_idle(self) -> None:
        """Drop the lanes without messages, so that the memory is bounded by the number of targets in use."""
        for workspace in self._workspaces.values():
            idle = [key for key, lane in workspace.lanes.items() if not (lane.messages or lane.running or lane.in_turn)]
            for key in idle:
                del workspace.lanes[key]
        for name in [name for name, workspace in self._workspaces.items() if not (workspace.lanes or workspace.in_turn)]:
            del self._workspaces[name]

    def _next_of(self, workspace: _Workspace, now: float) -> Item | None:
        for _ in range(len(workspace.turns)):
            target, lane = workspace.turns[0]
            workspace.turns.rotate(-1)
            item = self._start(lane, target, now) if lane.ready else None
            if not lane.ready:
                workspace.turns.pop()
                lane.in_turn = False
            if item is not None:
                return item
        return None

    def _start(self, lane: _Lane, target: str, now: float) -> Item | None:
        name = lane.waiting[lane.ready[0]][0].workspace
        if not self._slots.may_take(name, target):
            return None
        self._slots.take(name, target)
        return lane.start(now)

    def _give_turn(self, workspace: _Workspace, target: str, lane: _Lane) -> None:
        if lane.ready and not lane.in_turn:
            lane.in_turn = True
            workspace.turns.append((target, lane))
        if workspace.turns and not workspace.in_turn:
            workspace.in_turn = True
            self._turns.append(workspace)

    def _all(self) -> Iterator[tuple[str, _Lane]]:
        for workspace in self._workspaces.values():
            yield from workspace.lanes.items()
