"""An export from a lake of a test's own to PostgreSQL or to files, in this process and as a process."""

import json
import os
import subprocess
import sys
import uuid
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import psycopg
from pydantic import SecretStr
from pyspark.sql import SparkSession, types

from starling_local.postgres import PostgresServer
from starling_local.runtime import runtime_jars
from starling_spark.jobs.exports.definition import ExportDefinition
from starling_spark.jobs.exports.job import ExportJob, Exports
from starling_spark.jobs.exports.store import RunRow
from starling_spark.lakehouse.iceberg import Lake
from starling_spark.lakehouse.schema.tables import ORIGIN
from starling_spark.lineage.runs import OFF, Lineage

PASSWORD = "planted-91c4-secret"
ENVIRONMENT = {
    "STARLING_KAFKA__BROKERS": "127.0.0.1:9", "STARLING_REGISTRY__URL": "http://127.0.0.1:9", "STARLING_HTTP__PORT": "1",
    "STARLING_INSTANCE_ID": "exports", "STARLING_SPARK_JARS": "a.jar", "STARLING_LAKE_WAREHOUSE": "w",
}  # fmt: skip
START = datetime(2026, 1, 1, tzinfo=UTC)
TEXT, TIME, LONG = types.StringType(), types.TimestampType(), types.LongType()


def columns(**kinds: types.DataType) -> types.StructType:
    return types.StructType([*[types.StructField(name, kind) for name, kind in kinds.items()], *ORIGIN.fields])


LAKE_COLUMNS = {
    "membership_changes": columns(
        workspace=TEXT, user_id=TEXT, segment_key=TEXT, segment_version=types.IntegerType(), status=TEXT, sequence=LONG,
        effective_at=TIME,
    ),
    "profile_changes": columns(
        workspace=TEXT, user_id=TEXT, anonymous_ids=types.ArrayType(TEXT), group_id=TEXT, traits=TEXT,
        changed=types.ArrayType(TEXT), event_time=TIME, received_at=TIME, order=TIME,
    ),
}  # fmt: skip


class Rig:
    """A lake of a test's own, a schema in PostgreSQL, and a directory."""

    def __init__(self, spark: SparkSession, server: PostgresServer, directory: Path) -> None:
        self.spark = spark
        self.lake = Lake(spark, f"n{uuid.uuid4().hex[:10]}")
        for table, wanted in LAKE_COLUMNS.items():
            self.lake.ensure(table, wanted, (), ())
        self.directory = directory
        self.server = server
        self.schema = f"s{uuid.uuid4().hex[:10]}"
        self.sql(f"CREATE SCHEMA {self.schema}")
        self._offset = 0

    def add(self, table: str, *rows: dict[str, Any]) -> None:
        """Append records, as the job `lake` does."""
        values = []
        for row in rows:
            origin = {"origin_topic": table, "origin_partition": 0, "origin_offset": self._offset}
            values.append([(row | origin).get(field.name) for field in LAKE_COLUMNS[table].fields])
            self._offset += 1
        self.lake.append(
            table, self.spark.createDataFrame(values, LAKE_COLUMNS[table]), {(table, 0): self._offset}, self.lake.tip(table)
        )

    def job(self, **definitions: dict[str, Any]) -> ExportJob:
        return self.reported(OFF, definitions)

    def reported(self, lineage: Lineage, definitions: dict[str, dict[str, Any]]) -> ExportJob:
        found = {name: ExportDefinition(**definition) for name, definition in definitions.items()}
        exports = Exports(found, dict.fromkeys(found, SecretStr(PASSWORD)), "")
        return ExportJob(self.spark, self.lake, exports, lineage=lineage)

    def run(self, job: ExportJob, name: str = "one", *, from_start: bool = False) -> RunRow | None:
        return job.run([name], lambda: False, from_start=from_start)[name]

    def done(self, job: ExportJob, name: str = "one", *, from_start: bool = False) -> tuple[int, int, int]:
        row = self.run(job, name, from_start=from_start)
        assert row is not None
        assert row.state == "done", row.message
        return row.run, row.accepted, row.rejected

    def message(self, job: ExportJob, name: str = "one") -> str:
        row = self.run(job, name)
        assert row is not None
        assert row.state == "failed"
        return str(row.message)

    def to_postgres(self, source: str, table: str, **more: Any) -> dict[str, Any]:
        return {"source": source, "sink": "postgres", "to": self.server.uri(), "table": f"{self.schema}.{table}"} | more

    def to_files(self, source: str, sink: str = "parquet", **more: Any) -> dict[str, Any]:
        return {"source": source, "sink": sink, "to": (self.directory / source).as_uri()} | more

    def created(self, job: ExportJob, name: str = "one") -> str:
        """Create the table as the error proposes it."""
        statement = self.message(job, name).partition("create it with: ")[2]
        self.sql(statement)
        return statement

    def sql(self, statement: str) -> list[tuple[Any, ...]]:
        with psycopg.connect(self.server.uri(), password=PASSWORD) as connection:
            cursor = connection.execute(statement)
            return cursor.fetchall() if cursor.description else []

    def table(self, name: str, chosen: str) -> list[tuple[Any, ...]]:
        return self.sql(f"SELECT {chosen} FROM {self.schema}.{name} ORDER BY 1, 2")  # noqa: S608 - the names are ours


def change(user: str, sequence: int, day: int, segment: str = "vip", workspace: str = "acme") -> dict[str, Any]:
    status = "ENTERED" if sequence % 2 else "EXITED"
    return {
        "workspace": workspace, "user_id": user, "segment_key": segment, "segment_version": 1, "status": status,
        "sequence": sequence, "effective_at": START + timedelta(days=day),
    }  # fmt: skip


def profile(user: str, order: int, traits: dict[str, Any], changed: Sequence[str]) -> dict[str, Any]:
    at = START + timedelta(seconds=order)
    return {
        "workspace": "acme", "user_id": user, "anonymous_ids": [f"{user}-1"], "group_id": None, "traits": json.dumps(traits),
        "changed": changed, "event_time": at, "received_at": at, "order": at,
    }  # fmt: skip


def process(rig: Rig, definitions: dict[str, dict[str, Any]], passwords: dict[str, str]) -> "subprocess.Popen[str]":
    """The job as an operator starts it. It reads the tables of the shared session, as after a job `lake` elsewhere."""
    environment = ENVIRONMENT | {
        "STARLING_EXPORTS": json.dumps(definitions),
        "STARLING_EXPORTS_PASSWORDS": json.dumps(passwords),
        "STARLING_LAKE_WAREHOUSE": rig.spark.conf.get("spark.sql.catalog.lake.warehouse") or "",
        "STARLING_LAKE_NAMESPACE": rig.lake.name("x").split(".")[1],
        "STARLING_SPARK_JARS": ",".join(map(str, (*runtime_jars("spark"), *runtime_jars("iceberg")))),
    }
    words = [sys.executable, "-m", "starling_spark.jobs.exports", "run"]
    return subprocess.Popen(words, env=os.environ | environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
