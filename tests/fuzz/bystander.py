"""One workspace that behaves well measures its events while another attacks: `make bystander`.

Each attack of the list runs for some seconds. The p50 and p99 from an event to its membership change are at most twice the quiet
ones, or below a floor: `FLOOR_MS`. Exit code 1 if an attack exceeds that.
"""

import argparse
import gzip
import json
import os
import random
import socket
import sys
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass
from typing import Final
from urllib.parse import urlsplit

import httpx

from starling_cli.settle.settle import NotSettled
from tests.conftest import ROOT
from tests.faults.provenance import Provenance
from tests.fuzz.probe import Sample
from tests.fuzz.records import Records
from tests.fuzz.run import changed
from tests.fuzz.tally import dice_of, lower_priority
from tests.fuzz.world import Bystander, World, running

RATE: Final = 10.0
"""Events of the well-behaved workspace a second."""
TIMES: Final = 2.0
FLOOR_MS: Final = 250.0
"""A p50 or p99 below this is no failure, whatever the quiet one is.

Broker, services and the feed's reader share the processors of one machine with the attack's own clients, and each of them waits for
a time slice. That alone more than doubles a p99 of tens of milliseconds. An attack that stops others costs seconds.
"""
PAUSE_SECONDS: Final = 0.25
"""Between two requests of an attack whose items are accepted: at most 400 items a second.

More would measure the capacity of two processors, which a rate limit of the attacker's workspace has to fit.
"""
_WORKERS: Final = 4
SETTLE_SECONDS: Final = 120.0
OUT: Final = ROOT / "out" / "fuzz"

Attack = Callable[[World, threading.Event], None]


def _api(world: World) -> httpx.Client:
    return httpx.Client(base_url=world.at.api_url, headers={"Authorization": f"Bearer {world.token}"}, timeout=60, trust_env=False)


def _ingest(world: World) -> httpx.Client:
    return httpx.Client(base_url=world.at.ingest_url, auth=(world.write_key, ""), timeout=60, trust_env=False)


def _repeat(world: World, over: threading.Event, path: str, body: bytes, headers: dict[str, str] | None = None) -> None:
    with _ingest(world) as client:
        while not over.is_set():
            answer = client.post(path, content=body, headers=headers)
            if answer.status_code == 429:
                over.wait(float(answer.headers.get("retry-after", "1")))


def expanded_batch(world: World, over: threading.Event) -> None:
    """Small gzipped batches whose context would be copied into thousands of items."""
    context = {"a": ["x" * 100] * 250}
    body = json.dumps({"context": context, "batch": [{"type": "track", "event": "E", "userId": "u"}] * 2_500}).encode()
    _repeat(world, over, "/v1/batch", gzip.compress(body), {"Content-Encoding": "gzip"})


def long_ids(world: World, over: threading.Event) -> None:
    """Ids of 30,000 characters, and as many ids of the longest accepted size as fit a request."""
    number = 0
    with _ingest(world) as client:
        while not over.wait(PAUSE_SECONDS):
            number += 1
            user = {"userId": "long", "anonymousId": f"{number}-".ljust(30_000 if number % 2 else 512, "x")}
            client.post("/v1/batch", json={"batch": [{"type": "track", "event": "E", **user}] * (1 if number % 2 else 100)})


def hostile_definitions(world: World, over: threading.Event) -> None:
    """Definitions of nearly the highest accepted cost, and events that make each of them as slow as possible."""
    with _api(world) as api, _ingest(world) as ingest:
        keys = [key for number in range(5) if (key := _costly(api, number)) is not None]
        if not keys:
            raise RuntimeError("no costly definition was accepted")
        properties = {"texts": [f"t{number}" for number in range(3_000)], "text": "x" * 1_000}
        item = {"type": "track", "event": "Costly", "userId": "slow", "properties": properties}
        while not over.wait(PAUSE_SECONDS):
            ingest.post("/v1/batch", json={"batch": [item] * 5})
        for key in keys:
            api.delete(f"/v1/segments/{key}")


def _costly(api: httpx.Client, number: int) -> str | None:
    """Define the largest accepted segment of a family, in which every condition is evaluated; return its key."""
    for count in (60, 50, 40, 30, 20, 10):
        key = f"costly_{time.time_ns():x}_{number}"
        wanted = [{"property": "texts", "op": "has_any", "value": [f"{number}-{i}"]} for i in range(count)]
        where = {"event": "Costly", "where": {"any": wanted}}
        if api.post("/v1/segments", json={"key": key, "name": key, "where": where}).status_code == 201:
            return key
    return None


def definition_flood(world: World, over: threading.Event) -> None:
    """A definition that changes as often as the API accepts it; each change makes the segmenter read its history."""
    with _api(world) as api:
        key, number = f"flood_{time.time_ns():x}", 0
        api.post("/v1/segments", json={"key": key, "name": key, "where": {"event": "E"}}).raise_for_status()
        while not over.is_set():
            number += 1
            where = {"event": f"E{number}", "op": "gte", "value": 1, "within": "30d"}
            answer = api.put(f"/v1/segments/{key}", json={"key": key, "name": key, "where": where})
            if answer.status_code == 429:
                over.wait(float(answer.headers.get("retry-after", "1")))
            elif answer.status_code != 409:
                answer.raise_for_status()


def burst(world: World, over: threading.Event) -> None:
    """Full batches as fast as one client sends them, and no wait beyond `Retry-After`."""
    dice = random.Random(7)
    items = [{"type": "track", "event": "E", "userId": f"b{dice.randrange(500)}"} for _ in range(100)]
    with _ingest(world) as client:
        while not over.wait(PAUSE_SECONDS):
            client.post("/v1/batch", json={"batch": items})


def slow_bodies(world: World, over: threading.Event) -> None:
    """Connections to both APIs whose bodies come byte by byte."""
    keys = f"X-Write-Key: {world.write_key}\r\nAuthorization: Bearer {world.token}"
    _drip(world, over, f"POST {{}} HTTP/1.1\r\nHost: x\r\n{keys}\r\nContent-Length: 9999\r\n\r\n")


def slow_headers(world: World, over: threading.Event) -> None:
    """Connections to both APIs whose headers never end."""
    _drip(world, over, "POST {} HTTP/1.1\r\nX-Drip: ")


def _drip(world: World, over: threading.Event, head: str) -> None:
    places = [(world.at.ingest_url, "/v1/track"), (world.at.api_url, "/v1/segments")]
    connections: list[socket.socket] = []
    try:
        for number in range(400):
            url, path = places[number % 2]
            host = urlsplit(url)
            connection = socket.create_connection((host.hostname or "", host.port or 80), timeout=10)
            connection.sendall(head.format(path).encode())
            connections.append(connection)
        while not over.wait(1.0):
            for connection in connections:
                with suppress(OSError):  # closed by the server, as it must
                    connection.sendall(b"x")
    finally:
        for connection in connections:
            connection.close()


def preview_flood(world: World, over: threading.Event) -> None:
    """More previews at the same time than a workspace may run or queue."""
    _workers(4 * _WORKERS, lambda: _previews(world, over))


def _previews(world: World, over: threading.Event) -> None:
    where = {"all": [{"event": f"E{number}", "measure": "count", "op": "gte", "value": 1, "within": "30d"} for number in range(20)]}
    with _api(world) as api:
        while not over.is_set():
            if api.post("/v1/segments/preview", json={"where": where}).status_code == 429:
                over.wait(0.2)


def feed_streams(world: World, over: threading.Event) -> None:
    """More live feeds than a workspace may follow, opened again when refused."""

    def follow() -> None:
        with _api(world) as api:
            while not over.is_set():
                with suppress(httpx.HTTPError), api.stream("GET", "/v1/feed", headers={"Accept": "text/event-stream"}) as answer:
                    if answer.status_code == 200:
                        for _ in answer.iter_raw():
                            if over.is_set():
                                return
                over.wait(0.5)

    _workers(24, follow, wait=over)


def poison_records(world: World, over: threading.Event) -> None:
    """Records on the topics of every stage that cannot be decoded, or that make a stage refuse them."""
    stages = [Records(name, world.at.kafka, world.at.registry_url, world.letters(), world.stages()) for name in _POISONED]
    number = 0
    while not over.wait(0.05):
        number += 1
        for stage in stages:
            stage.send(stage.make(dice_of(7, "bystander", number)), number)
    for stage in stages:
        stage.flush()


_POISONED: Final = ("normalizer", "segmenter", "projector", "delivery")


def _workers(count: int, run: Callable[[], None], wait: threading.Event | None = None) -> None:
    threads = [threading.Thread(target=run, daemon=True) for _ in range(count)]
    for thread in threads:
        thread.start()
    if wait is not None:
        wait.wait()  # a stream that is read ends with its connection, not with the attack
        return
    for thread in threads:
        thread.join()


ATTACKS: Final[tuple[Attack, ...]] = (
    expanded_batch, long_ids, hostile_definitions, definition_flood, burst, slow_bodies, slow_headers, preview_flood, feed_streams,
    poison_records,
)  # fmt: skip


@dataclass(frozen=True)
class Measured:
    """The events of the well-behaved workspace in one interval, in milliseconds."""

    attack: str
    events: int
    p50: float
    p99: float
    delay_p99: float
    """The delay of a thread of the well-behaved workspace that only slept."""

    def exceeds(self, quiet: "Measured") -> bool:
        """Return whether an attack slowed it down by more than the bound."""
        return self.p50 > max(TIMES * quiet.p50, FLOOR_MS) or self.p99 > max(TIMES * quiet.p99, FLOOR_MS)


def measured(name: str, samples: Sequence[Sample]) -> Measured:
    """Return the percentiles of an interval. A change that never came counts as endless, as does no event at all."""
    times = sorted(float("inf") if sample.ms is None else sample.ms for sample in samples)
    delays = sorted(sample.delay_ms for sample in samples)
    if not times:
        return Measured(name, 0, float("inf"), float("inf"), float("inf"))
    at = min(len(times) - 1, int(len(times) * 0.99))
    return Measured(name, len(times), round(times[len(times) // 2], 1), round(times[at], 1), round(delays[at], 1))


@contextmanager
def attacking(attack: Attack, world: World, failures: list[str]) -> Iterator[None]:
    """Run an attack in a thread for the duration of the block."""
    over = threading.Event()

    def run() -> None:
        lower_priority()
        try:
            attack(world, over)
        except Exception as cause:  # noqa: BLE001 - an attack that ends early proves nothing
            failures.append(f"the attack {attack.__name__} failed: {type(cause).__name__}: {cause}")

    thread = threading.Thread(target=run, daemon=True)
    thread.start()
    try:
        yield
    finally:
        over.set()
        thread.join(90)


def compare(world: World, attacks: Sequence[Attack], seconds: float) -> tuple[list[Measured], list[str]]:
    """Return the quiet interval, then one for each attack, and what went wrong."""
    before, bystander, wrong = world.processes(), Bystander(world, RATE), list[str]()
    bystander.wait_started()
    time.sleep(3)  # sleep: the first events find cold caches
    spans: list[tuple[str, float, float]] = []

    def interval(name: str) -> None:
        began = time.time()
        time.sleep(seconds)  # sleep: the interval that is measured
        spans.append((name, began, time.time()))
        sys.stderr.write(f"{table([measured(name, bystander.between(began, time.time() - 1))]).splitlines()[-1]}\n")

    interval("quiet")
    for attack in attacks:
        with attacking(attack, world, wrong):
            time.sleep(1)  # sleep: until the attack is under way
            interval(attack.__name__)
        try:
            # Not `settle`: while the well-behaved workspace sends, there is hardly an instant without a record on its way.
            world.drain(SETTLE_SECONDS, int(3 * RATE))
        except NotSettled as cause:
            wrong.append(f"after {attack.__name__}: {cause}")
    interval("quiet again")
    wrong += bystander.stop(stalls=False)
    found = [measured(name, bystander.between(began, ended)) for name, began, ended in spans]
    quiet = _quieter(found[0], found.pop())
    wrong += [f"{one.attack}: p50 {one.p50} ms, p99 {one.p99} ms" for one in found[1:] if one.exceeds(quiet)]
    return [quiet, *found[1:]], wrong + changed(before, world.processes())


def _quieter(first: Measured, last: Measured) -> Measured:
    """Return the slower of the quiet intervals before and after: other work on the machine is the same for all."""
    return max(first, last, key=lambda one: one.p99)


def table(found: Sequence[Measured]) -> str:
    """Return one row for each interval."""
    lines = ["| attack | events | p50 ms | p99 ms | p99 of the machine's own delay ms |", "|---|---:|---:|---:|---:|"]
    return "\n".join(
        [*lines, *(f"| {one.attack.replace('_', ' ')} | {one.events} | {one.p50} | {one.p99} | {one.delay_p99} |" for one in found)]
    )


def main() -> int:
    """Run all attacks, or the named ones."""
    arguments = argparse.ArgumentParser(description=__doc__)
    arguments.add_argument("--seconds", type=float, default=20)
    arguments.add_argument("--attacks", default="", help="names, comma separated; empty: all")
    parsed = arguments.parse_args()
    named = set(parsed.attacks.split(",")) if parsed.attacks else {one.__name__ for one in ATTACKS}
    with running(OUT / "bystander", with_spark=False) as world:
        began = Provenance.of(0)
        found, wrong = compare(world, [one for one in ATTACKS if one.__name__ in named], parsed.seconds)
    OUT.mkdir(parents=True, exist_ok=True)
    (OUT / "bystander.json").write_text(json.dumps({"intervals": [asdict(one) for one in found], "wrong": wrong}, indent=1))
    scope = f"{began.date}, commit {began.commit}, {began.machine}, load average {os.getloadavg()[2]:.1f}"
    sys.stdout.write("\n".join([table(found), *(f"WRONG {text}" for text in wrong), scope]) + "\n")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
