"""The sinks, on real parts and real files: their contract, rejected rows, and errors that name the cure."""

import json
import random
import uuid
from collections.abc import Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import httpx
import psycopg
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from confluent_kafka import Consumer, TopicPartition
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic
from pyarrow import csv
from pydantic import SecretStr

from starling_common.kafka.clients import consumer_config
from starling_local.opensearch import opensearch
from starling_local.postgres import PostgresServer, postgres
from starling_spark.sinks import kafka_topic
from starling_spark.sinks.catalogue import BadDestination, Destination, sink_of
from starling_spark.sinks.directory import MANIFEST, opened
from starling_spark.sinks.port import Run, Sink, SinkRefused, SinkUnavailable
from starling_spark.sinks.postgres import Postgres
from tests.conftest import Stack
from tests.contract.sinks.sink_contract import SHAPE, SinkContract, batch, row, write

PASSWORD = "planted-7f3a-secret"
SECRET = 'STARLING_EXPORTS_PASSWORDS (the entry "members")'
DEFINITION = (
    "(workspace text, user_id text, score double precision, is_member boolean, changed_at timestamptz, traits text, "
    "row_version bigint NOT NULL, PRIMARY KEY (workspace, user_id))"
)


@pytest.fixture(scope="module")
def server() -> Iterator[PostgresServer]:
    with postgres(PASSWORD) as found:
        yield found


def of_postgres(server: PostgresServer, table: str, password: str = PASSWORD, user: str = "starling") -> Sink:
    return sink_of(Destination("postgres", server.uri(user), table, SecretStr(password), SECRET, ""))


def execute(server: PostgresServer, *statements: str) -> list[tuple[Any, ...]]:
    with psycopg.connect(server.uri(), password=PASSWORD) as connection:
        for statement in statements[:-1]:
            connection.execute(statement)
        cursor = connection.execute(statements[-1])
        return cursor.fetchall() if cursor.description else []


class Table:
    """A table of a test's own."""

    def __init__(self, server: PostgresServer) -> None:
        self.name = f"t{uuid.uuid4().hex[:10]}"
        execute(server, f"CREATE TABLE {self.name} {DEFINITION}")
        self.sink = of_postgres(server, self.name)
        self._server = server

    def rows(self) -> list[tuple[Any, ...]]:
        found = execute(self._server, f'TABLE {self.name} ORDER BY user_id COLLATE "C"')
        return [(*values[:4], values[4].astimezone(UTC), *values[5:]) for values in found]


class TestPostgres(SinkContract):
    @pytest.fixture
    def destination(self, server: PostgresServer) -> Table:
        return Table(server)


class Files:
    """A directory of a test's own. A consumer reads the runs with a manifest."""

    def __init__(self, form: str, directory: Path) -> None:
        self.directory = directory / "a place"
        self.sink = sink_of(Destination(form, self.directory.as_uri(), None, None, "", ""))
        self._form = form

    def rows(self) -> list[tuple[Any, ...]]:
        found: list[tuple[Any, ...]] = []
        for manifest in sorted(self.directory.glob(f"run=*/{MANIFEST}")):
            document = json.loads(manifest.read_text())
            assert sorted(document["files"]) == sorted(one.name for one in manifest.parent.iterdir() if one.name != MANIFEST)
            rows = [one for name in document["files"] for one in self._rows(manifest.parent / name)]
            assert document["rows"] == len(rows)
            found += rows
        return newest(found)

    def _rows(self, file: Path) -> Iterable[tuple[Any, ...]]:
        if self._form == "parquet":
            return [tuple(one.values()) for one in pq.read_table(file).to_pylist()]
        # The csv module of Python 3.11 does not distinguish null and an empty text.
        convert = csv.ConvertOptions(column_types=SHAPE.schema, strings_can_be_null=True, quoted_strings_can_be_null=False)
        parse = csv.ParseOptions(newlines_in_values=True)
        return [tuple(one.values()) for one in csv.read_csv(file, parse_options=parse, convert_options=convert).to_pylist()]


def newest(rows: Iterable[tuple[Any, ...]]) -> list[tuple[Any, ...]]:
    """What a consumer of runs and of records keeps."""
    kept: dict[tuple[Any, ...], tuple[Any, ...]] = {}
    for one in rows:
        if one[:2] not in kept or kept[one[:2]][-1] < one[-1]:
            kept[one[:2]] = one
    return [kept[key] for key in sorted(kept)]


class TestParquet(SinkContract):
    @pytest.fixture
    def destination(self, tmp_path: Path) -> Files:
        return Files("parquet", tmp_path)


class TestCsv(SinkContract):
    @pytest.fixture
    def destination(self, tmp_path: Path) -> Files:
        return Files("csv", tmp_path)


class Topic:
    """A topic of a test's own."""

    def __init__(self, stack: Stack) -> None:
        self.name = f"t{uuid.uuid4().hex[:10]}"
        self.brokers = stack.brokers
        topic = NewTopic(self.name, 1, 1, config={"max.message.bytes": "20000", "compression.type": "producer"})
        admin = AdminClient({"bootstrap.servers": stack.brokers})
        for future in admin.create_topics([topic], operation_timeout=30).values():
            future.result()
        self.sink = sink_of(Destination("kafka", self.name, None, None, "", stack.brokers))

    def rows(self) -> list[tuple[Any, ...]]:
        consumer = Consumer(consumer_config(self.brokers, "tests"))
        try:
            place = TopicPartition(self.name, 0, 0)
            _, end = consumer.get_watermark_offsets(place, timeout=30)
            consumer.assign([place])
            documents: list[dict[str, Any]] = []
            while len(documents) < end:
                message = consumer.poll(10)
                assert message is not None
                assert message.error() is None
                documents.append(json.loads(message.value() or b""))
        finally:
            consumer.close()
        ids = {(one["workspace"], one["user_id"]): one["id"] for one in documents}
        assert len(set(ids.values())) == len(ids) == len({one["id"] for one in documents})
        assert all(one["sequence"] == one["row_version"] for one in documents)
        return newest(
            (*[one[name] for name in SHAPE.names[:4]], datetime.fromisoformat(one["changed_at"]), one["traits"], one["sequence"])
            for one in documents
        )


class TestKafka(SinkContract):
    @pytest.fixture
    def destination(self, stack: Stack) -> Iterator[Topic]:
        yield Topic(stack)
        kafka_topic._producer.cache_clear()  # its threads would outlive the broker

    def test_a_record_that_the_broker_refuses_is_rejected_alone(self, destination: Topic) -> None:
        noise = "".join(uuid.uuid4().hex for _ in range(2_000))
        (written,) = write(destination.sink, 1, [row("ann", 1), row("bob", 2, 1.0, noise), row("eve", 3)])
        assert (written.accepted, [(one.key, one.version) for one in written.rejected]) == (2, [("acme/bob", 2)])
        assert "fewer columns" in written.rejected[0].cure
        assert destination.rows() == [row("ann", 1), row("eve", 3)]

    def test_a_missing_topic_is_one_clear_error(self, destination: Topic) -> None:
        with pytest.raises(SinkRefused, match=r"^absent: there is no such topic.*create it"):
            write(sink_of(Destination("kafka", "absent", None, None, "", destination.brokers)), 1, [])


@pytest.fixture(scope="module")
def node() -> Iterator[str]:
    with opensearch() as url:
        yield url


def requested(method: str, url: str, json: Any = None) -> httpx.Response:
    return httpx.request(method, url, json=json, timeout=60)


class Index:
    """An index of a test's own, as the error of a missing one proposes it."""

    def __init__(self, node: str) -> None:
        self.name = f"i{uuid.uuid4().hex[:10]}"
        self.sink = sink_of(Destination("opensearch", node, self.name, None, SECRET, ""))
        self.node = node
        statement = errors_of(self.sink).partition(f"create it with: PUT /{self.name} ")[2]
        assert requested("PUT", f"{node}/{self.name}", json=json.loads(statement)).is_success

    def rows(self) -> list[tuple[Any, ...]]:
        requested("POST", f"{self.node}/{self.name}/_refresh").raise_for_status()
        query = {"size": 10_000, "sort": [{"user_id": "asc"}], "version": True}
        hits = requested("POST", f"{self.node}/{self.name}/_search", json=query).raise_for_status().json()["hits"]["hits"]
        found = []
        for hit in hits:
            values = hit["_source"]
            assert hit["_version"] == values["row_version"]
            found.append(
                (
                    *[values[name] for name in SHAPE.names[:4]],
                    datetime.fromisoformat(values["changed_at"]),
                    *list(values.values())[5:],
                )
            )
        return found


@pytest.mark.long
class TestOpenSearch(SinkContract):
    @pytest.fixture
    def destination(self, node: str) -> Index:
        return Index(node)

    def test_a_document_that_the_mapping_refuses_is_rejected_alone(self, node: str) -> None:
        index = Index(node)
        assert requested(
            "PUT", f"{node}/{index.name}-2", json={"mappings": {"properties": {"traits": {"type": "integer"}}}}
        ).is_success
        sink = sink_of(Destination("opensearch", node, f"{index.name}-2", None, SECRET, ""))
        rows = [row(f"u{number:04}", 1, 1.0, str(number)) for number in range(2_500)]
        rows[7], rows[2_400] = row("u0007", 1, 1.0, "seven"), row("u2400", 1, 1.0, "x")
        (written,) = write(sink, 1, rows)
        assert (written.accepted, [one.key for one in written.rejected]) == (2_498, ["acme/u0007", "acme/u2400"])
        assert written.rejected[0].code == "mapper_parsing_exception"
        assert "seven" in written.rejected[0].reason
        with pytest.raises(SinkRefused, match=r"stopped after 2 rejected rows, over max_rejects 1"):
            write(sink, 2, rows, most_rejected=1)

    def test_writers_at_the_same_time_leave_the_newest_documents(self, destination: Index) -> None:
        keys = [f"u{number:04}" for number in range(500)]

        def write_all(number: int) -> None:
            shuffled = random.Random(number).sample(keys, len(keys))
            write(destination.sink, number, [row(key, 1 + (int(key[1:]) + number) % 4) for key in shuffled])

        with ThreadPoolExecutor(4) as writers:
            for done in [writers.submit(write_all, number) for number in range(4)]:
                done.result()
        assert [(one[1], one[-1]) for one in destination.rows()] == [(key, 4) for key in keys]

    def test_an_index_that_accepts_no_writes_is_one_clear_error(self, destination: Index) -> None:
        blocked = {"index.blocks.write": True}
        assert requested("PUT", f"{destination.node}/{destination.name}/_settings", json=blocked).is_success
        with pytest.raises(SinkRefused, match=rf"^{destination.name}: .*blocked.*grant the right to write"):
            write(destination.sink, 1, [row("ann", 1)])


def test_an_absent_broker_is_one_clear_error(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(kafka_topic, "_CHECK_SECONDS", 0.5)
    with pytest.raises(SinkUnavailable, match=r"^127\.0\.0\.1:9: .*start the broker, or correct its address"):
        write(sink_of(Destination("kafka", "any", None, None, "", "127.0.0.1:9")), 1, [])
    kafka_topic._producer.cache_clear()


def test_postgres_rejects_single_rows_and_takes_the_others(server: PostgresServer) -> None:
    table = Table(server)
    execute(server, f"ALTER TABLE {table.name} ALTER traits TYPE jsonb USING traits::jsonb, ADD CHECK (score < 100)")
    rows = [row(f"u{number:04}", 1, number % 90, "{}") for number in range(7_000)]
    rows[3] = row("u0003", 1, 500, "{}")
    rows[4_000] = row("u4000", 1, 1, "{")
    rows[4_001] = row("u4001", 1, 1, '{"a": "\0"}')
    rows[6_999] = row("", 1, 1, "{}")
    (written,) = write(table.sink, 1, rows)
    found = {one.key: (one.code, one.reason) for one in written.rejected}
    assert {key: code for key, (code, _) in found.items()} == {
        "acme/u0003": "23514", "acme/u4000": "22P02", "acme/u4001": "bad_value",
    }  # fmt: skip
    assert "check constraint" in found["acme/u0003"][1]
    assert written.accepted == 6_997 == len(table.rows())
    with pytest.raises(SinkRefused, match=r"stopped after 3 rejected rows, over max_rejects 2"):
        write(table.sink, 2, rows, most_rejected=2)


def test_a_connection_that_ends_in_mid_run_is_one_clear_error_and_the_run_can_be_repeated(server: PostgresServer) -> None:
    table, rows = Table(server), [row(f"u{number:04}", 1) for number in range(20)]

    def batches() -> Iterator[pa.RecordBatch]:
        yield batch(rows[:10])
        execute(
            server, "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE pid <> pg_backend_pid() AND usename = 'starling'"
        )
        yield batch(rows[10:])

    with pytest.raises(SinkUnavailable, match=r"^postgresql://starling@127\.0\.0\.1:\d+/postgres: .*wait until it answers$"):
        table.sink.write(SHAPE, Run("members", 1), batches(), 10)
    assert table.rows() == rows[:10]
    write(table.sink, 1, rows)
    assert table.rows() == rows


def test_a_table_that_another_connection_locks_is_one_clear_error_and_the_run_can_be_repeated(server: PostgresServer) -> None:
    table, rows = Table(server), [row("ann", 1), row("bob", 1)]
    sink = Postgres(server.uri(), table.name, SecretStr(PASSWORD), SECRET, answer_seconds=1.0)
    reason = r"/postgres: no answer for 1 s: end what locks the table, or restart the server$"
    with psycopg.connect(server.uri(), password=PASSWORD) as other:
        other.execute(f"LOCK TABLE {table.name} IN ACCESS EXCLUSIVE MODE")
        with pytest.raises(SinkUnavailable, match=reason):
            write(sink, 1, rows)
    write(sink, 1, rows)
    assert table.rows() == rows


def test_writers_of_the_same_keys_at_the_same_time_leave_the_newest_rows(server: PostgresServer) -> None:
    table, keys = Table(server), [f"u{number:04}" for number in range(2_000)]

    def write_all(number: int) -> None:
        shuffled = random.Random(number).sample(keys, len(keys))
        write(table.sink, number, [row(key, 1 + (int(key[1:]) + number) % 4) for key in shuffled])

    with ThreadPoolExecutor(4) as writers:
        for done in [writers.submit(write_all, number) for number in range(4)]:
            done.result()
    assert [(one[1], one[-1]) for one in table.rows()] == [(key, 4) for key in keys]


def errors_of(sink: Sink, kind: type[Exception] = SinkRefused) -> str:
    with pytest.raises(kind) as caught:
        write(sink, 1, [row("ann", 1)])
    text = str(caught.value)
    chain = f"{text}{caught.value.__cause__}{caught.value.__context__}{sink!r}"
    assert PASSWORD not in chain
    assert "wrong-secret" not in chain
    assert "\n" not in text
    return text


def test_postgres_names_the_cure_of_each_error(server: PostgresServer) -> None:
    name = Table(server).name
    assert errors_of(of_postgres(server, name, "wrong-secret")).endswith(f"correct {SECRET}")
    missing = errors_of(of_postgres(server, "public.absent"))
    statement = missing.partition("create it with: ")[2]
    execute(server, statement)
    write(of_postgres(server, "public.absent"), 1, [row("ann", 1)])
    execute(server, f"ALTER TABLE {name} DROP COLUMN traits")
    lacking = errors_of(of_postgres(server, name))
    assert f"ALTER TABLE {name} ADD COLUMN traits text" in lacking
    execute(server, f"ALTER TABLE {name} ADD COLUMN traits text", f"ALTER TABLE {name} DROP CONSTRAINT {name}_pkey")
    assert errors_of(of_postgres(server, name)).endswith(f"ALTER TABLE {name} ADD PRIMARY KEY (workspace, user_id)")
    execute(server, f"ALTER TABLE {name} ADD PRIMARY KEY (workspace, user_id)", f"CREATE USER loader PASSWORD '{PASSWORD}'")
    assert "lacks the rights SELECT, INSERT, UPDATE: GRANT" in errors_of(of_postgres(server, name, user="loader"))
    execute(server, f"GRANT SELECT, INSERT, UPDATE ON {name} TO loader")
    write(of_postgres(server, name, user="loader"), 1, [row("ann", 1)])
    execute(server, "REVOKE TEMPORARY ON DATABASE postgres FROM PUBLIC")
    assert "GRANT TEMPORARY" in errors_of(of_postgres(server, name, user="loader"))
    execute(server, "GRANT TEMPORARY ON DATABASE postgres TO PUBLIC")
    absent = Destination("postgres", server.uri(database="absent"), name, SecretStr(PASSWORD), SECRET, "")
    assert "create the user and the database" in errors_of(sink_of(absent))
    away = Destination("postgres", "postgresql://starling@127.0.0.1:9/postgres", name, SecretStr(PASSWORD), SECRET, "")
    assert "correct host and port" in errors_of(sink_of(away), SinkUnavailable)
    unknown = Destination("postgres", "postgresql://starling@absent.invalid/postgres", name, SecretStr(PASSWORD), SECRET, "")
    assert "correct host and port" in errors_of(sink_of(unknown), SinkUnavailable)


def test_a_place_of_files_that_is_a_file_is_refused(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    sink = sink_of(Destination("csv", (tmp_path / "file").as_uri(), None, None, "", ""))
    assert "give the URI of a directory" in errors_of(sink)


@pytest.mark.parametrize(
    ("sink", "to", "table", "reason"),
    [
        ("mysql", "mysql://a", None, "sink: 'mysql' is unknown: write one of postgres, parquet, csv, kafka, opensearch"),
        ("csv", "/tmp/a", None, "to: '/tmp/a' has no known scheme"),
        ("csv", "s3:///a", None, "has no bucket"),
        (
            "csv",
            f"s3://bucket/a?secret_key={PASSWORD}",
            None,
            "the query has secret_key: write only endpoint_override, region, scheme",
        ),
        ("csv", "s3:///a?region=eu-west-1", None, "has no bucket"),
        ("csv", "gs://bucket/a?scheme=http", None, "has a ? or a #"),
        ("csv", f"s3://key:{PASSWORD}@bucket/a", None, "to: contains an @: give credentials by the environment"),
        ("csv", f"postgresql://a:{PASSWORD}@db/x", None, "to: contains an @"),
        ("parquet", "file:///a", "t", "table: the sink parquet has none"),
        ("postgres", "host=db", "t", "to: is no address of PostgreSQL"),
        ("postgres", f"postgresql://a:{PASSWORD}@db/x", "t", "to: contains a password"),
        ("postgres", f"postgresql://a@db/x?password={PASSWORD}", "t", "to: contains a password"),
        ("postgres", "postgresql://a@db/x", "a.", "table: is missing"),
        ("kafka", "a/b", None, "to: is no name of a topic"),
        ("opensearch", f"https://a:{PASSWORD}@os:9200", "crm", "to: contains a password"),
        ("opensearch", "https://os:9200/crm", "crm", "to: is no address of OpenSearch"),
        ("opensearch", "https://os:port", "crm", "to: is no address of OpenSearch"),
        ("opensearch", "os:9200", "crm", "to: is no address of OpenSearch"),
        ("opensearch", "https://os:9200", None, "table: is no name of an index"),
        ("opensearch", "https://os:9200", "CRM", "table: is no name of an index"),
    ],
)
def test_a_destination_that_no_sink_can_use_is_refused(sink: str, to: str, table: str | None, reason: str) -> None:
    with pytest.raises(BadDestination) as caught:
        sink_of(Destination(sink, to, table, None, SECRET, ""))
    assert reason in str(caught.value)
    assert PASSWORD not in str(caught.value)


def test_the_query_of_a_place_names_another_store() -> None:
    to = "s3://bucket/members/?endpoint_override=minio:9000&scheme=http&region=us-east-1"
    files, path = opened(to)
    assert (sink_of(Destination("csv", to, None, None, SECRET, "")) is not None, path) == (True, "bucket/members")
    assert (files.type_name, files.region) == ("s3", "us-east-1")
