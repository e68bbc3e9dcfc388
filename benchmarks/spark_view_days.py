"""Views in SQL: a run that computes all days, relative to one of an incremental view, with the same statement and new events.

The lake is in a directory, without a broker: the events of a month, with a file for each hour of arrival, as after the maintenance
of the job `lake`. Each round appends events of the last day, and then runs both views in turn, by `SqlTraitJob.run`. A figure is
that of a run until its rows are in place, without the maintenance of tables after all runs. Medians count.
Run: PYTHONPATH=. python benchmarks/spark_view_days.py [--small] [--write]
"""

import argparse
import json
import os
import statistics
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final, cast

from common.bench import keep
from common.spark_cpu import Meter
from pyspark.sql import DataFrame, SparkSession, functions, types

from starling_common.settings import Clock, Http, Kafka, SchemaRegistry
from starling_local.runtime import runtime_jars
from starling_rules.sql.event_types import EventType
from starling_rules.sql.incremental import stored
from starling_rules.sql.runs import WAITING
from starling_spark.jobs.sql_traits.job import Limits, Place, SqlTraitJob, Stores
from starling_spark.jobs.sql_traits.store import Computed, Run, RunStore
from starling_spark.jobs.sql_traits.tables import SOURCES
from starling_spark.lakehouse.iceberg import Lake, iceberg_config
from starling_spark.lakehouse.settings import LakeSettings
from starling_spark.session.spark import open_session

DAYS: Final = 30
SQL: Final = (
    "SELECT to_date(event_time) AS day, name, count(*) AS events, approx_count_distinct(user_id) AS users, "
    "sum(CAST(get_json_object(properties, '$.revenue') AS DOUBLE)) AS revenue FROM events GROUP BY to_date(event_time), name"
)
COLUMNS: Final[Mapping[str, str]] = {
    "behaviour_events": "workspace string, user_id string, event_id string, message_id string, kind string, name string, "
    "event_time timestamp, received_at timestamp, anonymous_ids array<string>, properties string, context string, "
    "origin_partition int, origin_offset bigint",
    "profile_changes": "workspace string, user_id string, event_time timestamp, received_at timestamp, order timestamp, "
    "anonymous_ids array<string>, traits string, group_id string, change string, group_traits string, origin_partition int, "
    "origin_offset bigint",
    "membership_changes": "workspace string, user_id string, segment_key string, segment_version int, status string, "
    "sequence bigint, effective_at timestamp",
    "products": "workspace string, product_id string, properties string, updated_at timestamp",
}
VIEWS: Final[Mapping[str, Mapping[str, str] | None]] = {"all_days": None, "new_days": {"column": "day", "watermark": "7d"}}


class MemoryRuns:
    """The runs of one kind, instead of the table in Cassandra."""

    def __init__(self, spent: Callable[[], dict[str, float]]) -> None:
        """`spent`: the time and the processor time so far."""
        self.waiting: list[Run] = []
        self.took: dict[str, float] = {}
        self._spent = spent
        self._began: dict[str, float] = {}

    def unfinished(self) -> list[Run]:
        return self.waiting

    def event_types(self, _workspace: str) -> list[EventType]:
        return []

    def begin(self, _run: Run) -> bool:
        self._began = self._spent()
        return True

    def set_computed(self, _run: Run, computed: Computed) -> bool:
        self.took = {"scanned_bytes": computed.scanned_bytes}
        return True

    def end_published(self, _run: Run, _state: str, _published: int) -> bool:
        self.took |= {name: value - self._began[name] for name, value in self._spent().items()}
        self.waiting.clear()
        return True

    def end_without(self, _run: Run, state: str, message: str) -> bool:
        raise RuntimeError(f"{state}: {message}")


class Bench:
    """A lake, and the job over it."""

    def __init__(self, spark: SparkSession, meter: Meter) -> None:
        self._spark, self._meter = spark, meter
        self._lake = Lake(spark, "events")
        for table, columns in COLUMNS.items():
            partitioning = ("hours(received_at)",) if table == SOURCES["events"] else ()
            self._lake.ensure(table, cast("types.StructType", types._parse_datatype_string(columns)), partitioning, ())  # noqa: SLF001
        self._runs, none = MemoryRuns(self._spent), MemoryRuns(self._spent)
        place = Place("events", cast("Any", None), cast("Any", None), Clock.WALL, 72.0)
        stores = Stores(*(cast("RunStore", one) for one in (none, self._runs, none)))
        self._job = SqlTraitJob(spark, stores, place, Limits(10**13, 10**9, 3_600.0))
        self._number = 0

    def append(self, first: int, count: int, since_s: float, seconds: float) -> None:
        """Append events that are spread over a time."""
        number = functions.col("id")
        at = functions.timestamp_seconds(functions.lit(since_s) + (number - first) * (seconds / count))
        revenue = functions.concat(
            functions.lit('{"revenue": '), number % 100, functions.lit(', "sku": "sku-12345", "page": "/cart"}')
        )
        rows: DataFrame = self._spark.range(first, first + count).select(
            functions.lit("shop").alias("workspace"),
            functions.concat(functions.lit("user-"), functions.pmod(functions.hash(number), functions.lit(100_000))).alias(
                "user_id"
            ),
            functions.sha1(number.cast("string")).alias("event_id"),
            functions.sha1(number.cast("string")).alias("message_id"),
            functions.lit("track").alias("kind"),
            functions.concat(functions.lit("event "), number % 40).alias("name"),
            at.alias("event_time"),
            at.alias("received_at"),
            functions.array().cast("array<string>").alias("anonymous_ids"),
            revenue.alias("properties"),
            functions.lit("{}").alias("context"),
            (number % 8).cast("int").alias("origin_partition"),
            number.alias("origin_offset"),
        )
        rows.writeTo(self._lake.name(SOURCES["events"])).option("fanout-enabled", "false").append()

    def run(self, view: str) -> dict[str, float]:
        """Perform a run; return its time and its processor time in seconds, and the estimate of the bytes that it read."""
        self._number += 1
        by_day = stored(VIEWS[view])
        self._runs.waiting.append(
            Run("shop", view, 1, SQL, "UTC", False, WAITING, str(self._number), self._number, 0, incremental=by_day)
        )
        self._job.run(lambda: False)
        return self._runs.took

    def _spent(self) -> dict[str, float]:
        return {"seconds": time.monotonic(), "cpu_seconds": sum(self._meter.seconds().values())}

    def assert_equal(self) -> None:
        """Raise unless both views have the same rows."""
        one, other = (Lake(self._spark, "`views_shop`").rows(view) for view in VIEWS)
        assert one.exceptAll(other).count() == other.exceptAll(one).count() == 0


@contextmanager
def opened(directory: Path) -> Iterator[SparkSession]:
    """Yield a session with a lake in a directory."""
    settings = LakeSettings(
        kafka=Kafka(brokers="127.0.0.1:1"),
        registry=SchemaRegistry(url="http://127.0.0.1:1"),
        http=Http(port=1),
        instance_id="benchmark",
        spark_jars=os.pathsep.join(map(str, (*runtime_jars("spark"), *runtime_jars("iceberg")))),
        spark_master="local[2]",
        checkpoint_dir=str(directory / "checkpoints"),
        lake_warehouse=str(directory / "warehouse"),
    )
    spark = open_session("benchmark", settings, iceberg_config(settings))
    try:
        yield spark
    finally:
        spark.stop()


def measured(bench: Bench, events: int, rounds: int) -> dict[str, dict[str, float]]:
    """Return the medians of the rounds by view. The first round warms up."""
    since_s = time.time() - DAYS * 86_400
    bench.append(0, events, since_s, DAYS * 86_400)
    took: dict[str, list[dict[str, float]]] = {view: [] for view in VIEWS}
    for number in range(-1, rounds):
        if number >= 0:
            bench.append(events + number * 1_000, 1_000, since_s + (DAYS - 0.5) * 86_400, 600)
        for view in VIEWS:
            found = bench.run(view)
            if number >= 0:
                took[view].append(found)
        bench.assert_equal()
    return {view: {name: statistics.median(one[name] for one in own) for name in own[0]} for view, own in took.items()}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--events", type=int, default=2_000_000, help="of the month before")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--small", action="store_true", help="so light that it is over in two minutes; not representative")
    parser.add_argument("--write", action="store_true", help="keep the result in benchmarks/results/spark_view_days.json")
    asked = parser.parse_args()
    events, rounds = (50_000, 1) if asked.small else (asked.events, asked.rounds)
    load = round(os.getloadavg()[1], 1)
    with tempfile.TemporaryDirectory(dir="/var/tmp") as scratch, opened(Path(scratch)) as spark, Meter() as meter:
        found = measured(Bench(spark, meter), events, rounds)
    one, other = found.values()
    ratios = {name: round(one[name] / other[name], 2) for name in one}
    rounded = {view: {name: round(value, 2) for name, value in own.items()} for view, own in found.items()}
    result = {"benchmark": "spark_view_days", "cores": os.cpu_count(), "load_average_5m": load, "events": events, "days": DAYS}
    result |= {**rounded, "all_to_new": ratios}
    print(json.dumps(result, indent=1))
    if asked.write and not asked.small:
        keep("spark_view_days", result)


if __name__ == "__main__":
    main()
