"""Faults of the order of arrival, under load: delayed requests, a stalled edge, a busy machine, a backlog, code that raises.

    python -m tests.faults.order [--seed 7] [--seconds 20]

Requests with an `identify` call in the middle of their tracks go to two edges; the produce requests of one topic are delayed by up
to half a second. One phase follows another: an edge stalled for three seconds; three busy processes for each core; a normalizer
suspended for longer than its session; a backlog, for which the normalizers are stopped. Afterwards the events must be in the order
of `received_at`, and the feed must be the fold of them in that order. A second run over the same topics, by workers without states,
must give the same events and the same feed, record by record. Exit code 1 otherwise.
"""

import argparse
import os
import random
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from functools import partial
from itertools import count, pairwise
from pathlib import Path
from typing import Any, Final

import httpx
from confluent_kafka.admin import AdminClient

from starling_common.deploy import create_topics
from starling_common.kafka.topics import (
    BEHAVIOUR,
    CLOCK,
    INGEST_TOPICS,
    MEMBERSHIP,
    MEMBERSHIP_STATE,
    OUTCOMES,
    PROFILE,
    load_catalogue,
)
from starling_common.testing import free_port
from starling_common.time.instants import format_instant
from starling_common.wire import Codec, Registry
from tests.faults.delayed_topic import delayed
from tests.faults.findings import Findings, check_feed
from tests.faults.load import FIRST_MS, WORKSPACE, Load
from tests.faults.log import Logged, lag, read_all
from tests.faults.oracle import folded
from tests.faults.parts import Stack, running
from tests.faults.workers import FAST, RAISE, SESSION_SECONDS
from tests.integration.ingest import edge_process
from tests.integration.stream.rig import wait_until

_STALL_SECONDS: Final = 3.0
_OVERTAKEN: Final = "records that overtook an older one of their topic"
_USERS: Final = 40
_BUSY_A_CORE: Final = 3
_RAISING: Final = 1 / 600
"""The share of calls with which the code of the normalizer raises."""
_SENDERS: Final = 4
"""Clients of one edge."""
_YEAR_MS: Final = 366 * 86_400_000
_GROUPS: Final = {"starling-normalizer": INGEST_TOPICS, "starling-segmenter": (BEHAVIOUR, PROFILE, CLOCK)}
_WRITTEN: Final = (
    *(BEHAVIOUR, PROFILE, OUTCOMES, "normalizer.dlq", "normalizer-state-changelog"),
    *(MEMBERSHIP, MEMBERSHIP_STATE, "segments.progress", "segmenter.dlq", "segmenter-state-changelog"),
)
"""The topics that the two stages write, which a second run starts without."""


@dataclass(frozen=True)
class Phases:
    """Seconds of each phase; 0 for none. `zombie`: whether one of two normalizers is suspended for longer than its session."""

    quiet: float = 20.0
    busy: float = 20.0
    backlog: float = 60.0
    zombie: bool = True


class Senders:
    """Some threads an edge. Each request is sent once: one that is not acknowledged may be written, and need not be."""

    def __init__(self, urls: Sequence[str], seed: int) -> None:
        self._over = threading.Event()
        self._numbers = count(1)
        self._lock = threading.Lock()
        self.sent = 0
        lots = [(url, random.Random(f"{seed} {edge} {number}")) for edge, url in enumerate(urls) for number in range(_SENDERS)]
        self._threads = [threading.Thread(target=self._run, args=lot) for lot in lots]

    def start(self) -> None:
        for thread in self._threads:
            thread.start()

    def stop(self) -> int:
        """Return the last event time."""
        self._over.set()
        for thread in self._threads:
            thread.join(60)
        return FIRST_MS + next(self._numbers) * 1_000

    def _run(self, url: str, dice: random.Random) -> None:
        with httpx.Client(base_url=url, headers={"x-write-key": "key"}, timeout=60) as client:
            while not self._over.is_set():
                user = f"u{dice.randrange(_USERS)}"
                calls = [self._call(user, dice, kind) for kind in ("track", "track", "identify", "track")]
                accepted = client.post("/v1/batch", json={"batch": calls}).status_code == 200
                with self._lock:
                    self.sent += accepted

    def _call(self, user: str, dice: random.Random, kind: str) -> dict[str, Any]:
        number = next(self._numbers)
        call = {"type": kind, "userId": user, "messageId": f"m{number}", "timestamp": format_instant(FIRST_MS + number * 1_000)}
        if kind == "identify":
            return {**call, "traits": {"plan": dice.choice(["free", "pro"]), "score": dice.randrange(10)}}
        name = dice.choice(["Toggled", "Order Completed", "Page Viewed"])
        sku = f"{RAISE}{dice.choice(['decode', 'process', 'output'])}" if dice.random() < _RAISING else f"s{dice.randrange(30)}"
        return {**call, "event": name, "properties": {"revenue": dice.randrange(1, 100), "sku": sku}}


class Process:
    """A worker of a stage, which has a disk of its own."""

    def __init__(self, stage: str, name: str, environment: Mapping[str, str], directory: Path) -> None:
        self._stage, self._name, self._environment, self._directory = stage, name, environment, directory
        self._process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        own = {"STARLING_HTTP__PORT": str(free_port()), "STARLING_INSTANCE_ID": self._name}
        disk = {"STARLING_STATE_DIR": str(self._directory / self._name), "STARLING_FAILPOINT": f"raise_in_any:{RAISE}"}
        with (self._directory / f"{self._name}.log").open("ab") as out:
            self._process = subprocess.Popen(
                [sys.executable, "-m", f"starling_{self._stage}"],
                env={**os.environ, **self._environment, **own, **(disk if self._stage == "normalizer" else disk | _NO_FAILPOINT)},
                stdout=out,
                stderr=out,
            )

    def send(self, number: signal.Signals) -> None:
        assert self._process is not None
        self._process.send_signal(number)

    def stop(self, *, leaves_group: bool = False) -> None:
        if self._process is not None:
            self._process.send_signal(signal.SIGUSR1 if leaves_group else signal.SIGTERM)
            self._process.wait(120)
            self._process = None

    def count(self, event: str) -> int:
        """Return how often its log has that event."""
        return (self._directory / f"{self._name}.log").read_text(errors="replace").count(f'"event": "{event}"')


_NO_FAILPOINT: Final = {"STARLING_FAILPOINT": ""}


@contextmanager
def _busy(count_of: int) -> Iterator[None]:
    """Run processes that do nothing but compute."""
    started = [subprocess.Popen([sys.executable, "-c", "while True: pass"]) for _ in range(count_of)]
    try:
        yield
    finally:
        for process in started:
            process.kill()
            process.wait()


class Stages:
    """The workers of both stages; `run` numbers the runs, each with disks of its own."""

    def __init__(self, stack: Stack, directory: Path, normalizers: int, run_number: int = 1) -> None:
        environment = {"STARLING_KAFKA__BROKERS": stack.brokers, "STARLING_REGISTRY__URL": stack.registry_url, **FAST}
        names = [f"normalizer-{run_number}-{number}" for number in range(normalizers)]
        self.normalizers = [Process("normalizer", name, environment, directory) for name in names]
        self.segmenter = Process("segmenter", f"segmenter-{run_number}", environment, directory)

    def stop(self) -> None:
        for process in (*self.normalizers, self.segmenter):
            process.stop(leaves_group=True)


def run(directory: Path, seed: int, phases: Phases) -> Findings:
    """Run the phases; let all be processed, and compare; process all again without states, and compare that too."""
    with ExitStack() as block:
        stack = block.enter_context(running(("kafka", "registry"), directory / "parts"))
        load = Load(stack.brokers, stack.registry_url, seed, rate=0, users=1)
        load.define()
        stages = Stages(stack, directory, 2 if phases.zombie else 1)
        block.callback(stages.stop)
        for process in (*stages.normalizers, stages.segmenter):
            process.start()
        relay = block.enter_context(delayed(stack.brokers, "ingest.track", seed))
        slow = {"STARLING_KAFKA__BROKERS": relay.address, "STARLING_REGISTRY__URL": stack.registry_url, "STARLING_CLOCK": "event"}
        edges = [block.enter_context(edge_process.running(slow | _KEY, directory)) for _ in range(2)]
        senders = Senders([edge.url for edge in edges], seed)
        senders.start()
        try:
            _phases(phases, stages, edges[1])
        finally:
            last_ms = senders.stop()
        _settle(stack, load.partitions)
        load.advance_clock(last_ms + _YEAR_MS + 5)
        _settle(stack, load.partitions)
        findings = _checked(stack)
        findings.counts |= {"requests": senders.sent, "produce requests delayed": relay.delayed}
        first = _written(stack)
        stages.stop()
        _run_again(stack, directory, load.partitions, findings)
        _check_replay(first, _written(stack), findings)
        return findings


_KEY: Final = {"STARLING_WRITE_KEYS": f"key={WORKSPACE}"}


def _phases(phases: Phases, stages: Stages, edge: edge_process.EdgeProcess) -> None:
    time.sleep(phases.quiet / 2)  # sleep: the load before the fault
    edge.process.send_signal(signal.SIGSTOP)
    time.sleep(_STALL_SECONDS)  # sleep: the fault
    edge.process.send_signal(signal.SIGCONT)
    time.sleep(phases.quiet / 2)  # sleep: the load after the fault
    if phases.busy:
        with _busy(_BUSY_A_CORE * (os.cpu_count() or 1)):
            time.sleep(phases.busy)  # sleep: the load of a busy machine
    if phases.zombie:
        stages.normalizers[0].send(signal.SIGSTOP)
        time.sleep(SESSION_SECONDS + 4)  # sleep: longer than its session
        stages.normalizers[0].send(signal.SIGCONT)
    if phases.backlog:
        for normalizer in stages.normalizers:
            normalizer.stop()
        time.sleep(phases.backlog)  # sleep: the backlog grows
        for normalizer in stages.normalizers:
            normalizer.start()


def _run_again(stack: Stack, directory: Path, partitions: int, findings: Findings) -> None:
    """Delete what the stages wrote, with their offsets, and let new workers process the topics from their start."""
    admin = AdminClient({"bootstrap.servers": stack.brokers})
    for deleted in (*admin.delete_consumer_groups(list(_GROUPS)).values(), *admin.delete_topics(list(_WRITTEN)).values()):
        deleted.result()
    wait_until(lambda: not set(_WRITTEN) & set(admin.list_topics(timeout=30).topics), "the topics to be deleted")
    create_topics(admin, [load_catalogue().topics[name] for name in _WRITTEN], 1)
    again = Stages(stack, directory, 1, run_number=2)
    try:
        again.normalizers[0].start()
        _settle(stack, partitions, ("starling-normalizer",))
        again.segmenter.start()  # the clock's advance lies in its topic already: the events must come first
        _settle(stack, partitions)
        findings.add("times that a backlog was read ahead", again.normalizers[0].count("reading_ahead"))
    finally:
        again.stop()


def _written(stack: Stack) -> dict[str, dict[int, list[dict[str, Any]]]]:
    """Return the records of the events and of the feed, without the fields that name the time of processing."""
    registry, catalogue = Registry(stack.registry_url), load_catalogue().topics
    found: dict[str, dict[int, list[dict[str, Any]]]] = {}
    for topic, of_partitions in read_all(stack.brokers, (BEHAVIOUR, PROFILE, MEMBERSHIP)).items():
        codec = registry.codec(topic, catalogue[topic].schema)
        found[topic] = {
            number: [_comparable(codec.decode(one.value)) for one in logged] for number, logged in of_partitions.items()
        }
    return found


def _comparable(record: Mapping[str, Any]) -> dict[str, Any]:
    """Return the record without the times of its evaluation, and without the snapshot of the profile if no event caused it.

    A timer that fires in the step of a profile record has the snapshot before it or after it.
    """
    cause = record.get("cause")
    left_out = (
        {"decided_at"} if cause is None or cause["kind"] == "EVENT" else {"decided_at", "received_at", "traits", "anonymous_ids"}
    )
    return {name: value for name, value in record.items() if name not in left_out}


def _check_replay(first: Mapping[str, Any], second: Mapping[str, Any], findings: Findings) -> None:
    """The second run wrote the same events, in one order, and each user's feed."""
    for topic in (BEHAVIOUR, PROFILE):
        for number, records in first[topic].items():
            findings.add("events of the replay", len(second[topic][number]))
            _compare(f"{topic} {number}", records, second[topic][number], findings)
    feeds = [_by_user(written[MEMBERSHIP]) for written in (first, second)]
    for user in feeds[0].keys() | feeds[1].keys():
        findings.add("feed records of the replay", len(feeds[1].get(user, ())))
        _compare(f"the feed of {user}", feeds[0].get(user, []), feeds[1].get(user, []), findings)


def _by_user(feed: Mapping[int, Sequence[Mapping[str, Any]]]) -> dict[str, list[Mapping[str, Any]]]:
    found: dict[str, list[Mapping[str, Any]]] = {}
    for record in (record for records in feed.values() for record in records):
        found.setdefault(record["user_id"], []).append(record)
    return found


def _compare(what: str, first: Sequence[Mapping[str, Any]], second: Sequence[Mapping[str, Any]], findings: Findings) -> None:
    if len(first) != len(second):
        findings.found("wrong", f"{what}: {len(first)} records, and {len(second)} in the replay")
    for place, (live, replayed) in enumerate(zip(first, second, strict=False)):
        if live != replayed:
            differing = {name: (live[name], replayed[name]) for name in live if live[name] != replayed[name]}
            findings.found("wrong", f"{what}: record {place} differs in the replay: {differing}")
            return


def _settle(stack: Stack, partitions: int, groups: Sequence[str] = tuple(_GROUPS)) -> None:
    for group in groups:
        wait_until(partial(_is_settled, stack.brokers, group, _GROUPS[group], partitions), f"{group} to settle", 300)


def _is_settled(brokers: str, group: str, topics: Sequence[str], partitions: int) -> bool:
    return lag(brokers, group, topics, partitions) == 0


def _checked(stack: Stack) -> Findings:
    topics = (*INGEST_TOPICS, BEHAVIOUR, PROFILE, CLOCK, MEMBERSHIP, "normalizer.dlq")
    registry, catalogue = Registry(stack.registry_url), load_catalogue().topics
    codecs = {topic: registry.codec(topic, catalogue[topic].schema) for topic in topics}
    log, findings = read_all(stack.brokers, topics), Findings()
    for number in log[BEHAVIOUR]:
        _check_order({topic: log[topic][number] for topic in (*INGEST_TOPICS, BEHAVIOUR, PROFILE)}, codecs, findings)
    letters = Counter(codecs["normalizer.dlq"].decode(one.value)["origin_offset"] for one in log["normalizer.dlq"][0])
    raising = Counter(
        one.offset for topic in INGEST_TOPICS for logged in log[topic].values() for one in logged if _RAISES in one.value
    )
    findings.add("items with which the normalizer raised", raising.total())
    if letters != raising:
        findings.found("wrong", f"dead letters of the offsets {letters}, not of {raising}")
    truth = folded(log, codecs)
    check_feed(truth, log[MEMBERSHIP], codecs[MEMBERSHIP], findings)
    return findings


def _check_order(log: Mapping[str, Sequence[Logged]], codecs: Mapping[str, Codec], findings: Findings) -> None:
    """The events of a partition are in the order of `received_at`, and form one chain."""
    arrived = [
        (codecs[topic].decode(one.value), rank)
        for rank, topic in enumerate(INGEST_TOPICS)
        for one in log[topic]
        if _RAISES not in one.value
    ]
    overtaken = sum(
        earlier[0]["received_at"] > later[0]["received_at"] for earlier, later in pairwise(arrived) if earlier[1] == later[1]
    )
    findings.add(_OVERTAKEN, overtaken)
    expected = [item["message_id"] for item, rank in sorted(arrived, key=lambda pair: (pair[0]["received_at"], pair[1]))]
    events = sorted((codecs[topic].decode(one.value) for topic in (BEHAVIOUR, PROFILE) for one in log[topic]), key=_order)
    findings.add("events", len(events))
    for place, (wanted, event) in enumerate(zip(expected, events, strict=False)):
        if wanted != event["message_id"]:
            findings.found("wrong", f"event {place} is {event['message_id']}, not {wanted}")
    if len(expected) != len(events):
        findings.found("lost", f"{len(expected)} items and {len(events)} events")
    for previous, event in zip([{"order": 0}, *events], events, strict=False):
        if event["previous_order"] != previous["order"]:
            findings.found("wrong", f"the predecessor of {event['message_id']} is not {event['previous_order']}")


_RAISES: Final = RAISE.encode()


def _order(event: Mapping[str, Any]) -> int:
    return int(event["order"])


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seed", type=int, default=random.SystemRandom().randrange(1_000_000))
    parser.add_argument("--seconds", type=float, default=20.0, help="of load in each phase; of the backlog three times as many")
    parser.add_argument("--keep", type=Path, help="a new directory for logs and disks; else a temporary one")
    given = parser.parse_args()
    sys.stderr.write(f"seed {given.seed}\n")
    with tempfile.TemporaryDirectory(prefix="starling-order-") as temporary:
        directory = given.keep or Path(temporary)
        directory.mkdir(parents=True, exist_ok=True)
        findings = run(directory, given.seed, Phases(given.seconds, given.seconds, 3 * given.seconds))
    lines = [*(f"{name:<52}{number:>9}" for name, number in findings.counts.items()), *findings.examples]
    lines.append(f"lost {findings.lost}, doubled {findings.doubled}, wrong {findings.wrong}")
    sys.stdout.write("\n".join(lines) + "\n")
    if not findings.counts[_OVERTAKEN]:
        sys.stdout.write(f"no {_OVERTAKEN}: the delays did not change any order, so the run proves little; run it longer\n")
        return 1
    return 0 if findings.good else 1


if __name__ == "__main__":
    sys.exit(main())
