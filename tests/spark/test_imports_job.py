"""The job `imports` with a real ingest API, broker and Cassandra: files, rejected rows, a kill and a cancellation."""

import json
import uuid
from collections.abc import Iterator
from pathlib import Path

import msgspec
import psutil
import pytest
from prometheus_client import CollectorRegistry
from pyspark.sql import SparkSession

from starling_api.imports.store import CassandraImports
from starling_api.imports.wiring import ImportService
from starling_api.jobs import runner
from starling_api.settings import ApiSettings
from starling_common.cassandra.database import Database
from starling_common.settings import Cassandra
from starling_common.telemetry.metrics import Metrics
from starling_common.testing import eventually, free_port, own_keyspace
from starling_common.wire import Registry
from starling_rules.imports import CANCELLED, DONE, FAILED, RUNNING, WAITING, ImportRequest
from starling_spark.jobs.imports.job import ImportJob, Target
from starling_spark.jobs.imports.store import ImportStore, Place
from tests.conftest import Stack
from tests.integration.ingest.edge_process import EdgeProcess, records, running

TRACK = "ingest.track"
ROWS = 20_000
"""40 batches: a kill after the first progress is in the middle of the file."""


class Imports:
    """A workspace and a keyspace of its own, with a running ingest API."""

    def __init__(self, stack: Stack, cassandra: Cassandra, edge: EdgeProcess, directory: Path, workspace: str) -> None:
        self.workspace = workspace
        self.directory = directory
        self.database = Database(cassandra)
        self.store = ImportStore(self.database)
        self._stack = stack
        self._cassandra = cassandra
        self._edge = edge
        self._codec = Registry(stack.registry_url).codec(TRACK, "IngestReceived")

    def request(self, key: str, uri: str, **more: str) -> Place:
        fields = {"format": "csv", "kind": "events", "user_column": "user", "event": "Order"} | more
        document = msgspec.json.encode(ImportRequest(key=key, uri=uri, **fields)).decode()  # type: ignore[arg-type]
        statement = "INSERT INTO {ks}.imports (workspace, key, request, state, created_at_ms) VALUES (?, ?, ?, ?, ?) IF NOT EXISTS"
        assert self.database.write_if(statement, (self.workspace, key, document, WAITING, 1))
        return Place(self.workspace, key)

    def job(self, spark: SparkSession, write_key: str = "key") -> ImportJob:
        target = Target(self._cassandra, self._edge.url, write_key)
        return ImportJob(spark, self.store, lambda _: target, [self.directory.as_uri()])

    def environment(self) -> dict[str, str]:
        return {
            **self._stack.environment(),
            "STARLING_CASSANDRA__KEYSPACE": self._cassandra.keyspace,
            "STARLING_HTTP__PORT": str(free_port()),
            "STARLING_INSTANCE_ID": "api",
            "STARLING_TOKENS": f"token=admin:{self.workspace}",
            "STARLING_IMPORTS_RUNNER": "process",
            "STARLING_IMPORTS_INGEST_URL": self._edge.url,
            "STARLING_IMPORTS_WRITE_KEYS": f"key={self.workspace}",
            "STARLING_IMPORTS_ROOTS": self.directory.as_uri(),
        }

    def message_ids(self) -> list[str]:
        found = [self._codec.decode(one.value() or b"") for one in records(self._stack.brokers, TRACK, self.workspace)]
        assert all(one["imported"] for one in found)
        return [one["message_id"] for one in found]

    def state(self, place: Place) -> tuple[str, str | None]:
        (row,) = self.database.read("SELECT state, message FROM {ks}.imports WHERE workspace = ? AND key = ?", place)
        return row["state"], row["message"]

    def rejects(self, place: Place) -> list[tuple[str, int, str, str]]:
        statement = "SELECT file, row, column_name, code FROM {ks}.import_rejects WHERE workspace = ? AND key = ?"
        return [(row["file"], row["row"], row["column_name"], row["code"]) for row in self.database.read(statement, place)]


@pytest.fixture
def imports(stack: Stack, tmp_path: Path) -> Iterator[Imports]:
    workspace = f"w{uuid.uuid4().hex[:10]}"
    settings = {**stack.environment(), "STARLING_WRITE_KEYS": f"key={workspace}"}
    with own_keyspace(stack.cassandra) as cassandra, running(settings, tmp_path) as edge:
        made = Imports(stack, cassandra, edge, tmp_path, workspace)
        yield made
        made.database.close()


def test_rows_of_all_files_are_imported_once_and_the_others_are_rejected(
    spark: SparkSession, imports: Imports, tmp_path: Path
) -> None:
    files = tmp_path / "files"
    files.mkdir()
    (files / "a.csv").write_bytes(b"user,sum\nann,1\n,2\nM\xfcller,3\n")
    (files / "b.csv").write_bytes(b"user,sum\nbob,1\n" + b"\xc3\xa4" * 300 + b",2\n")
    (files / "c.csv").write_bytes(b"id\n1\n")
    place, other = imports.request("orders", files.as_uri()), imports.request("missing", (tmp_path / "none").as_uri())
    assert imports.job(spark).run(lambda: False) == {FAILED: 2}
    assert imports.rejects(place) == [
        ("a.csv", 2, "user", "missing_id"),
        ("a.csv", 3, "user", "bad_value"),
        ("b.csv", 2, "user", "id_too_long"),
    ]
    assert len(imports.message_ids()) == 2
    state, message = imports.state(place)
    assert (state, message) == (FAILED, "c.csv: there is no column 'user': correct the import, or the file, which has 'id'")
    assert "there is no such file" in str(imports.state(other)[1])
    # The import again: what is complete is not read again, and what changed is imported with the ids that it had.
    (files / "c.csv").unlink()
    (files / "a.csv").write_bytes(b"user,sum\nann,1\nzoe,2\n")
    again = "UPDATE {ks}.imports SET state = ? WHERE workspace = ? AND key = ? IF EXISTS"
    assert imports.database.write_if(again, (WAITING, *place))
    imports.job(spark).run(lambda: False)
    ids = imports.message_ids()
    assert (len(ids), len(set(ids))) == (4, 3)
    assert imports.rejects(place) == [("b.csv", 2, "user", "id_too_long")]


def test_a_refused_key_ends_the_import_and_a_cancelled_one_sends_nothing(
    spark: SparkSession, imports: Imports, tmp_path: Path
) -> None:
    (tmp_path / "a.csv").write_text("user\nann\n")
    place = imports.request("orders", (tmp_path / "a.csv").as_uri())
    cancelled = imports.request("cancelled", (tmp_path / "a.csv").as_uri())
    assert imports.store.set_state(cancelled, CANCELLED)
    assert imports.job(spark, "wrong").run(lambda: False) == {FAILED: 1}
    assert "STARLING_IMPORTS_WRITE_KEYS" in str(imports.state(place)[1])
    assert imports.state(cancelled)[0] == CANCELLED
    assert imports.message_ids() == []


@pytest.mark.long
def test_the_api_starts_the_job_again_after_a_kill_and_imports_nothing_twice(
    imports: Imports, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, value in imports.environment().items():
        monkeypatch.setenv(name, value)
    monkeypatch.setattr(runner, "_BACKOFF_SECONDS", (0.1,))
    lines = "".join(json.dumps({"user": f"u{number % 97}", "number": number}) + "\n" for number in range(ROWS))
    (tmp_path / "a.jsonl").write_text(lines)
    place = imports.request("orders", (tmp_path / "a.jsonl").as_uri(), format="jsonl")
    metrics = Metrics(CollectorRegistry())
    service = ImportService(ApiSettings(), imports.database, metrics)
    service.start()
    try:
        eventually(lambda: any(one.rows_done for one in imports.store.progress(place).values()), 120)
        (job,) = (one for one in psutil.Process().children() if "starling_spark.jobs.imports" in one.cmdline())
        job.kill()
        assert imports.state(place)[0] == RUNNING
        assert imports.store.progress(place)["a.jsonl"].rows_done < ROWS
        other = imports.request("other", (tmp_path / "a.jsonl").as_uri(), format="jsonl")
        eventually(lambda: imports.state(place)[0] == DONE, 120)
        eventually(lambda: any(one.rows_done for one in imports.store.progress(other).values()), 120)
        assert CassandraImports(imports.database).cancel(*other, 2)
        ended = {"starling_api_imports": {"state": "running"}, "starling_api_job_failures": {"spark_job": "imports"}}
        eventually(lambda: all(metrics.registry.get_sample_value(name, labels) == 0 for name, labels in ended.items()), 120)
    finally:
        service.stop()
    progress = imports.store.progress(place)["a.jsonl"]
    assert (progress.rows_done, progress.accepted, progress.complete) == (ROWS, ROWS, True)
    assert imports.state(other)[0] == CANCELLED
    stopped = imports.store.progress(other)["a.jsonl"]
    assert stopped.rows_done < ROWS
    ids = imports.message_ids()
    assert ROWS < len(set(ids)) <= ROWS + stopped.rows_done + 500
    assert len(ids) - len(set(ids)) <= 2 * 500  # batches without stored progress; the normalizer drops them by their ids
