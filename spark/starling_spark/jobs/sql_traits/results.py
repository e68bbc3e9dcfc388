"""Adapter: the rows of runs in a table of the lake, one partition a run; and their changes to Kafka."""

from collections.abc import Callable, Iterable, Iterator
from typing import Final, NamedTuple

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession, functions, types

from starling_common.cassandra.read_models import COMPUTED_TRAIT
from starling_common.time.instants import wall_clock_ms
from starling_common.values import deterministic_id, record_key
from starling_rules.sql.runs import PRODUCED_BY
from starling_spark.jobs.sql_traits.days import Plan
from starling_spark.jobs.sql_traits.store import Check, Run, Stored
from starling_spark.jobs.sql_traits.values import USER, VALUE, changed, json_values
from starling_spark.kafka.codec import Wire
from starling_spark.kafka.sinks import OUTPUT, Letters, publish
from starling_spark.lakehouse.iceberg import Lake
from starling_spark.lakehouse.lineage import table_datasets
from starling_spark.lineage.datasets import Dataset, kafka_topics

TABLE: Final = "sql_trait_results"
MOST_ID_BYTES: Final = 512
MOST_VALUE_BYTES: Final = 4_096
_PLACE: Final = ("workspace", "trait_key", "run")
_COLUMNS: Final = types.StructType([types.StructField(name, types.StringType()) for name in (*_PLACE, USER, VALUE)])
_HOUR_MS: Final = 3_600_000


class Target(NamedTuple):
    """Where the values are published. `letters`: for records that the broker refuses."""

    brokers: str
    topic: str
    wire: Wire
    letters: Letters


class Results:
    """The rows of runs of traits. One process at a time writes them. `most_users`: of one result."""

    kind = COMPUTED_TRAIT

    def __init__(self, spark: SparkSession, lake: Lake, target: Target, most_users: int, orphan_hours: float) -> None:
        self._spark = spark
        self._lake = lake
        self._target = target
        self._most_users = most_users
        self._orphan_hours = orphan_hours
        self._has_changed = False
        lake.ensure(TABLE, _COLUMNS, _PLACE, ())

    def write(self, run: Run, statement: DataFrame, check: Check, plan: Plan | None) -> Stored:  # noqa: ARG002 - of views
        """Store the values of a run in one commit. `check` raises if they must not be published.

        Shape: `user_id`, `value`, also of another session. Raises: ResultRefused.
        """
        values = json_values(statement, run.timezone)
        placed = {"workspace": run.workspace, "trait_key": run.key, "run": run.run}
        columns = [functions.lit(value).alias(name) for name, value in placed.items()]
        self._has_changed = True
        values.select(*columns, USER, VALUE).writeTo(self._lake.name(TABLE)).append()
        stored = self._checked(run)
        if stored.problem is None:
            check(statement, stored.rows)
        return stored

    def rows(self, run: Run, of: str) -> DataFrame:
        """Return the values of a run of the same trait. `of`: its id."""
        rows = self._lake.rows(TABLE)
        for name, value in zip(_PLACE, (run.workspace, run.key, of), strict=True):
            rows = rows.where(functions.col(name) == functions.lit(value))
        return rows.select(USER, VALUE)

    def forget(self, run: Run, *kept: str) -> None:
        """Delete the rows of the trait's runs, except those with the ids `kept`."""
        names = {f"kept{number}": one for number, one in enumerate(kept)}
        others = f" AND run NOT IN ({', '.join(f':{name}' for name in names)})" if names else ""
        table = self._lake.name(TABLE)
        statement = f"DELETE FROM {table} WHERE workspace = :workspace AND trait_key = :trait{others}"  # noqa: S608 - our names
        self._has_changed = True
        self._spark.sql(statement, {"workspace": run.workspace, "trait": run.key, **names})

    def withdraw(self, run: Run) -> None:
        """Do nothing: `publish` withdraws the values of a result without rows."""

    def maintain(self) -> None:
        """Delete the files of forgotten rows, and those that a killed process left, if a trait has run since the call before."""
        if not self._has_changed:
            return
        now_ms = wall_clock_ms()
        self._lake.call("expire_snapshots", TABLE, f"older_than => timestamp_millis({now_ms}), retain_last => 1")
        orphans_ms = int(now_ms - self._orphan_hours * _HOUR_MS)
        self._lake.call("remove_orphan_files", TABLE, f"older_than => timestamp_millis({orphans_ms})")
        self._has_changed = False

    def publish(self, run: Run) -> int:
        """Publish the differences from the last complete run; return their number. A repetition publishes the same records.

        Raises: the error of a failed task, such as BrokerUnavailable; some of the records may be written then.
        """
        target = self._target
        before = None if run.result is None else self.rows(run, run.result)
        rows = changed(before, self.rows(run, run.run))
        records = rows.mapInArrow(_encoder(target.wire, target.topic, run), OUTPUT)
        published = publish(records, target.brokers, PRODUCED_BY, target.letters)
        return published.records[target.topic]

    def datasets(self, _run: Run, rows: int | None = None, published: int | None = None) -> Iterable[Dataset]:
        """Return the table of the results, and the topic of the values."""
        for one in (*table_datasets(self._lake, TABLE), *kafka_topics(self._target.brokers, self._target.topic)):
            yield one._replace(rows=published if one.table is None else rows)

    def _checked(self, run: Run) -> Stored:
        users = self.rows(run, run.run).groupBy(USER).agg(
            functions.count("*").alias("rows"),
            functions.octet_length(USER).alias("id_bytes"),
            functions.max(functions.octet_length(VALUE)).alias("value_bytes"),
        )  # fmt: skip
        names = ("rows", "id_bytes", "value_bytes")
        sums = [functions.count("*").alias("users"), *[functions.max(name).alias(name) for name in names]]
        found = users.agg(*sums).collect()[0]
        count = found["users"]
        checks = (
            (count > self._most_users, f"the result has {count} users, and at most {self._most_users} are allowed: narrow it"),
            ((found["rows"] or 0) > 1, "the result has several rows for a user: add GROUP BY user_id"),
            ((found["id_bytes"] or 0) > MOST_ID_BYTES, f"a user_id has more than {MOST_ID_BYTES} bytes: select the id of a user"),
            ((found["value_bytes"] or 0) > MOST_VALUE_BYTES, f"a value has more than {MOST_VALUE_BYTES} bytes of JSON: shorten it"),
        )
        return Stored(found["users"], next((problem for is_wrong, problem in checks if is_wrong), None))


def _encoder(wire: Wire, topic: str, run: Run) -> Callable[[Iterable[pa.RecordBatch]], Iterator[pa.RecordBatch]]:
    """Return the function from users and values to rows of `sinks.OUTPUT`. The ids of the records are those of (run, user)."""
    at_ms = run.computed_at_ms or 0

    def record(user: str, value: str | None) -> dict[str, object]:
        return {
            "received_at": at_ms * 1000,
            "workspace": run.workspace,
            "user_id": user,
            "event_id": deterministic_id("sql-trait", run.run, user),
            "trait_key": run.key,
            "trait_version": run.version,
            "value": value,
            "as_of": run.as_of_ms or 0,
            "correlation_id": run.run,
        }

    def encode(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        codec = wire.codec(topic)
        for batch in batches:
            users, values = batch.column(USER).to_pylist(), batch.column(VALUE).to_pylist()
            size = len(users)
            columns = {
                "topic": pa.array([topic] * size, pa.string()),
                "partition": pa.array([-1] * size, pa.int32()),
                "key": pa.array([record_key(run.workspace, user) for user in users], pa.binary()),
                "value": pa.array([codec.encode(record(*pair)) for pair in zip(users, values, strict=True)], pa.binary()),
                "timestamp_ms": pa.array([at_ms] * size, pa.int64()),
                "correlation_id": pa.array([run.run] * size, pa.string()),
                "refused": pa.array([None] * size, pa.string()),
            }
            yield pa.RecordBatch.from_pydict(columns)

    return encode
