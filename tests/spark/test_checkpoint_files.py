"""Files of checkpoints: written on this machine without processes, readable by the release before, and without checksums."""

import json
import stat
from contextlib import nullcontext
from pathlib import Path
from typing import Final

import pytest
from pyspark.errors import StreamingQueryException
from pyspark.sql import DataFrame, SparkSession

from starling_spark.directories import HadoopDirectory
from starling_spark.session.local_files import CHECKPOINTS

[(_SETTING, _OURS)] = CHECKPOINTS.items()
_CHECKSUMS: Final = "spark.sql.streaming.checkpoint.fileChecksum.enabled"
_FORMER: Final = "org.apache.spark.sql.execution.streaming.checkpointing.FileContextBasedCheckpointFileManager"


def _faults_of_ended_processes(spark: SparkSession) -> int:
    """Return the page faults of all processes that the JVM has started and that have ended."""
    assert spark._jvm is not None
    pid = spark._jvm.java.lang.ProcessHandle.current().pid()
    return int(Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[8])


def test_a_file_is_written_without_a_process(spark: SparkSession, tmp_path: Path) -> None:
    directory = HadoopDirectory(tmp_path.as_uri(), lambda: spark)
    before = _faults_of_ended_processes(spark)
    (directory / "below").make()
    directory.write("text", "first")
    directory.write("text", "second")
    assert _faults_of_ended_processes(spark) == before
    assert (directory.read("text"), directory.names()) == ("second", ["below", "text"])
    assert stat.S_IMODE((tmp_path / "text").stat().st_mode) & 0o600 == 0o600


def test_the_former_writer_starts_processes(spark: SparkSession, tmp_path: Path) -> None:
    """Without this difference the test above could not fail."""
    spark.conf.set(_SETTING, _FORMER)
    try:
        before = _faults_of_ended_processes(spark)
        HadoopDirectory(tmp_path.as_uri(), lambda: spark).write("text", "first")
        assert _faults_of_ended_processes(spark) > before
    finally:
        spark.conf.set(_SETTING, _OURS)


@pytest.mark.parametrize(("first", "then"), [(_FORMER, _OURS), (_OURS, _FORMER)], ids=["upgrade", "rollback"])
def test_a_checkpoint_goes_on_with_the_other_writer(spark: SparkSession, tmp_path: Path, first: str, then: str) -> None:
    (numbers := tmp_path / "numbers").mkdir()
    found: list[tuple[str, int]] = []
    for writer, number in ((first, 0), (then, 1)):
        spark.conf.set(_SETTING, writer)
        try:
            (numbers / f"{number}.txt").write_text("ada\n" + "bob\n" * number)
            _count(spark, numbers, tmp_path / "checkpoint", found)
        finally:
            spark.conf.set(_SETTING, _OURS)
    assert found == [("ada", 1), ("ada", 2), ("bob", 1)]


@pytest.mark.parametrize("is_checked", [False, True], ids=["as set", "as Spark would"])
def test_a_checksum_of_another_attempt_does_not_end_the_query(spark: SparkSession, tmp_path: Path, *, is_checked: bool) -> None:
    """The second case shows that the first one could fail."""
    (numbers := tmp_path / "numbers").mkdir()
    found: list[tuple[str, int]] = []
    ours = spark.conf.get(_CHECKSUMS) or ""
    try:
        spark.conf.set(_CHECKSUMS, "true")
        (numbers / "0.txt").write_text("ada\n")
        _count(spark, numbers, tmp_path / "checkpoint", found)
        [checksum] = (tmp_path / "checkpoint" / "state").rglob("[!.]*.changelog.crc")
        checksum.write_text(json.dumps(json.loads(checksum.read_text()) | {"value": 1}))
        checksum.with_name(f".{checksum.name}.crc").unlink()
        spark.conf.set(_CHECKSUMS, "true" if is_checked else ours)
        (numbers / "1.txt").write_text("ada\nbob\n")
        with pytest.raises(StreamingQueryException, match="CHECKSUM_VERIFICATION_FAILED") if is_checked else nullcontext():
            _count(spark, numbers, tmp_path / "checkpoint", found)
    finally:
        spark.conf.set(_CHECKSUMS, ours)
    assert found == [("ada", 1)] + [("ada", 2), ("bob", 1)] * (not is_checked)


def _count(spark: SparkSession, numbers: Path, checkpoint: Path, found: list[tuple[str, int]]) -> None:
    def sink(batch: DataFrame, _: int) -> None:
        found.extend(sorted((row["value"], row["count"]) for row in batch.collect()))

    counts = spark.readStream.text(str(numbers)).groupBy("value").count()
    query = counts.writeStream.outputMode("update").option("checkpointLocation", checkpoint.as_uri()).foreachBatch(sink)
    query.trigger(availableNow=True).start().awaitTermination()
