"""Pure core: the lane of one target: its users in turn, and the messages of its next attempt."""

from collections import OrderedDict, deque
from collections.abc import Iterator
from dataclasses import dataclass, field
from itertools import takewhile
from math import inf
from typing import Final, TypeAlias

from starling_delivery.item import Item

_SLOW_SECONDS: Final = 1.0
"""An endpoint is slow if its attempts take longer on average. It then has so many waiting messages, or two batches, at most:"""

_SLOW_WAITING: Final = 64

_HANGING_SECONDS: Final = 2.0
"""An endpoint is slow while an attempt has taken longer."""

LEAST_WAIT_SECONDS: Final = 0.001
"""The shortest wait for a token, and the shortest mean of attempts by which the throughput of a target is estimated."""

_LONGEST_TURN_SECONDS: Final = 1800.0
"""A message of a slow target waits no longer until it is offered again."""

_BEFORE_BULK: Final = 4
"""Other messages that are sent between two bulk ones."""

Batch: TypeAlias = tuple[Item, ...]
"""The messages of one attempt, in the order of their arrival. A target without batches has one."""


@dataclass(eq=False)
class _Selection:
    """The messages of the next attempt, while they are chosen."""

    items: list[Item] = field(default_factory=list)
    most: int = 1
    bytes_left: int = 0
    is_full: bool = False

    def takes(self, item: Item) -> bool:
        """Add the message if it fits; the first one always does, however large it is. A message without room ends the batch."""
        if not self.items:
            self.most, self.bytes_left = item.most, item.most_bytes
        elif not item.goes_with(self.items[0]):
            return False
        elif len(self.items) >= item.most or item.body_bytes > self.bytes_left:
            self.is_full = True
            return False
        self.items.append(item)
        self.most = min(self.most, item.most)
        self.bytes_left -= item.body_bytes
        self.is_full = len(self.items) >= self.most
        return True


class _Ready:
    """The users with waiting messages and no attempt in progress, the next one first.

    Those with bulk messages alone have a queue of their own. It gets each fifth turn, and every turn that the other queue leaves.
    """

    def __init__(self) -> None:
        self._first: OrderedDict[str, None] = OrderedDict()
        self._bulk: OrderedDict[str, None] = OrderedDict()
        self._turns = 0

    def __bool__(self) -> bool:
        return bool(self._first or self._bulk)

    def __iter__(self) -> Iterator[str]:
        yield from self._first
        yield from self._bulk

    def append(self, user: str, *, bulk: bool) -> None:
        """Add a user at the end of a queue. A user who is in the queue of bulk messages leaves it for another message."""
        if not bulk:
            self._bulk.pop(user, None)
            self._first.setdefault(user)
        elif user not in self._first:
            self._bulk.setdefault(user)

    def next(self) -> str:
        """Return the user whose turn is next."""
        return next(iter(self._queue()))

    def pop(self) -> str:
        """Remove and return the user whose turn is next."""
        queue = self._queue()
        self._turns = 0 if queue is self._bulk else self._turns + 1
        return queue.popitem(last=False)[0]

    def put_back(self, user: str, *, bulk: bool) -> None:
        """Add a user at the begin of a queue."""
        queue = self._bulk if bulk else self._first
        queue[user] = None
        queue.move_to_end(user, last=False)

    def clear(self) -> None:
        """Remove all users."""
        self._first.clear()
        self._bulk.clear()

    def _queue(self) -> OrderedDict[str, None]:
        return self._bulk if not self._first or (self._bulk and self._turns >= _BEFORE_BULK) else self._first


@dataclass(eq=False)
class Lane:
    """The messages of one target in memory."""

    waiting: dict[str, deque[Item]] = field(default_factory=dict)
    """User -> messages that are not sent yet, in order."""
    ready: _Ready = field(default_factory=_Ready)
    running: dict[Batch, float] = field(default_factory=dict)
    """Attempt in progress -> its start; the oldest is first."""
    stopped: dict[Batch, float] = field(default_factory=dict)
    """Attempt that waits for the broker -> the seconds that it has taken of the endpoint."""
    busy: set[str] = field(default_factory=set)
    """The users of the attempts in progress."""
    messages: int = 0
    bulk_messages: int = 0
    """The waiting messages, and the bulk ones among them."""
    ready_messages: int = 0
    ready_bytes: int = 0
    """The number of waiting messages of ready users, and the size of their bodies."""
    next_at: float = inf
    """When the next attempt begins: as soon as the messages of ready users are a whole batch, or one has waited long enough."""
    mean_seconds: float = 0.0
    most: int = 1
    in_turn: bool = False
    gathers: bool = False
    """Whether it is among the lanes that `Lanes` looks at again when their next attempt is due."""
    turn_at: float = 0.0
    """When the last message that was postponed for slowness has its turn."""

    @property
    def slow_waiting(self) -> int:
        """The maximum of waiting messages while the lane is slow."""
        return max(_SLOW_WAITING, 2 * self.most)

    def is_slow(self, now: float) -> bool:
        """Whether waiting messages leave the lane too slowly for others to wait for them."""
        oldest = next(iter(self.running.values()), now)
        return self.mean_seconds > _SLOW_SECONDS or now - oldest > _HANGING_SECONDS

    def turn_seconds(self, now: float, attempts: int) -> float:
        """Return the seconds until a postponed message has its turn: after those that wait and those postponed before.

        `attempts`: the maximum of concurrent ones. Those that hang are no part of the throughput, by which the turn is estimated.
        """
        hanging = sum(1 for _ in takewhile(lambda since: now - since > _HANGING_SECONDS, self.running.values()))
        seconds = max(self.mean_seconds, LEAST_WAIT_SECONDS) / (max(1, attempts - hanging) * self.most)
        self.turn_at = min(max(self.turn_at, now + self.messages * seconds) + seconds, now + _LONGEST_TURN_SECONDS)
        return self.turn_at - now

    def is_due(self, now: float) -> bool:
        """Whether an attempt can begin now."""
        return bool(self.ready) and self.next_at <= now

    def add(self, item: Item, now: float) -> None:
        """Put a message at the end of the lane."""
        user = item.request["user_id"]
        self.waiting.setdefault(user, deque()).append(item)
        self.messages += 1
        self.bulk_messages += item.bulk
        self.most = item.of_batch
        if user not in self.busy:
            self.ready.append(user, bulk=item.bulk)
            self._count_ready(item, now)

    def start(self, now: float) -> Batch:
        """Remove and return the messages of the next attempt, which begins."""
        first = self.waiting[self.ready.next()][0]
        chosen = [self._take_one()] if first.batching is None else self._choose()
        self.messages -= len(chosen)
        self.bulk_messages -= sum(item.bulk for item in chosen)
        if chosen[0].batching is not None:
            is_whole = self.ready_messages >= self.most or self.ready_bytes >= chosen[0].most_bytes
            self.next_at = now if is_whole else min((self.waiting[user][0].sent_at for user in self.ready), default=inf)
        batch = tuple(sorted(chosen, key=lambda item: item.sequence))
        self.running[batch] = now
        return batch

    def _take_one(self) -> Item:
        """Remove and return the first message of the next ready user."""
        user = self.ready.pop()
        items = self.waiting[user]
        self.busy.add(user)
        for item in items:
            self._discount(item)
        first = items.popleft()
        if not items:
            del self.waiting[user]
        return first

    def _choose(self) -> list[Item]:
        """Remove and return the messages of the next attempt: those of ready users in turn, as many as fit."""
        chosen, skipped = _Selection(), list[str]()
        while self.ready and not chosen.is_full:
            user = self.ready.pop()
            items, before = self.waiting[user], len(chosen.items)
            while items and not chosen.is_full and chosen.takes(items[0]):
                self._discount(items.popleft())
            if len(chosen.items) == before:
                skipped.append(user)
                continue
            self.busy.add(user)
            for item in items:
                self._discount(item)
            if not items:
                del self.waiting[user]
        for user in reversed(skipped):
            self.ready.put_back(user, bulk=self._is_bulk(user))
        return chosen.items

    def finish(self, batch: Batch, now: float) -> None:
        """End an attempt: its users are ready again."""
        seconds = self.stopped.pop(batch, None)
        self.mean_seconds += 0.1 * ((now - self.running.pop(batch) if seconds is None else seconds) - self.mean_seconds)
        for user in dict.fromkeys(item.request["user_id"] for item in batch):
            self.busy.discard(user)
            if user in self.waiting:
                self.ready.append(user, bulk=self._is_bulk(user))
                for item in self.waiting[user]:
                    self._count_ready(item, now)

    def keep(self, count: int, now: float) -> list[Item]:
        """Remove and return the waiting messages after the first `count`; bulk ones are the last."""
        items = sorted((item for queue in self.waiting.values() for item in queue), key=lambda item: (item.bulk, item.sequence))
        self.waiting, self.messages, self.ready_messages, self.ready_bytes, self.next_at = {}, 0, 0, 0, inf
        self.bulk_messages = 0
        self.ready.clear()
        for item in items[:count]:
            self.add(item, now)
        return items[count:]

    def _is_bulk(self, user: str) -> bool:
        return all(item.bulk for item in self.waiting[user])

    def _count_ready(self, item: Item, now: float) -> None:
        self.ready_messages += 1
        self.ready_bytes += item.body_bytes
        if item.batching is None:
            self.next_at = min(self.next_at, now)
            return
        is_whole = self.ready_messages >= item.most or self.ready_bytes >= item.most_bytes
        self.next_at = min(self.next_at, now if is_whole else item.sent_at)

    def _discount(self, item: Item) -> None:
        """Count a message as not ready any more."""
        self.ready_messages -= 1
        self.ready_bytes -= item.body_bytes
