"""Faults of a cluster of Spark while the job `profiles` computes traits on it.

In the end its values must equal those of one fold over all events. The checkpoint is in an object store, and the broker requires
passwords. Run as root, so that hosts can be cut off:
python -m tests.spark_cluster.faults [--count 20] [--seed 1] [--only executor,cut]
"""

import argparse
import json
import random
import shutil
import signal
import statistics
import subprocess
import sys
import tempfile
import time
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, Final

import psutil

from starling_local.spark_cluster import SparkWorker
from starling_local.stack.supervision.process import marked_processes
from tests.integration.spark.instance import Instance
from tests.spark_cluster.faulty_store import Behaviour
from tests.spark_cluster.rig import ENVIRONMENT, WORKERS, Rig, rig
from tests.spark_cluster.story import DAY_MS, PATIENCE_SECONDS, TRAITS, Story
from tests.unit.spark.evaluator import differences

AWAY_SECONDS: Final = 30.0
"""The duration of a fault that passes."""
EXECUTOR, PYTHON_WORKER = "org.apache.spark.executor.CoarseGrainedExecutorBackend", "starling_spark.session.worker_daemon"


def kill_one(worker: SparkWorker, word: str) -> None:
    """Kill one process of an executor that has the word in its command, if there is one."""
    found = []
    for process in marked_processes(worker.mark):
        with suppress(psutil.Error):
            found += [process] if word in process.cmdline() else []
    if found:
        with suppress(psutil.NoSuchProcess):
            random.choice(found).kill()


@contextmanager
def executor_killed(story: Story, worker: SparkWorker) -> Iterator[None]:
    kill_one(worker, EXECUTOR)
    yield


@contextmanager
def python_worker_killed(story: Story, worker: SparkWorker) -> Iterator[None]:
    kill_one(worker, PYTHON_WORKER)
    yield


@contextmanager
def worker_killed(story: Story, worker: SparkWorker) -> Iterator[None]:
    """The worker with its executor; a new one starts when the fault is over."""
    worker.kill()
    yield
    worker.start()


@contextmanager
def driver_killed(story: Story, worker: SparkWorker) -> Iterator[None]:
    story.instance.kill()
    yield
    story.start()


@contextmanager
def cut_off(story: Story, worker: SparkWorker) -> Iterator[None]:
    """The host reaches no other one."""
    device = ["ip", "-n", worker.host.prefix[-1], "link", "set", "eth0"]
    subprocess.run([*device, "down"], check=True)
    time.sleep(AWAY_SECONDS)  # sleep: the duration of the fault
    yield
    subprocess.run([*device, "up"], check=True)


@contextmanager
def disk_lost(story: Story, worker: SparkWorker) -> Iterator[None]:
    """The local directories of the executor, among them its state store."""
    shutil.rmtree(worker.home / "local", ignore_errors=True)
    (worker.home / "local").mkdir(exist_ok=True)
    yield


@contextmanager
def suspended(process: "subprocess.Popen[bytes]") -> Iterator[None]:
    process.send_signal(signal.SIGSTOP)
    try:
        time.sleep(AWAY_SECONDS)  # sleep: the duration of the fault
        yield
    finally:
        process.send_signal(signal.SIGCONT)


@contextmanager
def store_hangs(story: Story, worker: SparkWorker) -> Iterator[None]:
    with suspended(story.cluster.s3.process):
        yield


@contextmanager
def store_killed(story: Story, worker: SparkWorker) -> Iterator[None]:
    story.cluster.s3.process.kill()
    story.cluster.s3.process.wait()
    time.sleep(AWAY_SECONDS / 3)  # sleep: the duration of the fault
    yield
    story.cluster.s3.restart()


@contextmanager
def store_behaves(story: Story, behaviour: Behaviour) -> Iterator[None]:
    between = story.cluster.between
    assert between is not None
    before, between.behaviour = between.hits, behaviour
    time.sleep(AWAY_SECONDS)  # sleep: the duration of the fault
    yield
    between.behaviour = "faultless"
    report(f"  {between.hits - before} requests or answers")


@contextmanager
def broker_hangs(story: Story, worker: SparkWorker) -> Iterator[None]:
    """The fault ends before the block: no event can be sent meanwhile."""
    with suspended(story.cluster.broker.process):
        pass
    yield


Fault = Callable[[Story, SparkWorker], Any]
"""A block: the fault begins before it, and ends after it at the latest."""
FAULTS: Final[Mapping[str, Fault]] = {
    "executor": executor_killed,
    "python": python_worker_killed,
    "worker": worker_killed,
    "driver": driver_killed,
    "cut": cut_off,
    "disk": disk_lost,
    "store-hangs": store_hangs,
    "store-killed": store_killed,
    "store-503": lambda story, _: store_behaves(story, "refusing"),
    "store-half": lambda story, _: store_behaves(story, "cutting"),
    "broker-hangs": broker_hangs,
}


class Results:
    """What the faults led to: seconds until the job has processed everything that was sent meanwhile, and starts of the job."""

    def __init__(self) -> None:
        self.seconds: dict[str, list[float]] = defaultdict(list)
        self.restarts: dict[str, int] = defaultdict(int)

    def table(self) -> str:
        """Return the table."""
        rows = ["fault | times | median s | longest s | starts of the job"]
        for name, seconds in self.seconds.items():
            rows.append(f"{name} | {len(seconds)} | {statistics.median(seconds):.0f} | {max(seconds):.0f} | {self.restarts[name]}")
        return "\n".join(rows)


def caught_up(story: Story) -> int:
    """Wait until the job has processed everything. Return how often it ended meanwhile and was started, as a supervisor does."""
    starts = 0
    while True:
        try:
            story.instance.settle(PATIENCE_SECONDS)
        except AssertionError:
            if story.instance.process is None or story.instance.process.poll() is None:
                raise
            report(f"  the job ended: {story.instance.log_tail()[-400:]}")
            starts += 1
            story.start()
        else:
            return starts


def wrong_values(story: Story) -> list[Any]:
    """Return where the values differ from one fold over all events: the last ones, and those that a consumer accepts."""
    until_ms = story.events[-1][1] + 10 * DAY_MS
    story.instance.advance(until_ms)
    caught_up(story)
    given = (story.instance.values(), accepted(story.instance))
    return [one for values in given for one in differences(values, TRAITS, story.events, until_ms)]


def accepted(instance: Instance) -> dict[tuple[str, str], Any]:
    """Return (user, trait) -> the value that the normalizer keeps: only a greater (version, epoch, sequence) replaces one."""
    found: dict[tuple[str, str], tuple[tuple[int, int, int], Any]] = {}
    for written in instance.read("aggregates"):
        record = written.record
        place, order = (record["user_id"], record["trait_key"]), (record["trait_version"], record["epoch"], record["sequence"])
        if place not in found or order > found[place][0]:
            found[place] = order, json.loads(record["value"] or "null")
    return {place: value for place, (_, value) in found.items()}


def suffer(cluster: Rig, directory: Path, names: Sequence[str], seed: int) -> int:
    """Let the faults happen, one after the other. Return the number of values that are wrong."""
    dice, story, results = random.Random(seed), Story(cluster, directory), Results()
    (directory / ENVIRONMENT).symlink_to(cluster.home / ENVIRONMENT)
    story.instance.deploy()
    try:
        for key, document in TRAITS.items():
            story.instance.define(key, document)
        story.more(100)
        story.start()
        caught_up(story)
        for number, name in enumerate(names):
            report(f"{number + 1} of {len(names)}: {name}")
            story.more(dice.randrange(20, 80))
            time.sleep(dice.uniform(0, 3))  # sleep: a random instant of the fault
            with FAULTS[name](story, dice.choice(cluster.busy_workers() or cluster.cluster.workers)):
                story.more(dice.randrange(20, 80))
            begin = time.monotonic()
            results.restarts[name] += caught_up(story)
            results.seconds[name].append(time.monotonic() - begin)
            cluster.cluster.wait_for_workers(WORKERS)
        wrong = wrong_values(story)
        letters = len(story.instance.read("dead_letters"))
    finally:
        story.instance.remove()
    for one in wrong[:20]:
        report(f"wrong: {one}")
    report(f"{results.table()}\n{len(story.events)} events, {len(wrong)} wrong values, {letters} dead letters, seed {seed}")
    return len(wrong) + letters


def report(text: str) -> None:
    sys.stdout.write(text + "\n")
    sys.stdout.flush()


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--count", type=int, default=20, help="of each fault (20)")
    parser.add_argument("--seed", type=int, default=random.SystemRandom().randrange(1_000_000))
    parser.add_argument("--only", default=",".join(FAULTS), help="names, comma separated")
    asked = parser.parse_args()
    kinds = asked.only.split(",")
    if unknown := set(kinds) - set(FAULTS):
        parser.error(f"no fault is called {', '.join(sorted(unknown))}: {', '.join(FAULTS)}")
    names = [name for name in kinds for _ in range(asked.count)]
    random.Random(asked.seed).shuffle(names)
    with tempfile.TemporaryDirectory(dir="/var/tmp") as directory, rig(Path(directory), with_faulty_store=True) as cluster:
        if not cluster.cluster.network.is_isolated and "cut" in kinds:
            parser.error("hosts can be cut off only as root: leave `cut` out, or run as root")
        (Path(directory) / "job").mkdir()
        return 1 if suffer(cluster, Path(directory) / "job", names, asked.seed) else 0


if __name__ == "__main__":
    sys.exit(main())
