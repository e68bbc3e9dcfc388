"""Events of OpenLineage: names, texts without secrets, the form of events, and a sender that never keeps a job waiting."""

import json
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from jsonschema import Draft202012Validator, FormatChecker
from prometheus_client import CollectorRegistry
from pydantic import SecretStr, ValidationError
from structlog.testing import capture_logs

from starling_common.settings import Cassandra, Http, Kafka, SchemaRegistry
from starling_common.telemetry.metrics import Metrics
from starling_common.testing import eventually
from starling_rules.imports import ImportRequest
from starling_rules.jdbc import JdbcSource
from starling_spark.jobs.exports.outputs import output_of
from starling_spark.jobs.imports.datasets import inputs_of, job_of, outputs_of
from starling_spark.jobs.imports.settings import ImportSettings
from starling_spark.jobs.imports.store import Place
from starling_spark.jobs.sql_traits.tables import sources_of
from starling_spark.lineage.datasets import (
    Column,
    Dataset,
    Flow,
    TableName,
    cassandra_tables,
    database_table,
    files,
    kafka_topics,
    merged,
    search_index,
)
from starling_spark.lineage.events import EventWriter
from starling_spark.lineage.redaction import secrets_of, without_literals, without_secrets
from starling_spark.lineage.runs import OFF, Event, JobName, Lineage, RunLineage, State
from starling_spark.lineage.sending import AT_END, FULL, NOT_SENT, Sender, transport_of
from starling_spark.lineage.settings import LineageSettings
from starling_spark.session.lineage import opened_lineage
from starling_spark.sinks.catalogue import Destination
from tests.lineage_receiver import LineageReceiver

RUN = "3f5e83fa-3480-44ff-99c5-ff943904e5e8"
PARENT = f"air/flow/nightly.exports/{RUN}"
AT = datetime(2026, 3, 10, 12, tzinfo=UTC)
TOPIC = Dataset("kafka://kafka-0:9092", "events.behaviour")
TABLE = Dataset("s3://lake", "starling/behaviour_events", table=TableName("s3://lake", "starling.behaviour_events"))

FACETS = {
    "type": "object",
    "additionalProperties": {
        "type": "object",
        "required": ["_producer", "_schemaURL"],
        "properties": {name: {"type": "string", "format": "uri", "pattern": "^https://"} for name in ("_producer", "_schemaURL")},
    },
}
DATASET = {
    "type": "object",
    "required": ["namespace", "name"],
    "properties": {"namespace": {"type": "string", "minLength": 1}, "name": {"type": "string", "minLength": 1}, "facets": FACETS},
}
FORM = {
    "type": "object",
    "required": ["eventTime", "eventType", "producer", "schemaURL", "run", "job", "inputs", "outputs"],
    "additionalProperties": False,
    "properties": {
        "eventTime": {"type": "string", "format": "date-time", "pattern": "T.*[+]00:00$"},
        "eventType": {"enum": [state.value for state in State]},
        "producer": {"type": "string", "format": "uri", "pattern": "^https://"},
        "schemaURL": {"const": "https://openlineage.io/spec/2-0-2/OpenLineage.json#/$defs/RunEvent"},
        "run": {
            "type": "object",
            "required": ["runId"],
            "properties": {"runId": {"type": "string", "format": "uuid"}, "facets": FACETS},
        },
        "job": DATASET,
        "inputs": {"type": "array", "items": DATASET | {"properties": DATASET["properties"] | {"inputFacets": FACETS}}},  # type: ignore[operator]
        "outputs": {"type": "array", "items": DATASET | {"properties": DATASET["properties"] | {"outputFacets": FACETS}}},  # type: ignore[operator]
    },
}
"""What the specification requires of a run event, version 2-0-2. The client has no schema in JSON."""


def check_form(document: Mapping[str, Any]) -> None:
    Draft202012Validator(FORM, format_checker=FormatChecker()).validate(json.loads(json.dumps(document)))


@pytest.mark.parametrize(
    ("found", "namespace", "name"),
    [
        (kafka_topics("kafka-0:9092, kafka-1:9092", "a.b")[0], "kafka://kafka-0:9092", "a.b"),
        (cassandra_tables("c-0, c-1", 9042, "starling", "view_rows")[0], "cassandra://c-0:9042", "starling.view_rows"),
        (files("s3a://bucket/a/b"), "s3://bucket", "a/b"),
        (files("s3://key:planted@bucket/a%20b/?endpoint_override=planted"), "s3://bucket", "a b"),
        (files("gs://bucket/a"), "gs://bucket", "a"),
        (files("hdfs://name:8020/a"), "hdfs://name:8020", "/a"),
        (files("file:///var/lib/a"), "file", "/var/lib/a"),
        (files("file:/var/lib/a"), "file", "/var/lib/a"),
        (files("/var/lib/a"), "file", "/var/lib/a"),
        (database_table("postgresql://me:planted@db/crm?password=planted", "t"), "postgres://db:5432", "crm.public.t"),
        (database_table("jdbc:postgresql://db:6432/crm?sslmode=require", "s.t"), "postgres://db:6432", "crm.s.t"),
        (database_table("jdbc:mariadb://[::1]/crm", "t"), "mariadb://[::1]:3306", "crm.t"),
        (database_table("jdbc:oracle://db/crm", "t"), "oracle://db", "crm.t"),
        (search_index("https://me:planted@search:9200", "members"), "opensearch://search:9200", "members"),
        (search_index("https://search", "members"), "opensearch://search:443", "members"),
    ],
)
def test_datasets_have_the_names_of_the_specification(found: Dataset, namespace: str, name: str) -> None:
    assert found.place == (namespace, name)


def test_a_later_description_completes_the_earlier_one() -> None:
    first = TABLE._replace(version="1", columns=(Column("a", "string"),), positions={0: 1, 1: 1})
    found = merged((TOPIC, first), (TABLE._replace(version="2", rows=3, positions={1: 9}),))
    assert found == (TOPIC, first._replace(version="2", rows=3, positions={0: 1, 1: 9}))


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("connect to jdbc:postgresql://db/crm?user=me&password=x failed", "connect to jdbc:postgresql://db/crm?*** failed"),
        ("https://me:secret@search:9200/a: refused", "https://search:9200/a: refused"),
        ("sasl_password=hunter2 is wrong", "sasl_password=*** is wrong"),
        ("token: Bearer abc.def rejected", "token: *** rejected"),
        ("header Authorization Bearer abc.def", "header Authorization Bearer ***"),
        ("the value 'ann@example.com' of the type \"STRING\"", "the value *** of the type ***"),
        ("user ann@example.com is unknown", "user *** is unknown"),
        ("the value 'ann", "the value '***'"),
        ("known-secret-1 and known-secret", "*** and ***"),
        ("first\nsecond with 4711", "first"),
        (
            "[TABLE_OR_VIEW_NOT_FOUND] The table `a`.`b` cannot be found",
            "[TABLE_OR_VIEW_NOT_FOUND] The table `a`.`b` cannot be found",
        ),
        ("", ""),
    ],
)
def test_messages_have_neither_secrets_nor_values(text: str, shown: str) -> None:
    assert without_secrets(text, {"known-secret", "known-secret-1"}) == shown


def test_a_long_message_is_cut() -> None:
    assert len(without_secrets("x" * 5_000, ())) == 1_000
    began = time.monotonic()
    without_secrets("x" * 5_000_000, ())
    assert time.monotonic() - began < 5


def test_statements_have_no_literals() -> None:
    sql = (
        "SELECT user_id, count(*) AS value FROM events WHERE user_id IN ('ann', 'bob') AND price > 12.5 -- of Ann\nGROUP BY user_id"
    )
    found = without_literals(sql)
    assert found == "SELECT user_id, COUNT(*) AS value FROM events WHERE user_id IN (?, ?) AND price > ? GROUP BY user_id"
    assert without_literals("DELETE FROM events WHERE user_id = 'ann'") is None
    assert without_literals("SELECT 'ann") is None


def test_an_instant_that_no_calendar_has_is_left_out() -> None:
    events: list[Event] = []
    with Lineage(events.append).run(JobName("a")) as run:
        run.computes(10**18)
    assert events[-1].nominal_at is None


def test_secrets_of_settings_are_found_at_every_depth() -> None:
    settings = import_settings()
    assert {"planted-kafka", "planted-registry", "planted-cassandra", "planted-write-key"} <= secrets_of(settings)
    assert "kafka-0:9092" not in secrets_of(settings)


def import_settings(**more: Any) -> ImportSettings:
    return ImportSettings(
        kafka=Kafka(
            brokers="kafka-0:9092", security_protocol="SASL_SSL", sasl_mechanism="PLAIN", sasl_username="starling",
            sasl_password=SecretStr("planted-kafka"),
        ),
        registry=SchemaRegistry(url="http://registry:8081", username="starling", password=SecretStr("planted-registry")),
        cassandra=Cassandra(contact_points="c-0", user="starling", password=SecretStr("planted-cassandra")),
        http=Http(port=1),
        instance_id="test",
        imports_ingest_url="http://ingest:8080",
        imports_write_keys=SecretStr("planted-write-key=acme"),
        **more,
    )  # fmt: skip


def an_event(state: State = State.COMPLETE, **more: Any) -> Event:
    job = JobName("exports.daily", sql="SELECT ?")
    return Event(state, AT, RUN, job, Flow((TOPIC,), (TABLE,)), **more)


def test_an_event_has_the_form_of_the_specification() -> None:
    table = TABLE._replace(version="42", columns=(Column("user_id", "string"),), rows=7)
    flow = Flow((TOPIC._replace(positions={1: 20, 0: 10}),), (table,))
    found = EventWriter("prod", PARENT).document(an_event(error="boom", nominal_at=AT)._replace(flow=flow))
    check_form(found)
    assert (found["eventType"], found["eventTime"]) == ("COMPLETE", "2026-03-10T12:00:00.000+00:00")
    assert (found["job"]["namespace"], found["job"]["name"]) == ("prod", "exports.daily")
    assert found["job"]["facets"]["sql"]["query"] == "SELECT ?"
    assert found["job"]["facets"]["jobType"]["processingType"] == "BATCH"
    facets = found["run"]["facets"]
    assert facets["parent"]["run"] == {"runId": RUN, "facets": {}}
    assert (facets["parent"]["job"]["namespace"], facets["parent"]["job"]["name"]) == ("air/flow", "nightly.exports")
    assert facets["errorMessage"]["message"] == "boom"
    assert facets["nominalTime"]["nominalStartTime"] == "2026-03-10T12:00:00.000+00:00"
    [topic], [output] = found["inputs"], found["outputs"]
    assert topic["inputFacets"]["starling_positions"]["partitions"] == [
        {"partition": 0, "offset": 10},
        {"partition": 1, "offset": 20},
    ]
    assert output["facets"]["version"]["datasetVersion"] == "42"
    assert [(one["name"], one["type"]) for one in output["facets"]["schema"]["fields"]] == [("user_id", "string")]
    [identifier] = output["facets"]["symlinks"]["identifiers"]
    assert identifier == {"namespace": "s3://lake", "name": "starling.behaviour_events", "type": "TABLE"}
    assert output["outputFacets"]["outputStatistics"]["rowCount"] == 7


@pytest.mark.parametrize("state", State)
def test_an_event_of_each_state_without_facts_has_the_form_too(state: State) -> None:
    found = EventWriter("starling").document(Event(state, AT, RUN, JobName("lake", is_streaming=True), Flow()))
    check_form(found)
    assert found["job"]["facets"]["jobType"]["processingType"] == "STREAMING"
    assert found["run"]["facets"].keys() == {"processing_engine"}


def test_a_form_without_its_parts_is_noticed() -> None:
    found = EventWriter("starling").document(an_event())
    del found["job"]["facets"]["sql"]["_schemaURL"]
    with pytest.raises(Exception, match="_schemaURL"):
        check_form(found)


def test_a_run_has_a_start_and_an_end_with_what_it_reads_and_writes() -> None:
    events: list[Event] = []
    with Lineage(events.append).run(JobName("exports.daily", sql="SELECT 'ann'"), lambda: Flow((TOPIC,), (TABLE,))) as run:
        run.computes(int(AT.timestamp() * 1000))
        run.wrote({"behaviour_events": 2, "other": 9})
        run.wrote({"behaviour_events": 3})
        run.knows(lambda: Flow((TOPIC._replace(version="1"),)))
    start, end = events
    assert (start.state, end.state, start.run) == (State.START, State.COMPLETE, end.run)
    assert start.flow == Flow((TOPIC,), (TABLE,))
    assert end.flow == Flow((TOPIC._replace(version="1"),), (TABLE._replace(rows=5),))
    assert (start.nominal_at, end.nominal_at) == (None, AT)
    assert end.job.sql == "SELECT ?"


def test_an_error_fails_a_run_and_goes_on() -> None:
    events: list[Event] = []
    with pytest.raises(KeyError), Lineage(events.append, {"planted"}).run(JobName("a")):
        raise KeyError("planted")
    assert [(one.state, one.error) for one in events] == [(State.START, None), (State.FAIL, "KeyError: ***")]


def test_a_run_may_end_as_failed_or_interrupted_without_an_error() -> None:
    events: list[Event] = []
    with Lineage(events.append).run(JobName("a")) as run:
        run.fail("no such table")
    with Lineage(events.append).run(JobName("a")) as run:
        run.abort()
    with pytest.raises(RuntimeError), Lineage(events.append).run(JobName("a"), is_stopping=lambda: True):
        raise RuntimeError("cancelled")
    with pytest.raises(KeyboardInterrupt), Lineage(events.append).run(JobName("a")):
        raise KeyboardInterrupt
    ends = [(one.state, one.error) for one in events if one.state != State.START]
    assert ends == [(State.FAIL, "no such table"), (State.ABORT, None), (State.ABORT, None), (State.ABORT, None)]


def test_an_error_of_a_description_does_not_reach_the_job() -> None:
    events: list[Event] = []

    def broken() -> Flow:
        raise RuntimeError("password=planted")

    with capture_logs() as logs, Lineage(events.append).run(JobName("a"), broken) as run:
        run.knows(broken)
    assert [one.state for one in events] == [State.START, State.COMPLETE]
    assert [one["event"] for one in logs] == ["lineage_not_described"] * 2
    assert "planted" not in str(logs)


def test_a_streaming_run_reports_its_positions_at_most_once_a_minute() -> None:
    events: list[Event] = []
    now = 1_000.0
    run = RunLineage(events.append, JobName("lake", is_streaming=True), (), lambda: now)
    run.knows(lambda: Flow((TOPIC,)))
    for second in range(200):
        now = 1_000.0 + second
        run.reached({("events.behaviour", 0): second, ("another", 0): 1})
    assert [one.flow.inputs[0].positions for one in events] == [{0: 0}, {0: 60}, {0: 120}, {0: 180}]
    assert {one.state for one in events} == {State.RUNNING}
    run.report()
    assert (events[-1].state, events[-1].flow.inputs[0].positions) == (State.COMPLETE, {0: 199})


def test_without_an_address_nothing_is_described_and_the_client_is_not_imported() -> None:
    described = []
    with OFF.run(JobName("a", sql="SELECT 1"), lambda: described.append(1) or Flow()) as run:  # type: ignore[func-returns-value]
        run.knows(lambda: described.append(1) or Flow())  # type: ignore[func-returns-value]
        run.reached({("a", 0): 1})
        run.wrote({"a": 1})
        run.fail("no")
    assert described == []
    code = (
        "import sys, starling_spark.session.lineage, starling_spark.lineage.runs; "
        "assert not [m for m in sys.modules if m.startswith('openlineage') or m == 'requests']"
    )
    subprocess.run([sys.executable, "-c", code], check=True)


@pytest.mark.parametrize(
    "url",
    ["http://me:planted@marquez:5000/api", "http://marquez/api?api_key=planted", "marquez:5000", "ftp://a/b", "file://relative"],
)
def test_an_address_has_no_credentials(url: str) -> None:
    with pytest.raises(ValidationError) as caught:
        LineageSettings(url=url)
    assert "planted" not in str(caught.value)


def test_a_parent_is_a_run_of_a_job_in_a_namespace() -> None:
    assert LineageSettings(parent=PARENT).parent == PARENT
    for wrong in ("job/" + RUN, "air/job/run", RUN):
        with pytest.raises(ValidationError):
            LineageSettings(parent=wrong)


@pytest.fixture
def receiver() -> Iterator[LineageReceiver]:
    made = LineageReceiver()
    yield made
    made.close()


def sender_to(receiver: LineageReceiver, metrics: Metrics, most: int = 1_000, **more: Any) -> Sender:
    settings = LineageSettings(url=receiver.url, **more)
    dropped = metrics.counter("starling_lineage_dropped_total")
    return Sender(EventWriter("starling").document, transport_of(settings), dropped, most)


def dropped(metrics: Metrics, reason: str) -> float:
    return metrics.registry.get_sample_value("starling_lineage_dropped_total", {"reason": reason}) or 0


def test_events_are_sent_in_order_with_the_token_of_the_moment(receiver: LineageReceiver, tmp_path: Path) -> None:
    token, metrics = tmp_path / "token", Metrics(CollectorRegistry())
    token.write_text("first\n")
    sender = sender_to(receiver, metrics, token_file=str(token))
    sender.emit(an_event(State.START))
    eventually(lambda: len(receiver.bodies) == 1)
    token.write_text("second\n")
    sender.emit(an_event(State.COMPLETE))
    sender.close(10)
    assert [one["eventType"] for one in receiver.events()] == ["START", "COMPLETE"]
    assert receiver.tokens == ["Bearer first", "Bearer second"]
    assert dropped(metrics, NOT_SENT) == 0


def test_an_address_that_hangs_keeps_no_job_waiting(receiver: LineageReceiver) -> None:
    metrics = Metrics(CollectorRegistry())
    receiver.answers.clear()
    sender = sender_to(receiver, metrics, most=10)
    began = time.monotonic()
    with capture_logs() as logs:
        for _ in range(100):
            sender.emit(an_event())
        assert time.monotonic() - began < 1
        sender.close(0.2)
    assert time.monotonic() - began < 3
    assert dropped(metrics, FULL) >= 89
    assert dropped(metrics, FULL) + dropped(metrics, AT_END) >= 99
    # One warning a minute, and one at the end.
    assert [one["event"] for one in logs] == ["lineage_dropped"] * 2


def test_a_refused_event_is_dropped_and_counted(receiver: LineageReceiver) -> None:
    metrics = Metrics(CollectorRegistry())
    receiver.status = 400
    with capture_logs() as logs:
        sender = sender_to(receiver, metrics)
        sender.emit(an_event())
        sender.emit(an_event())
        eventually(lambda: dropped(metrics, NOT_SENT) == 2)
        receiver.status = 201
        sender.emit(an_event())
        sender.close(10)
    assert len(receiver.bodies) == 1
    assert [(one["event"], one["reason"]) for one in logs] == [("lineage_dropped", "the address answers 400")]


def test_events_go_to_a_file_too(tmp_path: Path) -> None:
    lines = tmp_path / "lineage.jsonl"
    settings = import_settings(lineage=LineageSettings(url=lines.as_uri()))
    with opened_lineage(settings) as lineage, lineage.run(JobName("a")):
        pass
    assert [json.loads(line)["eventType"] for line in lines.read_text().splitlines()] == ["START", "COMPLETE"]


def test_no_event_has_a_secret_or_a_value_of_a_row(receiver: LineageReceiver) -> None:
    settings = import_settings(lineage=LineageSettings(url=receiver.url))
    jdbc = JdbcSource(user="planted-user", password="planted-sealed", query="SELECT * FROM t WHERE mail = 'planted@example.com'")
    query = ImportRequest(
        key="crm", uri="jdbc:postgresql://db/crm?password=planted-url", format="jdbc", kind="events", user_column="u", jdbc=jdbc
    )
    table = ImportRequest(
        key="crm", uri="jdbc:postgresql://db/crm?sslmode=require", format="jdbc", kind="traits", user_column="u",
        jdbc=JdbcSource(user="planted-user", table="s.t"),
    )  # fmt: skip
    bad = ImportRequest(
        key="crm", uri="jdbc:x://planted-user:planted-pw@db/crm", format="jdbc", kind="traits", user_column="u",
        jdbc=JdbcSource(user="planted-user", table="t"),
    )  # fmt: skip
    secret = SecretStr("planted-sink")
    destinations = [
        Destination("postgres", "postgresql://planted-user:planted-pw@db/crm?sslkey=planted", "t", secret, "s", "kafka-0:9092"),
        Destination("opensearch", "https://planted-user:planted-pw@search:9200", "t", secret, "s", "kafka-0:9092"),
        Destination("csv", "s3://planted-key:planted-pw@bucket/a?endpoint=planted", None, secret, "s", "kafka-0:9092"),
        Destination("kafka", "crm.members", None, secret, "s", "kafka-0:9092"),
    ]
    with opened_lineage(settings) as lineage:
        for request in (query, table, bad):
            flow = Flow(inputs_of(request), (*outputs_of(request, "kafka-0:9092"), *map(output_of, destinations)))
            with lineage.run(job_of(Place("acme", "crm"), request), lambda found=flow: found) as run:  # type: ignore[misc]
                run.fail("jdbc:postgresql://db/crm?password=planted-url: login planted-kafka failed for 'planted-user'")
        error = RuntimeError("cannot read 'planted-row', token=planted-token, https://planted:planted@host, planted-cassandra")
        with pytest.raises(RuntimeError), lineage.run(JobName("a")):
            raise error
    assert len(receiver.bodies) == 8
    assert [body for body in receiver.bodies if "planted" in body] == []
    for event in receiver.events():
        check_form(event)
    inputs = [[(one["namespace"], one["name"]) for one in event["inputs"]] for event in receiver.events()[::2]]
    assert inputs == [[], [("postgres://db:5432", "crm.s.t")], [], []]
    assert receiver.events()[0]["job"]["facets"]["sql"]["query"] == "SELECT * FROM t WHERE mail = ?"
    outputs = [one["name"] for one in receiver.events()[0]["outputs"]]
    assert outputs == ["ingest.track", "crm.public.t", "t", "a", "crm.members"]


def test_the_tables_behind_a_statement_are_those_of_the_lake() -> None:
    assert sources_of({"events", "accounts", "unknown"}) == ("behaviour_events", "profile_changes")
    assert sources_of({"profiles", "membership_changes"}) == ("membership_changes", "profile_changes")
