"""The faults of a cluster of Spark, and of the servers beside it."""

import random
import shutil
import signal
import subprocess
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, suppress
from functools import partial
from typing import Any, Final

import psutil

from starling_local.spark_cluster import SparkWorker
from starling_local.stack.supervision.process import marked_processes
from tests.spark_cluster.faulty_link import Behaviour
from tests.spark_cluster.loads import Load, Traits, report

AWAY_SECONDS: Final = 30.0
"""The duration of a fault that passes."""
_MOST_AWAY_SECONDS: Final = 150.0
"""The longest duration of a fault of a connection that nothing uses: the driver may have to start first."""
EXECUTOR, PYTHON_WORKER = "org.apache.spark.executor.CoarseGrainedExecutorBackend", "starling_spark.session.worker_daemon"
_STOPPED_SECONDS, _RUNNING_SECONDS = 0.4, 0.1
"""In turn, of a server that is slow."""

Fault = Callable[[Any, SparkWorker], AbstractContextManager[None]]
"""A block: the fault begins before it, and ends after it at the latest. It is given a load and a worker."""


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
def executor_killed(load: Load, worker: SparkWorker) -> Iterator[None]:
    kill_one(worker, EXECUTOR)
    yield


@contextmanager
def python_worker_killed(load: Load, worker: SparkWorker) -> Iterator[None]:
    kill_one(worker, PYTHON_WORKER)
    yield


@contextmanager
def worker_killed(load: Load, worker: SparkWorker) -> Iterator[None]:
    """The worker with its executor; a new one starts when the fault is over."""
    worker.kill()
    yield
    worker.start()


@contextmanager
def held_down(load: Load) -> Iterator[None]:
    """Let nothing else start the job during a block."""
    load.is_held_down = True
    try:
        yield
    finally:
        load.is_held_down = False


@contextmanager
def driver_killed(load: Load, worker: SparkWorker) -> Iterator[None]:
    with held_down(load):
        load.kill()
        yield
        load.start(is_awaited=False)


@contextmanager
def cut_off(load: Load, worker: SparkWorker) -> Iterator[None]:
    """The host reaches no other one."""
    device = ["ip", "-n", worker.host.prefix[-1], "link", "set", "eth0"]
    subprocess.run([*device, "down"], check=True)
    time.sleep(AWAY_SECONDS)  # sleep: the duration of the fault
    yield
    subprocess.run([*device, "up"], check=True)


@contextmanager
def disk_lost(load: Load, worker: SparkWorker) -> Iterator[None]:
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
def store_hangs(load: Load, worker: SparkWorker) -> Iterator[None]:
    with suspended(load.cluster.s3.process):
        yield


@contextmanager
def store_killed(load: Load, worker: SparkWorker) -> Iterator[None]:
    load.cluster.s3.process.kill()
    load.cluster.s3.process.wait()
    time.sleep(AWAY_SECONDS / 3)  # sleep: the duration of the fault
    yield
    load.cluster.s3.restart()


@contextmanager
def link_behaves(load: Load, worker: SparkWorker, *, to: str, behaviour: Behaviour) -> Iterator[None]:
    """`to`: a name of `Links`."""
    link = getattr(load.cluster.links, to)
    before, link.behaviour = link.hits, behaviour
    end = time.monotonic() + _MOST_AWAY_SECONDS
    try:
        load.more(20)
        time.sleep(AWAY_SECONDS)  # sleep: the duration of the fault
        while link.hits == before and time.monotonic() < end:
            time.sleep(1)  # sleep: until the job uses the connection
        yield
    finally:
        link.behaviour = "faultless"
    report(f"  {to} {behaviour}: {link.hits - before} pieces of data or connections")


@contextmanager
def registry_behaves(load: Load, worker: SparkWorker, *, behaviour: Behaviour) -> Iterator[None]:
    """Python workers start meanwhile, which have no schema of the newer writer yet: a running job asks for nothing."""
    link = load.cluster.links.registry
    before, link.behaviour = link.hits, behaviour
    try:
        for one in load.cluster.busy_workers():
            kill_one(one, PYTHON_WORKER)
        load.more(20)
        time.sleep(AWAY_SECONDS)  # sleep: the duration of the fault
        yield
    finally:
        link.behaviour = "faultless"
    report(f"  registry {behaviour}: {link.hits - before} pieces of data or connections")


@contextmanager
def started_without_registry(load: Load, worker: SparkWorker) -> Iterator[None]:
    """The driver starts while the registry is away."""
    try:
        with held_down(load):
            load.kill()
            load.cluster.links.registry.behaviour = "closed"
            load.start(is_awaited=False)
        time.sleep(AWAY_SECONDS)  # sleep: the duration of the fault
        yield
    finally:
        load.cluster.links.registry.behaviour = "faultless"


@contextmanager
def broker_hangs(load: Load, worker: SparkWorker) -> Iterator[None]:
    """The fault ends before the block: no event can be sent meanwhile."""
    with suspended(load.cluster.broker.process):
        pass
    yield


@contextmanager
def broker_slow(load: Load, worker: SparkWorker) -> Iterator[None]:
    """The process runs for a fifth of the time."""
    is_over, process = threading.Event(), load.cluster.broker.process

    def slow_down() -> None:
        while not is_over.wait(_RUNNING_SECONDS):
            process.send_signal(signal.SIGSTOP)
            is_over.wait(_STOPPED_SECONDS)
            process.send_signal(signal.SIGCONT)

    thread = threading.Thread(target=slow_down)
    thread.start()
    try:
        yield
        time.sleep(AWAY_SECONDS)  # sleep: the duration of the fault
    finally:
        is_over.set()
        thread.join()


@contextmanager
def broken_records(load: Traits, worker: SparkWorker) -> Iterator[None]:
    """A Python worker dies while records come that no schema can read."""
    load.send_broken()
    kill_one(worker, PYTHON_WORKER)
    load.send_broken()
    yield


@contextmanager
def clock_jumps(load: Traits, worker: SparkWorker) -> Iterator[None]:
    """An event is far ahead, so that those of the block are late."""
    load.jump()
    yield
    load.stay_ahead()


@contextmanager
def definition_edited(load: Traits, worker: SparkWorker) -> Iterator[None]:
    """A trait changes while its history is read, and an executor dies."""
    load.edit()
    kill_one(worker, EXECUTOR)
    yield


_STORE, _CATALOG = (partial(link_behaves, to=name) for name in ("store", "catalog"))
_EVERYWHERE: Final[Mapping[str, Fault]] = {
    "executor": executor_killed,
    "python": python_worker_killed,
    "worker": worker_killed,
    "driver": driver_killed,
    "cut": cut_off,
    "disk": disk_lost,
    "store-hangs": store_hangs,
    "store-killed": store_killed,
    "store-503": partial(_STORE, behaviour="refusing"),
    "store-half": partial(_STORE, behaviour="cutting"),
    "store-slow": partial(_STORE, behaviour="slow"),
    "broker-hangs": broker_hangs,
    "broker-slow": broker_slow,
    "registry-away": partial(registry_behaves, behaviour="closed"),
    "registry-slow": partial(registry_behaves, behaviour="slow"),
    "start-without-registry": started_without_registry,
}
FAULTS: Final[Mapping[str, Mapping[str, Fault]]] = {
    "profiles": {**_EVERYWHERE, "broken": broken_records, "clock": clock_jumps, "edit": definition_edited},
    "lake": {
        **_EVERYWHERE,
        "catalog-away": partial(_CATALOG, behaviour="closed"),
        "catalog-hangs": partial(_CATALOG, behaviour="hanging"),
        "catalog-slow": partial(_CATALOG, behaviour="slow"),
    },
}
"""By job and name."""
LINK_OF: Final[Mapping[str, str]] = {
    **dict.fromkeys(("store-503", "store-half", "store-slow"), "store"),
    **dict.fromkeys(("registry-away", "registry-slow", "start-without-registry"), "registry"),
    **dict.fromkeys(("catalog-away", "catalog-hangs", "catalog-slow"), "catalog"),
}
"""The connection of a fault, by its name."""
HOSTS: Final = frozenset({"executor", "python", "worker", "cut", "disk"})
"""Faults of a host: those of a wave are on different ones."""
_MOST_HOSTS: Final = 2
"""Of the three hosts, those that may have a fault at once."""
_LANES: Final = (
    frozenset({"store-hangs", "store-killed"}),
    frozenset({"store-503", "store-half", "store-slow"}),
    frozenset({"broker-hangs", "broker-slow"}),
    frozenset({"driver", "start-without-registry"}),
    frozenset({"registry-away", "registry-slow", "start-without-registry"}),
    frozenset({"catalog-away", "catalog-hangs", "catalog-slow"}),
    frozenset({"broken", "clock", "edit"}),
)
"""Faults of one lane exclude each other: both would change the same process or connection."""


def waves(names: Sequence[str], most: int) -> Iterator[list[str]]:
    """Divide faults into waves of up to `most`, in which no lane has two; the order is kept as far as that allows."""
    waiting = list(names)
    while waiting:
        wave: list[str] = []
        for name in list(waiting):
            if len(wave) < most and _fits(name, wave):
                wave.append(name)
                waiting.remove(name)
        yield wave


def _fits(name: str, wave: Sequence[str]) -> bool:
    if name in HOSTS:
        return sum(other in HOSTS for other in wave) < _MOST_HOSTS
    return not any({name, other} <= lane for lane in _LANES for other in wave)
