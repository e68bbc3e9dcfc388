"""Adapter: the result of a view as a table of the lake, which each run replaces as a whole."""

from collections.abc import Callable, Iterable
from typing import Final

from pyspark.sql import DataFrame, SparkSession

from starling_common.cassandra.read_models import VIEW
from starling_common.time.instants import wall_clock_ms
from starling_spark.jobs.sql_traits.store import Run, Stored
from starling_spark.lakehouse.iceberg import Lake
from starling_spark.lakehouse.lineage import table_datasets
from starling_spark.lineage.datasets import Dataset

_HOUR_MS: Final = 3_600_000


class ViewTables:
    """The tables of views. One process at a time writes them.

    `most_rows`: of one table; `keep_hours`: how long former rows stay, for readers.
    """

    kind = VIEW

    def __init__(self, spark: SparkSession, most_rows: int, keep_hours: float, orphan_hours: float) -> None:
        self._spark = spark
        self._most_rows = most_rows
        self._keep_hours = keep_hours
        self._orphan_hours = orphan_hours
        self._written: dict[tuple[str, str], Lake] = {}

    def write(self, run: Run, statement: DataFrame, check: Callable[[int], None]) -> Stored:
        """Replace the table by the rows of a statement in one commit, unless they are too many or `check` raises.

        Shape: `statement` is stored, so that it is executed once: the number of rows is known before a reader sees them.
        """
        count = statement.count()
        if count > self._most_rows:
            return Stored(count, f"the result has {count} rows, and at most {self._most_rows} are allowed: narrow it")
        check(count)
        lake = view_lake(self._spark, run.workspace)
        lake.put(run.key, statement)
        self._written[run.workspace, run.key] = lake
        return Stored(count, None)

    def forget(self, run: Run, *kept: str) -> None:
        """Do nothing: a run that did not end has replaced no row, or all of them."""

    def withdraw(self, run: Run) -> None:
        """Delete the table."""
        self._written.pop((run.workspace, run.key), None)
        view_lake(self._spark, run.workspace).drop(run.key)

    def publish(self, _run: Run) -> int:
        """Return 0: the table is in place."""
        return 0

    def datasets(self, run: Run, rows: int | None = None, published: int | None = None) -> Iterable[Dataset]:  # noqa: ARG002 - none
        """Return the table of the view."""
        return (one._replace(rows=rows) for one in table_datasets(view_lake(self._spark, run.workspace), run.key))

    def maintain(self) -> None:
        """Delete the former rows of the written tables, and the files that a killed process left."""
        now_ms = wall_clock_ms()
        before_ms, orphans_ms = (int(now_ms - hours * _HOUR_MS) for hours in (self._keep_hours, self._orphan_hours))
        for (_, key), lake in self._written.items():
            lake.call("expire_snapshots", key, f"older_than => timestamp_millis({before_ms}), retain_last => 1")
            lake.call("remove_orphan_files", key, f"older_than => timestamp_millis({orphans_ms})")


def view_lake(spark: SparkSession, workspace: str) -> Lake:
    """Return the tables of the views of a workspace: the namespace `views_<workspace>` of the catalog."""
    return Lake(spark, f"`views_{workspace}`")
