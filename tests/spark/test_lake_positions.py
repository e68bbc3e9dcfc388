"""The positions of a table's commits in real Iceberg tables, and the snapshots that a run keeps while it reads."""

import os
import time
import uuid
from collections.abc import Sequence
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession, types

from starling_spark.lakehouse.fence import OFFSETS, LakeFenced
from starling_spark.lakehouse.iceberg import COMMITS, Lake, LakePositionLost
from starling_spark.lakehouse.maintenance import Retention, maintain
from starling_spark.lakehouse.pinned import Pinning, kept, pinned
from starling_spark.lakehouse.positions import Position, to_text

TABLE = "t"
COLUMNS = types.StructType([types.StructField("name", types.StringType())])
NOW = Retention(0.0, 24.0)


class Rig:
    """A lake with one table."""

    def __init__(self, spark: SparkSession, **more: Any) -> None:
        self.spark = spark
        self.lake = Lake(spark, f"t{uuid.uuid4().hex[:12]}", **more)
        self.lake.ensure(TABLE, COLUMNS, (), ())

    def again(self, **more: Any) -> Lake:
        """Return the lake as another process has it, which knows nothing."""
        return Lake(self.spark, self.lake.namespace, **more)

    def append(self, number: int, lake: Lake | None = None) -> int:
        """Append a row and a position; return the snapshot."""
        lake = lake or self.lake
        rows = self.spark.createDataFrame([(f"row {number}",)], COLUMNS)
        lake.append(TABLE, rows, position(number), lake.tip(TABLE))
        snapshot = lake.tip(TABLE).snapshot
        assert snapshot is not None
        return snapshot

    def as_before(self, offsets: str) -> int:
        """Commit a position in the summary, as earlier releases do; return the snapshot."""
        self.lake._load(TABLE).newAppend().set(OFFSETS, offsets).commit()
        snapshot = self.lake.snapshot(TABLE)
        assert snapshot is not None
        return snapshot

    def files(self) -> list[Path]:
        """Return the files of positions."""
        return sorted((Path(urlsplit(self.lake.location(TABLE)).path) / "metadata").glob("*.position.puffin"))

    def place(self) -> Path:
        """Return the file of the position in the current snapshot."""
        summary = self.lake._load(TABLE).currentSnapshot().summary()
        return Path(urlsplit(str(summary.get(OFFSETS))).path)

    def listed(self) -> dict[int, Path]:
        """Return the files that the metadata list, by snapshot."""
        found = self.lake._load(TABLE).statisticsFiles()
        return {int(one.snapshotId()): Path(urlsplit(str(one.path())).path) for one in found}

    def tags(self) -> list[str]:
        return sorted(str(name) for name in self.lake._load(TABLE).refs() if name != "main")

    def snapshots(self) -> list[int]:
        return [int(one.snapshotId()) for one in self.lake._load(TABLE).snapshots()]


def position(number: int) -> Position:
    """Return a position with 256 partitions of six topics."""
    return {(f"topic.{topic}", partition): number + partition * 7919 for topic in range(6) for partition in range(256)}


def names(rows: Sequence[Any]) -> list[str]:
    return sorted(row["name"] for row in rows)


@pytest.fixture
def rig(spark: SparkSession) -> Rig:
    return Rig(spark)


def test_a_snapshot_names_the_file_with_its_position(rig: Rig) -> None:
    first, second = rig.append(1), rig.append(2)
    summary = rig.lake._load(TABLE).currentSnapshot().summary()
    assert (len(str(summary.get(OFFSETS))) < 300, len(to_text(position(2))) > 20_000) == (True, True)
    assert rig.again().tip(TABLE) == rig.lake.tip(TABLE)
    assert rig.again().position(TABLE) == position(2)
    assert set(rig.listed()) == {first, second}
    assert set(rig.listed().values()) == set(rig.files())
    # Engines that open a directory look for the plain name.
    assert Path(urlsplit(str(rig.lake._load(TABLE).operations().current().metadataFileLocation())).path).name == "v3.metadata.json"


def test_a_driver_killed_between_position_and_snapshot_leaves_a_file_that_is_deleted(rig: Rig) -> None:
    rig.append(1)

    def killed(point: str) -> None:
        if point == COMMITS[0]:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        rig.append(2, rig.again(passed=killed))
    assert rig.again().position(TABLE) == position(1)
    rig.append(3, rig.again())
    assert names(rig.lake.rows(TABLE).collect()) == ["row 1", "row 3"]
    unnamed = set(rig.files()) - set(rig.listed().values())
    assert len(unnamed) == 1
    for file in rig.files():
        os.utime(file, (time.time() - 90_000,) * 2)
    maintain(rig.lake, [TABLE], Retention(24.0, 24.0))
    assert not any(file.exists() for file in unnamed)
    assert set(rig.files()) == set(rig.listed().values())
    assert rig.again().position(TABLE) == position(3)


def test_a_repeated_attempt_lists_the_file_under_its_snapshot(rig: Rig) -> None:
    rig.append(1)

    def beside(point: str) -> None:
        if point == COMMITS[0]:
            rig.spark.table(rig.lake.name(TABLE)).writeTo(rig.lake.name(TABLE)).append()

    snapshot = rig.append(2, rig.again(passed=beside))
    assert rig.listed()[snapshot] == rig.place()
    assert rig.again().position(TABLE) == position(2)
    assert names(rig.lake.rows(TABLE).collect()) == ["row 1", "row 1", "row 2"]


def test_of_two_drivers_with_the_same_position_one_is_fenced(rig: Rig) -> None:
    rig.append(1)
    tip = rig.again().tip(TABLE)
    rows = rig.spark.createDataFrame([("row 2",)], COLUMNS)
    rig.again().append(TABLE, rows, position(2), tip)
    with pytest.raises(LakeFenced):
        rig.again().append(TABLE, rows, position(3), tip)
    assert rig.again().position(TABLE) == position(2)
    assert names(rig.lake.rows(TABLE).collect()) == ["row 1", "row 2"]


@pytest.mark.long
def test_a_table_with_positions_in_its_summaries_goes_on(spark: SparkSession) -> None:
    rig = Rig(spark)
    old = rig.as_before(to_text(position(1)))
    tip = rig.again().tip(TABLE)
    assert (tip.snapshot, tip.position, rig.again().reached(TABLE)) == (old, position(1), (old, position(1)))
    # A driver of the earlier release has read the same position: the newer commit fences it.
    newer = rig.append(2)
    assert rig.again().position(TABLE) == position(2)
    assert list(rig.listed()) == [newer]
    maintain(rig.lake, [TABLE], NOW)
    assert old not in rig.snapshots()
    rig.append(3, rig.again())
    assert names(rig.lake.rows(TABLE).collect()) == ["row 2", "row 3"]


@pytest.mark.parametrize("as_before", [False, pytest.param(True, marks=pytest.mark.long)])
def test_a_table_can_be_rolled_back_to_an_earlier_position(rig: Rig, as_before: bool) -> None:
    first = rig.as_before(to_text(position(1))) if as_before else rig.append(1)
    rig.append(2)
    rig.lake.call("rollback_to_snapshot", TABLE, f"snapshot_id => {first}")
    assert rig.lake.position(TABLE) == rig.again().position(TABLE) == position(1)
    assert rig.again().reached(TABLE) == (first, position(1))
    rig.append(5)
    assert rig.again().position(TABLE) == position(5)
    assert names(rig.lake.rows(TABLE).collect())[-1] == "row 5"
    assert "row 2" not in names(rig.lake.rows(TABLE).collect())


def test_what_a_lake_has_reached_by_an_instant_is_an_earlier_position(rig: Rig) -> None:
    first = rig.append(1)
    between_ms = int(rig.lake._load(TABLE).currentSnapshot().timestampMillis())
    rig.append(2)
    assert rig.lake.reached(TABLE, between_ms) == (first, position(1))
    assert rig.lake.reached(TABLE, between_ms - 1) is None


@pytest.mark.long
def test_maintenance_deletes_the_positions_of_expired_snapshots(rig: Rig) -> None:
    for number in (1, 2, 3):
        rig.append(number)
    assert len(rig.files()) == 3
    maintain(rig.lake, [TABLE], NOW)
    assert rig.files() == list(rig.listed().values())
    assert len(rig.files()) == 1
    assert rig.again().position(TABLE) == position(3)


def test_statistics_that_replace_a_position_do_not_make_it_an_orphan(rig: Rig) -> None:
    snapshot = rig.append(1)
    rig.lake.call("compute_table_stats", TABLE)
    assert rig.listed()[snapshot] != rig.place()
    assert rig.again().position(TABLE) == position(1)
    maintain(rig.lake, [TABLE], NOW)
    assert rig.listed()[snapshot] == rig.place()
    (entry,) = rig.lake._load(TABLE).statisticsFiles()
    assert int(entry.fileSizeInBytes()) == rig.place().stat().st_size
    reader = rig.lake._java().puffin.Puffin.read(rig.lake._load(TABLE).io().newInputFile(str(entry.path())))
    reader = reader.withFileSize(entry.fileSizeInBytes()).withFooterSize(entry.fileFooterSizeInBytes()).build()
    assert reader.fileMetadata().blobs().size() == 1


def test_a_table_whose_position_was_deleted_is_not_appended_to(rig: Rig) -> None:
    rig.append(1)
    rig.place().unlink()
    with pytest.raises(LakePositionLost, match="was deleted"):
        rig.again().position(TABLE)


@pytest.mark.long
def test_a_table_without_positions_is_maintained_again_and_again(rig: Rig) -> None:
    for number in (1, 2):
        rig.lake.replace(TABLE, rig.spark.createDataFrame([(f"row {number}",)], COLUMNS))
        maintain(rig.lake, [TABLE], NOW)
    assert rig.lake.protect_position(TABLE) is None
    assert len(rig.snapshots()) == 1


def overwritten(rig: Rig) -> None:
    """Replace all rows, so that the expiry of the former snapshot deletes its files."""
    rig.lake.replace(TABLE, rig.spark.createDataFrame([("other",)], COLUMNS))


@pytest.mark.long
def test_maintenance_keeps_the_snapshot_that_a_run_reads(rig: Rig) -> None:
    first = rig.append(1)
    with pinned(rig.lake, Pinning("job")) as lake:
        rows = lake.rows(TABLE)
        assert [tag.startswith("job-") for tag in rig.tags()] == [True]
        rig.append(2)
        overwritten(rig)
        maintain(rig.lake, [TABLE], NOW)
        assert names(rows.collect()) == names(lake.rows(TABLE).collect()) == ["row 1"]
        assert (lake.position(TABLE), lake.reached(TABLE)) == (position(1), (first, position(1)))
    assert rig.tags() == []
    maintain(rig.lake, [TABLE], NOW)
    assert first not in rig.snapshots()
    with pytest.raises(PySparkException):
        rig.lake.rows(TABLE, first).collect()


@pytest.mark.long
def test_the_tag_of_a_killed_run_ends(rig: Rig) -> None:
    first = rig.append(1)
    time.sleep(0.05)  # sleep: the age of a tag, in milliseconds
    for tag, hours in (("killed", 1e-9), ("reading", 1.0)):
        rig.lake.tag(TABLE, tag, first, hours)
    ref = rig.lake._load(TABLE).refs().get("reading")
    # Of a snapshot that is older than the tag.
    assert int(ref.maxRefAgeMs()) >= 3_600_050
    overwritten(rig)
    maintain(rig.lake, [TABLE], NOW)
    assert (rig.tags(), first in rig.snapshots()) == (["reading"], True)
    rig.lake.tag(TABLE, "reading", first, 1e-9)
    rig.append(2)
    time.sleep(0.05)  # sleep: the age of a tag, in milliseconds
    maintain(rig.lake, [TABLE], NOW)
    assert (rig.tags(), first in rig.snapshots()) == ([], False)


@pytest.mark.long
def test_a_warehouse_with_one_writer_deletes_nothing_while_a_run_reads(rig: Rig, tmp_path: Path) -> None:
    first = rig.append(1)
    with pinned(rig.lake, Pinning("job", directory=tmp_path)) as lake:
        assert lake.snapshot(TABLE) == first
        overwritten(rig)
        maintain(rig.lake, [TABLE], NOW, warehouse=tmp_path)
        assert (rig.tags(), first in rig.snapshots()) == ([], True)
        assert names(lake.rows(TABLE).collect()) == ["row 1"]
    rig.append(2)
    maintain(rig.lake, [TABLE], NOW, warehouse=tmp_path)
    assert first not in rig.snapshots()


def test_a_pinned_snapshot_has_the_columns_that_the_table_got_later(rig: Rig) -> None:
    rig.append(1)
    with pinned(rig.lake, Pinning("job")) as lake:
        assert lake.snapshot(TABLE) is not None
        rig.lake.ensure(TABLE, types.StructType([*COLUMNS.fields, types.StructField("later", types.LongType())]), (), ())
        assert [tuple(row) for row in lake.rows(TABLE).collect()] == [("row 1", None)]


def test_an_empty_table_has_no_tag_and_no_position_for_a_run(rig: Rig) -> None:
    with pinned(rig.lake, Pinning("job")) as lake:
        assert (lake.rows(TABLE).collect(), lake.snapshot(TABLE), lake.position(TABLE)) == ([], None, {})
        rig.append(1)
        assert (lake.snapshot(TABLE), lake.position(TABLE), rig.tags()) == (None, {}, [])


@pytest.mark.long
def test_a_run_that_fails_keeps_its_snapshots_until_it_is_continued(rig: Rig) -> None:
    snapshots = {TABLE: rig.append(1)}
    rig.append(2)
    pinning = Pinning("reprocess")
    with pytest.raises(KeyboardInterrupt), kept(rig.lake, pinning, "fixed", snapshots):
        raise KeyboardInterrupt
    assert rig.tags() == ["reprocess-fixed"]
    with kept(rig.lake, pinning, "fixed", snapshots):
        maintain(rig.lake, [TABLE], NOW)
        assert snapshots[TABLE] in rig.snapshots()
    assert rig.tags() == []
