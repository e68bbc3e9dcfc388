"""Adapter: the lake as a run reads it: each table at one snapshot, which maintenance keeps until the run has ended."""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from threading import RLock
from typing import Any
from uuid import uuid4

from py4j.protocol import Py4JJavaError
from pyspark.sql import DataFrame, SparkSession

from starling_common.telemetry.logs import log
from starling_spark.lakehouse.iceberg import Lake, exclusive_warehouse
from starling_spark.lakehouse.settings import LakeSettings
from starling_spark.lakehouse.warehouse_lock import locked_for_reading


@dataclass(frozen=True, slots=True)
class Pinning:
    """How the runs of a job keep the snapshots that they read: by tags, which end after `hours` if the run is killed.

    `directory`: of a warehouse with one writer. A tag is a write to the table, so a lock on the directory replaces the tags.
    """

    job: str
    hours: float = 24.0
    directory: Path | None = None


def pinning_of(settings: LakeSettings, job: str) -> Pinning:
    """Return how a job keeps snapshots of the lake of these settings."""
    return Pinning(job, settings.lake_tag_hours, exclusive_warehouse(settings))


@dataclass(slots=True)
class _Pins:
    """The snapshots of one run by the table's name in SQL; None: the table was empty. Threads share them."""

    tag: str | None
    hours: float
    snapshots: dict[str, int | None] = field(default_factory=dict)
    tagged: list[tuple[Lake, str]] = field(default_factory=list)
    lock: RLock = field(default_factory=RLock)

    def snapshot(self, lake: Lake, table: str, current: int | None) -> int | None:
        """Return the snapshot of a table: at the first call the current one, which is tagged."""
        name = lake.name(table)
        with self.lock:
            if name not in self.snapshots:
                if current is not None and self.tag is not None:
                    lake.tag(table, self.tag, current, self.hours)
                    self.tagged.append((lake, table))
                self.snapshots[name] = current
            return self.snapshots[name]

    def drop(self) -> None:
        """Drop the tags."""
        for lake, table in self.tagged:
            _untag(lake, table, str(self.tag))


class PinnedLake(Lake):
    """The tables of one namespace, each at the snapshot that was current when the table was first read. Only for reading."""

    def __init__(self, spark: SparkSession, namespace: str, pins: _Pins) -> None:
        super().__init__(spark, namespace)
        self._pins = pins

    def rows(self, table: str, snapshot: int | None = None) -> DataFrame:
        """Return all rows of a snapshot, with the present columns of the table; None: of the pinned snapshot.

        A table that was empty has no snapshot: its rows are the current ones.
        """
        current, wanted = super().rows(table), self.snapshot(table) if snapshot is None else snapshot
        if wanted is None:
            return current
        found = super().rows(table, wanted)
        # A snapshot lacks the columns that the table got after it.
        return found if found.schema == current.schema else found.to(current.schema)

    def sibling(self, suffix: str, properties: Mapping[str, str] | None = None) -> Lake:  # noqa: ARG002 - of new tables
        """Return the tables of the namespace with this one's name and the suffix, pinned by the same run."""
        return PinnedLake(self.spark, f"{self.namespace}_{suffix}", self._pins)

    def _head(self, table: str, loaded: Any) -> Any:
        current = loaded.currentSnapshot()
        pinned = self._pins.snapshot(self, table, None if current is None else int(current.snapshotId()))
        return None if pinned is None else loaded.snapshot(pinned)


@contextmanager
def pinned(lake: Lake, pinning: Pinning) -> Iterator[PinnedLake]:
    """Yield the lake as one run reads it, and release its snapshots at the end."""
    with locked_for_reading(pinning.directory):
        pins = _Pins(f"{pinning.job}-{uuid4().hex[:12]}" if pinning.directory is None else None, pinning.hours)
        try:
            yield PinnedLake(lake.spark, lake.namespace, pins)
        finally:
            pins.drop()


@contextmanager
def reading(spark: SparkSession, settings: LakeSettings, job: str) -> Iterator[PinnedLake | None]:
    """Yield the lake of these settings as one run of a job reads it; None without a warehouse."""
    if not settings.lake_warehouse:
        yield None
        return
    with pinned(Lake(spark, settings.lake_namespace), pinning_of(settings, job)) as lake:
        yield lake


@contextmanager
def kept(lake: Lake, pinning: Pinning, run: str, snapshots: Mapping[str, int]) -> Iterator[None]:
    """Keep snapshots by table for a run that can be continued: if the block raises, the tags stay, and the next one renews them."""
    with locked_for_reading(pinning.directory):
        tags = {} if pinning.directory is not None else dict(snapshots)
        for table, snapshot in tags.items():
            lake.tag(table, f"{pinning.job}-{run}", snapshot, pinning.hours)
        yield
        for table in tags:
            _untag(lake, table, f"{pinning.job}-{run}")


def _untag(lake: Lake, table: str, tag: str) -> None:
    try:
        lake.untag(table, tag)
    except Py4JJavaError as error:  # the tag ends by its age
        log(__name__).warning("tag_not_dropped", table=table, tag=tag, error=str(error.java_exception))
