"""Adapter: how long after the edge's answer a membership change can be read, at a fixed rate of other events."""

import statistics
import threading
import time
import uuid
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from itertools import chain, count
from queue import SimpleQueue
from typing import Any, Final, Self

import httpx
from latency import Arrivals

from whole.load import BATCH, Load

SHARES: Final = (0.25, 0.5, 0.75)
"""Rates, relative to that of the whole platform."""
_PROBES_PER_SECOND: Final = 5.0
_LOOKED_UP: Final = 2
"""Every second probe is also looked up in the read model."""
_LOOK_SECONDS: Final = 0.05
"""The resolution of the read model's figures. All probes that wait are looked up by one request: a request for each of them would
take the processor time that is to be measured."""
_PATIENCE_SECONDS: Final = 120.0


class Site:
    """The doors of a running instance, with a segment that each probe enters by its one event."""

    def __init__(self, urls: Mapping[str, str], write_key: str, token: str) -> None:
        self._urls = urls
        self._ingest = httpx.Client(base_url=urls["ingest"], auth=(write_key, ""), timeout=60)
        self._api = httpx.Client(base_url=urls["api"], headers={"Authorization": f"Bearer {token}"}, timeout=60)
        self.segment = f"probe-{uuid.uuid4().hex[:8]}"

    def __enter__(self) -> Self:
        """Define the segment, and wait until it is in force."""
        document = {"key": self.segment, "name": self.segment, "where": {"event": self.segment}}
        self._api.post("/v1/segments", json=document).raise_for_status()
        deadline = time.monotonic() + _PATIENCE_SECONDS
        while self._api.get(f"/v1/segments/{self.segment}").raise_for_status().json()["status"] != "active":
            if time.monotonic() > deadline:
                raise TimeoutError(f"{self.segment} is not in force after {_PATIENCE_SECONDS:g} s")
            time.sleep(0.2)
        return self

    def __exit__(self, *_: object) -> None:
        """Archive the segment and close the connections."""
        self._api.delete(f"/v1/segments/{self.segment}")
        self._api.close()
        self._ingest.close()

    def feed(self) -> Arrivals:
        """Return a reader of the feed."""
        return Arrivals(self._urls["kafka"], self._urls["registry"], self.segment)

    def send(self, body: bytes) -> None:
        """Send one request of load. A refused one is dropped: the rate is fixed."""
        answer = self._ingest.post("/v1/batch", content=body)
        if answer.status_code not in (429, 503):
            answer.raise_for_status()

    def probe(self, user: str) -> None:
        """Send the event by which the user enters the segment."""
        item = {"userId": user, "event": self.segment, "messageId": user}
        self._ingest.post("/v1/track", json=item).raise_for_status()

    def members(self, users: Sequence[str]) -> set[str]:
        """Return the users with a membership in the read model."""
        answer = self._api.post("/v1/memberships/lookup", json={"users": list(users), "segments": [self.segment]})
        return {user for user, segments in answer.raise_for_status().json()["memberships"].items() if segments}


def freshness(site: Site, load: Load, rates: Sequence[float], seconds: float) -> list[dict[str, Any]]:
    """Return for each rate of other events the milliseconds from an answer to the feed, and to the read model."""
    return [_at_rate(site, load, rate, seconds) for rate in rates]


def _at_rate(site: Site, load: Load, rate: float, seconds: float) -> dict[str, Any]:
    feed, stopping = site.feed(), threading.Event()
    sender = threading.Thread(target=_send, args=(site, load, rate, stopping))
    sender.start()
    try:
        time.sleep(seconds / 6)  # the batches have their length at this rate
        acknowledged, readable = _probe(site, seconds)
        missing = _until_read(feed, acknowledged)
    finally:
        stopping.set()
        sender.join()
        feed.stop()
    if missing:
        raise RuntimeError(f"{missing} of {len(acknowledged)} entries never came at {rate:,.0f} events/s")
    return {
        "events_per_second": round(rate),
        "probes": len(acknowledged),
        **_quantiles("feed", [feed.at[user] - at for user, at in acknowledged.items()]),
        **_quantiles("read_model", readable),
    }


def _send(site: Site, load: Load, rate: float, stopping: threading.Event) -> None:
    interval, began = BATCH / rate, time.monotonic()
    for number, body in enumerate(_endless(load)):
        if stopping.wait(max(0.0, began + number * interval - time.monotonic())):
            return
        site.send(body)


def _endless(load: Load) -> Iterator[bytes]:
    return chain.from_iterable(load.events(10_000) for _ in count())


def _probe(site: Site, seconds: float) -> tuple[dict[str, float], list[float]]:
    """Send probes; return user -> when its answer was in hand, and the seconds until the read model had some of them."""
    acknowledged: dict[str, float] = {}
    followed: SimpleQueue[str | None] = SimpleQueue()
    began = time.monotonic()
    # A thread of its own: a probe that waits must not delay the next one, or a stall would be one sample.
    with ThreadPoolExecutor(1) as follower:
        readable = follower.submit(_follow, site, followed, acknowledged)
        for number in range(int(seconds * _PROBES_PER_SECOND)):
            time.sleep(max(0.0, began + number / _PROBES_PER_SECOND - time.monotonic()))
            user = f"{site.segment}-{number}-{time.monotonic_ns()}"
            site.probe(user)
            acknowledged[user] = time.monotonic()
            if number % _LOOKED_UP == 0:
                followed.put(user)
        followed.put(None)
        return acknowledged, readable.result()


def _follow(site: Site, followed: SimpleQueue[str | None], acknowledged: Mapping[str, float]) -> list[float]:
    """Return the seconds until the read model had each of the users. None in the queue: no more follow."""
    waiting: list[str] = []
    readable: list[float] = []
    is_last = False
    while waiting or not is_last:
        while not is_last and not followed.empty():
            user = followed.get()
            is_last = user is None
            waiting += [] if user is None else [user]
        found = site.members(waiting) if waiting else set()
        now = time.monotonic()
        readable += [now - acknowledged[user] for user in waiting if user in found]
        waiting = [user for user in waiting if user not in found]
        if waiting and now > acknowledged[waiting[0]] + _PATIENCE_SECONDS:
            raise TimeoutError(f"the read model lacks {waiting[0]} after {_PATIENCE_SECONDS:g} s")
        time.sleep(_LOOK_SECONDS)
    return readable


def _until_read(feed: Arrivals, acknowledged: Mapping[str, float]) -> int:
    """Wait for the probes in the feed; return the number of those that never came."""
    deadline = time.monotonic() + _PATIENCE_SECONDS
    while time.monotonic() < deadline and acknowledged.keys() - feed.at.keys():
        time.sleep(0.05)
    return len(acknowledged.keys() - feed.at.keys())


def _quantiles(name: str, seconds: Sequence[float]) -> dict[str, float]:
    # A record may be in hand before its sender has read the answer: that is no negative time.
    taken = sorted(max(0.0, one) * 1000 for one in seconds)
    return {f"{name}_p50_ms": round(statistics.median(taken), 1), f"{name}_p99_ms": round(taken[int(len(taken) * 0.99)], 1)}
