"""A cluster of Spark on several hosts, with a secured broker, a registry, an object store, and a database for a catalog."""

import json
import os
import sys
import tarfile
from collections import Counter
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final
from urllib.parse import quote_plus, urlsplit

import psutil

import starling_spark.submit
from starling_local.hosts import network
from starling_local.java import find_java
from starling_local.postgres import DATABASE, USER, PostgresServer, postgres
from starling_local.runtime import runtime_jars
from starling_local.spark_cluster import SparkCluster, SparkWorker, spark_cluster
from starling_local.stack.supervision.process import marked_processes
from starling_local.testing import embedded
from tests.conftest import ROOT
from tests.s3_server import BUCKET, REGION, S3Server, s3_server
from tests.secured_broker import Secured, secured_broker
from tests.spark_cluster.faulty_link import FaultyLink, faulty_link
from tools.spark_environment import pack

WORKERS: Final = 3
PASSWORD: Final = "of-the-catalog"
ENVIRONMENT: Final = "environment"
"""The directory in which Spark unpacks the Python of an executor."""
CHECKPOINTS: Final = f"s3a://{BUCKET}/checkpoints"
WAREHOUSE: Final = f"s3a://{BUCKET}/lake"


@dataclass(frozen=True)
class Links:
    """What is between the jobs and these servers."""

    store: FaultyLink
    registry: FaultyLink
    catalog: FaultyLink


@dataclass(frozen=True)
class Rig:
    """The running parts. `registry_url`: for hosts; `home`: configuration and event logs of drivers."""

    cluster: SparkCluster
    broker: Secured
    registry_url: str
    s3: S3Server
    database: PostgresServer
    home: Path
    links: Links

    def settings(self, *bundles: str) -> dict[str, str]:
        """Return the environment of a driver, beside that of the job. `bundles`: of its jars."""
        return {
            "SPARK_CONF_DIR": str(self.home / "conf"),
            "JAVA_HOME": str(find_java().home),
            "PYSPARK_PYTHON": f"./{ENVIRONMENT}/bin/python",
            "PYSPARK_DRIVER_PYTHON": sys.executable,
            "STARLING_SPARK_MASTER": self.cluster.master,
            "STARLING_SPARK_JARS": jars(*bundles),
            "STARLING_CHECKPOINT_DIR": CHECKPOINTS,
            "STARLING_SPARK_STATE_PARTITIONS": "3",
            **self.broker.with_password(),
        }

    def lake_settings(self) -> dict[str, str]:
        """Return the settings of a lake in the object store, with its catalog in the database."""
        host, port = self.links.catalog.place
        catalog = {"type": "jdbc", "uri": f"jdbc:postgresql://{host}:{port}/{DATABASE}", "jdbc.user": USER}
        return {
            "STARLING_LAKE_WAREHOUSE": WAREHOUSE,
            "STARLING_LAKE_CATALOG": json.dumps(catalog),
            "STARLING_LAKE_CATALOG_SECRETS": json.dumps({"jdbc.password": PASSWORD}),
        }

    def submit(self, job: str, *bundles: str, words: tuple[str, ...] = ()) -> list[str]:
        """Return the command that submits a job in client mode."""
        program = str(self.cluster.home / "bin" / "spark-submit")
        options = ["--master", self.cluster.master, "--deploy-mode", "client", "--driver-memory", "1g", "--jars", jars(*bundles)]
        return [program, *options, str(starling_spark.submit.__file__), job, *words]

    def arrow_root(self, path: str) -> str:
        """Return the URI of a path of the object store for clients of Arrow, which have the keys in their environment."""
        host, port = self.links.store.place
        return f"s3://{BUCKET}/{path}?region={REGION}&scheme=http&endpoint_override={quote_plus(f'{host}:{port}')}"

    def busy_workers(self) -> list[SparkWorker]:
        """Return the workers with an executor. Those that have just been killed or cut off do not answer."""
        found = []
        for one in self.cluster.workers:
            with suppress(OSError):
                found += [one] if one.process is not None and one.process.poll() is None and one.running_executors() else []
        return found

    def tasks(self, reason: str = "Success") -> Counter[str]:
        """Return the number of tasks of all drivers by host, of the event logs. `reason`: why they ended, in Spark's words."""
        found: Counter[str] = Counter()
        for file in (self.home / "events").rglob("events_*"):
            for line in file.read_text().splitlines():
                event: dict[str, Any] = json.loads(line) if '"SparkListenerTaskEnd"' in line else {}
                if event and event["Task End Reason"]["Reason"] == reason:
                    found[event["Task Info"]["Host"]] += 1
        return found

    def logs(self) -> str:
        """Return the end of the logs of the executors."""
        files = sorted((self.home / "cluster").glob("worker-*/work/app-*/*/stderr"))
        return "\n".join(f"--- {file}\n{file.read_text(errors='replace')[-2_000:]}" for file in files)


def pythons(worker: SparkWorker) -> set[str]:
    """Return the interpreters of the Python processes on a worker, as Spark has started them."""
    found = set()
    for process in marked_processes(worker.mark):
        try:
            words = process.cmdline()
        except psutil.Error:
            continue
        found |= {words[0]} if "starling_spark.session.worker_daemon" in words else set()
    return found


def jars(*bundles: str) -> str:
    """Return the jars of bundles, separated by commas."""
    return ",".join(str(jar) for bundle in bundles for jar in runtime_jars(bundle))


@contextmanager
def rig(home: Path) -> Iterator[Rig]:
    """Start everything for the duration of a block."""
    archive = home / "environment.tar.gz"
    pack(archive)
    with tarfile.open(archive) as packed:
        packed.extractall(home / ENVIRONMENT)  # noqa: S202 - our own
    with ExitStack() as last:
        hosts = last.enter_context(network(WORKERS))
        broker = last.enter_context(secured_broker(home / "broker", host=hosts.address))
        parts = last.enter_context(embedded({"registry"}, home / "parts"))
        s3 = last.enter_context(s3_server(home / "s3", hosts.address))
        database = last.enter_context(postgres(PASSWORD))
        cluster = last.enter_context(spark_cluster(hosts, home / "cluster", hidden=ROOT))
        links = Links(
            last.enter_context(faulty_link(_place(s3.endpoint), (hosts.address, 0))),
            # The registry listens on 127.0.0.1, which is another machine for a host.
            last.enter_context(faulty_link(_place(parts.registry_url), (hosts.address, 0))),
            last.enter_context(faulty_link(("127.0.0.1", database.port), ("127.0.0.1", 0))),
        )
        (home / "events").mkdir()
        _write_defaults(home / "conf", defaults(hosts.address, archive, home / "events", s3, _url(links.store)))
        registry_url = _url(links.registry) + urlsplit(parts.registry_url).path
        yield Rig(cluster, broker, registry_url, s3, database, home, links)


def _place(url: str) -> tuple[str, int]:
    found = urlsplit(url)
    return str(found.hostname), int(found.port or 0)


def _url(link: FaultyLink) -> str:
    host, port = link.place
    return f"http://{host}:{port}"


def defaults(address: str, archive: Path, events: Path, s3: S3Server, endpoint: str) -> Mapping[str, str]:
    """Return the settings of Spark that belong to the cluster: `spark-defaults.conf`. `endpoint`: of the object store."""
    object_store = os.pathsep.join(map(str, runtime_jars("s3")))
    return {
        "spark.driver.host": address,
        "spark.driver.bindAddress": address,
        "spark.executor.cores": "1",
        "spark.executor.memory": "768m",
        "spark.cores.max": str(WORKERS),
        "spark.archives": f"{archive}#{ENVIRONMENT}",
        "spark.driver.extraClassPath": object_store,
        "spark.executor.extraClassPath": object_store,
        "spark.eventLog.enabled": "true",
        "spark.eventLog.dir": events.as_uri(),
        "spark.eventLog.compress": "false",
        **s3.hadoop(),
        "spark.hadoop.fs.s3a.endpoint": endpoint,
        **{f"spark.executorEnv.{name}": value for name, value in s3.arrow().items()},
    }


def _write_defaults(directory: Path, settings: Mapping[str, str]) -> None:
    directory.mkdir()
    (directory / "spark-defaults.conf").write_text("".join(f"{name} {value}\n" for name, value in settings.items()))
