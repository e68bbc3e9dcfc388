"""Adapter for tests: a standalone cluster of Spark: a master on this machine, and a worker on each host of a network.

The processes are those of the Spark inside the package `pyspark`. A worker has no variable of the caller's environment. On isolated
hosts it does not see the directory `hidden` either: its executors find Spark, the jars and the archives that a job sends with it.
"""

import json
import os
import signal
import subprocess
import time
import urllib.request
import uuid
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from importlib.util import find_spec
from pathlib import Path
from typing import Any, Final

import psutil

from starling_local.errors import NotPossible
from starling_local.hosts import Host, Network
from starling_local.java import find_java
from starling_local.stack.supervision.process import MARK, end_with_parent, marked_processes

_MASTER_PORT, _MASTER_HTTP, _WORKER_PORT, _WORKER_HTTP = 7077, 8080, 7078, 8081
_START_SECONDS: Final = 120.0
_STOP_SECONDS: Final = 30.0
_POLL_SECONDS: Final = 0.2
_CLEANUP_SECONDS: Final = 120
_HIDING: Final = 'mount --bind "$1" "$2" && mount -t tmpfs none "$3" && shift 3 && exec "$@"'
"""The mounts exist in the namespace of the process alone: `ip netns exec` creates one."""


class ClusterError(NotPossible):
    """The cluster cannot be started. The text states the reason."""


@dataclass(slots=True)
class SparkWorker:
    """A worker of the cluster. `home`: its log and the directories of its executors."""

    host: Host
    home: Path
    command: Sequence[str]
    environment: Mapping[str, str]
    process: subprocess.Popen[bytes] | None = None
    mark: str = field(default_factory=lambda: uuid.uuid4().hex)

    def start(self) -> None:
        """Start the process."""
        self.mark = uuid.uuid4().hex
        self.process = _started(self.command, {**self.environment, MARK: self.mark}, self.home / "log", self.home)

    def kill(self) -> int:
        """Kill the worker with its executors and their Python processes (SIGKILL). Return the number of processes."""
        found = marked_processes(self.mark)
        for one in found:
            with suppress(psutil.NoSuchProcess):
                one.kill()
        if self.process is not None:
            self.process.wait(_STOP_SECONDS)
        return len(found)

    def running_executors(self) -> list[dict[str, Any]]:
        """Return the running executors: `id`, `appid` and others, as the worker reports them."""
        found: list[dict[str, Any]] = _read(f"http://{self.host.address}:{_WORKER_HTTP}/json/")["executors"]
        return found

    def stop(self) -> None:
        """End the worker, and what it leaves."""
        if self.process is not None and self.process.poll() is None:
            self.process.send_signal(signal.SIGTERM)
            with suppress(subprocess.TimeoutExpired):
                self.process.wait(_STOP_SECONDS)
        self.kill()


@dataclass(frozen=True, slots=True)
class SparkCluster:
    """A running cluster. `home`: the Spark of the master and of drivers."""

    network: Network
    home: Path
    workers: tuple[SparkWorker, ...]

    @property
    def master(self) -> str:
        """The address for drivers."""
        return f"spark://{self.network.address}:{_MASTER_PORT}"

    def state(self) -> Mapping[str, Any]:
        """Return what the master reports of workers and applications."""
        return _read(f"http://{self.network.address}:{_MASTER_HTTP}/json/")

    def wait_for_workers(self, count: int) -> None:
        """Wait until this number of workers is registered. Raises: ClusterError."""
        _wait(lambda: self._alive() == count, f"the master does not report {count} workers")

    def _alive(self) -> int:
        return sum(one["state"] == "ALIVE" for one in self.state()["workers"])


@contextmanager
def spark_cluster(network: Network, home: Path, *, cores: int = 1, memory: str = "1g", hidden: Path) -> Iterator[SparkCluster]:
    """Start the cluster; yield it when the master reports every worker. `cores`, `memory`: of each worker.

    Raises: ClusterError, JavaError.
    """
    spark, java = spark_home(), find_java()
    common = {"PATH": os.defpath, "JAVA_HOME": str(java.home), "SPARK_DAEMON_MEMORY": "256m"}
    master_home = home / "master"
    master_home.mkdir(parents=True)
    words = ("--host", network.address, "--port", str(_MASTER_PORT), "--webui-port", str(_MASTER_HTTP))
    # A worker that was killed is lost after this time; by default after a minute.
    quick = {"SPARK_MASTER_OPTS": "-Dspark.worker.timeout=20", "SPARK_LOCAL_IP": network.address}
    command = [str(spark / "bin" / "spark-class"), "org.apache.spark.deploy.master.Master", *words]
    master = _started(command, {**common, **quick, "SPARK_HOME": str(spark)}, master_home / "log", master_home)
    workers = tuple(
        _worker(network, host, home / f"worker-{number}", spark, {**common, **_limits(cores, memory)}, hidden)
        for number, host in enumerate(network.hosts)
    )
    cluster = SparkCluster(network, spark, workers)
    try:
        _wait(lambda: bool(cluster.state()), f"the master did not start: {master_home / 'log'}")
        for worker in workers:
            worker.start()
        cluster.wait_for_workers(len(workers))
        yield cluster
    finally:
        for worker in workers:
            worker.stop()
        master.kill()
        master.wait()


def spark_home() -> Path:
    """Return the directory of the Spark inside the package `pyspark`. Raises: ClusterError without the package."""
    found = find_spec("pyspark")
    if found is None or found.origin is None:
        raise ClusterError("the package pyspark is missing: run `make setup`")
    return Path(found.origin).parent


def _limits(cores: int, memory: str) -> dict[str, str]:
    return {"SPARK_WORKER_CORES": str(cores), "SPARK_WORKER_MEMORY": memory}


def _worker(network: Network, host: Host, home: Path, spark: Path, environment: Mapping[str, str], hidden: Path) -> SparkWorker:
    own = home / "spark" if network.is_isolated else spark
    (home / "spark").mkdir(parents=True)
    words = (
        "--host",
        host.address,
        "--port",
        str(_WORKER_PORT),
        "--webui-port",
        str(_WORKER_HTTP),
        "--work-dir",
        str(home / "work"),
    )
    command = (str(own / "bin" / "spark-class"), "org.apache.spark.deploy.worker.Worker", *words)
    hiding = ("sh", "-c", _HIDING, "sh", str(spark), str(own), str(hidden)) if network.is_isolated else ()
    # Each executor of an application unpacks a Python environment of 400 MB, and a driver that starts again is a new application.
    ended = {"enabled": "true", "interval": _CLEANUP_SECONDS, "appDataTtl": _CLEANUP_SECONDS}
    options = " ".join(f"-Dspark.worker.cleanup.{name}={value}" for name, value in ended.items())
    own_places = {"SPARK_HOME": str(own), "SPARK_LOCAL_IP": host.address, "SPARK_LOCAL_DIRS": str(home / "local")}
    variables = {**environment, **own_places, "SPARK_WORKER_OPTS": options}
    return SparkWorker(host, home, (*host.prefix, *hiding, *command, f"spark://{network.address}:{_MASTER_PORT}"), variables)


def _started(command: Sequence[str], environment: Mapping[str, str], log: Path, cwd: Path) -> subprocess.Popen[bytes]:
    with log.open("ab") as out:
        return subprocess.Popen(
            command,
            env=environment,
            stdin=subprocess.DEVNULL,
            stdout=out,
            stderr=subprocess.STDOUT,
            cwd=cwd,
            process_group=0,
            preexec_fn=end_with_parent,  # noqa: PLW1509 - as for the parts of the stack
        )


def _read(url: str) -> dict[str, Any]:
    with urllib.request.urlopen(url, timeout=10) as answer:  # noqa: S310 - an address of the cluster
        found: dict[str, Any] = json.load(answer)
    return found


def _wait(is_reached: Callable[[], bool], failure: str) -> None:
    deadline = time.monotonic() + _START_SECONDS
    while True:
        with suppress(OSError):
            if is_reached():
                return
        if time.monotonic() > deadline:
            raise ClusterError(failure)
        time.sleep(_POLL_SECONDS)
