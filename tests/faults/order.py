"""Two faults of the order of arrival under load: produce requests of one topic are delayed at random, and an edge is stalled.

    python -m tests.faults.order [--seed 7] [--seconds 60]

Requests with an `identify` call in the middle of their tracks go to two edges. Afterwards the events must be in the order of
`received_at`, and the feed must be the fold of them in that order. Exit code 1 otherwise.
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
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from functools import partial
from itertools import count, pairwise
from pathlib import Path
from typing import Any, Final

import httpx

from starling_common.kafka.topics import BEHAVIOUR, CLOCK, INGEST_TOPICS, MEMBERSHIP, PROFILE, load_catalogue
from starling_common.testing import free_port
from starling_common.time.instants import format_instant
from starling_common.wire import Codec, Registry
from tests.faults.delayed_topic import delayed
from tests.faults.load import FIRST_MS, WORKSPACE, Load
from tests.faults.log import Logged, lag, read_all
from tests.faults.oracle import folded
from tests.faults.parts import Stack, running
from tests.faults.verdict import Verdict, judge_feed
from tests.faults.workers import FAST
from tests.integration.ingest import edge_process
from tests.integration.stream.rig import wait_until

_STALL_SECONDS: Final = 3.0
_USERS: Final = 40
_SENDERS: Final = 4
"""Clients of one edge."""
_YEAR_MS: Final = 366 * 86_400_000
_GROUPS: Final = {"starling-normalizer": INGEST_TOPICS, "starling-segmenter": (BEHAVIOUR, PROFILE, CLOCK)}


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
        return {**call, "event": name, "properties": {"revenue": dice.randrange(1, 100), "sku": f"s{dice.randrange(30)}"}}


@contextmanager
def _worker(stage: str, environment: Mapping[str, str], directory: Path) -> Iterator[None]:
    own = {"STARLING_HTTP__PORT": str(free_port()), "STARLING_INSTANCE_ID": stage, "STARLING_STATE_DIR": str(directory / stage)}
    with (directory / f"{stage}.log").open("wb") as out:
        process = subprocess.Popen(
            [sys.executable, "-m", f"starling_{stage}"], env={**os.environ, **environment, **own}, stdout=out, stderr=out
        )
    try:
        yield
    finally:
        process.terminate()
        process.wait(120)


def run(directory: Path, seed: int, *, seconds: float) -> Verdict:
    """Send for that time, with the second edge stalled in the middle; let all be processed, and compare."""
    with ExitStack() as block:
        stack = block.enter_context(running(("kafka", "registry"), directory / "parts"))
        load = Load(stack.brokers, stack.registry_url, seed, rate=0, users=1)
        load.define()
        environment = {"STARLING_KAFKA__BROKERS": stack.brokers, "STARLING_REGISTRY__URL": stack.registry_url, **FAST}
        for stage in ("normalizer", "segmenter"):
            block.enter_context(_worker(stage, environment, directory))
        relay = block.enter_context(delayed(stack.brokers, "ingest.track", seed))
        slow = {**environment, "STARLING_KAFKA__BROKERS": relay.address, "STARLING_WRITE_KEYS": f"key={WORKSPACE}"}
        edges = [block.enter_context(edge_process.running(slow, directory)) for _ in range(2)]
        senders = Senders([edge.url for edge in edges], seed)
        senders.start()
        time.sleep(seconds / 2)  # sleep: the load before the fault
        edges[1].process.send_signal(signal.SIGSTOP)
        time.sleep(_STALL_SECONDS)  # sleep: the fault
        edges[1].process.send_signal(signal.SIGCONT)
        time.sleep(seconds / 2)  # sleep: the load after the fault
        last_ms = senders.stop()
        _settle(stack, load.partitions)
        load.advance_clock(last_ms + _YEAR_MS + 5)
        _settle(stack, load.partitions)
        verdict = _judged(stack)
        verdict.counts |= {"requests": senders.sent, "produce requests delayed": relay.delayed}
        return verdict


def _settle(stack: Stack, partitions: int) -> None:
    for group, topics in _GROUPS.items():
        wait_until(partial(_is_settled, stack.brokers, group, topics, partitions), f"{group} to settle")


def _is_settled(brokers: str, group: str, topics: Sequence[str], partitions: int) -> bool:
    return lag(brokers, group, topics, partitions) == 0


def _judged(stack: Stack) -> Verdict:
    topics = (*INGEST_TOPICS, BEHAVIOUR, PROFILE, CLOCK, MEMBERSHIP)
    registry, catalogue = Registry(stack.registry_url), load_catalogue().topics
    codecs = {topic: registry.codec(topic, catalogue[topic].schema) for topic in topics}
    log, verdict = read_all(stack.brokers, topics), Verdict()
    for number in log[BEHAVIOUR]:
        _judge_order({topic: log[topic][number] for topic in topics}, codecs, verdict)
    truth = folded(log, codecs)
    judge_feed(truth, log[MEMBERSHIP], codecs[MEMBERSHIP], verdict)
    return verdict


def _judge_order(log: Mapping[str, Sequence[Logged]], codecs: Mapping[str, Codec], verdict: Verdict) -> None:
    """The events of a partition are in the order of `received_at`, and form one chain."""
    arrived = [(codecs[topic].decode(one.value), rank) for rank, topic in enumerate(INGEST_TOPICS) for one in log[topic]]
    overtaken = sum(
        earlier[0]["received_at"] > later[0]["received_at"] for earlier, later in pairwise(arrived) if earlier[1] == later[1]
    )
    verdict.add("records that overtook an older one of their topic", overtaken)
    expected = [item["message_id"] for item, rank in sorted(arrived, key=lambda pair: (pair[0]["received_at"], pair[1]))]
    events = sorted((codecs[topic].decode(one.value) for topic in (BEHAVIOUR, PROFILE) for one in log[topic]), key=_order)
    verdict.add("events", len(events))
    for place, (wanted, event) in enumerate(zip(expected, events, strict=False)):
        if wanted != event["message_id"]:
            verdict.found("wrong", f"event {place} is {event['message_id']}, not {wanted}")
    if len(expected) != len(events):
        verdict.found("lost", f"{len(expected)} items and {len(events)} events")
    for previous, event in zip([{"order": 0}, *events], events, strict=False):
        if event["previous_order"] != previous["order"]:
            verdict.found("wrong", f"the predecessor of {event['message_id']} is not {event['previous_order']}")


def _order(event: Mapping[str, Any]) -> int:
    return int(event["order"])


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seed", type=int, default=random.SystemRandom().randrange(1_000_000))
    parser.add_argument("--seconds", type=float, default=60.0, help="of load; the stall comes on top")
    given = parser.parse_args()
    sys.stderr.write(f"seed {given.seed}\n")
    with tempfile.TemporaryDirectory(prefix="starling-order-") as temporary:
        verdict = run(Path(temporary), given.seed, seconds=given.seconds)
    lines = [*(f"{name:<52}{number:>9}" for name, number in verdict.counts.items()), *verdict.examples]
    lines.append(f"lost {verdict.lost}, doubled {verdict.doubled}, wrong {verdict.wrong}")
    sys.stdout.write("\n".join(lines) + "\n")
    return 0 if verdict.good else 1


if __name__ == "__main__":
    sys.exit(main())
