"""Secrets at rest, with real stores and processes: planted ones are in no record, row, log or answer."""

import json
import uuid
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import httpx
import pytest
from confluent_kafka import Message, Producer
from confluent_kafka.admin import AdminClient

from starling_common.cassandra.database import Database
from starling_common.headers import headers_of
from starling_common.kafka.clients import produce_and_wait, producer_config
from starling_common.kafka.topic_range import read_topic
from starling_common.kafka.topics import MEMBERSHIP
from starling_common.security.sealing import new_key
from starling_common.settings import Cassandra
from starling_common.testing import Service, eventually, free_port, running
from starling_common.time.instants import wall_clock_micros
from starling_common.values import record_key
from starling_common.wire import Registry
from starling_demo.receiver import Receiver
from tests.conftest import Stack
from tests.contract.api.conftest import FIRST_KEY, Client
from tests.contract.api.planted import planted_targets
from tests.unit.delivery.making import change

SECOND_KEY = new_key("second")


def all_records(stack: Stack) -> dict[str, bytes]:
    """The raw bytes of every record of every topic: key, value and headers."""
    topics = AdminClient({"bootstrap.servers": stack.brokers}).list_topics(timeout=30).topics
    return {name: b"\n".join(map(bytes_of, read_topic(stack.brokers, name))) for name in topics if not name.startswith("__")}


def bytes_of(message: Message) -> bytes:
    parts = (message.key(), message.value(), *(value for _, value in headers_of(message)))
    return b"".join(part for part in parts if isinstance(part, bytes))


def all_rows(database: Database, cassandra: Cassandra) -> dict[str, str]:
    """The rows of every table, as text."""
    tables = database.read("SELECT table_name FROM system_schema.tables WHERE keyspace_name = ?", [cassandra.keyspace])
    names = [str(one["table_name"]) for one in tables]
    return {name: repr(database.read(f"SELECT * FROM {{ks}}.{name}")) for name in names}  # noqa: S608 - names of the database


def emit(stack: Stack, workspace: str, user: str) -> None:
    """Write a membership change of the user."""
    record = change(user, workspace=workspace, event_id=str(uuid.uuid4()), received_at=wall_clock_micros())
    value = Registry(stack.registry_url).codec(MEMBERSHIP, "SegmentMembershipChanged").encode(record)
    produce_and_wait(Producer(producer_config(stack.brokers)), MEMBERSHIP, key=record_key(workspace, user), value=value, headers=[])


def reports(stack: Stack, workspace: str) -> list[bytes]:
    """The reports of delivery about a workspace."""
    return [one for one in map(bytes_of, read_topic(stack.brokers, "events.delivery")) if workspace.encode() in one]


@pytest.fixture
def delivery_environment(stack: Stack) -> dict[str, str]:
    return {
        **stack.environment(),
        "STARLING_GROUP": f"secrets-{uuid.uuid4().hex}",
        "STARLING_ALLOW_PRIVATE_ADDRESSES": "true",
        "STARLING_GIVE_UP_AFTER_SECONDS": "0.001",  # a failed attempt is a dead letter at once
        "STARLING_LOG_LEVEL": "DEBUG",
    }


@pytest.fixture
def receiver() -> Iterator[Receiver]:
    made = Receiver("whsec_" + "UExBTlRFRC1TRUNSRVQtT0YtQS1XRUJIT09L")
    yield made
    made.close()


def test_planted_secrets_are_in_no_record_row_log_or_answer(  # noqa: PLR0917 - the fixtures of every process
    client: Client,
    api: Service,
    projector: Service,
    stack: Stack,
    database: Database,
    own_cassandra: Cassandra,
    delivery_environment: dict[str, str],
    tmp_path: Path,
) -> None:
    mark = f"planted{uuid.uuid4().hex}"
    url = f"http://127.0.0.1:{free_port()}/closed"
    hook = {"key": "hook", "url": url, "headers": {"Authorization": f"Bearer {mark}-header"}}
    pem = f"-----BEGIN PRIVATE KEY-----\n{mark}\n-----END PRIVATE KEY-----"
    mail = {"key": "mail", "channel": "email", "host": "127.0.0.1", "port": 25, "tls": "none", "from": "a@example.com"}
    mail |= {"password": f"{mark}-password", "dkim": {"domain": "example.com", "selector": "s", "private_key": pem}}
    vip = client.call("POST", "/v1/segments", {"key": "vip", "name": "VIP", "where": {"everyone": True}})
    assert vip.status_code == 201, vip.text
    chat = {"key": "chat", "channel": "slack", "url": f"https://hooks.example.com/{mark}-path", "segments": ["vip"]}
    made = client.call("POST", "/v1/webhooks", hook, Idempotency_Key="make")
    again = client.call("POST", "/v1/webhooks", hook, Idempotency_Key="make")
    assert (made.status_code, again.json()) == (201, made.json()), made.text
    first = made.json()["secret"]
    second = client.call("POST", "/v1/webhooks/hook/rotate-secret", Idempotency_Key="turn").json()["secret"]
    assert client.call("POST", "/v1/webhooks/hook/rotate-secret", Idempotency_Key="turn").json()["secret"] == second
    answers = [client.call("POST", "/v1/targets", body, Idempotency_Key=str(body["key"])) for body in (mail, chat)]
    assert {answer.status_code for answer in answers} == {201}
    answers += [
        client.call("POST", "/v1/webhooks", {**hook, "key": "b", "secret": f"{first}!"}),
        client.call("POST", "/v1/webhooks", {**hook, "key": "b", "batch": {"max_items": first}, "events": [second]}),
        client.call("POST", "/v1/targets", {**mail, "key": "b", "password": f"{mark}\n", "port": f"{mark}"}),
        client.call("POST", "/v1/targets", f'{{"key": "b", "password": "{mark}'.encode()),
        client.call("PUT", "/v1/webhooks/hook", {**client.call("GET", "/v1/webhooks/hook").json(), "events": ["entered"]}),
        client.call("PUT", "/v1/targets/mail", {**client.call("GET", "/v1/targets/mail").json(), "host": "localhost"}),
        client.call("POST", "/v1/webhooks/hook/test"),
        client.call("DELETE", "/v1/targets/chat"),
        *(client.call("GET", f"/v1/{path}") for path in ("webhooks", "targets", "targets/mail", "targets/chat", "audit")),
    ]
    log = tmp_path / "delivery"
    with running("starling_delivery", delivery_environment | {"STARLING_SECRETS__KEYS": FIRST_KEY}, log):
        emit(stack, client.workspace, "ada")
        eventually(lambda: client.workspace.encode() in b"".join(map(bytes_of, read_topic(stack.brokers, "delivery.dlq"))))
        emit(stack, client.workspace, "grace")
        path = "/v1/users/grace/events"
        eventually(lambda: "Failed" in client.call("GET", path).text)  # the projector has read the report of the failure
        answers += [client.call("GET", path)]

    planted = (mark, first, second)
    records, rows = all_records(stack), all_rows(database, own_cassandra)
    for topic in ("webhooks.definitions", "delivery.definitions", "delivery.dlq", "events.delivery", "audit.log"):
        assert client.workspace.encode() in records[topic], topic  # what this test has caused is read
    for table in ("definitions", "definition_versions", "definition_claims", "idempotency"):
        assert client.workspace in rows[table], table
    logs = {one: one.read_text() for one in (api.log, projector.log, log)}
    for secret in planted:
        assert [topic for topic, data in records.items() if secret.encode() in data] == []
        assert [table for table, text in rows.items() if secret in text] == []
        assert [one for one, text in logs.items() if secret in text] == []
        assert [answer.url for answer in answers if secret in answer.text] == []


@pytest.mark.long
def test_planted_credentials_of_every_target_are_in_no_record_row_log_or_answer(
    client: Client, stack: Stack, database: Database, own_cassandra: Cassandra, delivery_environment: dict[str, str], tmp_path: Path
) -> None:
    mark = f"planted{uuid.uuid4().hex}"
    vip = client.call("POST", "/v1/segments", {"key": "vip", "name": "VIP", "where": {"everyone": True}})
    assert vip.status_code == 201, vip.text
    targets = planted_targets(mark, f"127.0.0.1:{free_port()}")
    answers = []
    for target in targets:
        made = client.call("POST", "/v1/targets", target, Idempotency_Key=target["key"])
        assert made.status_code == 201, made.text
        path = f"/v1/targets/{target['key']}"
        answers += [client.call("GET", path), client.call("PUT", path, client.call("GET", path).json() | {"tags": ["a"]})]
        if "secret" not in target:  # the response that creates a signing secret has it
            answers.append(made)
    answers += [client.call("POST", f"/v1/targets/{key}/test") for key in ("slack", "teams", "kafka")]
    answers += [client.call("GET", path) for path in ("/v1/targets", "/v1/audit")]
    assert {answer.status_code for answer in answers} <= {200, 201}

    common = delivery_environment | {"STARLING_SECRETS__KEYS": FIRST_KEY, "STARLING_CASSANDRA__KEYSPACE": own_cassandra.keyspace}
    feeds = {"STARLING_CHANNEL": "feeds", "STARLING_TRANSACTIONAL_ID": common["STARLING_GROUP"]}
    audience = {"STARLING_BATCH_SECONDS": "0.3", "STARLING_FIRST_RETRY_SECONDS": "0.3"}
    logs = {name: tmp_path / name for name in ("feeds", "audience")}
    with ExitStack() as last:
        last.enter_context(running("starling_delivery", common | feeds, logs["feeds"], ready=False))
        last.enter_context(running("starling_audience", common | audience, logs["audience"], ready=False))

        def failed() -> set[str]:
            """The targets whose attempts the logs name."""
            events = {"digest_not_delivered", "feed_failed", "audience_paused", "audience_interrupted"}
            lines = [json.loads(line) for log in logs.values() for line in log.read_text().splitlines() if line.startswith("{")]
            return {line["target"] for line in lines if line.get("event") in events and line.get("workspace") == client.workspace}

        def attempted() -> bool:
            emit(stack, client.workspace, f"user-{uuid.uuid4().hex}")  # a target is followed from some moment on
            return failed() >= {"slack", "teams", "kafka", "braze", "customerio", "http"}

        eventually(attempted, 120)

    records, rows = all_records(stack), all_rows(database, own_cassandra)
    assert records["delivery.definitions"].count(client.workspace.encode()) >= len(targets)
    assert [topic for topic, data in records.items() if mark.encode() in data] == []
    assert [table for table, text in rows.items() if mark in text] == []
    assert [name for name, log in logs.items() if mark in log.read_text()] == []
    assert [str(answer.url) for answer in answers if mark in answer.text] == []


@pytest.mark.long
def test_a_rotated_key_and_a_lost_one(
    client: Client,
    api_environment: dict[str, str],
    stack: Stack,
    delivery_environment: dict[str, str],
    receiver: Receiver,
    tmp_path: Path,
) -> None:
    hook = {"url": receiver.url, "secret": receiver.secret}
    for key in ("kept", "lost"):
        assert client.call("POST", "/v1/webhooks", {**hook, "key": key}).status_code == 201
    both = api_environment | {"STARLING_SECRETS__KEYS": f"{SECOND_KEY},{FIRST_KEY}"}
    with (
        running("starling_api", both, tmp_path / "api") as newer,
        httpx.Client(base_url=newer.url, timeout=30, trust_env=False) as http,
    ):
        admin = Client(client.workspace, newer.url, http)
        rotated = admin.call("POST", "/v1/secrets/rotate").json()
        assert (rotated["key_id"], [one["key"] for one in rotated["rewritten"]]) == ("second", ["kept", "lost"])
        assert admin.call("POST", "/v1/secrets/rotate").json()["rewritten"] == []
    # A process that still has the first key alone stores this one with it.
    secret = {**client.call("GET", "/v1/webhooks/lost").json(), "secret": receiver.secret}
    assert client.call("PUT", "/v1/webhooks/lost", secret).status_code == 200
    log = tmp_path / "delivery"
    settings = delivery_environment | {"STARLING_SECRETS__KEYS": SECOND_KEY, "STARLING_GIVE_UP_AFTER_SECONDS": "3600"}
    with running("starling_delivery", settings, log) as process:
        emit(stack, client.workspace, "ada")
        eventually(lambda: receiver.calls)
        waiting = eventually(lambda: [one for one in reports(stack, client.workspace) if b"a secret cannot be decrypted" in one])
        assert all(b"with the key 'first', and this process has only second" in one for one in waiting)
        assert '"target": "lost"' in log.read_text()
        ready = httpx.get(f"{process.url}/readyz", trust_env=False).json()
        assert ready["status"] == "warn"
        assert "it is encrypted with the key 'first'" in ready["checks"]["secrets"]
    assert receiver.forged == 0
    assert [json.dumps(call) for call in receiver.calls if call["type"] != "segment.entered"] == []
