"""The load: items through HTTP with a published client, which retries for as long as the edge does not take them."""

import logging
import random
import threading
import time
from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Any, Final

from segment.analytics.client import Client

from starling_local.stack.parts.services import WRITE_KEY
from tests.faults.load import FIRST_MS

_SPEED: Final = 60
"""A second of the wall clock is a minute of event time: windows of ten minutes pass in ten seconds."""
_TURN_SECONDS: Final = 0.25


class Traffic:
    """A thread that tracks until stopped. The choices are the seed's; the times are those of the clock."""

    def __init__(self, url: str, seed: int, *, rate: int, users: int) -> None:
        """`rate`: items a second."""
        logging.getLogger("segment").setLevel(logging.CRITICAL)  # it logs each failed upload
        self.sent: dict[str, str] = {}
        """Message id -> user."""
        self.failed_uploads = 0
        self._dice = random.Random(f"{seed} traffic")
        self._seed = seed
        self._rate = rate
        self._users = users
        self._began = time.monotonic()
        self._over = threading.Event()
        self._client = Client(
            WRITE_KEY, host=url, on_error=self._again, max_queue_size=1_000_000, max_retries=4, timeout=15, upload_size=20,
            upload_interval=0.2,
        )  # fmt: skip
        self._thread = threading.Thread(target=self._run, name="traffic", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def stop(self, timeout_seconds: float) -> None:
        """Returns when the edge has taken every item. Raises: AssertionError at the time-out."""
        self._over.set()
        self._thread.join()
        flushed = threading.Thread(target=self._client.flush, daemon=True)
        flushed.start()
        flushed.join(timeout_seconds)
        assert not flushed.is_alive(), f"the client still has about {self._client.queue.qsize()} items after {timeout_seconds} s"
        self._client.join()

    def taken(self) -> int:
        """Return how many items the edge has taken, about: those that the client no longer has."""
        return len(self.sent) - int(self._client.queue.unfinished_tasks)

    def now_ms(self) -> int:
        return FIRST_MS + int((time.monotonic() - self._began) * _SPEED * 100) * 10

    def _again(self, _error: Exception, items: Sequence[dict[str, Any]]) -> None:
        """The client gives a batch up; as its user would, send it again, with the same ids."""
        self.failed_uploads += 1
        for item in items:
            self._client.queue.put(item)

    def _run(self) -> None:
        while not self._over.wait(_TURN_SECONDS):
            for _ in range(max(1, int(self._rate * _TURN_SECONDS))):
                self._send()

    def _send(self) -> None:
        dice, number = self._dice, len(self.sent)
        user, message_id = f"u{dice.randrange(self._users)}", f"m{self._seed}-{number}"
        late_ms = dice.randrange(1, 40) * 10_000 if dice.random() < 0.05 else 0
        common: dict[str, Any] = {
            "timestamp": datetime.fromtimestamp((self.now_ms() - late_ms) / 1000, UTC),
            "message_id": message_id,
        }
        kind = dice.choices(["track", "page", "identify"], [6, 2, 2])[0]
        if kind == "identify":
            self._client.identify(
                user, {"plan": dice.choice(["free", "pro"]), "score": dice.randrange(10), "number": number}, **common
            )
        elif kind == "page":
            self._client.page(user, None, "Home", {"number": number}, **common)
        else:
            name = dice.choice(["Toggled", "Order Completed"])
            self._client.track(user, name, {"revenue": dice.randrange(1, 100), "sku": f"s{dice.randrange(30)}"}, **common)
        self.sent[message_id] = user
