"""Adapter: the result of a view as a table of the lake. Each run replaces it as a whole, or the rows of some days."""

from collections.abc import Iterable
from typing import Final

import msgspec
from pyspark.sql import DataFrame, SparkSession, functions

from starling_common.cassandra.read_models import VIEW
from starling_common.time.instants import wall_clock_ms
from starling_spark.jobs.sql_traits.days import SUMMARY, Plan, check_days
from starling_spark.jobs.sql_traits.store import Check, Run, Stored
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

    def write(self, run: Run, statement: DataFrame, check: Check, plan: Plan | None) -> Stored:
        """Replace the table, or its days of a plan, by the rows of a statement in one commit.

        Nothing is replaced if the rows of the table were too many, or if `check` raises. Shape: `statement` is stored, so that it
        is executed once: the number of rows is known before a reader sees them. Raises: ResultRefused.
        """
        lake = view_lake(statement.sparkSession, run.workspace)
        if plan is not None:
            check_days(statement, plan)
        rows = statement if plan is None or plan.days is None else _with_kept(lake.rows(run.key), statement, plan)
        count = rows.count()
        if count > self._most_rows:
            return Stored(count, f"the result has {count} rows, and at most {self._most_rows} are allowed: narrow it")
        check(rows, count)
        if plan is None:
            lake.put(run.key, statement)
        else:
            summary = {SUMMARY: msgspec.json.encode(plan.progress).decode()}
            if plan.days is None:
                lake.put(run.key, statement, plan.column, summary)
            else:
                lake.put_values(run.key, statement, plan.column, plan.days, summary)
        self._written[run.workspace, run.key] = view_lake(self._spark, run.workspace)
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
        written, self._written = self._written, {}
        for (_, key), lake in written.items():
            lake.call("expire_snapshots", key, f"older_than => timestamp_millis({before_ms}), retain_last => 1")
            lake.call("remove_orphan_files", key, f"older_than => timestamp_millis({orphans_ms})")


def _with_kept(table: DataFrame, computed: DataFrame, plan: Plan) -> DataFrame:
    """Return the rows of the table after a run of some days."""
    return table.where(~functions.col(plan.column).isin(list(plan.days or ()))).unionByName(computed)


def view_lake(spark: SparkSession, workspace: str) -> Lake:
    """Return the tables of the views of a workspace: the namespace `views_<workspace>` of the catalog."""
    return Lake(spark, f"`views_{workspace}`")
