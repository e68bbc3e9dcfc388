"""What Spark forks its Python workers from."""

import gc
import os
import sys
from collections.abc import Iterable, Iterator
from pathlib import Path

import pyarrow as pa
from pyspark.sql import SparkSession

from starling_spark.session.worker_daemon import without_archives


def test_a_worker_begins_with_all_libraries_read_and_never_looks_into_archives(spark: SparkSession) -> None:
    def published(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        read = {"pandas", "starling_spark.jobs.profiles.query.transform"} <= sys.modules.keys()
        for _ in batches:
            pass
        archives = [place for place in sys.path_importer_cache if "pyspark" in place and (".zip" in place or ".jar" in place)]
        facts = {
            "parent": [Path(f"/proc/{os.getppid()}/cmdline").read_text()],
            "read": [read],
            "archives": [archives],
            "exempt": [gc.get_freeze_count()],
        }
        yield pa.RecordBatch.from_pydict(facts)

    for _ in range(2):  # between two tasks Spark makes Python forget what it knows of archives
        (row,) = (
            spark.range(1)
            .repartition(1)
            .mapInArrow(published, "parent string, read boolean, archives array<string>, exempt long")
            .collect()
        )
        assert "starling_spark.session.worker_daemon" in row["parent"]
        assert row["read"]
        assert row["archives"] == []
        assert row["exempt"] > 50_000


def test_archives_of_an_installed_spark_are_left_out_and_no_others(tmp_path: Path) -> None:
    lib = tmp_path / "site" / "pyspark" / "python" / "lib"
    lib.mkdir(parents=True)
    (tmp_path / "site" / "pyspark" / "__init__.py").touch()
    for archive in (lib / "pyspark.zip", lib / "py4j-0.10.zip", tmp_path / "own.zip"):
        archive.touch()
    search = [
        "",
        str(lib / "pyspark.zip"),
        str(tmp_path / "own.zip"),
        str(lib / "py4j-0.10.zip"),
        "/gone.zip",
        str(tmp_path / "site"),
    ]
    assert without_archives(search) == ["", str(tmp_path / "own.zip"), "/gone.zip", str(tmp_path / "site")]
    assert without_archives(search[:-1]) == search[:-1], "without the files beside them the archives are all there is"
