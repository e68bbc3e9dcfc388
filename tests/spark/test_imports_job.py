"""The job `imports` with a real ingest API, broker, Cassandra, PostgreSQL and Iceberg: files, tables, rejected rows, and a kill."""

import json
import os
import subprocess
import sys
import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psutil
import psycopg
import pyarrow as pa
import pytest
from prometheus_client import CollectorRegistry
from pydantic import SecretStr
from pyiceberg.catalog import load_catalog
from pyspark.sql import SparkSession

from starling_api.imports.imports import Imports as ApiImports
from starling_api.imports.store import CassandraImports
from starling_api.imports.wiring import ImportService
from starling_api.jobs import runner
from starling_api.lists.store import CassandraLists
from starling_api.settings import ApiSettings
from starling_cli.catalog import load, product_of
from starling_common.telemetry.metrics import Metrics
from starling_common.testing import eventually, own_keyspace
from starling_common.testing import running as service_running
from starling_common.time.instants import wall_clock_ms
from starling_local.nessie import WAREHOUSE, ObjectStore, nessie
from starling_local.postgres import USER, PostgresServer, postgres
from starling_local.runtime import runtime_jars
from starling_rules.iceberg import IcebergSource
from starling_rules.imports import CANCELLED, DONE, FAILED, RUNNING, WAITING
from starling_spark.jobs.imports.job import Databases, ImportJob
from starling_spark.jobs.imports.sending import Target
from starling_spark.jobs.imports.sources.iceberg import IcebergAccess
from starling_spark.jobs.imports.sources.jdbc import SHIPPED, JdbcAccess
from starling_spark.jobs.imports.sources.reading import SourceUnavailable
from starling_spark.jobs.imports.store import Place, Progress
from starling_spark.jobs.imports.wiring import SESSION
from starling_spark.lakehouse.iceberg import iceberg_config
from starling_spark.lakehouse.settings import LakeSettings
from tests.conftest import Stack
from tests.integration.ingest.edge_process import running
from tests.lineage_receiver import places, rows_of, sent_lineage
from tests.s3_server import ACCESS_KEY, BUCKET, REGION, SECRET_KEY, s3_server
from tests.spark.conftest import spark_settings
from tests.spark.imports_rig import CATALOG, LISTS, PASSWORD, TRACK, Imports

IDENTIFY = "ingest.identify"
GROUP = "ingest.group"
ROWS = 20_000
"""40 batches: a kill after the first progress is in the middle of the file."""


@pytest.fixture
def imports(stack: Stack, tmp_path: Path) -> Iterator[Imports]:
    workspace = f"w{uuid.uuid4().hex[:10]}"
    settings = {**stack.environment(), "STARLING_WRITE_KEYS": f"key={workspace}"}
    with own_keyspace(stack.cassandra) as cassandra, running(settings, tmp_path) as edge:
        made = Imports(stack, cassandra, edge, tmp_path, workspace)
        yield made
        made.database.close()


def test_rows_of_all_files_are_imported_once_and_the_others_are_rejected(
    spark: SparkSession, imports: Imports, tmp_path: Path
) -> None:
    files = tmp_path / "files"
    files.mkdir()
    (files / "a.csv").write_bytes(b"user,sum\nann,1\n,2\nM\xfcller,3\n")
    (files / "b.csv").write_bytes(b"user,sum\nbob,1\n" + b"\xc3\xa4" * 300 + b",2\n")
    (files / "c.csv").write_bytes(b"id\n1\n")
    place, other = imports.request("orders", files.as_uri()), imports.request("missing", (tmp_path / "none").as_uri())
    assert imports.job(spark).run(lambda: False) == {FAILED: 2}
    assert imports.rejects(place) == [
        ("a.csv", 2, "user", "missing_id"),
        ("a.csv", 3, "user", "bad_value"),
        ("b.csv", 2, "user", "id_too_long"),
    ]
    assert len(imports.message_ids()) == 2
    state, message = imports.state(place)
    assert (state, message) == (FAILED, "c.csv: there is no column 'user': correct the import, or the file, which has 'id'")
    assert "there is no such file" in str(imports.state(other)[1])
    # The import again: what is complete is not read again, and what changed is imported with the ids that it had.
    (files / "c.csv").unlink()
    (files / "a.csv").write_bytes(b"user,sum\nann,1\nzoe,2\n")
    again = "UPDATE {ks}.imports SET state = ? WHERE workspace = ? AND key = ? IF EXISTS"
    assert imports.database.write_if(again, (WAITING, *place))
    failing = imports.request("again", (tmp_path / "none").as_uri())
    with sent_lineage(spark_settings(tmp_path)) as (lineage, receiver):
        imports.job(spark, lineage=lineage).run(lambda: False)
    ids = imports.message_ids()
    assert (len(ids), len(set(ids))) == (4, 3)
    ends = {one["job"]["name"]: one for one in receiver.events() if one["eventType"] != "START"}
    end, failed = (ends[f"imports.{imports.workspace}.{one.key}"] for one in (place, failing))
    assert (end["eventType"], failed["eventType"]) == ("COMPLETE", "FAIL")
    assert places(end["inputs"]) == [("file", str(files))]
    assert list(rows_of(end)) == [TRACK]
    assert (rows_of(end)[TRACK] or 0) >= 3
    assert "failed: " in failed["run"]["facets"]["errorMessage"]["message"]
    assert not {"ann", "bob", "zoe"} & set("".join(receiver.bodies).replace('"', " ").split())
    assert imports.rejects(place) == [("b.csv", 2, "user", "id_too_long")]


@pytest.mark.long
def test_a_refused_key_ends_the_import_and_a_cancelled_one_sends_nothing(
    spark: SparkSession, imports: Imports, tmp_path: Path
) -> None:
    (tmp_path / "a.csv").write_text("user\nann\n")
    place = imports.request("orders", (tmp_path / "a.csv").as_uri())
    cancelled = imports.request("cancelled", (tmp_path / "a.csv").as_uri())
    assert imports.store.set_state(cancelled, CANCELLED)
    assert imports.job(spark, "wrong").run(lambda: False) == {FAILED: 1}
    assert "STARLING_IMPORTS_WRITE_KEYS" in str(imports.state(place)[1])
    assert imports.state(cancelled)[0] == CANCELLED
    assert imports.message_ids() == []


@pytest.fixture(scope="module")
def server() -> Iterator[PostgresServer]:
    with postgres(PASSWORD) as found:
        yield found


class Customers:
    """A table of a test's own."""

    def __init__(self, server: PostgresServer) -> None:
        self.name = f"t{uuid.uuid4().hex[:10]}"
        self.url = f"jdbc:postgresql://127.0.0.1:{server.port}/postgres"
        self._server = server
        self.sql(
            f'CREATE TABLE {self.name} (id numeric PRIMARY KEY, "Plan" text, spent numeric, born timestamptz, changed_at timestamp)'
        )

    def connected(self) -> psycopg.Connection[Any]:
        return psycopg.connect(self._server.uri(), password=PASSWORD)

    def sql(self, statement: str) -> None:
        with self.connected() as connection:
            connection.execute(statement)

    def add(self, *rows: str) -> None:
        self.sql(f"INSERT INTO {self.name} VALUES {', '.join(rows)}")  # noqa: S608 - the rows are ours

    def change(self, plan: str, id_: int = 1) -> None:
        self.sql(f"UPDATE {self.name} SET \"Plan\" = '{plan}', changed_at = changed_at + interval '1 day' WHERE id = {id_}")  # noqa: S608


@pytest.fixture
def customers(server: PostgresServer) -> Customers:
    made = Customers(server)
    made.add(
        "(1, 'pro', 12.50, '1990-02-28 23:30+00', '2026-01-01 00:00:00.000001')",
        "(2, null, 7, null, '2026-01-02')",
        "(3, 'free', 'NaN', null, '2026-01-03')",
        "(4, 'free', 0, 'infinity', '2026-01-03')",
    )
    return made


def done(
    imports: Imports, spark: SparkSession, place: Place, api: str | None = None, iceberg: IcebergAccess | None = None
) -> tuple[int, int, int]:
    """Run the job; the rows that were read, sent and rejected."""
    assert imports.job(spark, api=api, iceberg=iceberg).run(lambda: False) == {DONE: 1}, imports.state(place)
    found = imports.store.progress(place).values()
    return sum(one.rows_done for one in found), sum(one.accepted for one in found), sum(one.rejected for one in found)


def test_new_and_changed_rows_of_a_database_are_sent_and_unchanged_ones_are_not(
    spark: SparkSession, imports: Imports, customers: Customers, server: PostgresServer, capfd: pytest.CaptureFixture[str]
) -> None:
    place = imports.database_request("crm", customers.url, table=f"public.{customers.name}", fetch_size=2)
    assert done(imports, spark, place) == (4, 2, 2)
    assert imports.reasons(place) == [
        ("born", "the row with the id '4': 'infinity' has no form in JSON"),
        ("spent", "the row with the id '3': 'NaN' has no form in JSON"),
    ]
    found = {one["user_id"]: json.loads(one["item"])["properties"] for one in imports.items()}
    assert found == {
        "1": {"Plan": "pro", "spent": 12.5, "born": "1990-02-28T23:30:00+00:00", "changed_at": "2026-01-01T00:00:00.000001+00:00"},
        "2": {"spent": 7, "changed_at": "2026-01-02T00:00:00+00:00"},
    }
    imports.again(place)
    assert done(imports, spark, place) == (4, 0, 2)
    assert len(imports.message_ids()) == 2
    # A value that returns is a change too, and has a message id of its own.
    for plan in ("free", "pro"):
        customers.sql(f"UPDATE {customers.name} SET \"Plan\" = '{plan}' WHERE id = 1")  # noqa: S608 - the values are ours
        imports.again(place)
        assert done(imports, spark, place) == (4, 1, 2)
    ids = imports.message_ids()
    assert (len(ids), len(set(ids))) == (4, 4)
    stored = imports.database.read("SELECT * FROM {ks}.imports")
    seen = f"{capfd.readouterr()}{server.log.read_text()}{imports.items()}{stored}"
    assert "crm" in seen
    assert PASSWORD not in seen


@pytest.mark.long
def test_columns_of_a_database_may_differ_in_case_alone(spark: SparkSession, imports: Imports, customers: Customers) -> None:
    query = f'SELECT id, "Plan", upper("Plan") AS plan FROM {customers.name} WHERE id IN (1, 3)'  # noqa: S608 - the name is ours
    place = imports.database_request("crm", customers.url, query=query)
    before = {name: spark.conf.get(name) for name in SESSION}
    for name, value in SESSION.items():
        spark.conf.set(name, value)
    try:
        assert done(imports, spark, place) == (2, 2, 0)
    finally:
        for name, old in before.items():
            spark.conf.set(name, str(old))
    found = {one["user_id"]: json.loads(one["item"])["properties"] for one in imports.items()}
    assert found == {"1": {"Plan": "pro", "plan": "PRO"}, "3": {"Plan": "free", "plan": "FREE"}}


@pytest.mark.long
def test_the_traits_of_rows_that_are_gone_are_set_to_null(spark: SparkSession, imports: Imports, customers: Customers) -> None:
    table, columns = f"public.{customers.name}", {"Plan": "traits.plan", "spent": "traits.spent"}
    traits: dict[str, Any] = {"kind": "traits", "event": None}
    place = imports.database_request("crm", customers.url, request={**traits, "columns": columns}, table=table)
    # Beside it one whose ids are not those of users: user 1 has another row later.
    query = f'SELECT id, id % 100 AS "user", "Plan" FROM {customers.name}'  # noqa: S608 - the name is ours
    by_row = imports.database_request("by-row", customers.url, request={**traits, "user_column": "user"}, query=query)
    customers.sql(f"DELETE FROM {customers.name} WHERE id = 4")  # noqa: S608
    customers.change("free", 2)
    assert imports.job(spark).run(lambda: False) == {DONE: 2}, (imports.state(place), imports.state(by_row))
    before = imports.items(IDENTIFY)
    assert len(before) == 5  # row 3 of the first one is rejected
    customers.sql(f"DELETE FROM {customers.name} WHERE id IN (1, 2)")  # noqa: S608
    customers.add("(101, 'new', 1, null, null)")
    for one in (place, by_row):
        imports.again(one)
    assert imports.job(spark).run(lambda: False) == {FAILED: 1, DONE: 1}
    assert imports.state(place) == (FAILED, (
        "all rows were imported, but 2 are gone and 1 are left, so no trait was set to null: correct the source, or run the "
        'import once with {"deletions": "any"}'
    ))  # fmt: skip
    assert imports.store.progress(by_row)["deleted"] == Progress("", 2, 1, 0, complete=True)
    imports.again(place, "any")
    assert done(imports, spark, place) == (4, 2, 1)
    customers.add("(1, 'pro', 12.50, null, null)")
    for one in (place, by_row):
        imports.again(one)
    assert imports.job(spark).run(lambda: False) == {DONE: 2}
    after = imports.items(IDENTIFY)
    assert len({one["message_id"] for one in after}) == len(after)
    sent_before = {one["message_id"] for one in before}
    found = [(one["user_id"], json.loads(one["item"])["traits"]) for one in after if one["message_id"] not in sent_before]
    # User 1 has row 101 of the second one, and keeps its trait.
    assert sorted(found, key=str) == sorted([
        ("101", {"plan": "new", "spent": 1}), ("1", {"Plan": "new"}), ("2", {"Plan": None}),
        ("1", {"plan": None, "spent": None}), ("2", {"plan": None, "spent": None}),
        ("1", {"plan": "pro", "spent": 12.5}), ("1", {"Plan": "pro"}),
    ], key=str)  # fmt: skip
    # All rows are gone: nothing is deleted without a permission, which holds for one run.
    customers.sql(f"DELETE FROM {customers.name}")  # noqa: S608
    imports.again(place)
    assert imports.job(spark).run(lambda: False) == {FAILED: 1}
    assert "are gone and 0 are left" in str(imports.state(place)[1])


@pytest.mark.long
def test_rows_of_accounts_become_group_calls_once_and_again_when_they_change(
    spark: SparkSession, imports: Imports, customers: Customers, tmp_path: Path
) -> None:
    (tmp_path / "a.csv").write_text("user,company,size\nann,acme,12\n,acme,12\nbob,acme,12\n")
    accounts: dict[str, Any] = {"kind": "accounts", "event": None, "account_column": "company"}
    file = imports.request("companies", (tmp_path / "a.csv").as_uri(), **accounts)
    query = f"SELECT id, 'c' || id % 3 AS company, \"Plan\" FROM {customers.name}"  # noqa: S608 - the name is ours
    columns = {"Plan": "traits.plan"}
    crm = imports.database_request("crm", customers.url, request={**accounts, "columns": columns}, query=query)
    assert imports.job(spark).run(lambda: False) == {DONE: 2}, (imports.state(file), imports.state(crm))
    assert imports.rejects(file) == [("a.csv", 2, "user", "missing_id")]

    def calls() -> list[tuple[str, str, dict[str, Any]]]:
        found = [(one["user_id"], json.loads(one["item"])) for one in imports.items(GROUP)]
        return sorted(((user, item["groupId"], item["traits"]) for user, item in found), key=str)

    before = calls()
    assert before == [
        ("1", "c1", {"plan": "pro"}), ("2", "c2", {}), ("3", "c0", {"plan": "free"}), ("4", "c1", {"plan": "free"}),
        ("ann", "acme", {"size": 12}), ("bob", "acme", {"size": 12}),
    ]  # fmt: skip
    customers.change("basic")
    customers.sql(f"DELETE FROM {customers.name} WHERE id = 4")  # noqa: S608 - the name is ours
    imports.again(crm)
    assert done(imports, spark, crm) == (3, 1, 0)
    assert calls() == sorted([*before, ("1", "c1", {"plan": "basic"})], key=str)
    ids = [one["message_id"] for one in imports.items(GROUP)]
    assert len(set(ids)) == len(ids)


@pytest.fixture
def api(imports: Imports, tmp_path: Path) -> Iterator[str]:
    """The address of an API with the tables of the test."""
    with service_running(
        "starling_api", imports.environment() | {"STARLING_IMPORTS_RUNNER": "none"}, tmp_path / "api.log"
    ) as service:
        yield service.url


@pytest.mark.long
def test_users_of_files_and_of_a_database_become_members_of_a_list_once(
    spark: SparkSession, imports: Imports, customers: Customers, api: str, tmp_path: Path
) -> None:
    imports.with_list("fair")
    (tmp_path / "files").mkdir()
    names = [f"u{number:05}" for number in range(11_000)]  # three batches
    for name, users in (("a", names), ("b", ["u00001", "zoe"])):
        (tmp_path / "files" / f"{name}.csv").write_text("\n".join(["user", *users]) + "\n")
    files = imports.request("fair-csv", (tmp_path / "files").as_uri(), kind="lists", event=None, list_key="fair")
    lists = {"kind": "lists", "event": None, "list_key": "vips"}
    crm = imports.database_request("crm", customers.url, request=lists, table=f"public.{customers.name}")
    with sent_lineage(spark_settings(tmp_path)) as (lineage, receiver):
        found = imports.job(spark, api=api, lineage=lineage).run(lambda: False)
    assert found == {DONE: 1, FAILED: 1}
    assert imports.state(crm)[1] == (
        f"{api}/v1/lists/vips/members answers 404: there is no list 'vips' in this workspace: create the list again, or import "
        "into another one"
    )
    assert imports.members("fair") == {*names, "zoe"}
    before = imports.list_changes()
    assert len(before) == 11_002
    [end] = [one for one in receiver.events() if one["eventType"] == "COMPLETE"]
    assert rows_of(end) == {LISTS: 11_002}

    # A job that was killed before it had stored the progress of the last batches sends them again, without an effect.
    progress = imports.store.progress(files)["a.csv"]
    imports.store.set_progress(files, "a.csv", 1, progress._replace(rows_done=5_000, accepted=5_000, complete=False))
    again = "UPDATE {ks}.imports SET state = ? WHERE workspace = ? AND key = ? IF EXISTS"
    assert imports.database.write_if(again, (WAITING, *files))
    assert imports.job(spark, api=api).run(lambda: False) == {DONE: 1}
    assert imports.store.progress(files)["a.csv"] == progress
    assert imports.list_changes() == before

    # A user whose row is gone leaves the list, and no one else.
    imports.with_list("vips")
    CassandraLists(imports.database).put(imports.workspace, "vips", ["by-hand"], 1)
    for state, expected, left in (
        ("as it is", (4, 4, 0), {"1", "2", "3", "4", "by-hand"}),
        ("the same", (4, 0, 0), {"1", "2", "3", "4", "by-hand"}),
        ("id = 4", (4, 1, 0), {"1", "2", "3", "by-hand"}),
        ("id < 3", None, {"1", "2", "3", "by-hand"}),
    ):
        if state.startswith("id"):
            customers.sql(f"DELETE FROM {customers.name} WHERE {state}")  # noqa: S608 - the name is ours
        imports.again(crm)
        if expected is not None:
            assert done(imports, spark, crm, api) == expected
        else:
            assert imports.job(spark, api=api).run(lambda: False) == {FAILED: 1}
            assert "2 are gone and 1 are left, so no user was removed: correct the source" in str(imports.state(crm)[1])
        assert imports.members("vips") == left
    assert [one for one in imports.list_changes() if one[:2] == ("vips", "4")] == [("vips", "4", True), ("vips", "4", False)]


@pytest.mark.long
def test_a_job_that_is_killed_adds_no_user_twice(imports: Imports, api: str, tmp_path: Path) -> None:
    imports.with_list("fair")
    names = [f"u{number:05}" for number in range(ROWS)]
    (tmp_path / "a.csv").write_text("\n".join(["user", *names]) + "\n")
    place = imports.request("fair", (tmp_path / "a.csv").as_uri(), kind="lists", event=None, list_key="fair")
    environment = {**os.environ, **imports.environment(), "STARLING_IMPORTS_API_URL": api, "STARLING_INSTANCE_ID": "imports"}
    environment["STARLING_IMPORTS_API_TOKENS"] = f"token={imports.workspace}"
    for is_killed in (True, False):
        with subprocess.Popen([sys.executable, "-m", "starling_spark.jobs.imports"], env=environment) as job:
            if is_killed:
                eventually(lambda: any(one.rows_done for one in imports.store.progress(place).values()), 120)
                job.kill()
                assert imports.store.progress(place)["a.csv"].rows_done < ROWS
            else:
                assert job.wait(400) == 0
    assert imports.state(place) == (DONE, None)
    assert imports.members("fair") == set(names)
    changes = [user for _, user, _ in imports.list_changes()]
    assert (len(changes), set(changes)) == (ROWS, set(names))


@pytest.mark.long
def test_rows_become_products_of_the_catalog_and_those_that_are_gone_are_no_longer_listed(
    spark: SparkSession, imports: Imports, customers: Customers, stack: Stack, tmp_path: Path
) -> None:
    (tmp_path / "products.csv").write_text("sku,name,price\n007,1984,12.50\nx,Emma,cheap\ny,Emma,7\n")
    of_catalog: dict[str, Any] = {"kind": "catalog", "user_column": None, "event": None}
    file = imports.request("file", (tmp_path / "products.csv").as_uri(), product_column="sku", **of_catalog)
    columns = {"Plan": "product.category", "spent": "product.price"}
    shop = imports.database_request(
        "shop", customers.url, request={**of_catalog, "product_column": "id", "columns": columns}, table=customers.name
    )
    with sent_lineage(spark_settings(tmp_path)) as (lineage, receiver):
        assert imports.job(spark, lineage=lineage).run(lambda: False) == {DONE: 2}, (imports.state(file), imports.state(shop))
    assert [list(rows_of(one)) for one in receiver.events() if one["eventType"] == "COMPLETE"] == [[CATALOG], [CATALOG]]
    assert imports.rejects(file) == [("products.csv", 2, "price", "bad_value")]
    assert [one[2:] for one in imports.rejects(shop)] == [("spent", "bad_value")]
    listed = {
        "007": {"name": "1984", "price": 12.5}, "y": {"name": "Emma", "price": 7.0}, "1": {"category": "pro", "price": 12.5},
        "2": {"price": 7.0}, "4": {"category": "free", "price": 0.0},
    }  # fmt: skip
    before = imports.products()
    assert (len(before), dict(before)) == (5, listed)

    # A batch whose progress was not stored before a kill is published again, and lists the same products.
    progress = imports.store.progress(file)["products.csv"]
    imports.store.set_progress(file, "products.csv", 1, Progress(progress.version))
    again = "UPDATE {ks}.imports SET state = ? WHERE workspace = ? AND key = ? IF EXISTS"
    assert imports.database.write_if(again, (WAITING, *file))
    assert imports.job(spark).run(lambda: False) == {DONE: 1}
    assert imports.store.progress(file)["products.csv"] == progress
    assert dict(imports.products()) == listed

    published = len(imports.products())
    customers.change("basic")
    customers.sql(f"DELETE FROM {customers.name} WHERE id = 4")  # noqa: S608 - the name is ours
    imports.again(shop)
    assert done(imports, spark, shop) == (4, 2, 1)  # of the rows three, and one that is gone
    assert imports.products()[published:] == [("1", {"category": "basic", "price": 12.5}), ("4", None)]
    customers.sql(f"DELETE FROM {customers.name}")  # noqa: S608
    imports.again(shop)
    assert imports.job(spark).run(lambda: False) == {FAILED: 1}
    assert "and 0 are left, so no product was removed" in str(imports.state(shop)[1])
    assert len(imports.products()) == published + 2

    # The command publishes records of the same form.
    found = load(stack.brokers, stack.registry_url, imports.workspace, iter([product_of({"product_id": "y", "price": "8"})]))
    assert (found, imports.products()[-1]) == (1, ("y", {"price": 8.0}))


@pytest.mark.long
def test_an_import_that_is_due_waits_again_once(imports: Imports, customers: Customers) -> None:
    place = imports.database_request("crm", customers.url, table=customers.name)
    store, now_ms = CassandraImports(imports.database), 10 * 3_600_000
    core = ApiImports(store, lambda: now_ms)
    assert store.set_schedule(*place, "30 * * * *", "UTC", now_ms)
    assert not store.set_schedule(place.workspace, "none", "30 * * * *", "UTC", now_ms)
    assert core.queue_due() == {WAITING: 1, RUNNING: 0}
    assert imports.store.set_state(place, DONE)
    assert core.queue_due() == {WAITING: 0, RUNNING: 0}
    (before,) = store.every()
    now_ms += 5 * 3_600_000
    assert core.queue_due() == {WAITING: 1, RUNNING: 0}
    assert not store.queue(before, now_ms)  # as another process that has read the state before
    assert imports.store.set_state(place, DONE)
    assert not store.queue(before, now_ms)
    assert core.queue_due() == {WAITING: 0, RUNNING: 0}
    assert not store.cancel(*place, (WAITING, RUNNING), now_ms)
    assert core.cancel(*place)["state"] == CANCELLED
    now_ms += 5 * 3_600_000
    assert core.queue_due() == {WAITING: 0, RUNNING: 0}


@pytest.mark.long
def test_a_cursor_reads_new_rows_alone_also_in_parts(spark: SparkSession, imports: Imports, customers: Customers) -> None:
    query = f'SELECT id, "Plan" AS plan, changed_at FROM {customers.name}'  # noqa: S608 - the name is ours
    source: dict[str, Any] = {"query": query, "mode": "cursor", "cursor_column": "changed_at"}
    place = imports.database_request("crm", customers.url, **source, partition_column="id", partitions=2)
    assert done(imports, spark, place) == (4, 4, 0)
    assert len(imports.store.progress(place)) == 2
    imports.again(place)
    assert done(imports, spark, place) == (0, 0, 0)
    customers.change("pro", 4)
    customers.add("(5, 'new', 0, null, '2026-02-01')", "(6, 'old', 0, null, '2025-01-01')", "(7, 'none', 0, null, null)")
    imports.again(place)
    assert done(imports, spark, place) == (3, 2, 1)
    assert [one[2:] for one in imports.rejects(place)] == [("changed_at", "missing_cursor")]
    assert sorted(one["user_id"] for one in imports.items()) == ["1", "2", "3", "4", "4", "5"]
    assert len(set(imports.message_ids())) == 6
    # A run that was killed is repeated from the last cursor, with the same message ids.
    imports.store.set_cursor(place, "2026-01-02T00:00:00.000000")
    imports.again(place)
    assert done(imports, spark, place) == (4, 3, 1)
    assert len(set(imports.message_ids())) == 6


@pytest.mark.long
def test_an_error_of_a_database_names_the_cure(
    spark: SparkSession, imports: Imports, customers: Customers, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    table, wrong = customers.name, "planted-wrong-71"
    of_query = "SELECT id, nextval('absent') AS n FROM " + table  # noqa: S608 - the name is ours
    cases: dict[str, tuple[Place, str]] = {
        name: (imports.database_request(name, **{"uri": customers.url, "table": table, **given}), message)  # type: ignore[arg-type]
        for name, given, message in (
            ("password", {"password": wrong}, "run the import again with the password"),
            ("table", {"table": "absent"}, "correct jdbc/table, or create the table again"),
            ("database", {"uri": customers.url.replace("/postgres", "/absent")}, "correct the database in the URI"),
            (
                "column",
                {"mode": "cursor", "cursor_column": "at"},
                "there is no column 'at': correct the import, or the source, which has",
            ),
            ("text", {"mode": "cursor", "cursor_column": "Plan"}, "is string, and not a number, a date or a time"),
            ("part", {"partition_column": "born"}, "is timestamp, and not a whole number"),
            ("query", {"table": None, "query": of_query}, "correct jdbc/table"),
            ("driver", {"uri": "jdbc:mariadb://127.0.0.1/crm"}, "add it to STARLING_IMPORTS_JDBC_DRIVERS (now: postgresql)"),
        )
    }
    away = imports.database_request("away", "jdbc:postgresql://127.0.0.1:9/crm", table=table)
    assert imports.job(spark).run(lambda: False) == {FAILED: len(cases), WAITING: 1}
    for place, message in cases.values():
        assert message in str(imports.state(place)[1])
    assert "correct host and port, or start it: the job tries again" in str(imports.state(away)[1])
    assert imports.store.set_state(away, CANCELLED)
    # Another connection locks the table after its columns were read.
    locked = imports.database_request("locked", customers.url, table=table)
    read = ImportJob._read
    with customers.connected() as other:

        def with_locked_table(*arguments: Any) -> Any:
            other.execute(f"LOCK TABLE {table} IN ACCESS EXCLUSIVE MODE")
            return read(*arguments)

        with monkeypatch.context() as patch:
            patch.setattr(ImportJob, "_read", with_locked_table)
            assert imports.job(spark, access=JdbcAccess(allow_private=True, answer_seconds=2)).run(lambda: False) == {WAITING: 1}
    assert "the database does not answer: " in str(imports.state(locked)[1])
    assert imports.store.set_state(locked, CANCELLED)
    # The table vanishes after its columns were read.
    vanished = imports.database_request("vanished", customers.url, table=table)

    def without_table(*arguments: Any) -> Any:
        customers.sql(f"DROP TABLE {table}")
        return read(*arguments)

    monkeypatch.setattr(ImportJob, "_read", without_table)
    assert imports.job(spark).run(lambda: False) == {FAILED: 1}
    assert "does not exist: correct jdbc/table, or create the table again" in str(imports.state(vanished)[1])
    private = imports.database_request("private", customers.url, table=table)
    absent = imports.database_request("absent", "jdbc:mariadb://127.0.0.1/crm", table=table)
    assert imports.job(spark, access=JdbcAccess()).run(lambda: False) == {FAILED: 2}
    assert "is in a private network: set STARLING_ALLOW_PRIVATE_ADDRESSES=true of the job" in str(imports.state(private)[1])
    imports.again(absent)
    access = JdbcAccess({**SHIPPED, "mariadb": "org.example.Absent"}, allow_private=True)
    assert imports.job(spark, access=access).run(lambda: False) == {FAILED: 1}
    assert "add the jar of the driver to STARLING_SPARK_JARS" in str(imports.state(absent)[1])
    imports.again(private)
    unreadable = ImportJob(spark, imports.store, lambda _: Target(None, "", "key"), [], Databases())  # type: ignore[arg-type]
    assert unreadable.run(lambda: False) == {FAILED: 1}
    assert "STARLING_SECRETS__KEYS" in str(imports.state(private)[1])
    stored = imports.database.read("SELECT * FROM {ks}.imports")
    seen = f"{capfd.readouterr()}{stored}"
    assert not any(secret in seen for secret in (PASSWORD, wrong))
    assert imports.message_ids() == []


class LakeTable:
    """An Iceberg table of a test's own, in the catalog of the session, and the access to it."""

    def __init__(self, spark: SparkSession, columns: str) -> None:
        self.namespace = f"n{uuid.uuid4().hex[:10]}"
        self.uri = f"iceberg:{self.namespace}.customers"
        self.name = f"lake.{self.namespace}.customers"
        self.access = IcebergAccess((self.namespace,), has_catalog=True)
        self._spark = spark
        spark.sql(f"CREATE NAMESPACE lake.{self.namespace}")
        spark.sql(f"CREATE TABLE {self.name} ({columns}) USING iceberg")

    def sql(self, statement: str) -> None:
        self._spark.sql(statement.format(t=self.name)).collect()

    def snapshot(self) -> str:
        return str(self._spark.table(f"{self.name}.snapshots").orderBy("committed_at").collect()[-1]["snapshot_id"])

    def request(self, imports: Imports, key: str = "crm", **more: Any) -> Place:
        fields: dict[str, Any] = {"format": "iceberg", "kind": "traits", "event": None, "user_column": "id", "id_column": "id"}
        return imports.request(key, **{"uri": self.uri, **fields, **more})


def test_changes_of_an_iceberg_table_are_sent_and_an_unchanged_snapshot_is_not_read(
    spark: SparkSession, imports: Imports, tmp_path: Path
) -> None:
    columns = "id bigint, plan string, spent decimal(10,2), born date, changed_at timestamp_ntz, tags array<string>, noise binary"
    table = LakeTable(spark, columns)
    chosen = {name: f"traits.{name}" for name in ("plan", "spent", "born", "changed_at", "tags")}
    place = table.request(imports, columns=chosen)
    table.sql(
        "INSERT INTO {t} SELECT id, 'free', id + 0.5, DATE '1990-02-28', TIMESTAMP_NTZ '2026-01-01 00:00:00.000001', "
        "array('a'), X'00' FROM range(1, 4)"
    )
    with sent_lineage(spark_settings(tmp_path)) as (lineage, receiver):
        assert imports.job(spark, lineage=lineage, iceberg=table.access).run(lambda: False) == {DONE: 1}, imports.state(place)
    [end] = [one for one in receiver.events() if one["eventType"] == "COMPLETE"]
    [read] = end["inputs"]
    assert (read["namespace"], Path(read["name"]).parts[-2:]) == ("file", (table.namespace, "customers"))
    assert read["facets"]["version"]["datasetVersion"] == table.snapshot()
    [catalogued] = read["facets"]["symlinks"]["identifiers"]
    assert (catalogued["name"], rows_of(end)) == (f"{table.namespace}.customers", {IDENTIFY: 3})
    before = imports.items(IDENTIFY)
    found = {one["user_id"]: json.loads(one["item"])["traits"] for one in before}
    times = {"born": "1990-02-28T00:00:00Z", "changed_at": "2026-01-01T00:00:00.000001+00:00"}
    assert found == {str(id_): {"plan": "free", "spent": id_ + 0.5, "tags": ["a"], **times} for id_ in (1, 2, 3)}

    # Nothing of an unchanged snapshot is read: its file could not be.
    files = [Path(row["file_path"].removeprefix("file:")) for row in spark.table(f"{table.name}.files").collect()]
    for file in files:
        file.rename(file.with_suffix(".away"))
    imports.again(place)
    assert done(imports, spark, place, iceberg=table.access) == (0, 0, 0)
    for file in files:
        file.with_suffix(".away").rename(file)

    table.sql("DELETE FROM {t} WHERE id = 3")
    table.sql("INSERT INTO {t} (id, plan, changed_at) VALUES (4, 'pro', TIMESTAMP_NTZ '+10000-01-01 00:00:00'), (5, 'new', NULL)")
    imports.again(place)
    assert done(imports, spark, place, iceberg=table.access) == (5, 2, 1)  # four rows, and one that is gone
    assert [one[2:] for one in imports.rejects(place)] == [("changed_at", "bad_value")]
    new = [one for one in imports.items(IDENTIFY) if one["message_id"] not in {known["message_id"] for known in before}]
    traits = {one["user_id"]: json.loads(one["item"])["traits"] for one in new}
    assert traits == {"3": dict.fromkeys(chosen), "5": {"plan": "new"}}
    # A snapshot with a rejected row is read again.
    imports.again(place)
    assert done(imports, spark, place, iceberg=table.access) == (4, 0, 1)
    table.sql("DELETE FROM {t}")
    imports.again(place)
    assert imports.job(spark, iceberg=table.access).run(lambda: False) == {FAILED: 1}
    assert "3 are gone and 0 are left" in str(imports.state(place)[1])


@pytest.mark.long
def test_a_run_goes_on_with_its_snapshot_and_the_next_one_reads_the_newest(
    spark: SparkSession, imports: Imports, monkeypatch: pytest.MonkeyPatch
) -> None:
    table = LakeTable(spark, "id bigint, changed_at timestamp_ntz")
    source = IcebergSource(mode="cursor", cursor_column="changed_at")
    place = table.request(imports, iceberg=source)
    read = ImportJob._read

    def interrupted(*_: Any) -> Any:
        raise SourceUnavailable("interrupted")

    def interrupt() -> None:
        monkeypatch.setattr(ImportJob, "_read", interrupted)
        assert imports.job(spark, iceberg=table.access).run(lambda: False) == {WAITING: 1}
        monkeypatch.setattr(ImportJob, "_read", read)

    interrupt()  # of an empty table
    add = "INSERT INTO {{t}} VALUES ({0}, TIMESTAMP_NTZ '2026-01-0{0} 00:00:00')"
    table.sql(add.format(1))
    assert done(imports, spark, place, iceberg=table.access) == (0, 0, 0)
    imports.again(place)
    interrupt()
    table.sql(add.format(2))
    assert done(imports, spark, place, iceberg=table.access) == (1, 1, 0)
    imports.again(place)
    assert done(imports, spark, place, iceberg=table.access) == (1, 1, 0)  # the row after the cursor alone
    table.sql(add.format(3))
    imports.again(place)
    interrupt()
    expiring = table.snapshot()
    table.sql(add.format(4))
    expiry = f"older_than => timestamp_millis({wall_clock_ms()}), retain_last => 1"
    table.sql(f"CALL lake.system.expire_snapshots(table => '{table.namespace}.customers', {expiry})")
    assert imports.job(spark, iceberg=table.access).run(lambda: False) == {FAILED: 1}
    assert imports.state(place)[1] == (
        f"{table.uri}: the snapshot {expiring}, which this run began to read, has expired: run the import again, and keep "
        "snapshots of the table for longer than a run"
    )
    imports.again(place)
    assert done(imports, spark, place, iceberg=table.access) == (2, 2, 0)
    assert sorted(one["user_id"] for one in imports.items(IDENTIFY)) == ["1", "2", "3", "4"]
    assert len({one["message_id"] for one in imports.items(IDENTIFY)}) == 4


def test_an_iceberg_table_that_cannot_be_read_is_refused_with_the_cure(spark: SparkSession, imports: Imports) -> None:
    table = LakeTable(spark, "id bigint, plan string, noise binary, places map<string, string>")
    cursor = IcebergSource(mode="cursor", cursor_column="plan")
    cases: dict[str, tuple[dict[str, Any], str]] = {
        "table": ({"uri": f"{table.uri}x"}, "there is no such table in the catalog: correct the URI, or create the table"),
        "column": ({"columns": {"town": "traits.town"}}, "there is no column 'town': correct the import, or the table, which has"),
        "binary": ({}, "the column 'noise' is binary, which has no form in JSON: leave it out by columns"),
        "map": ({"columns": {"places": "traits.places"}}, "the column 'places' is map<string,string>, which has no form in JSON"),
        "cursor": ({"iceberg": cursor}, "the cursor_column 'plan' is string, and not a number, a date or a time"),
        "lake": ({"uri": "iceberg:starling.behaviour_events"}, "is a table of the lake, which has rows of all workspaces"),
        "case": ({"uri": "iceberg:Starling_fixed.behaviour_events"}, "is a table of the lake, which has rows of all workspaces"),
        "other": ({"uri": "iceberg:other.customers"}, "add it, or its namespace, to STARLING_IMPORTS_ICEBERG_TABLES (now: {})"),
    }
    places = {name: (table.request(imports, name, **given), message) for name, (given, message) in cases.items()}
    # The operator's list does not open the tables of the lake.
    access = table.access._replace(tables=(table.namespace, "starling", "Starling_fixed"))
    assert imports.job(spark, iceberg=access).run(lambda: False) == {FAILED: len(cases)}
    for place, message in places.values():
        assert message.replace("{}", ", ".join(access.tables)) in str(imports.state(place)[1])
    again, _ = places["map"]
    imports.again(again)
    assert imports.job(spark, iceberg=access._replace(has_catalog=False)).run(lambda: False) == {FAILED: 1}
    assert "the job has no catalog: set its STARLING_LAKE_WAREHOUSE" in str(imports.state(again)[1])
    assert imports.items(IDENTIFY) == []


@pytest.mark.long
def test_a_killed_job_goes_on_with_the_snapshot_of_an_iceberg_table(spark: SparkSession, imports: Imports) -> None:
    table = LakeTable(spark, "id bigint")
    table.sql(f"INSERT INTO {{t}} SELECT id FROM range({ROWS})")  # noqa: S608 - the rows are ours
    place = table.request(imports)
    environment = {
        **os.environ, **imports.environment(), "STARLING_INSTANCE_ID": "imports",
        "STARLING_SPARK_JARS": os.pathsep.join(map(str, (*runtime_jars("spark"), *runtime_jars("iceberg")))),
        "STARLING_LAKE_WAREHOUSE": spark.conf.get("spark.sql.catalog.lake.warehouse") or "",
        "STARLING_IMPORTS_ICEBERG_TABLES": table.namespace,
    }  # fmt: skip
    for is_killed in (True, False):
        with subprocess.Popen([sys.executable, "-m", "starling_spark.jobs.imports"], env=environment) as job:
            if is_killed:
                eventually(lambda: any(one.rows_done for one in imports.store.progress(place).values()), 120)
                job.kill()
                assert imports.state(place)[0] == RUNNING
                table.sql("INSERT INTO {t} VALUES (-1)")
            else:
                assert job.wait(400) == 0
    assert imports.state(place) == (DONE, None)
    found = imports.items(IDENTIFY)
    assert {one["user_id"] for one in found} == {str(id_) for id_ in range(ROWS)}
    assert len({one["message_id"] for one in found}) == ROWS


@pytest.mark.long
def test_an_iceberg_table_of_a_catalog_in_postgresql(
    spark: SparkSession, imports: Imports, server: PostgresServer, tmp_path: Path
) -> None:
    catalog = {"type": "jdbc", "uri": f"jdbc:postgresql://127.0.0.1:{server.port}/postgres", "jdbc.user": USER}
    settings = LakeSettings(
        **spark_settings(tmp_path).model_dump() | {"lake_warehouse": str(tmp_path / "warehouse")},
        lake_catalog=catalog,
        lake_catalog_secrets={"jdbc.password": SecretStr(PASSWORD)},
    )
    session = spark.newSession()
    for name, value in iceberg_config(settings).items():
        if name.startswith("spark.sql.catalog."):
            session.conf.set(name, value)
    table = LakeTable(session, "id string, plan string")
    table.sql("INSERT INTO {t} VALUES ('ann', 'free'), ('bob', 'pro')")
    place = table.request(imports)
    assert done(imports, session, place, iceberg=table.access) == (2, 2, 0)
    imports.again(place)
    assert done(imports, session, place, iceberg=table.access) == (0, 0, 0)
    table.sql("UPDATE {t} SET plan = 'pro' WHERE id = 'ann'")
    imports.again(place)
    assert done(imports, session, place, iceberg=table.access) == (2, 1, 0)
    missing = imports.request("missing", f"iceberg:{table.namespace}.none", format="iceberg", kind="traits", event=None)
    assert imports.job(session, iceberg=table.access).run(lambda: False) == {FAILED: 1}
    assert "there is no such table in the catalog" in str(imports.state(missing)[1])
    traits = [(one["user_id"], json.loads(one["item"])["traits"]) for one in imports.items(IDENTIFY)]
    assert sorted(traits, key=str) == [("ann", {"plan": "free"}), ("ann", {"plan": "pro"}), ("bob", {"plan": "pro"})]


@pytest.mark.long
@pytest.mark.timeout(3_600)
def test_an_iceberg_table_of_a_catalog_service(imports: Imports, tmp_path: Path) -> None:
    """The whole job in a process of its own, with the jar of the object store. Another client has written the table."""
    jars = (*runtime_jars("spark"), *runtime_jars("iceberg"), *runtime_jars("iceberg-aws"))
    with s3_server(tmp_path / "s3") as s3:
        store = ObjectStore(s3.endpoint, REGION, ACCESS_KEY, SECRET_KEY, f"s3://{BUCKET}/crm")
        with nessie(store) as service:
            secrets = {"token": service.token, "s3.access-key-id": ACCESS_KEY, "s3.secret-access-key": SECRET_KEY}
            catalog = load_catalog("crm", type="rest", uri=service.uri, warehouse=WAREHOUSE, **secrets)
            catalog.create_namespace("crm")
            rows = pa.table({"id": ["ann", "bob"], "plan": ["free", "pro"]})
            table = catalog.create_table("crm.customers", rows.schema)
            table.append(rows)
            place = imports.request(
                "crm", "iceberg:crm.customers", format="iceberg", kind="traits", event=None, user_column="id", id_column="id"
            )
            environment = {
                **os.environ, **imports.environment(), "STARLING_INSTANCE_ID": "imports",
                "STARLING_SPARK_JARS": os.pathsep.join(map(str, jars)),
                "STARLING_LAKE_WAREHOUSE": WAREHOUSE,
                "STARLING_LAKE_CATALOG": json.dumps({"type": "rest", "uri": service.uri}),
                "STARLING_LAKE_CATALOG_SECRETS": json.dumps(secrets),
                "STARLING_IMPORTS_ICEBERG_TABLES": "crm",
            }  # fmt: skip

            def ran(**more: str) -> tuple[int, int, int]:
                command = [sys.executable, "-m", "starling_spark.jobs.imports"]
                found = subprocess.run(command, env=environment | more, capture_output=True, text=True, timeout=600, check=False)
                assert found.returncode == 0, found.stderr
                assert not any(secret in found.stdout + found.stderr for secret in secrets.values())
                progress = imports.store.progress(place).values()
                return tuple(sum(getattr(one, name) for one in progress) for name in ("rows_done", "accepted", "rejected"))

            assert ran() == (2, 2, 0)
            assert imports.state(place) == (DONE, None)
            imports.again(place)
            assert ran() == (0, 0, 0)
            table.overwrite(pa.table({"id": ["ann", "cid"], "plan": ["pro", "free"]}))
            imports.again(place)
            assert ran() == (3, 3, 0)  # two rows, and one that is gone
            imports.again(place)
            ran(STARLING_LAKE_CATALOG_SECRETS=json.dumps(secrets | {"token": "wrong"}))
            state, message = imports.state(place)
    assert state == FAILED
    assert str(message).startswith("iceberg:crm.customers: the catalog refuses: "), message
    sent = {(one["user_id"], json.loads(one["item"])["traits"]["plan"]) for one in imports.items(IDENTIFY)}
    assert sent == {("ann", "free"), ("ann", "pro"), ("bob", None), ("bob", "pro"), ("cid", "free")}


@pytest.mark.long
def test_the_api_starts_the_job_again_after_a_kill_and_imports_nothing_twice(
    imports: Imports, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, value in imports.environment().items():
        monkeypatch.setenv(name, value)
    monkeypatch.setattr(runner, "_BACKOFF_SECONDS", (0.1,))
    lines = "".join(json.dumps({"user": f"u{number % 97}", "number": number}) + "\n" for number in range(ROWS))
    (tmp_path / "a.jsonl").write_text(lines)
    place = imports.request("orders", (tmp_path / "a.jsonl").as_uri(), format="jsonl")
    metrics = Metrics(CollectorRegistry())
    service = ImportService(ApiSettings(), ApiImports(CassandraImports(imports.database), wall_clock_ms), metrics)
    service.start()
    try:
        eventually(lambda: any(one.rows_done for one in imports.store.progress(place).values()), 120)
        (job,) = (one for one in psutil.Process().children() if "starling_spark.jobs.imports" in one.cmdline())
        job.kill()
        assert imports.state(place)[0] == RUNNING
        assert imports.store.progress(place)["a.jsonl"].rows_done < ROWS
        other = imports.request("other", (tmp_path / "a.jsonl").as_uri(), format="jsonl")
        eventually(lambda: imports.state(place)[0] == DONE, 120)
        eventually(lambda: any(one.rows_done for one in imports.store.progress(other).values()), 120)
        assert CassandraImports(imports.database).cancel(*other, (WAITING, RUNNING), 2)
        ended = {"starling_api_imports": {"state": "running"}, "starling_api_job_failures": {"spark_job": "imports"}}
        eventually(lambda: all(metrics.registry.get_sample_value(name, labels) == 0 for name, labels in ended.items()), 120)
    finally:
        service.stop()
    progress = imports.store.progress(place)["a.jsonl"]
    assert (progress.rows_done, progress.accepted, progress.complete) == (ROWS, ROWS, True)
    assert imports.state(other)[0] == CANCELLED
    stopped = imports.store.progress(other)["a.jsonl"]
    assert stopped.rows_done < ROWS
    ids = imports.message_ids()
    assert ROWS < len(set(ids)) <= ROWS + stopped.rows_done + 500
    assert len(ids) - len(set(ids)) <= 2 * 500  # batches without stored progress; the normalizer drops them by their ids
