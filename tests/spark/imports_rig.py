"""Imports of a workspace, as the API stores them, with a real ingest API, broker and Cassandra."""

import json
from pathlib import Path
from typing import Any

import msgspec
from pyspark.sql import SparkSession

from starling_api.imports.store import CassandraImports
from starling_api.lists.store import CassandraLists
from starling_common.cassandra.database import Database
from starling_common.security.sealing import Place as SecretPlace
from starling_common.security.sealing import Sealer
from starling_common.settings import Cassandra
from starling_common.testing import free_port
from starling_common.wire import Registry
from starling_local.postgres import USER
from starling_rules.imports import PRODUCT_FIELDS, WAITING, ImportRequest
from starling_rules.jdbc import JdbcSource, password_place
from starling_spark.jobs.imports.job import Databases, ImportJob, Outputs
from starling_spark.jobs.imports.sending import Target
from starling_spark.jobs.imports.sources.iceberg import IcebergAccess
from starling_spark.jobs.imports.sources.jdbc import JdbcAccess
from starling_spark.jobs.imports.store import ImportStore, Place
from starling_spark.lineage.runs import OFF, Lineage
from tests.conftest import Stack
from tests.integration.ingest.edge_process import EdgeProcess, records

TRACK = "ingest.track"
LISTS = "lists.membership"
CATALOG = "catalog.products"
PASSWORD = "planted-5e0c-secret"
SEALER = Sealer({"tests": b"7" * 32})


class Imports:
    """A workspace and a keyspace of its own, with a running ingest API."""

    def __init__(self, stack: Stack, cassandra: Cassandra, edge: EdgeProcess, directory: Path, workspace: str) -> None:
        self.workspace = workspace
        self.directory = directory
        self.database = Database(cassandra)
        self.store = ImportStore(self.database)
        self._stack = stack
        self._cassandra = cassandra
        self._edge = edge
        self._codec = Registry(stack.registry_url).codec(TRACK, "IngestReceived")

    def request(self, key: str, uri: str, **more: Any) -> Place:
        fields = {"format": "csv", "kind": "events", "user_column": "user", "event": "Order"} | more
        document = msgspec.json.encode(ImportRequest(key=key, uri=uri, **fields)).decode()
        statement = "INSERT INTO {ks}.imports (workspace, key, request, state, created_at_ms) VALUES (?, ?, ?, ?, ?) IF NOT EXISTS"
        assert self.database.write_if(statement, (self.workspace, key, document, WAITING, 1))
        return Place(self.workspace, key)

    def database_request(
        self, key: str, uri: str, password: str = PASSWORD, request: dict[str, Any] | None = None, **source: str | int
    ) -> Place:
        """An import of a database, as the API stores it."""
        sealed = SEALER.seal(password, SecretPlace(*password_place(self.workspace, key)))
        jdbc = JdbcSource(user=USER, password=sealed, **source)  # type: ignore[arg-type]
        more = {"format": "jdbc", "user_column": "id", "id_column": "id", "jdbc": jdbc, **(request or {})}
        return self.request(key, uri, **more)

    def again(self, place: Place, deletions: str | None = None) -> None:
        """As the API lets an import of a database run again."""
        imports = CassandraImports(self.database)
        row = imports.find(*place)
        assert row is not None
        # A rotation of the key replaces a request, but no newer one.
        assert not imports.replace(*place, "{}", "{}")
        assert imports.replace(*place, row.request, row.request)
        assert imports.repeat(*place, row.request, deletions, 2)

    def with_list(self, key: str) -> None:
        """A list, as the projector stores it."""
        statement = (
            "INSERT INTO {ks}.definitions (workspace, kind, key, version, status, document, actor, created_at_micros, "
            "recorded_at_micros) VALUES (?, 'list', ?, 1, 'active', ?, 'tests', 1, 1)"
        )
        self.database.write(statement, (self.workspace, key, json.dumps({"key": key, "name": key, "description": ""})))

    def members(self, key: str) -> set[str]:
        return {row.user_id for row in CassandraLists(self.database).rows(self.workspace, key, (0, ""), 100_000)}

    def products(self) -> list[tuple[str, dict[str, Any] | None]]:
        """Product and its fields, None for one that is no longer listed, in the order of the topic."""
        codec = Registry(self._stack.registry_url).codec(CATALOG, "ProductListed")
        found = [((one.key() or b"").decode(), one.value()) for one in records(self._stack.brokers, CATALOG, self.workspace)]
        return [(key.partition("/")[2], None if value is None else _fields(codec.decode(value))) for key, value in found]

    def list_changes(self) -> list[tuple[str, str, bool]]:
        """List, user and whether the user was added, in the order of each user."""
        codec = Registry(self._stack.registry_url).codec(LISTS, "ListMembershipChanged")
        found = [codec.decode(one.value() or b"") for one in records(self._stack.brokers, LISTS, self.workspace)]
        return [(one["list_key"], one["user_id"], one["on_list"]) for one in found]

    def job(
        self,
        spark: SparkSession,
        write_key: str = "key",
        access: JdbcAccess | None = None,
        lineage: Lineage = OFF,
        api: str | None = None,
        iceberg: IcebergAccess | None = None,
    ) -> ImportJob:
        target = Target(self._cassandra, self._edge.url, write_key, api, "token", self._stack.brokers, self._stack.registry_url)
        databases = Databases(access or JdbcAccess(allow_private=True), SEALER, iceberg or IcebergAccess())
        outputs = Outputs(self._stack.brokers, lineage)
        return ImportJob(spark, self.store, lambda _: target, [self.directory.as_uri()], databases, outputs)

    def environment(self) -> dict[str, str]:
        return {
            **self._stack.environment(),
            "STARLING_CASSANDRA__KEYSPACE": self._cassandra.keyspace,
            "STARLING_HTTP__PORT": str(free_port()),
            "STARLING_INSTANCE_ID": "api",
            "STARLING_TOKENS": f"token=admin:{self.workspace}",
            "STARLING_IMPORTS_RUNNER": "process",
            "STARLING_IMPORTS_INGEST_URL": self._edge.url,
            "STARLING_IMPORTS_WRITE_KEYS": f"key={self.workspace}",
            "STARLING_IMPORTS_ROOTS": self.directory.as_uri(),
        }

    def items(self, topic: str = TRACK) -> list[dict[str, Any]]:
        """The items in the topic, in the order of each user."""
        found = [self._codec.decode(one.value() or b"") for one in records(self._stack.brokers, topic, self.workspace)]
        assert all(one["imported"] for one in found)
        return found

    def message_ids(self) -> list[str]:
        return [one["message_id"] for one in self.items()]

    def state(self, place: Place) -> tuple[str, str | None]:
        (row,) = self.database.read("SELECT state, message FROM {ks}.imports WHERE workspace = ? AND key = ?", place)
        return row["state"], row["message"]

    def rejects(self, place: Place) -> list[tuple[str, int, str, str]]:
        statement = "SELECT file, row, column_name, code FROM {ks}.import_rejects WHERE workspace = ? AND key = ?"
        return [(row["file"], row["row"], row["column_name"], row["code"]) for row in self.database.read(statement, place)]

    def reasons(self, place: Place) -> list[tuple[str, str]]:
        statement = "SELECT column_name, reason FROM {ks}.import_rejects WHERE workspace = ? AND key = ?"
        return sorted((row["column_name"], row["reason"]) for row in self.database.read(statement, place))


def _fields(product: dict[str, Any]) -> dict[str, Any]:
    return {name: product[name] for name in PRODUCT_FIELDS if product[name] is not None}
