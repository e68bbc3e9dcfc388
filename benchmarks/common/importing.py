"""The platform of the benchmark of imports, and the meters of its processes and topics."""

import base64
import os
import sys
import time
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final, NamedTuple

import httpx
import psutil
from confluent_kafka import Consumer, TopicPartition

from common.bench import Stack, Watched, stack
from starling_common.cassandra.database import Database
from starling_common.kafka.clients import consumer_config
from starling_common.settings import Cassandra
from starling_common.testing import eventually, free_port, running
from starling_local.postgres import PostgresServer, postgres
from starling_local.runtime import runtime_jars

COUNTS: Final = ("rows_done", "accepted", "rejected")
WORKSPACE: Final = "default"
LIST: Final = "fair"
PASSWORD: Final = "benchmark"  # noqa: S105 - of a server that is deleted afterwards
_TOKEN: Final = "admin"  # noqa: S105 - the same
_KEY: Final = base64.b64encode(b"7" * 32).decode()
_SAMPLE_SECONDS: Final = 0.5
_PATIENCE_SECONDS: Final = 6 * 3_600.0
_STATE: Final = "SELECT state FROM {ks}.imports WHERE workspace = ? AND key = ?"
_BY_TIME: Final = {"ingest.watermarks"}
"""Topics with records by time alone."""
_MAIN_CLASSES: Final = {"kafka.Kafka": "broker", "org.apache.cassandra.service.CassandraDaemon": "cassandra"}


class Took(NamedTuple):
    """One run of the job. `start_seconds`: from the start of the process to that of the import; `seconds`: from there to its end.

    `cpu_seconds`: of the latter, by process; `published`: records by topic.
    """

    start_seconds: float
    seconds: float
    cpu_seconds: Mapping[str, float]
    published: Mapping[str, int]


class Meters:
    """Processor time by process, also of processes that have ended since."""

    def __init__(self, services: Mapping[str, int]) -> None:
        """`services`: process id by name; the children of a process count as it."""
        self._services = services
        self._found: dict[tuple[str, int], float] = {}

    def cpu_seconds(self, job: int) -> dict[str, float]:
        """Return user and system time by process so far. `job`: the id of the driver."""
        for name, process in (*self._named(job), *self._stack()):
            try:
                times = process.cpu_times()
            except psutil.Error:
                continue
            self._found[name, process.pid] = times.user + times.system
        used: dict[str, float] = defaultdict(float)
        for (name, _), seconds in self._found.items():
            used[name] += seconds
        return used

    def _named(self, job: int) -> Iterator[tuple[str, psutil.Process]]:
        for name, pid in self._services.items():
            yield from ((name, process) for process in _tree(pid))
        for process in _tree(job):
            if process.pid == job:
                yield "spark_driver", process
            else:
                yield "spark_jvm" if _has_word(process, "org.apache.spark.deploy.SparkSubmit") else "spark_workers", process

    def _stack(self) -> Iterator[tuple[str, psutil.Process]]:
        for process in psutil.Process().children(recursive=True):
            for word, name in _MAIN_CLASSES.items():
                if _has_word(process, word):
                    yield name, process


class Platform:
    """A running edge and API with a broker, a registry, Cassandra and PostgreSQL. The job `imports` is started for each run."""

    def __init__(self, made: Stack, directory: Path, edge: str, api: httpx.Client, server: PostgresServer) -> None:
        self.directory = directory
        self.server = server
        self._made = made
        self._edge = edge
        self._api = api
        self._consumer = Consumer(consumer_config(made.brokers, "benchmark-imports"))
        host, _, port = made.cassandra.partition(":")
        self._database = Database(Cassandra(contact_points=host, port=int(port)))
        self.services: dict[str, int] = {}

    def close(self) -> None:
        """Close the connections to the broker and to Cassandra."""
        self._consumer.close()
        self._database.close()

    def create(self, request: Mapping[str, Any]) -> None:
        """Store an import, as a user does."""
        self._api.post("/v1/imports", json=request).raise_for_status()

    def repeat(self, key: str) -> None:
        """Let an import wait again."""
        self._api.post(f"/v1/imports/{key}/run", json={}).raise_for_status()

    def run(self, key: str) -> tuple[Took, Mapping[str, int]]:
        """Run the job until the import has ended; return the figures, and the rows by `rows_done`, `accepted` and `rejected`.

        Raises: RuntimeError if the import fails.
        """
        published, meters = self._published(), Meters(self.services)
        job = Watched([sys.executable, "-m", "starling_spark.jobs.imports"], self._environment(), self.directory / f"{key}.log")
        try:
            begun = time.monotonic()
            self._until(job, key, lambda state: state != "waiting")
            started, before = time.monotonic(), meters.cpu_seconds(job.pid)
            after = dict(before)

            def has_ended(state: str) -> bool:
                after.update(meters.cpu_seconds(job.pid))
                return state != "running"

            self._until(job, key, has_ended)
            ended = time.monotonic()
            found = dict(self._api.get(f"/v1/imports/{key}").raise_for_status().json())
            if found["state"] != "done":
                raise RuntimeError(f"the import {key} is {found['state']}: {found['message']}\n{job.log.read_text()[-4_000:]}")
        finally:
            job.stop()
        used = {name: seconds - before.get(name, 0.0) for name, seconds in after.items()}
        new = {topic: count - published[topic] for topic, count in self._published().items() if count > published[topic]}
        return Took(started - begun, ended - started, used, new), {name: found[name] for name in COUNTS}

    def _until(self, job: Watched, key: str, is_over: Callable[[str], bool]) -> None:
        """Wait for a state. Cassandra is asked, because an answer of the API takes ten times as much of the processor."""
        deadline = time.monotonic() + _PATIENCE_SECONDS
        while True:
            code = job.ended()  # before the state, which the job stores before it ends
            state = str(self._database.read(_STATE, (WORKSPACE, key))[0]["state"])
            if is_over(state):
                return
            if code is not None or time.monotonic() > deadline:
                raise RuntimeError(
                    f"the import {key} is {state}, and the job has ended with {code}: {job.log.read_text()[-4_000:]}"
                )
            time.sleep(_SAMPLE_SECONDS)

    def _published(self) -> dict[str, int]:
        """Return the number of records of each topic since it was created."""
        topics = self._consumer.list_topics(timeout=30).topics
        return {
            name: sum(
                self._consumer.get_watermark_offsets(TopicPartition(name, number), timeout=30)[1] for number in topic.partitions
            )
            for name, topic in topics.items()
            if not name.startswith("__") and name not in _BY_TIME
        }

    def _environment(self) -> dict[str, str]:
        jars = (*runtime_jars("spark"), *runtime_jars("jdbc"))
        return self._made.environment() | {
            "STARLING_HTTP__PORT": str(free_port()),
            "STARLING_INSTANCE_ID": "imports",
            "STARLING_SPARK_JARS": os.pathsep.join(map(str, jars)),
            "STARLING_SECRETS__KEYS": f"benchmark={_KEY}",
            "STARLING_ALLOW_PRIVATE_ADDRESSES": "true",
            "STARLING_IMPORTS_INGEST_URL": self._edge,
            "STARLING_IMPORTS_WRITE_KEYS": f"key={WORKSPACE}",
            "STARLING_IMPORTS_API_URL": str(self._api.base_url).rstrip("/"),
            "STARLING_IMPORTS_API_TOKENS": f"{_TOKEN}={WORKSPACE}",
            "STARLING_IMPORTS_ROOTS": self.directory.as_uri(),
        }


@contextmanager
def platform(directory: Path) -> Iterator[Platform]:
    """Yield a platform with an empty list `LIST`; stop it at the end."""
    with stack(directory / "stack", cassandra=True) as made, postgres(PASSWORD) as server:
        environment = {
            **made.environment(),
            "STARLING_TOKENS": f"{_TOKEN}=admin:{WORKSPACE}",
            "STARLING_WRITE_KEYS": f"key={WORKSPACE}",
            "STARLING_SECRETS__KEYS": f"benchmark={_KEY}",
            "STARLING_ALLOW_PRIVATE_ADDRESSES": "true",
        }
        with (
            running("starling_ingest", environment, directory / "edge.log") as edge,
            running("starling_api", environment, directory / "api.log") as service,
            httpx.Client(base_url=service.url, headers={"Authorization": f"Bearer {_TOKEN}"}, timeout=60, trust_env=False) as api,
        ):
            _create_list(environment, directory, api)
            found = Platform(made, directory, edge.url, api, server)
            found.services |= {"edge": edge.process.pid, "api": service.process.pid, "postgres": _postmaster(server)}
            try:
                yield found
            finally:
                found.close()


def _create_list(environment: Mapping[str, str], directory: Path, api: httpx.Client) -> None:
    """Create the list. The projector, which stores it, runs only until then."""
    with running("starling_projector", environment, directory / "projector.log"):
        api.put(f"/v1/lists/{LIST}", json={"name": "Fair"}).raise_for_status()
        eventually(lambda: api.get(f"/v1/lists/{LIST}").status_code == httpx.codes.OK)


def _postmaster(server: PostgresServer) -> int:
    return next(
        one.pid for one in psutil.Process().children() if one.name() == "postgres" and _has_word(one, f"port={server.port}")
    )


def _tree(pid: int) -> Sequence[psutil.Process]:
    try:
        process = psutil.Process(pid)
        return [process, *process.children(recursive=True)]
    except psutil.Error:
        return []


def _has_word(process: psutil.Process, word: str) -> bool:
    try:
        return word in process.cmdline()
    except psutil.Error:
        return False
