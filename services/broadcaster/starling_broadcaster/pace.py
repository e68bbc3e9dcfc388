"""Pure core: how fast a broadcast is written, and when it halts for what is queued behind it."""

from collections import deque
from typing import Final, NamedTuple

_STEPS_A_SECOND: Final = 4
"""A transaction contains the members of a quarter of a second, so that a slow rate is no burst each second."""

_WINDOW_SECONDS: Final = 30.0
_LEAST_BUSY_SECONDS: Final = 5.0
"""A speed is measured over the last 30 s, and over at least 5 s in which there was something to do."""


class Pace:
    """A token bucket of members. Times are monotonic seconds. It holds the tokens of a second, and at first those of one step."""

    def __init__(self, rate: int, most: int, now: float) -> None:
        """`rate`: members a second. `most`: members of one transaction."""
        self._rate = rate
        self._most = most
        self._step = min(max(1, rate // _STEPS_A_SECOND), most)
        self._tokens = float(self._step)
        self._at = now

    def allowed(self, now: float) -> int:
        """Return how many members may be written now; 0 while they are fewer than a step."""
        self._tokens = min(max(self._rate, self._step), self._tokens + (now - self._at) * self._rate)
        self._at = now
        return min(int(self._tokens), self._most) if self._tokens >= self._step else 0

    def spend(self, members: int) -> None:
        """Count written members."""
        self._tokens -= members

    def wait_seconds(self) -> float:
        """Return the seconds until a step may be written."""
        return max(0.0, (self._step - self._tokens) / self._rate)


class Queue(NamedTuple):
    """One look at the queue of a consumer group. `drained`: the sum of its committed offsets; `waiting`: records after them."""

    drained: int
    waiting: int


class Meter:
    """The speed at which a consumer group drains its queue, measured while there is something in it."""

    def __init__(self) -> None:
        self._samples: deque[tuple[float, Queue]] = deque()

    def observe(self, queue: Queue, now: float) -> None:
        """Note one look. `now`: monotonic seconds."""
        self._samples.append((now, queue))
        while self._samples[0][0] < now - _WINDOW_SECONDS:
            self._samples.popleft()

    @property
    def waiting(self) -> int:
        """Return the length of the queue at the last look."""
        return self._samples[-1][1].waiting if self._samples else 0

    def speed(self) -> float | None:
        """Return records a second; None before there was something to do for long enough."""
        busy, drained, before = 0.0, 0, None
        for at, queue in self._samples:
            if before is not None and before[1].waiting > 0:
                busy += at - before[0]
                drained += max(0, queue.drained - before[1].drained)
            before = at, queue
        return drained / busy if busy >= _LEAST_BUSY_SECONDS else None

    def is_behind(self, rate: int, seconds: float) -> bool:
        """Return whether the queue takes longer than that at the measured speed, which counts as the rate at most."""
        speed = self.speed()
        return self.waiting > seconds * (rate if speed is None else min(rate, speed))
