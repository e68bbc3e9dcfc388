"""A lake, a topic and a keyspace of a test's own, in which runs of SQL are queued as the API does, and performed."""

import json
import uuid
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from typing import Any

from pyspark.sql import SparkSession, types

from starling_api.definitions.event_types import checked_statement
from starling_api.sql.runs import RunRow
from starling_api.sql.store import CassandraRuns
from starling_common.cassandra.database import Database
from starling_common.cassandra.read_models import EVENT_TYPE
from starling_common.kafka.topics import AGGREGATES, PRODUCTS
from starling_common.settings import Clock
from starling_common.testing import own_keyspace
from starling_common.values import record_key
from starling_common.wire import Registry
from starling_rules.sql.incremental import stored
from starling_rules.sql.runs import ScheduledSql, run_id
from starling_spark.jobs.sql_traits import products
from starling_spark.jobs.sql_traits.job import Limits, Place, SqlTraitJob, Stores
from starling_spark.jobs.sql_traits.results import TABLE, Target
from starling_spark.jobs.sql_traits.store import EVENT_TYPE_CHECKS, TRAITS, VIEWS, Computed, Run, RunStore
from starling_spark.kafka.codec import topic_schemas
from starling_spark.kafka.sinks import Letters
from starling_spark.lakehouse.iceberg import Lake
from starling_spark.lineage.runs import OFF, Lineage
from tests.conftest import Stack
from tests.spark.topics import Topics

DLQ = "profiles.dlq"
START = datetime(2026, 1, 1, tzinfo=UTC)
SPENT = (
    "SELECT user_id, sum(CAST(get_json_object(properties, '$.revenue') AS BIGINT)) AS value FROM events "
    "WHERE name = 'Order Completed' AND event_time > :as_of - INTERVAL 30 DAYS GROUP BY user_id"
)
Checks = Sequence[dict[str, Any]]
GENEROUS = Limits(max_bytes=10**12, max_users=1_000_000, max_seconds=300)


def columns(**kinds: types.DataType) -> types.StructType:
    return types.StructType([types.StructField(name, kind) for name, kind in kinds.items()])


TEXT, TIME, LONG = types.StringType(), types.TimestampType(), types.LongType()
ORIGIN = {"origin_partition": types.IntegerType(), "origin_offset": LONG}
WHO = {"workspace": TEXT, "user_id": TEXT}
IDS = types.ArrayType(TEXT)
LAKE_COLUMNS = {
    "behaviour_events": columns(
        **WHO, **ORIGIN, event_id=TEXT, message_id=TEXT, kind=TEXT, name=TEXT, event_time=TIME, received_at=TIME, anonymous_ids=IDS,
        properties=TEXT, context=TEXT,
    ),
    "profile_changes": columns(
        **WHO, **ORIGIN, event_time=TIME, received_at=TIME, order=TIME, anonymous_ids=IDS, traits=TEXT, group_id=TEXT,
        change=TEXT, group_traits=TEXT,
    ),
    "membership_changes": columns(
        **WHO, **ORIGIN, segment_key=TEXT, segment_version=types.IntegerType(), status=TEXT, sequence=LONG, effective_at=TIME,
    ),
}  # fmt: skip


def event(user: str, day: float, revenue: int, workspace: str = "acme", name: str = "Order Completed") -> dict[str, Any]:
    at = START + timedelta(days=day)
    return {
        "workspace": workspace, "user_id": user, "event_id": uuid.uuid4().hex, "kind": "track", "name": name, "event_time": at,
        "received_at": at, "anonymous_ids": [], "properties": json.dumps({"revenue": revenue}), "context": "{}",
        "origin_partition": 0,
    }  # fmt: skip


class Rig:
    """A lake, a topic and a keyspace of a test's own."""

    def __init__(self, spark: SparkSession, topics: Topics, database: Database) -> None:
        self.spark = spark
        self.lake = Lake(spark, f"n{uuid.uuid4().hex[:10]}")
        for table, wanted in LAKE_COLUMNS.items():
            self.lake.ensure(table, wanted, (), ())
        self.database = database
        self.queue = CassandraRuns(database)
        self.views = CassandraRuns(database, VIEWS)
        self.event_types = CassandraRuns(database, EVENT_TYPE_CHECKS)
        self.store = RunStore(database)
        topic, dlq, listed = (topics.prefix + name for name in (AGGREGATES, DLQ, PRODUCTS))
        self.topics, url = topics, topics.stack.registry_url
        self._codec = Registry(url).codec(topic, "AggregateComputed")
        records = [(topic, "AggregateComputed"), (dlq, "DeadLetter"), (listed, "ProductListed")]
        wire = topic_schemas(Registry(url), url, records)
        target = Target(topics.stack.brokers, topic, wire, Letters("profiles", dlq, wire))
        listing = products.Listing(topics.stack.brokers, listed, wire)
        self.products = products.Products(spark, self.lake, listing, 72.0)
        self.place = Place(self.lake.name("x").split(".")[1], target, listing, Clock.EVENT, 72.0)
        self._read = 0
        self._clock = 0

    def add(self, table: str, rows: Sequence[dict[str, Any]]) -> None:
        wanted = LAKE_COLUMNS[table]
        values = [[row.get(field.name) for field in wanted.fields] for row in rows]
        self.spark.createDataFrame(values, wanted).writeTo(self.lake.name(table)).append()

    def ordered(
        self, key: str, sql: str, version: int = 1, *, workspace: str = "acme", archived: bool = False, checks: Checks = ()
    ) -> str:
        """Queue a run as the API does, and return its id."""
        self._clock += 1
        before = next((row for row in self.queue.of(workspace) if row.key == key), None)
        run = run_id(workspace, key, version, self._clock)
        trait = ScheduledSql(workspace, key, version, sql, "0 * * * *", "UTC", archived, json.dumps(checks) if checks else None)
        assert self.queue.queue(trait, run, self._clock, before)
        return run

    def perform(
        self,
        store: RunStore | None = None,
        limits: Limits = GENEROUS,
        views: RunStore | None = None,
        lineage: Lineage = OFF,
    ) -> dict[str, int]:
        own = RunStore(self.database, EVENT_TYPE_CHECKS)
        stores = Stores(store or self.store, views or RunStore(self.database, VIEWS), own)
        return dict(SqlTraitJob(self.spark, stores, self.place, limits, lineage).run(lambda: False))

    def row(self, key: str, workspace: str = "acme") -> RunRow:
        return next(row for row in self.queue.of(workspace) if row.key == key)

    def ordered_view(
        self,
        key: str,
        sql: str,
        workspace: str = "acme",
        *,
        archived: bool = False,
        checks: Checks = (),
        timezone: str = "UTC",
        incremental: dict[str, str] | None = None,
        full: bool = False,
    ) -> None:
        self._clock += 1
        before = next((row for row in self.views.of(workspace) if row.key == key), None)
        by_day, stored_checks = stored(incremental, full=full), json.dumps(checks) if checks else None
        view = ScheduledSql(workspace, key, 1, sql, "0 * * * *", timezone, archived, stored_checks, by_day)
        assert self.views.queue(view, run_id(workspace, key, 1, self._clock), self._clock, before)

    def view(self, key: str, workspace: str = "acme") -> RunRow:
        return next(row for row in self.views.of(workspace) if row.key == key)

    def ordered_checks(self, document: dict[str, Any], version: int = 1) -> None:
        """Queue a run of the checks of an event type, which `declared` has written."""
        self._clock += 1
        key, sql = document["key"], checked_statement(document)
        before = next((row for row in self.event_types.of("acme") if row.key == key), None)
        checks = None if sql is None else json.dumps(document["checks"])
        run = ScheduledSql("acme", key, version, sql or "", "0 * * * *", "UTC", archived=sql is None, checks=checks)
        assert self.event_types.queue(run, run_id("acme", key, version, self._clock), self._clock, before)

    def event_type(self, key: str) -> RunRow:
        return next(row for row in self.event_types.of("acme") if row.key == key)

    def list_products(self, *listed: dict[str, Any], workspace: str = "acme") -> None:
        for one in listed:
            record = {"workspace": workspace, "category": None, "price": None, "brand": None, "name": None, "listed_at": 1} | one
            self.topics.send(PRODUCTS, record_key(workspace, one["product_id"]), record)
        self.topics.flush()

    def published(self, number: int) -> list[dict[str, Any]]:
        """Return the next records of the topic."""
        found = self.topics.read(AGGREGATES, self._read, self._read + number)
        self._read += number
        records = [self._codec.decode(value) for _, value in found]
        assert [key for key, _ in found] == [f"{one['workspace']}/{one['user_id']}".encode() for one in records]
        return records

    def stored(self) -> int:
        return self.lake.rows(TABLE).count()


@contextmanager
def opened_rig(spark: SparkSession, stack: Stack) -> Iterator[Rig]:
    """Yield a rig; its topics, keyspace and connections end with the block."""
    topics = Topics(stack, (AGGREGATES, DLQ, PRODUCTS))
    topics.deploy()
    with own_keyspace(stack.cassandra) as cassandra:
        made = Rig(spark, topics, Database(cassandra))
        yield made
        made.database.close()
    topics.remove()


def declared(rig: Rig, key: str, event_name: str, properties: Sequence[dict[str, Any]], status: str = "defined") -> None:
    """Write an event type as the projector does."""
    document = {"key": key, "event": event_name, "properties": properties}
    statement = "INSERT INTO {ks}.definitions (workspace, kind, key, version, status, document) VALUES (?, ?, ?, 1, ?, ?)"
    rig.database.write(statement, ("acme", EVENT_TYPE, key, status, json.dumps(document)))


class Killed(BaseException):
    """The end of the process."""


class KilledStore(RunStore):
    """Ends the process before one of its writes."""

    def __init__(self, database: Database, before: str, table: str = TRAITS) -> None:
        super().__init__(database, table)
        self._before = before

    def set_computed(self, run: Run, computed: Computed) -> bool:
        if self._before == "set_computed":
            raise Killed
        return super().set_computed(run, computed)

    def end_published(self, run: Run, state: str, published: int) -> bool:
        if self._before == "end_published":
            raise Killed
        return super().end_published(run, state, published)
