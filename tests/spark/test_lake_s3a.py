"""The lake in an object store that Hadoop's client has, with its catalog in PostgreSQL: the workers write the files there."""

import multiprocessing
import os
import re
from collections.abc import Callable, Iterator
from concurrent.futures import ProcessPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from unittest import mock

import pyarrow as pa
import pytest
from pydantic import SecretStr
from pyspark.sql import SparkSession

from starling_local.postgres import USER, postgres
from starling_local.runtime import runtime_jars
from starling_spark.jobs.lake import batches
from starling_spark.lakehouse.iceberg import Lake, iceberg_config
from starling_spark.lakehouse.schema.tables import QUARANTINE
from starling_spark.lakehouse.settings import LakeSettings
from starling_spark.lakehouse.stores.files import probe, put
from starling_spark.lakehouse.stores.translation import StoreUnknown, of_hadoop
from starling_spark.session.spark import open_session
from tests.processes import end
from tests.s3_server import BUCKET, SECRET_KEY, S3Server, s3_server
from tests.spark.conftest import spark_settings
from tests.spark.lake_rig import ITEM, TRACK, Registered, Rig, writer_of

PASSWORD = "of-the-catalog"
BY_A_WORKER = re.compile(r".*/[0-9a-f]{32}\.parquet")


@dataclass(frozen=True)
class Story:
    """What happened in the process with Spark.

    `files`: the names of the data files of the workers, and of Spark after the setting that is not understood; `warnings`: the
    fields of each; `error`: of the batch during which the store stopped.
    """

    workers_write: tuple[bool, bool]
    files: tuple[set[str], set[str]]
    warnings: list[dict[str, Any]]
    error: str
    written: list[dict[str, int]]
    events: list[str]
    refused: list[tuple[int, bytes, bytes]]


class Stopping(Lake):
    """A lake whose store stops when a batch begins, after the driver has read the tables."""

    stop: Callable[[], None] | None = None

    def layout_tip_and_store(self, table: str) -> Any:
        """Return what the lake does; then stop the store."""
        found = super().layout_tip_and_store(table)
        if table == QUARANTINE and self.stop is not None:
            self.stop()
        return found


@pytest.mark.long
@pytest.mark.timeout(3_600)
def test_the_workers_write_the_files_and_a_store_that_stops_refuses_no_record(tmp_path: Path) -> None:
    # In a process of its own: the Spark of this one lacks the client of the object store.
    with ProcessPoolExecutor(1, multiprocessing.get_context("spawn")) as other:
        story = other.submit(_story, tmp_path).result()
    assert story.workers_write == (True, False)
    by_workers, by_spark = story.files
    assert len(by_workers) == 5
    assert all(BY_A_WORKER.fullmatch(name) for name in by_workers)
    assert len(by_spark) == 1
    assert not any(BY_A_WORKER.fullmatch(name) for name in by_spark)
    assert "OSError" in story.error
    assert story.written == [
        {"ingest_items": 1, "behaviour_events": 1, QUARANTINE: 1},
        {"behaviour_events": 1, QUARANTINE: 1},
        {"behaviour_events": 1},
    ]
    assert story.events == ["A", "B", "C"]
    assert story.refused == [(1, b"broken", b"c"), (2, b"other", b"c")]
    [warning] = story.warnings
    assert warning["reason"] == "the setting fs.s3a.object.content.encoding is not supported"
    assert SECRET_KEY not in str(warning)


@pytest.mark.long
def test_files_of_any_size_are_written_as_a_whole_and_a_probe_leaves_none(tmp_path: Path) -> None:
    with s3_server(tmp_path / "s3") as s3:
        settings = {name.removeprefix("spark.hadoop."): value for name, value in s3.hadoop().items()}
        store, table = of_hadoop(BUCKET, "s3a", settings), f"s3a://{BUCKET}/lake/t"
        probe(store, table)
        assert s3.names("lake") == []
        for name, size in (("small", 1_000), ("in parts", 25_000_000)):
            content = os.urandom(size)
            put(store, f"{table}/data/kind=a%2Fb/{name}", pa.py_buffer(content))
            assert (s3.root / BUCKET / "lake/t/data/kind=a%2Fb" / name).read_bytes() == content
        with pytest.raises(OSError, match="SIGNATURE_DOES_NOT_MATCH") as refused:
            probe(of_hadoop(BUCKET, "s3a", settings | {"fs.s3a.secret.key": "another-secret"}), table)
        assert "another-secret" not in str(refused.value)
        with pytest.raises(OSError, match="Empty path component"):
            put(store, f"{table}//data/a", pa.py_buffer(b"a"))


def _story(directory: Path) -> Story:
    """A batch, a batch during which the store stops, its repetition, and a batch with a setting that is not understood."""
    with s3_server(directory / "s3") as s3, _session(directory, s3) as spark, mock.patch.object(batches, "log") as log:
        lake, registered = Stopping(spark, "starling"), Registered()
        rig = Rig(spark, registered, lake, writer_of(lake, registered))
        workers_write = rig.writer.open().workers_write
        written = [rig.write(rig.item(TRACK, ITEM), rig.record(TRACK, b"broken"), rig.event("A"))]
        records = [rig.record(TRACK, b"other"), rig.event("B")]
        lake.stop = lambda: end(s3.process)
        with pytest.raises(Exception, match="OSError") as failed:
            rig.write(*records)
        lake.stop = None
        s3.restart()
        written.append(rig.write(*records, writer=rig.restarted()))
        before = _files(rig)
        session = spark.newSession()
        session.conf.set("spark.sql.catalog.lake.hadoop.fs.s3a.object.content.encoding", "identity")
        other = Rig(session, registered, Lake(session, "starling"), writer_of(Lake(session, "starling"), registered), rig.sent)
        can_write = other.writer.open().workers_write
        written.append(other.write(other.event("C")))
        assert not [name for name in s3.names("lake") if name.endswith(".probe")]
        _check_tables(lake)
        return Story(
            (workers_write, can_write),
            (before, _files(rig) - before),
            [one.kwargs for one in log.return_value.warning.call_args_list],
            str(failed.value),
            [{table: count for table, count in one.items() if count} for one in written],
            [row["name"] for row in rig.rows("behaviour_events")],
            [(row.origin_offset, bytes(row["value"]), row.headers[0]["value"]) for row in rig.rows(QUARANTINE)],
        )


def _check_tables(lake: Lake) -> None:
    """The workers leave tables to Iceberg's writer that they do not know."""
    for name, clause, why in (
        ("days", "PARTITIONED BY (days(at))", "this job supports hour and identity"),
        ("apart", f"TBLPROPERTIES ('write.data.path' = 's3a://{BUCKET}/apart')", "the property write.data.path of a table"),
    ):
        lake.spark.sql(f"CREATE TABLE {lake.name(name)} (at timestamp) USING iceberg {clause}")
        with pytest.raises(StoreUnknown, match=why):
            lake.check_store(name)


def _files(rig: Rig) -> set[str]:
    tables = ("behaviour_events", "ingest_items", QUARANTINE)
    return {row.file_path for table in tables for row in rig.about(table, "files").select("file_path").collect()}


@contextmanager
def _session(directory: Path, s3: S3Server) -> Iterator[SparkSession]:
    """A session with the catalog in PostgreSQL, for the duration of a block."""
    jars = [jar for bundle in ("spark", "iceberg", "jdbc", "s3") for jar in runtime_jars(bundle)]
    given = spark_settings(directory).model_dump() | {
        "spark_jars": os.pathsep.join(map(str, jars)),
        "lake_warehouse": f"s3a://{BUCKET}/lake",
    }
    with postgres(PASSWORD) as server:
        catalog = {"type": "jdbc", "uri": f"jdbc:postgresql://127.0.0.1:{server.port}/postgres", "jdbc.user": USER}
        hidden = {"jdbc.password": SecretStr(PASSWORD)}
        settings = LakeSettings(**given, lake_catalog=catalog, lake_catalog_secrets=hidden)
        spark = open_session("s3a", settings, {**iceberg_config(settings), **s3.hadoop()})
        try:
            yield spark
        finally:
            spark.stop()
