"""Adapter: the result of a run of an event type: nothing but the outcome of its checks."""

from collections.abc import Iterable

from pyspark.sql import DataFrame

from starling_common.cassandra.read_models import EVENT_TYPE
from starling_spark.jobs.sql_traits.checks.quality import TABLE
from starling_spark.jobs.sql_traits.days import Plan
from starling_spark.jobs.sql_traits.store import Check, Run, Stored
from starling_spark.lakehouse.iceberg import Lake
from starling_spark.lakehouse.lineage import table_datasets
from starling_spark.lineage.datasets import Dataset


class CheckedEvents:
    """The events of an event type in the period of its checks. They stay where they are. `lake`: with the outcome of checks."""

    kind = EVENT_TYPE

    def __init__(self, lake: Lake) -> None:
        self._lake = lake

    def write(self, run: Run, statement: DataFrame, check: Check, plan: Plan | None) -> Stored:  # noqa: ARG002 - of results
        """Check the events of a statement. Shape: `statement` is stored, so that it is executed once."""
        count = statement.count()
        check(statement, count)
        return Stored(count, None)

    def forget(self, run: Run, *kept: str) -> None:
        """Do nothing: no run leaves anything."""

    def withdraw(self, run: Run) -> None:
        """Do nothing: an event type without checks has no result."""

    def publish(self, _run: Run) -> int:
        """Return 0: there is nothing to publish."""
        return 0

    def datasets(self, run: Run, rows: int | None = None, published: int | None = None) -> Iterable[Dataset]:  # noqa: ARG002 - none
        """Return the table with the outcome of checks."""
        return table_datasets(self._lake, TABLE)

    def maintain(self) -> None:
        """Do nothing: no run leaves a file."""
