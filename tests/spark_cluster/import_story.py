"""The job `imports` on a cluster: files in the object store, an ingest API with a secured broker, and Cassandra in the network."""

import os
import subprocess
import sys
import uuid
from collections.abc import Iterator
from contextlib import closing, contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Final
from urllib.parse import urlsplit

from starling_common.cassandra.sessions import DatabaseUnavailable, open_session
from starling_common.settings import Cassandra
from starling_common.testing import eventually
from starling_common.values import deterministic_id
from starling_local.java import find_java
from starling_local.ports import HOST, Ports
from starling_local.runtime import runtime_jars
from starling_local.spark_cluster import SparkWorker
from starling_local.stack.parts.jvm_cassandra import cassandra_part
from starling_local.stack.supervision.process import spawn
from starling_local.testing import free_base
from starling_spark.jobs.imports.store import Place
from tests.conftest import Stack, deployed
from tests.integration.ingest.edge_process import running
from tests.integration.spark.instance import wait_for
from tests.processes import end
from tests.s3_server import BUCKET
from tests.spark.imports_rig import Imports
from tests.spark_cluster.faulty_link import FaultyLink, faulty_link
from tests.spark_cluster.rig import WORKERS, Rig
from tests.spark_cluster.story import PATIENCE_SECONDS

KEY: Final = "orders"
FILES: Final = tuple(f"part-{number}.csv" for number in range(2 * WORKERS))
GOOD_ROWS: Final = 3_000
"""Of each file: a request has 500."""
_START_SECONDS: Final = 180.0
_UNFLUSHED: Final = {"JDK_JAVA_OPTIONS": "-Dcassandra.test.flush_local_schema_changes=false"}
"""The tables need not survive SIGKILL, and are created in a third of the time."""


class ImportStory:
    """An import of files on the cluster. The last two rows of each file are bad."""

    def __init__(self, cluster: Rig, imports: Imports, edge: FaultyLink, directory: Path) -> None:
        """`edge`: what is between the executors and the ingest API."""
        self.imports = imports
        self.edge = edge
        self._cluster = cluster
        self._log = directory / "imports.log"

    def put_files(self) -> None:
        """Write the files to the object store."""
        for file in FILES:
            rows = [f"{file}-{number},u{number},{number}" for number in range(GOOD_ROWS)]
            text = "\n".join(["id,user,sum", *rows, f"{file}-without-user,,1", f"{file}-long,ann,1,2", ""])
            with self._cluster.s3.files().open_output_stream(f"{BUCKET}/imports/{file}") as out:
                out.write(text.encode())

    def request(self) -> Place:
        """Request the import."""
        return self.imports.request(KEY, f"s3://{BUCKET}/imports", id_column="id")

    def message_ids(self) -> set[str]:
        """Return the message id that each good row must have."""
        place = ("import", self.imports.workspace, KEY, "key")
        return {deterministic_id(*place, f"{file}-{number}") for file in FILES for number in range(GOOD_ROWS)}

    @contextmanager
    def job(self) -> Iterator["subprocess.Popen[bytes]"]:
        """Start the driver; it is gone when the block ends."""
        inherited = {name: value for name, value in os.environ.items() if not name.startswith("STARLING_")}
        given = {
            **self.imports.environment(),
            **self._cluster.settings(),
            **self._cluster.s3.arrow(),
            "STARLING_INSTANCE_ID": "imports",
            "STARLING_IMPORTS_ROOTS": self._cluster.arrow_root("imports"),
        }
        with self._log.open("ab") as log:
            process = subprocess.Popen(
                [sys.executable, "-m", "starling_spark.jobs.imports"], env=inherited | given, stdout=log, stderr=log
            )
        try:
            yield process
        except BaseException:
            print(self._log.read_text()[-3_000:], self._cluster.logs())  # noqa: T201 - pytest shows it with the failed test
            raise
        finally:
            end(process)

    def busy_workers(self, place: Place, job: "subprocess.Popen[bytes]") -> list[SparkWorker]:
        """Wait until every worker is in the middle of a file, and return the workers."""

        def are_busy() -> bool:
            assert job.poll() is None, self._log.read_text()[-3_000:]
            found = self.imports.store.progress(place).values()
            return sum(bool(one.rows_done) and not one.complete for one in found) == WORKERS

        wait_for(are_busy, PATIENCE_SECONDS, lambda: f"{self.imports.store.progress(place)} {self._log.read_text()[-3_000:]}")
        return self._cluster.busy_workers()


@contextmanager
def import_story(cluster: Rig, directory: Path) -> Iterator[ImportStory]:
    """Start Cassandra and the ingest API for the duration of a block."""
    workspace, address = f"w{uuid.uuid4().hex[:10]}", cluster.cluster.network.address
    with _cassandra(address, directory / "cassandra") as cassandra:
        stack = deployed(Stack(cluster.broker.opened, cluster.registry_url, cassandra))
        settings = {**stack.environment(), **cluster.broker.with_password(), "STARLING_WRITE_KEYS": f"key={workspace}"}
        with running(settings, directory) as edge, faulty_link((HOST, int(urlsplit(edge.url).port or 0)), (address, 0)) as link:
            host, port = link.place
            imports = Imports(stack, cassandra, replace(edge, url=f"http://{host}:{port}"), directory, workspace)
            with closing(imports.database):
                yield ImportStory(cluster, imports, link, directory)


@contextmanager
def _cassandra(address: str, home: Path) -> Iterator[Cassandra]:
    """Run a node to which clients connect at an address of the network."""
    with free_base() as base:
        ports = Ports(base)
        part = cassandra_part(home, runtime_jars("cassandra")[0].parent, ports, find_java().command)
        for path, text in part.files.items():
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text.replace(f"rpc_address: {HOST}", f"rpc_address: {address}"))
        for made in part.directories:
            made.mkdir(parents=True, exist_ok=True)
        process = spawn(part.command, _UNFLUSHED, home / "log")
        settings = Cassandra(contact_points=address, port=ports.fixed("cassandra"))
        try:
            eventually(lambda: _answers(settings), _START_SECONDS)
            yield settings
        finally:
            end(process)


def _answers(settings: Cassandra) -> bool:
    try:
        open_session(settings).cluster.shutdown()
    except DatabaseUnavailable:
        return False
    return True
