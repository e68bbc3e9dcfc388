"""Edge: `python -m starling_spark.session.class_archive` makes the class archive of the drivers; prints nothing if it is current.

The archive (Java's Class Data Sharing) has the classes of Spark that a driver loads. Java maps it instead of searching, reading and
verifying each class in some 250 jars. It belongs to the Python environment, whose path is part of the class path. Java itself
refuses an archive of another class path or of another build, and then starts without it.
"""

import hashlib
import os
import shutil
import sys
import tempfile
from collections.abc import Mapping
from importlib.metadata import version
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

ARCHIVE = Path(sys.prefix) / "share" / "starling" / "spark.jsa"
"""The place of the archive: one in each Python environment."""
STAMP = ARCHIVE.with_suffix(".of")
"""Names what the archive was made with."""
_SILENT = "-Xlog:cds*=error"


def java_options() -> str:
    """Return the options of Java that map the archive; empty without an archive."""
    return f'"-XX:SharedArchiveFile={ARCHIVE}" {_SILENT}' if ARCHIVE.exists() else ""


def fingerprint(environment: Mapping[str, str]) -> str:
    """Return a digest of what an archive depends on: the build of Java, Spark, and the code whose classes it has."""
    home = environment.get("JAVA_HOME")
    java = Path(shutil.which(str(Path(home) / "bin" / "java") if home else "java") or "java").resolve()
    release = java.parent.parent / "release"
    found = hashlib.sha256(f"{java}\n{version('pyspark')}\n".encode())
    for file in (release, Path(__file__), Path(__file__).with_name("spark.py")):
        found.update(file.read_bytes() if file.exists() else b"")
    return found.hexdigest()


def is_current(environment: Mapping[str, str]) -> bool:
    """Return whether the archive exists and was made with this Java and this Spark."""
    return ARCHIVE.exists() and STAMP.exists() and STAMP.read_text() == fingerprint(environment)


def make(archive: Path) -> None:
    """Run a driver with typical queries; at its end Java writes the classes that it has loaded.

    Raises: OSError if Java wrote no archive.
    """
    with tempfile.TemporaryDirectory(prefix="starling-class-archive-") as scratch:
        os.environ["SPARK_SUBMIT_OPTS"] = f"-XX:ArchiveClassesAtExit={Path(scratch) / 'new.jsa'} {_SILENT}"
        _drive(Path(scratch))
        written = Path(scratch) / "new.jsa"
        if not written.exists():
            raise OSError("Java wrote no archive")
        archive.parent.mkdir(parents=True, exist_ok=True)
        beside = archive.with_suffix(".new")  # the scratch directory may be on another file system
        shutil.move(written, beside)
        beside.replace(archive)


def _drive(scratch: Path) -> None:
    # Spark is imported here: whether the archive is current is asked without it.
    from starling_spark.session.settings import SparkSettings  # noqa: PLC0415
    from starling_spark.session.spark import open_session  # noqa: PLC0415

    nowhere = {"kafka": {"brokers": "127.0.0.1:1"}, "registry": {"url": "http://127.0.0.1:1"}, "http": {"port": 1}}
    settings = SparkSettings.model_validate(
        {**nowhere, "instance_id": "archive", "spark_jars": ",", "checkpoint_dir": str(scratch)}
    )
    spark = open_session("class-archive", settings)
    table = str(scratch / "rows")
    _run_batch_queries(spark, table)
    _run_stream(spark, table, scratch)
    _end(spark)


def _run_batch_queries(spark: "SparkSession", table: str) -> None:
    """Write a table, and read it by SQL and through Arrow."""
    from pyspark.sql import functions  # noqa: PLC0415

    rows = spark.range(1_000).select(
        functions.col("id"), (functions.col("id") % 7).alias("bucket"), functions.timestamp_seconds("id").alias("at")
    )
    rows.write.partitionBy("bucket").parquet(table)
    spark.read.parquet(table).createOrReplaceTempView("rows")
    spark.sql(
        "WITH last AS (SELECT bucket, max(at) AS at, count(*) AS n FROM rows GROUP BY bucket) "
        "SELECT r.bucket, sum(r.id), to_json(named_struct('n', first(l.n))) FROM rows r JOIN last l USING (bucket) "
        "WHERE r.at < l.at GROUP BY r.bucket ORDER BY r.bucket"
    ).collect()
    rows.mapInArrow(lambda batches: batches, rows.schema).repartition(2, "bucket").sortWithinPartitions("at").count()


def _run_stream(spark: "SparkSession", table: str, scratch: Path) -> None:
    """Read the table as a stream, with state and a sink for each micro-batch."""

    def sink(batch: "DataFrame", _: int) -> None:
        batch.persist()
        batch.groupBy("bucket").count().write.mode("append").json(str(scratch / "counts"))
        batch.unpersist()

    stream = spark.readStream.schema(spark.read.parquet(table).schema).parquet(table).dropDuplicates(["id"])
    query = stream.writeStream.foreachBatch(sink).option("checkpointLocation", str(scratch / "checkpoint"))
    query.trigger(availableNow=True).start().awaitTermination()


def _end(spark: "SparkSession") -> None:
    """End the session and its JVM, which then writes the archive. Raises: OSError for a JVM of another process."""
    from pyspark import SparkContext  # noqa: PLC0415

    gateway = SparkContext._gateway  # noqa: SLF001 - the public way leaves the process to the end of this one
    if gateway is None:
        raise OSError("the driver has no JVM of its own")
    spark.stop()
    gateway.shutdown()
    gateway.proc.stdin.close()
    gateway.proc.wait(300)


def main() -> int:
    """Make the archive if it is not current. Return 0 also after a failure, because nothing depends on it."""
    if not is_current(os.environ):
        print("setup: making the class archive of Spark ...", flush=True)  # noqa: T201 - for the terminal
        ARCHIVE.unlink(missing_ok=True)
        try:
            make(ARCHIVE)
            STAMP.write_text(fingerprint(os.environ))
        except Exception as error:  # noqa: BLE001 - jobs only start more slowly without it
            sys.stderr.write(f"setup: no class archive, so the jobs of Spark start more slowly: {error}\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
