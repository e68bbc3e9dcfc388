"""The delay of changes by time alone, beside live events: 1,000 segments of every kind under the wall clock. See `stream.py`.

Users have a past that leaves its windows within the minutes that are measured. A change's clock starts at the instant at
which it is due (`effective_at`) and stops with the broker's time of append of its record, in milliseconds.
"""

import random
import sys
import threading
import time
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, NamedTuple

from common import segmenting, shop
from common.bench import Progress, Stack, Watched, percentile, stack
from segments_mix import Doc, Mix

from starling_common.kafka.topics import BEHAVIOUR, MEMBERSHIP, PROFILE
from starling_common.wire import Registry
from stream_parts import kinds, live

_SEGMENTS: Final = 1_000
_POOL: Final = 20_000
_SETTLE_SECONDS: Final = 15
_IN_ACCOUNTS: Final = 100
"""One user in so many belongs to an account, of ten users."""
_BACK_MS: Final = tuple(days * shop.DAY_MS for days in (1, 7, 14, 30, 90, 365))
"""How long ago the past is: the windows of the mix, and a sequence's pause is over in each of them."""
_PAUSE_MS: Final = 1_800_000


class Everything(Mix):
    """The mix, with the kinds that a fold alone has no use for."""

    def __init__(self, seed: int) -> None:
        super().__init__(seed)
        self.kinds = (*self.kinds, self.listed, self.colleagues)

    def listed(self, i: int) -> Doc:
        return {"any": [{"list": f"list-{i}"}, self.count(i)]}

    def colleagues(self, _i: int) -> Doc:
        return {"account": {"match": "any", "where": {**self.events(), **self.window()}}}

    def conditions(self, n: int) -> dict[str, Doc]:
        """Key -> `where`; the key ends with the kind's name."""
        chosen = [self.kinds[i % len(self.kinds)] for i in range(n)]
        keys = [f"s{i}-{kind.__name__}" for i, kind in enumerate(chosen)]
        made = {key: kind(i) for i, (key, kind) in enumerate(zip(keys, chosen, strict=True))}
        for part in (part for where in made.values() for part in where.get("all", ()) if "segment" in part):
            part["segment"] = keys[int(part["segment"][1:])]
        return made


def profiles(users: int) -> Iterator[tuple[bytes, Doc]]:
    """What the mix asks of traits, for each user; some belong to accounts."""
    shop.USERS = users
    for number, (key, record) in enumerate(kinds.profiles()):
        account = f"account-{number // 10}" if number // 10 % _IN_ACCOUNTS == 0 else None
        yield key, record | {"group_id": account}


def behaviour(count: int, seed: int, at_ms: Iterator[int]) -> Iterator[tuple[bytes, Doc]]:
    """Events of the mix."""
    for (key, record), moment in zip(kinds.behaviour(count, seed, 0, 1), at_ms, strict=False):
        yield key, record | {"event_time": moment}


def past(count: int, first_ms: int, span_ms: int) -> Iterator[tuple[bytes, Doc]]:
    """Events that leave a window of the mix within that span, each some window's length before."""
    dice = random.Random(11)
    moments = (first_ms + dice.randrange(span_ms) - dice.choice((*_BACK_MS, _PAUSE_MS)) for _ in range(count))
    return behaviour(count, 21, moments)


class Busy(live.Traffic):
    """Live events of the mix."""

    def pool(self, now_ms: int) -> Iterator[tuple[bytes, Doc]]:
        return behaviour(_POOL, 900, iter([now_ms] * _POOL))


class Late(NamedTuple):
    """One change by time. Epoch ms; `kind`: of its segment."""

    due_ms: int
    appended_ms: int
    read_ms: float
    kind: str
    status: str


class FeedReader:
    """Reads the feed from its end on in a thread, and keeps every change by time."""

    def __init__(self, made: Stack) -> None:
        self.found: list[Late] = []
        self.others = 0
        self._decode = Registry(made.registry_url).codec(MEMBERSHIP, "SegmentMembershipChanged").decode
        self._consumer = live.from_now_on(made, MEMBERSHIP, "bench-lateness")
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._read, daemon=True)
        self._thread.start()

    def _read(self) -> None:
        while not self._stopping.is_set():
            messages, now_ms = self._consumer.consume(2_000, 0.02), time.time() * 1000
            for message in messages:
                value = message.value() or b""
                if message.error() is not None or b"TIMER" not in value:
                    self.others += 1
                    continue
                record = self._decode(value)
                if record["cause"]["kind"] == "TIMER":
                    kind = record["segment_key"].rpartition("-")[2]
                    self.found.append(Late(record["effective_at"], message.timestamp()[1], now_ms, kind, record["status"]))

    def stop(self) -> None:
        self._stopping.set()
        self._thread.join(10)
        self._consumer.close()


@dataclass(frozen=True)
class Load:
    """`per_second`: live events; `past`: events whose windows end meanwhile."""

    users: int
    past: int
    per_second: int
    seconds: int


def under_load(directory: Path, load: Load) -> dict[str, Any]:
    """p50 and p99 of what was due in those seconds."""
    with stack(directory / "stack") as made:
        began = time.monotonic()
        segmenting.define(made, Everything(0).conditions(_SEGMENTS))
        live.keep_append_time(made, MEMBERSHIP)
        segmenting.load(made, PROFILE, profiles(load.users))
        worker, known = segmenting.start(made, directory, "wall"), Progress(made.brokers, segmenting.GROUP, PROFILE)
        try:
            known.wait(load.users, worker)
            print(f"  {load.users:,} users known after {time.monotonic() - began:.0f} s", file=sys.stderr)
            return _measured(made, worker, load)
        finally:
            worker.stop()
            known.close()


def _measured(made: Stack, worker: Watched, load: Load) -> dict[str, Any]:
    # The past is folded at the live events' rate or faster, before the first of its windows ends.
    first_ms = int(time.time() * 1000) + 1000 * _SETTLE_SECONDS + 1000 * load.past // (2 * load.per_second)
    segmenting.load(made, BEHAVIOUR, past(load.past, first_ms, 1000 * load.seconds))
    progress = segmenting.events(made)
    progress.wait(load.past, worker)
    progress.close()
    early_seconds = first_ms / 1000 - time.time()
    if early_seconds < 5:
        raise RuntimeError(f"the past was folded {early_seconds:.0f} s before its first window ends: too late, take less of it")
    feed, traffic = FeedReader(made), Busy(made, load.per_second, 0, "late")
    traffic.start()
    time.sleep(max(0.0, first_ms / 1000 - time.time()))
    since_ms, cpu_before, started = time.time() * 1000, worker.cpu_seconds(), time.monotonic()
    time.sleep(load.seconds)
    busy = (worker.cpu_seconds() - cpu_before) / (time.monotonic() - started)
    until_ms = time.time() * 1000
    traffic.stop()
    time.sleep(_SETTLE_SECONDS)  # changes due at the end are published by then
    feed.stop()
    due = [one for one in feed.found if since_ms <= one.due_ms < until_ms]
    return {
        "segments": _SEGMENTS,
        "users": load.users,
        "seconds": load.seconds,
        "events_per_second": load.per_second,
        "sender_behind_ms_at_most": round(traffic.behind_seconds * 1000),
        "worker_cpu_share": round(busy, 2),
        "changes_by_events": feed.others,
        "exits": lateness([one for one in due if one.status == "EXITED"]),
        "entries": lateness([one for one in due if one.status == "ENTERED"]),
        "kinds": dict(Counter(one.kind for one in due).most_common()),
    }


def lateness(due: list[Late]) -> dict[str, Any]:
    """Due to appended; and to the moment at which a `read_committed` reader has it in hand."""
    if not due:
        return {"count": 0}
    appended, read = sorted(one.appended_ms - one.due_ms for one in due), sorted(one.read_ms - one.due_ms for one in due)
    shares = {"p50_ms": 0.5, "p99_ms": 0.99, "max_ms": 1.0}
    figures = {name: round(percentile(appended, share)) for name, share in shares.items()}
    return {"count": len(due), **figures, "read_p99_ms": round(percentile(read, 0.99))}
