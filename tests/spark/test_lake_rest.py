"""The lake with a real catalog service and a real object store, Nessie and an S3 server. Spark writes, and three engines read."""

import json
import multiprocessing
import os
import re
import uuid
from collections.abc import Callable, Iterator
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import duckdb
import httpx
import pytest
from pydantic import SecretStr
from pyiceberg.catalog import load_catalog

from starling_common.kafka.topics import BEHAVIOUR
from starling_local.nessie import WAREHOUSE, Nessie, ObjectStore, nessie
from starling_local.runtime import runtime_jars
from starling_spark.lakehouse.fence import LakeFenced
from starling_spark.lakehouse.iceberg import COMMITS, Lake, iceberg_config
from starling_spark.lakehouse.maintenance import Retention, maintain
from starling_spark.lakehouse.schema.tables import QUARANTINE
from starling_spark.lakehouse.settings import LakeSettings
from starling_spark.session.spark import open_session
from tests.s3_server import ACCESS_KEY, BUCKET, REGION, SECRET_KEY, S3Server, s3_server
from tests.spark.conftest import spark_settings
from tests.spark.lake_rig import ITEM, TRACK, Registered, Rig, writer_of

BY_A_WORKER = re.compile(r"s3://.*/data/.*/[0-9a-f]{32}\.parquet")
SALES = "ABCDEF"
Found = list[tuple[str, int]]
"""The name and the revenue of each event, sorted."""


@dataclass(frozen=True)
class Parts:
    """The running catalog and object store."""

    catalog: Nessie
    s3: S3Server

    def secrets(self) -> dict[str, str]:
        return {"token": self.catalog.token, "s3.access-key-id": ACCESS_KEY, "s3.secret-access-key": SECRET_KEY}


@dataclass(frozen=True)
class Story:
    """What happened in the process with Spark. `names`: of the events' files before maintenance; `files`: their number after it."""

    workers_write: bool
    fenced: list[str]
    rows: dict[str, int]
    names: list[str]
    files: int
    position: int
    events: Found


@pytest.fixture
def parts(tmp_path: Path) -> Iterator[Parts]:
    with s3_server(tmp_path / "s3") as s3:
        store = ObjectStore(s3.endpoint, REGION, ACCESS_KEY, SECRET_KEY, f"s3://{BUCKET}/lake")
        with nessie(store) as catalog:
            yield Parts(catalog, s3)


@pytest.mark.long
@pytest.mark.timeout(3_600)
def test_each_record_is_there_once_for_every_engine(parts: Parts, tmp_path: Path) -> None:
    assert httpx.get(f"{parts.catalog.uri}v1/config", trust_env=False).status_code == 401
    # In a process of its own: the Spark of this one lacks the client of the object store.
    with ProcessPoolExecutor(1, multiprocessing.get_context("spawn")) as other:
        story = other.submit(_story, tmp_path, parts.catalog.uri, parts.secrets()).result()
    assert story.workers_write
    assert all(BY_A_WORKER.fullmatch(name) for name in story.names)
    assert story.fenced == ["behaviour_events"]
    assert story.rows == {"behaviour_events": len(SALES), "ingest_items": 1, QUARANTINE: 1}
    assert story.events == [(name, number) for number, name in enumerate(SALES)]
    assert story.position == len(SALES)
    assert len(story.names) > story.files
    assert _by_duckdb(parts) == _by_pyiceberg(parts) == story.events
    assert [name for name in parts.s3.names("lake") if name.endswith(".parquet")]


def _story(directory: Path, uri: str, secrets: dict[str, str]) -> Story:
    """A driver that is killed between two tables, a repeated batch, two drivers at once, and maintenance beside a batch."""
    jars = (*runtime_jars("spark"), *runtime_jars("iceberg"), *runtime_jars("iceberg-aws"))
    given = spark_settings(directory).model_dump() | {"spark_jars": os.pathsep.join(map(str, jars)), "lake_warehouse": WAREHOUSE}
    hidden = {name: SecretStr(value) for name, value in secrets.items()}
    settings = LakeSettings(**given, lake_catalog={"type": "rest", "uri": uri}, lake_catalog_secrets=hidden)
    spark = open_session("rest", settings, iceberg_config(settings))
    passing: dict[str, list[Callable[[], object]]] = {point: [] for point in COMMITS}
    fenced: list[str] = []

    def passed(point: str) -> None:
        if passing[point]:
            passing[point].pop()()

    lake, registered = Lake(spark, "starling", passed=passed), Registered()
    rig = Rig(spark, registered, lake, writer_of(lake, registered))

    def sale(number: int) -> tuple[Any, ...]:
        return rig.event(SALES[number], properties=json.dumps({"revenue": number}))

    def files() -> list[str]:
        return [row.file_path for row in rig.about("behaviour_events", "files").select("file_path").collect()]

    try:
        workers_write = rig.writer.open().workers_write
        first = [rig.item(TRACK, ITEM), rig.record(TRACK, b"broken"), sale(0)]
        passing[COMMITS[1]].append(_killed)
        with pytest.raises(KeyboardInterrupt):
            rig.write(*first)
        for _ in range(2):
            rig.write(*first, writer=rig.restarted())
        both = sale(1)
        passing[COMMITS[0]].append(lambda: rig.write(both, writer=rig.restarted()))
        with pytest.raises(LakeFenced) as refused:
            rig.write(both)
        fenced.append(str(refused.value).partition(":")[0].rpartition(".")[2])
        for number in (2, 3, 4):
            rig.write(sale(number))
        before = files()
        # The append meets the commits of maintenance, and is repeated behind them.
        passing[COMMITS[0]].append(lambda: maintain(lake, ["behaviour_events"], Retention(0.0, 24.0)))
        rig.write(sale(5))
        maintain(lake, ["behaviour_events"], Retention(0.0, 24.0))
        events = sorted((row.name, json.loads(row.properties)["revenue"]) for row in rig.rows("behaviour_events"))
        counts = {table: len(rig.rows(table)) for table in ("behaviour_events", "ingest_items", QUARANTINE)}
        position = lake.position("behaviour_events")[BEHAVIOUR, 0]
        return Story(workers_write, fenced, counts, before, len(files()), position, events)
    finally:
        spark.stop()


def _killed() -> None:
    raise KeyboardInterrupt


def _by_pyiceberg(parts: Parts) -> Found:
    catalog = load_catalog(f"lake-{uuid.uuid4().hex}", type="rest", uri=parts.catalog.uri, warehouse=WAREHOUSE, **parts.secrets())
    found = catalog.load_table("starling.behaviour_events").scan(selected_fields=("name", "properties")).to_arrow().to_pylist()
    return sorted((row["name"], json.loads(row["properties"])["revenue"]) for row in found)


def _by_duckdb(parts: Parts) -> Found:
    connection = duckdb.connect()
    for name in ("avro", "httpfs", "iceberg"):
        package = Path(str(__import__(f"duckdb_extension_{name}").__file__)).parent
        connection.load_extension(str(next(package.rglob("*.duckdb_extension"))))
    address = parts.s3.endpoint.removeprefix("http://")
    connection.execute(
        f"CREATE SECRET (TYPE s3, KEY_ID '{ACCESS_KEY}', SECRET '{SECRET_KEY}', REGION '{REGION}', ENDPOINT '{address}', "
        "URL_STYLE 'path', USE_SSL false)"
    )
    connection.execute(
        f"ATTACH '{WAREHOUSE}' AS lake (TYPE iceberg, ENDPOINT '{parts.catalog.uri.rstrip('/')}', TOKEN '{parts.catalog.token}', "
        "ACCESS_DELEGATION_MODE 'none')"
    )
    return connection.execute(
        "SELECT name, (properties->>'$.revenue')::INT FROM lake.starling.behaviour_events ORDER BY name"
    ).fetchall()
