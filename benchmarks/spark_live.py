"""Computed traits while events flow: time from an event to its value at three rates, and while a trait is added. Prints JSON.

    PYTHONPATH=. python benchmarks/spark_live.py [--events 1000000] [--seconds 60] [--only live] [--small] [--write]
    PYTHONPATH=. python benchmarks/spark_live.py --soak MINUTES [--write]

A history is loaded, and the job `profiles` starts with 50 traits and reads it; its rate is the highest one held. Then events
come at 25, 50 and 75 % of that rate, the first of them for 90 s before it is measured. Five probes a second are of new users. The
clock of a probe starts before its event is handed to the client, and stops when a consumer has its value. At last two traits are
added at the lowest rate, one after the other: one of the events of the probes alone, and one of all events, which gives each user
a value. The job reads their history beside the live events. A trait is active when the job has committed its definition: all users
have their values. Graphs are written to out/spark/added_trait.svg and out/spark/added_trait_of_all_events.svg.

`--soak` sends events at the lowest rate for that many minutes instead, and compares the memory of the Python workers in the last
third of the time with that in the second third.

Of the shop's events 82 % match one of the traits. `--matching 0.4` gives a part of all events a name that no trait counts, so
that 40 % match: the share for which the goals were set.
"""

import argparse
import json
import os
import random
import statistics
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from pathlib import Path
from types import MappingProxyType
from typing import Any, Final

import psutil
from common import goals, shop
from common.bench import PARTITIONS, Progress, Stack, Watched, keep, kept, percentile, stack
from common.segmenting import load
from common.spark_cpu import Spent
from confluent_kafka import Consumer, Producer, TopicPartition
from spark_profiles import DAYS, documents

from starling_common.headers import record_headers
from starling_common.kafka.clients import consumer_config, producer_config
from starling_common.kafka.topics import AGGREGATES, BEHAVIOUR, TRAIT_DEFINITIONS, load_catalogue
from starling_common.testing import free_port
from starling_common.values import deterministic_id, record_key
from starling_common.wire import Codec, Registry
from starling_local.runtime import runtime_jars
from starling_spark.jobs.profiles.definitions.entries import first_entries
from starling_spark.jobs.profiles.definitions.in_force import Definition
from starling_spark.jobs.profiles.definitions.plans import compile_entries
from starling_spark.jobs.profiles.fold.matches import Event
from tools.simulation.charts import Panel, chart

TRAITS: Final = 50
USERS: Final = 100_000
"""The results of another number have files of their own."""
SHARES: Final = (0.25, 0.5, 0.75)
PROBES_PER_SECOND: Final = 5
PROBE_EVENT: Final = "Probe Sent"
UNCOUNTED_EVENT: Final = "Page Scrolled"
"""An event that no trait of the history counts."""
GROUP: Final = "starling-profiles"
WARM_UP_SECONDS: Final = 90.0
"""In this time the JVM compiles most of what runs for long. Later rates have one slice."""
WARM_SLICE_SECONDS: Final = 10.0
SOAK_SLICE_SECONDS: Final = 20.0
WORKER_DAEMON: Final = "starling_spark.session.worker_daemon"
WORKER_FILES: Final = "/starling-workers-"
PATIENCE_SECONDS: Final = 1_800.0
ASKED_EVERY_SECONDS: Final = 0.2
LOAD_SECONDS: Final = 90.0
"""Of the events that are prepared for the time until a trait is active."""
GRAPHS: Final = Path("out/spark")
ADDED: Final[dict[str, dict[str, Any]]] = {
    "added_trait": {"event": PROBE_EVENT, "measure": "last_time"},
    "added_trait_of_all_events": {"event": "*"},
}
"""The part of the result -> the trait that is added."""


def definition(key: str, document: dict[str, Any]) -> tuple[bytes, dict[str, Any]]:
    """Return the record of a trait's first version."""
    return record_key("default", key), {
        "recorded_at": shop.FIRST_MS * 1000,
        "event_id": deterministic_id("definition", key),
        "workspace": "default",
        "kind": "computed_trait",
        "key": key,
        "version": 1,
        "action": "DEFINED",
        "document": json.dumps({"key": key, **document}),
        "actor": "benchmark",
        "correlation_id": "benchmark",
    }


Events = Iterator[tuple[bytes, dict[str, Any]]]
"""Keys and records."""


def thinned(events: Events, kept: float) -> Events:
    """Yield the events. `kept`: the share that keeps its name; the others get one that no trait counts."""
    dice = random.Random(0)
    for key, record in events:
        yield key, record if dice.random() < kept else record | {"name": UNCOUNTED_EVENT}


def matching_share(events: int = 20_000) -> float:
    """Return the share of the events of a history that match one of the traits."""
    definitions = [Definition("default", key, 1, json.dumps(document), ()) for key, document in history_traits().items()]
    measures = compile_entries(first_entries(definitions))["default"].measures
    names = (shop.WIDE_NAMES, shop.WIDE_WEIGHTS)
    found = shop.behaviour(events, 1, shop.FIRST_MS, DAYS * shop.DAY_MS, names)
    views = (Event(record["name"], 0, (record["properties"], record["context"], record["traits"])) for _, record in found)
    return sum(bool(measures.matches(one)) for one in views) / events


def history_traits() -> dict[str, dict[str, Any]]:
    """Return the traits of the history by their keys; `probe` counts the probes."""
    return {**{f"t{number}": document for number, document in enumerate(documents(TRAITS - 1))}, "probe": {"event": PROBE_EVENT}}


class Values:
    """Reads values in a thread of its own. `at`: (user, trait) of a probe -> when the value was in hand (monotonic seconds)."""

    def __init__(self, made: Stack) -> None:
        self._codec = Registry(made.registry_url).codec(AGGREGATES, load_catalogue().topics[AGGREGATES].schema)
        self._consumer = Consumer(consumer_config(made.brokers, "benchmark-values", **{"fetch.wait.max.ms": 50}))
        self._consumer.assign([TopicPartition(AGGREGATES, number, 0) for number in range(PARTITIONS)])
        self.at: dict[tuple[str, str], float] = {}
        self.count = 0
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._read, daemon=True)
        self._thread.start()

    def _read(self) -> None:
        while not self._stopping.is_set():
            for message in self._consumer.consume(5_000, 0.05):
                if message.error() is not None:
                    continue
                self.count += 1
                if b"probe-" in (message.key() or b""):
                    record = self._codec.decode(message.value() or b"")
                    self.at.setdefault((record["user_id"], record["trait_key"]), time.monotonic())

    def close(self) -> None:
        self._stopping.set()
        self._thread.join(10)
        self._consumer.close()


class Load:
    """Events at a rate, with probes among them. Event times go on where those of the history end."""

    def __init__(self, made: Stack, codec: Codec, kept: float) -> None:
        """`kept`: as of `thinned`."""
        self._encode = codec.encode
        self._kept = kept
        self._producer = Producer(producer_config(made.brokers, **{"linger.ms": 20}))
        self._headers = record_headers("benchmark", "benchmark")
        self._now_ms = shop.FIRST_MS + DAYS * shop.DAY_MS
        self._seed = 1
        self._probe = 0
        self.sent: dict[str, float] = {}
        """Probe -> when it was sent (monotonic seconds)."""
        self.count = 0

    def prepare(self, rate: float, seconds: float) -> list[tuple[bytes, bytes]]:
        """Return encoded events, so that the generator takes little of the processor during the measurement."""
        self._seed += 1
        return [(key, self._encode(record)) for key, record in self._events(round(rate * seconds), round(seconds * 1000))]

    def run(
        self,
        rate: float,
        seconds: float,
        is_over: Callable[[], bool] = lambda: False,
        prepared: Sequence[tuple[bytes, bytes]] | None = None,
    ) -> float:
        """Send for that long, or until it is over. Return the rate that was reached in events/s."""
        prepared = self.prepare(rate, seconds) if prepared is None else prepared
        span_ms, before = round(seconds * 1000), self.count
        started, probes = time.monotonic(), 0
        while (passed := time.monotonic() - started) < seconds and not is_over():
            for key, value in prepared[self.count - before : int(passed * rate)]:
                self._produce(key, value)
                self.count += 1
            while probes < passed * PROBES_PER_SECOND:
                self._send_probe(round(passed * 1000))
                probes += 1
            self._producer.poll(0)
            time.sleep(0.01)
        assert self._producer.flush(60) == 0
        self._now_ms += span_ms
        return (self.count - before) / (time.monotonic() - started)

    def _events(self, count: int, span_ms: int) -> Events:
        names = (shop.WIDE_NAMES, shop.WIDE_WEIGHTS)
        return thinned(shop.behaviour(count, self._seed, self._now_ms, span_ms, names), self._kept)

    def _send_probe(self, after_ms: int) -> None:
        self._probe += 1
        user = f"probe-{self._probe}"
        _, record = next(shop.behaviour(1, 10_000 + self._probe, self._now_ms + after_ms, 0))
        value = self._encode(record | {"user_id": user, "name": PROBE_EVENT})
        self.sent[user] = time.monotonic()
        self._produce(record_key("default", user), value)

    def _produce(self, key: bytes, value: bytes) -> None:
        while True:
            try:
                self._producer.produce(BEHAVIOUR, value, key, headers=self._headers)
            except BufferError:
                self._producer.poll(0.01)
            else:
                return


class Bench:
    """The running job, its load and its values."""

    def __init__(
        self,
        made: Stack,
        directory: Path,
        kept: float = 1.0,
        warm_seconds: float = WARM_UP_SECONDS,
        more: Mapping[str, str] = MappingProxyType({}),
    ) -> None:
        """`kept`: as of `thinned`. `warm_seconds`: with events at the first rate, before it is measured. `more`: settings."""
        self.made = made
        codec = Registry(made.registry_url).codec(BEHAVIOUR, load_catalogue().topics[BEHAVIOUR].schema)
        self.load, self.values, self.progress = Load(made, codec, kept), Values(made), Progress(made.brokers, GROUP, BEHAVIOUR)
        self.definitions = Progress(made.brokers, GROUP, TRAIT_DEFINITIONS)
        environment = made.environment() | {
            "STARLING_HTTP__PORT": str(free_port()),
            "STARLING_CLOCK": "event",
            "STARLING_INSTANCE_ID": "profiles-0",
            "STARLING_CHECKPOINT_DIR": str(directory / "checkpoints"),
            "STARLING_SPARK_JARS": os.pathsep.join(str(jar) for jar in runtime_jars("spark")),
            "STARLING_PROFILES_GROUP": GROUP,
            **more,
        }
        self.job = Watched([sys.executable, "-m", "starling_spark.jobs.profiles"], environment, directory / "profiles.log")
        self._warm_seconds = warm_seconds
        self._closing = ExitStack()
        self._spent = self._closing.enter_context(Spent(self.job.pid))

    def cpu_seconds(self) -> float:
        """Return user and system time of the driver, its JVM and the Python workers, also of those that have ended."""
        return self._spent.seconds()

    def worker_mb(self) -> float:
        """Return the greatest resident memory of a Python worker, with the pages that it shares with its daemon.

        Without the pages of the files with copies of states, which the system drops when it needs memory.
        """
        sizes = [0]
        for process in psutil.Process(self.job.pid).children(recursive=True):
            try:
                # The command line of the JVM has the name of the module too, as a setting of Spark.
                if process.cmdline()[1:3] == ["-m", WORKER_DAEMON]:
                    copies = sum(one.rss for one in process.memory_maps() if WORKER_FILES in one.path)
                    sizes.append(process.memory_info().rss - copies)
            except psutil.Error:
                continue
        return round(max(sizes) / 1e6)

    def read_history(self, events: int) -> float:
        """Wait until the values of the history are published; return the rate in events/s since the first commit."""
        marks: list[tuple[float, int]] = []
        deadline = time.monotonic() + PATIENCE_SECONDS
        while (done := self.progress.done()) < events or self.definitions.done() < TRAITS:
            self.job.check()
            if time.monotonic() > deadline:
                raise TimeoutError(f"not {events} events within {PATIENCE_SECONDS:.0f} s: see {self.job.log}")
            if not marks or done > marks[-1][1]:
                marks.append((time.monotonic(), done))
            time.sleep(0.1)
        marks.append((time.monotonic(), done))
        (began, first), (ended, last) = marks[0], marks[-1]
        return (last - first) / (ended - began)

    def settle(self) -> None:
        """Wait until every probe has its value."""
        deadline = time.monotonic() + PATIENCE_SECONDS
        while any((user, "probe") not in self.values.at for user in self.load.sent):
            self.job.check()
            if time.monotonic() > deadline:
                raise TimeoutError(f"a probe has no value after {PATIENCE_SECONDS:.0f} s: see {self.job.log}")
            time.sleep(0.1)

    def latencies(self, users: Sequence[str], trait: str = "probe") -> list[float]:
        """Return the sorted latencies in s."""
        return sorted(self.values.at[user, trait] - self.load.sent[user] for user in users if (user, trait) in self.values.at)

    def at_rate(self, rate: float, seconds: float) -> dict[str, Any]:
        """Return latencies, cost and memory at a rate, and print them."""
        while self._warm_seconds > 0:
            self.load.run(rate, WARM_SLICE_SECONDS)
            self._warm_seconds -= WARM_SLICE_SECONDS
        self._warm_seconds = WARM_SLICE_SECONDS
        self.settle()
        prepared = self.load.prepare(rate, seconds)
        print(f"{rate:,.0f} events/s for {seconds:.0f} s", flush=True)
        known, before, events, values = set(self.load.sent), self.cpu_seconds(), self.load.count, self.values.count
        reached = self.load.run(rate, seconds, prepared=prepared)
        self.settle()
        latencies = self.latencies([user for user in self.load.sent if user not in known])
        found = {
            "events_per_second": round(reached),
            **summary(latencies),
            "cpu_us_an_event": round((self.cpu_seconds() - before) / (self.load.count - events) * 1e6, 1),
            "values_an_event": round((self.values.count - values) / (self.load.count - events), 2),
            "largest_python_worker_mb": self.worker_mb(),
        }
        print(found, flush=True)
        return found

    def soak(self, rate: float, minutes: float) -> dict[str, Any]:
        """Send events at a rate; return the memory of the largest Python worker, sampled between slices of 20 s."""
        sizes: list[float] = []
        ends, sent = time.monotonic() + minutes * 60, self.load.count
        while time.monotonic() < ends:
            self.load.run(rate, SOAK_SLICE_SECONDS)
            self.job.check()
            sizes.append(self.worker_mb())
        self.settle()
        third = len(sizes) // 3
        middle, last = (statistics.median(sizes[start : start + third]) for start in (third, len(sizes) - third))
        return {
            "minutes": minutes,
            "events_per_second": round((self.load.count - sent) / (minutes * 60)),
            "python_worker_mb": sizes,
            "second_third_median_mb": middle,
            "last_third_median_mb": last,
            "growth": round(last / middle - 1, 4),
        }

    def added(self, name: str, rate: float, seconds: float) -> dict[str, Any]:
        """Add a trait during load; return the time until it is active, and the latencies of another trait until then."""
        known, started = set(self.load.sent), time.monotonic()
        self.load.run(rate, seconds)
        prepared: list[tuple[bytes, bytes]] | None = self.load.prepare(rate, LOAD_SECONDS)
        added_at, history, values = time.monotonic(), self.load.count, self.values.count
        defined = self.definitions.done()
        load(self.made, TRAIT_DEFINITIONS, iter([definition(name, ADDED[name])]))
        active_at = asked_at = 0.0

        def is_active() -> bool:
            nonlocal active_at, asked_at
            if not active_at and time.monotonic() - asked_at > ASKED_EVERY_SECONDS:
                self.job.check()
                active_at = time.monotonic() if self.definitions.done() > defined else 0.0
                asked_at = time.monotonic()
            return active_at > 0

        deadline = time.monotonic() + PATIENCE_SECONDS
        while not is_active() and time.monotonic() < deadline:
            self.load.run(rate, LOAD_SECONDS, is_active, prepared)
            prepared = None
        if not active_at:
            raise TimeoutError(f"the trait is not active after {PATIENCE_SECONDS:.0f} s: see {self.job.log}")
        published = self.values.count - values
        self.load.run(rate, seconds)
        self.settle()
        new = {user: at for user, at in self.load.sent.items() if user not in known}
        meanwhile = [user for user, at in new.items() if added_at <= at < active_at]
        draw(name, (started, added_at, active_at), {at: self.values.at[user, "probe"] - at for user, at in new.items()})
        return {
            "events_per_second": round(rate),
            "history_events": history,
            "active_after_seconds": round(active_at - added_at, 1),
            "values_meanwhile": published,
            "others_meanwhile": summary(self.latencies(meanwhile)),
            "others_before": summary(self.latencies([user for user, at in new.items() if at < added_at])),
        }

    def close(self) -> None:
        self._closing.close()
        self.job.stop()
        self.values.close()
        self.progress.close()
        self.definitions.close()


def summary(found: Sequence[float]) -> dict[str, Any]:
    """Return the percentiles of sorted latencies in s."""
    names = {"p50_seconds": 0.5, "p99_seconds": 0.99, "max_seconds": 1.0}
    return {"probes": len(found), **{name: round(percentile(found, share), 2) for name, share in names.items()}}


def draw(name: str, times: tuple[float, float, float], latencies: dict[float, float]) -> None:
    """Write the graph: the longest latency of the probes of each second. `times`: start, trait added, trait active."""
    started, added_at, active_at = times
    seconds: list[float] = []
    for at, latency in sorted(latencies.items()):
        place = int(at - started)
        seconds += [seconds[-1] if seconds else latency] * (place + 1 - len(seconds))
        seconds[place] = max(seconds[place], latency)
    panel = Panel("From an event to its value, s, the longest of each second", 1.0, {"another trait": seconds})
    marks = {"added": added_at - started, "active": active_at - started}
    GRAPHS.mkdir(parents=True, exist_ok=True)
    (GRAPHS / f"{name}.svg").write_text(chart("A trait is added while events flow", [panel], marks))


def soak_rows(soak: dict[str, Any]) -> Iterator[goals.Row]:
    most = max(soak["python_worker_mb"])
    yield goals.Row(f"Python worker in {soak['minutes']:g} minutes, at most", f"{most} MB", "<= 256 MB", most <= 256)
    growth = soak["growth"]
    yield goals.Row("  last third relative to the second", f"{growth:+.1%}", "within 2 %", abs(growth) <= 0.02)


def rows(result: dict[str, Any]) -> Iterator[goals.Row]:
    """Yield the rows of the table. The goals are for 20,000 events/s on an idle machine."""
    ran = [(f"at {share} of the rate held, ", one) for share, one in result.get("live", {}).items()]
    for share, one in ran + [("at ", one) for one in result.get("live_at", {}).values()]:
        figure = f"p50 {one['p50_seconds']} s, p99 {one['p99_seconds']} s"
        met = one["p50_seconds"] <= 3 and one["p99_seconds"] <= 5
        yield goals.Row(f"event to value {share}{one['events_per_second']:,}/s", figure, "3 s, 5 s", met)
        yield goals.Row("  CPU-µs an event", str(one["cpu_us_an_event"]), "<= 60", one["cpu_us_an_event"] <= 60)
        yield goals.Row(
            "  Python worker", f"{one['largest_python_worker_mb']} MB", "<= 256 MB", one["largest_python_worker_mb"] <= 256
        )
    for name, added in [(name, result[name]) for name in ADDED if name in result]:
        what = f"{name.replace('_', ' ')}: active, {added['history_events']:,} events"
        active = added["active_after_seconds"]
        yield goals.Row(what, f"{active} s", "60 s", active <= 60)
        p99 = added["others_meanwhile"]["p99_seconds"]
        yield goals.Row("  event to value of another trait meanwhile, p99", f"{p99} s", "<= 10 s", p99 <= 10)


def history(made: Stack, events: int, users: int, kept: float = 1.0) -> None:
    """Load the events of a history, and the traits. `kept`: as of `thinned`."""
    shop.USERS = users
    names = (shop.WIDE_NAMES, shop.WIDE_WEIGHTS)
    load(made, BEHAVIOUR, thinned(shop.behaviour(events, 1, shop.FIRST_MS, DAYS * shop.DAY_MS, names), kept))
    load(made, TRAIT_DEFINITIONS, (definition(*one) for one in history_traits().items()))


def measure(made: Stack, directory: Path, asked: argparse.Namespace) -> dict[str, Any]:
    """Load the history, start the job and measure what was asked for."""
    events, seconds = asked.events, asked.seconds
    share = matching_share()
    kept = 1.0 if asked.matching is None else asked.matching / share
    history(made, events, asked.users, kept)
    bench = Bench(made, directory, kept, asked.warm_up)
    try:
        held = bench.read_history(events)
        print(f"history: {held:,.0f} events/s", flush=True)
        if asked.soak:
            return {"history_events_per_second": round(held), "soak": bench.soak(held * SHARES[0], asked.soak)}
        found: dict[str, Any] = {"matching_events": round(share * kept, 2), "history_events_per_second": round(held)}
        if asked.rates:
            return found | {"live_at": {f"{rate:g}": bench.at_rate(rate, seconds) for rate in asked.rates}}
        if asked.only != "added":
            found["live"] = {str(share): bench.at_rate(held * share, seconds) for share in SHARES}
        if asked.only != "live":
            bench.load.count += events  # what a new trait has to read
            for name in ADDED:
                found[name] = bench.added(name, held * SHARES[0], seconds / 2)
                print(found[name], flush=True)
        return found
    finally:
        bench.close()


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--events", type=int, default=1_000_000, help="of the history")
    parser.add_argument("--users", type=int, default=USERS)
    parser.add_argument("--seconds", type=float, default=60.0, help="of the measurement at each rate")
    parser.add_argument("--warm-up", type=float, default=WARM_UP_SECONDS, help="seconds at the first rate before it is measured")
    parser.add_argument("--matching", type=float, help="share of the events that match a trait, at most that of the shop; own file")
    parser.add_argument("--only", choices=("live", "added"), help="one part; --write leaves the other one as it was")
    parser.add_argument("--rates", type=float, nargs="+", help="events/s to measure at, instead of shares of the rate held")
    parser.add_argument("--soak", type=float, metavar="MINUTES", help="measure memory over this time instead of latencies")
    parser.add_argument("--small", action="store_true", help="so light that it is over in minutes; not representative")
    parser.add_argument("--write", action="store_true", help="keep the result in benchmarks/results")
    asked = parser.parse_args()
    if asked.small:
        asked.events, asked.users, asked.seconds, asked.write = 50_000, 5_000, 10.0, False
        asked.warm_up = WARM_SLICE_SECONDS
    before = round(os.getloadavg()[1], 1)
    with tempfile.TemporaryDirectory(dir="/var/tmp") as directory, stack(Path(directory) / "stack") as made:
        found = measure(made, Path(directory), asked)
    result = {
        "benchmark": "spark_live",
        "cores": os.cpu_count(),
        "events": asked.events,
        "users": asked.users,
        "traits": TRAITS,
        "seconds": asked.seconds,
        "warm_up_seconds": asked.warm_up,
        "load_average_5m_before": before,
        **found,
    }
    print(json.dumps(result, indent=1))
    print(goals.as_text(list(soak_rows(result["soak"]) if asked.soak else rows(result))))
    if asked.write:
        name = "spark_soak" if asked.soak else "spark_live"
        if asked.users != USERS:
            name += f"_{asked.users}"
        if asked.matching is not None:
            name += f"_matching_{asked.matching:.0%}".removesuffix("%")
        keep(name, kept(name) | result)


if __name__ == "__main__":
    main()
