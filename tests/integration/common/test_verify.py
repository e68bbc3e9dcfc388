"""The check of an installation, on the real broker, registry and database: what is right, and each thing that is missing."""

import http.server
import threading
from collections.abc import Iterator

import pytest

from starling_common.cassandra.sessions import open_session, table_names
from starling_common.kafka.topics import Topic, load_catalogue
from starling_common.settings import Kafka, SchemaRegistry
from starling_common.testing import free_port
from starling_common.verify import VerifySettings, main, verify, wrong_schemas, wrong_tables, wrong_topics
from starling_common.wire import Registry
from tests.conftest import Stack


class _Answers(http.server.BaseHTTPRequestHandler):
    """`/ready` answers 200, anything else 503 with a reason."""

    def do_GET(self) -> None:
        self.send_response(200 if self.path == "/ready" else 503)
        self.end_headers()
        self.wfile.write(b"" if self.path == "/ready" else b"no broker")

    def log_message(self, *_: object) -> None:
        pass


@pytest.fixture
def url() -> Iterator[str]:
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), _Answers)
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    yield f"http://127.0.0.1:{server.server_port}"
    server.shutdown()
    thread.join()
    server.server_close()


def settings(stack: Stack, urls: str = "") -> VerifySettings:
    return VerifySettings(
        kafka=Kafka(brokers=stack.brokers),
        registry=SchemaRegistry(url=stack.registry_url),
        cassandra=stack.cassandra,
        verify_urls=urls,
    )


def test_a_deployed_installation_is_right(stack: Stack, url: str) -> None:
    found = verify(settings(stack, f"{url}/ready"))
    assert len(found) == 4
    assert not any(found.values()), found


def test_the_command_prints_each_part_and_fails(
    stack: Stack, url: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    for name, value in (
        ("KAFKA__BROKERS", stack.brokers),
        ("REGISTRY__URL", f"http://127.0.0.1:{free_port()}"),
        ("CASSANDRA__CONTACT_POINTS", stack.cassandra.contact_points),
        ("CASSANDRA__PORT", str(stack.cassandra.port)),
        ("CASSANDRA__KEYSPACE", stack.cassandra.keyspace),
        ("VERIFY_URLS", f"{url}/ready,{url}/away"),
    ):
        monkeypatch.setenv(f"STARLING_{name}", value)
    assert main() == 1
    lines = capsys.readouterr().out.splitlines()
    assert [line.split()[:2] for line in lines if line.startswith("right")] == [
        ["right", "broker"],
        ["right", "Cassandra"],
        ["right", f"{url}/ready"],
    ]
    [registry, away] = [line for line in lines if line.startswith("wrong")]
    assert "registry" in registry
    assert "no answer" in registry
    assert away == f"wrong  {url}/away: answered 503: no broker"


def test_a_missing_topic_and_another_number_of_partitions_are_named(stack: Stack) -> None:
    topics = list(load_catalogue(16).topics.values())
    missing = Topic("not.there", "ClockAdvanced", 1, False, "delete", 1, "FULL")
    wrong = wrong_topics(stack.brokers, [*topics, missing])
    assert "topic events.behaviour has 8 partitions, not 16: set STARLING_PROFILE_PARTITIONS" in wrong
    assert wrong[-1].startswith("topic not.there is missing: run `python -m starling_common.deploy`")


def test_a_topic_with_fewer_replicas_than_the_setting_is_named(stack: Stack) -> None:
    [wrong] = wrong_topics(stack.brokers, [load_catalogue().topics["events.behaviour"]], 3)
    assert wrong.startswith("topic events.behaviour has 1 replicas, not 3: ")


def test_a_missing_schema_and_a_missing_table_are_named(stack: Stack) -> None:
    topic = load_catalogue().topics["events.behaviour"]
    missing = Topic("not.there", topic.schema, 1, False, "delete", 1, "FULL")
    [wrong] = wrong_schemas(Registry(stack.registry_url), [topic, missing])
    assert "not.there-value" in wrong
    assert "starling_common.deploy" in wrong

    own = stack.cassandra.model_copy(update={"keyspace": f"{stack.cassandra.keyspace}_verify"})
    session = open_session(stack.cassandra)
    replication = "{'class': 'NetworkTopologyStrategy', 'replication_factor': 1}"
    session.execute(f"CREATE KEYSPACE {own.keyspace} WITH replication = {replication}")
    try:
        assert len(wrong_tables(own)) == len(table_names()) > 20
        assert wrong_tables(stack.cassandra) == []
    finally:
        session.execute(f"DROP KEYSPACE {own.keyspace}")
        session.cluster.shutdown()
