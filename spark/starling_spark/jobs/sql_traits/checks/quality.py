"""Adapter: the outcome of checks as rows of a table of the lake, a row for each check of each run."""

import json
from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Final

from pyspark.sql import types

from starling_common.time.instants import wall_clock_ms
from starling_rules.sql.checks import Outcome
from starling_spark.jobs.sql_traits.store import Run
from starling_spark.lakehouse.iceberg import Lake

TABLE: Final = "quality_results"
COLUMNS: Final = types.StructType(
    [
        types.StructField("workspace", types.StringType()),
        types.StructField("kind", types.StringType()),
        types.StructField("key", types.StringType()),
        types.StructField("run", types.StringType()),
        types.StructField("number", types.IntegerType()),
        types.StructField("rule", types.StringType()),
        types.StructField("columns", types.StringType()),
        types.StructField("bounds", types.StringType()),
        types.StructField("severity", types.StringType()),
        types.StructField("passed", types.BooleanType()),
        types.StructField("observed", types.StringType()),
        types.StructField("violations", types.LongType()),
        types.StructField("message", types.StringType()),
        types.StructField("as_of", types.TimestampType()),
        types.StructField("checked_at", types.TimestampType()),
    ]
)
_PARTITIONING: Final = ("days(checked_at)",)
_DAY_MS: Final = 86_400_000
_HOUR_MS: Final = 3_600_000


class QualityResults:
    """The table `quality_results`. One process at a time writes it. `keep_days`: of rows; `keep_hours`: of former snapshots."""

    def __init__(self, lake: Lake, keep_days: int, keep_hours: float, orphan_hours: float) -> None:
        self._lake = lake
        self._keep_days = keep_days
        self._keep_hours = keep_hours
        self._orphan_hours = orphan_hours
        self._has_written = False

    def record(self, run: Run, kind: str, outcomes: Sequence[Outcome], as_of_ms: int, checked_at_ms: int) -> None:
        """Append the outcomes of a run in one commit. A repetition after a kill replaces those of the attempt before."""
        self._lake.ensure(TABLE, COLUMNS, _PARTITIONING, ())
        table = self._lake.name(TABLE)
        if run.attempts:
            self._lake.spark.sql(f"DELETE FROM {table} WHERE run = :run", {"run": run.run})  # noqa: S608 - the name of our table
        times = tuple(datetime.fromtimestamp(ms / 1000, UTC) for ms in (as_of_ms, checked_at_ms))
        rows = [
            (
                run.workspace, kind, run.key, run.run, number, one.check.rule, ", ".join(one.check.columns) or None, _bounds(one),
                one.check.severity, one.message is None, one.observed, one.violations, one.message, *times,
            )
            for number, one in enumerate(outcomes, 1)
        ]  # fmt: skip
        self._lake.spark.createDataFrame(rows, COLUMNS).coalesce(1).writeTo(table).append()
        self._has_written = True

    def maintain(self) -> None:
        """Delete rows that are too old, merge the small files of runs, and delete files without a snapshot."""
        if not self._has_written:
            return
        now_ms = wall_clock_ms()
        # Whole days are whole partitions, whose files are deleted without a look at their rows.
        oldest_ms = (now_ms // _DAY_MS - self._keep_days) * _DAY_MS
        table = self._lake.name(TABLE)
        self._lake.spark.sql(f"DELETE FROM {table} WHERE checked_at < timestamp_millis({oldest_ms})")  # noqa: S608 - as above
        self._lake.call("rewrite_data_files", TABLE)
        before_ms, orphans_ms = (int(now_ms - hours * _HOUR_MS) for hours in (self._keep_hours, self._orphan_hours))
        self._lake.call("expire_snapshots", TABLE, f"older_than => timestamp_millis({before_ms}), retain_last => 1")
        self._lake.call("remove_orphan_files", TABLE, f"older_than => timestamp_millis({orphans_ms})")
        self._has_written = False


def _bounds(outcome: Outcome) -> str | None:
    check = outcome.check
    bounds = {"min": check.least, "max": check.most, "change_percent": check.change_percent, "within": check.within}
    given = {name: bound for name, bound in bounds.items() if bound is not None}
    return json.dumps(given) if given else None
