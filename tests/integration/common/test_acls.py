"""The pipeline on a real broker with SASL_SSL, where each service has only the rights that `starling deploy acls` computes."""

import base64
import json
import os
import shlex
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack
from functools import partial
from pathlib import Path
from typing import Any

import httpx
import pytest
from confluent_kafka import OFFSET_BEGINNING, OFFSET_END, Consumer, KafkaException, Message, Producer, TopicPartition
from confluent_kafka.admin import AdminClient

from starling_api.self_audit.stores import ProjectorPosition
from starling_common.kafka.access.acls import create, remove, rules_of
from starling_common.kafka.access.rights import Operation, Principals, Resource, Right, Service, load_services
from starling_common.kafka.clients import (
    PARTITION_EOF,
    BrokerUnavailable,
    consumer_config,
    offsets,
    produce_and_wait,
    producer_config,
)
from starling_common.kafka.security import kafka_security
from starling_common.kafka.topic_range import range_consumer, read_range, read_topic
from starling_common.kafka.topics import load_catalogue
from starling_common.security.sealing import parse_keys
from starling_common.testing import Service as Process
from starling_common.testing import eventually, running
from starling_demo.receiver import Receiver
from starling_local.java import find_java
from starling_local.runtime.fetching import runtime_jars
from starling_messages.links import Callback, Link, LinkKind, Links
from tests.conftest import Stack
from tests.contract.delivery.endpoint import Endpoint, answering
from tests.secured_broker import secured_broker
from tests.secured_pipeline import SECRETS_KEY, SERVICES, USERS, Pipeline, Secure, run, secure_installation, secure_pipeline
from tests.unit.tracker.providers import SECRET, notification
from tests.used_rights import denied, unused

THANKS = ("thanks", *(f"thanks-{number}" for number in range(2, 6)))
"""Campaigns that each send a mail to a user. As many soft bounces suppress an address."""
PRINCIPALS = Principals("User:starling-{service}")
BROWSER = {"endpoint": "https://push.example.com/1", "keys": {"auth": "AAAA", "p256dh": "AAAA"}}
"""A subscription whose keys are none: its notifications bounce, and nothing is sent to another host."""

NOT_IN_THE_TEST = {
    ("normalizer", "normalizer.dlq"): "no refused item that the edge accepts",
    ("segmenter", "segmenter.dlq"): "no refused event",
    ("segmenter", "accounts.answers"): "no segment of accounts",
    ("segmenter", "accounts.tallies"): "no segment of accounts",
    ("segmenter", "segments.backfill-states"): "no backfill",
    ("projector", "projector.dlq"): "no refused record",
    ("feeds", "delivery.dlq"): "no refused record",
    ("messenger", "messenger.dlq"): "no refused record",
    ("api", "segments.backfills"): "no backfill",
    ("api", "computed-traits.definitions"): "no computed trait",
    ("api", "lake.definitions"): "no event type, no view in SQL",
    ("api", "segments.membership-state"): "no self-audit",
    ("audience", "delivery.dlq"): "no user that the other side rejects",
    ("audience", "delivery.definitions"): "no refused credentials",
    **{("messenger", f"delivery.bulk.{channel}"): "one broadcast, by email" for channel in ("push", "sms", "webhook")},
    **{("delivery", f"delivery.retry.{delay}"): "no retry that late" for delay in ("5m", "30m", "2h", "5h", "10h")},
}
"""Rights that no request of this test used, and the reason. All others were used."""


@pytest.fixture(scope="module")
def secure(stack: Stack, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Secure]:
    home = tmp_path_factory.mktemp("acls")
    with secured_broker(home / "broker") as broker, secure_installation(broker, stack, home) as found:
        yield found


@pytest.mark.long
def test_the_pipeline_works_with_the_computed_rights_alone(secure: Secure) -> None:
    secret = "whsec_" + base64.b64encode(os.urandom(32)).decode()
    receivers = [Receiver(secret), Receiver(secret, failures=1), Receiver(secret, failures=1, failure_status=410)]
    with ExitStack() as last:
        mirror = Receiver(secret)
        for receiver in (*receivers, mirror):
            last.callback(receiver.close)
        gone = Endpoint()
        gone.respond = answering(410)
        last.callback(gone.close)
        with secure_pipeline(secure) as pipeline:
            _define(pipeline, secret, receivers)
            chat = {"key": "chat", "channel": "slack", "url": gone.url, "segments": ["buyers"], "interval_seconds": 10}
            pipeline.define("/v1/targets", chat)
            crm = {"key": "crm", "channel": "audience", "adapter": "http", "segments": ["buyers"]}
            pipeline.define("/v1/targets", {**crm, "url": mirror.url, "secret": secret})
            # A feed has no entries from before it was served; audience sync reports an outcome of those after its first sync only.
            eventually(lambda: pipeline.has_metric("feeds", 'starling_delivery_feed_targets{channel="slack"} 1.0'))
            eventually(lambda: pipeline.has_metric("audience", 'starling_audience_targets{state="following"} 1.0'))
            for user in ("ada", "grace"):
                pipeline.identify(user, {"email": f"{user}@example.com", "phone": "+4915112345678"})
                pipeline.track(user, "Push Subscribed", subscription=BROWSER)
                pipeline.track(user, "Bought")
            eventually(lambda: pipeline.members("buyers") == {"ada", "grace"})
            _broadcast(pipeline)
            _send_the_rest(pipeline)
            eventually(lambda: len(receivers[0].calls) == len(receivers[1].calls) == 2)
            eventually(lambda: {item["user_id"] for call in mirror.calls for item in call["items"]} == {"ada", "grace"})
            eventually(lambda: pipeline.api.get("/v1/webhooks/hook-2").json()["status"] == "disabled")
            eventually(lambda: pipeline.api.get("/v1/targets/chat").json()["status"] == "disabled")
        # Other processes restore the states, and the deploy step compares what exists.
        done = run([sys.executable, "-m", "starling_common.deploy"], secure.environment("deploy"))
        assert done.returncode == 0, done.stderr
        with ExitStack() as restored:
            stages = [
                restored.enter_context(secure.process(name, ready=False))
                for name in ("normalizer", "segmenter", "messenger", "broadcaster")
            ]
            eventually(lambda: all(stage.is_ready() for stage in stages))
    decisions = secure.broker.decisions()
    assert denied(USERS, decisions) == set()
    assert unused((*SERVICES, "deploy"), decisions) == set(NOT_IN_THE_TEST)


def _define(pipeline: Pipeline, secret: str, receivers: list[Receiver]) -> None:
    pipeline.define("/v1/segments", {"key": "buyers", "name": "Buyers", "where": {"event": "Bought"}})
    for number, receiver in enumerate(receivers):
        webhook = {"key": f"hook-{number}", "url": receiver.url, "secret": secret, "segments": ["buyers"]}
        pipeline.define("/v1/webhooks", webhook)
    # All campaigns have the same trigger; `news` drops its message, because no user consents.
    smtp = {"key": "smtp", "channel": "email", "host": "127.0.0.1", "port": 25, "tls": "none", "from": "shop@example.com"}
    smtp |= {"callbacks": {"provider": "dsn", "secret": SECRET}}
    pipeline.define("/v1/targets", smtp)
    for key, purpose in {**dict.fromkeys(THANKS, "transactional"), "news": "marketing"}.items():
        variants = [{"key": "a", "weight": 100, "content": {"subject": "Hello", "text": "Hello"}}]
        campaign = {"key": key, "name": key, "trigger": {"enter": "buyers"}, "channel": "email", "target": "smtp"}
        pipeline.define("/v1/campaigns", {**campaign, "purpose": purpose, "variants": variants})
        eventually(partial(_is_activated, pipeline, key))
    sms = {
        "key": "sms",
        "channel": "sms",
        "base_url": "http://127.0.0.1:9",
        "account_sid": "AC1",
        "auth_token": "t",
        "from": "Shop",
    }
    pipeline.define("/v1/targets", sms)
    pipeline.define("/v1/targets", {"key": "hook", "channel": "webhook", "url": "http://127.0.0.1:9"})
    pushes = {"key": "web", "channel": "webpush", "subject": "mailto:push@shop.example", "private_key": "A" * 43}
    pipeline.define("/v1/targets", pushes)
    for key, channel, target, content in (
        ("text", "sms", "sms", {"text": "Hello"}),
        ("post", "webhook", "hook", {"body": "{}"}),
        ("push", "push", "web", {"title": "Thanks", "body": "Hello"}),
    ):
        variants = [{"key": "a", "weight": 100, "content": content}]
        campaign = {"key": key, "name": key, "trigger": {"enter": "buyers"}, "channel": channel, "target": target}
        pipeline.define("/v1/campaigns", {**campaign, "purpose": "transactional", "variants": variants})
        eventually(partial(_is_activated, pipeline, key))
    for path, document in (("/v1/lists/vips", {"name": "VIPs"}), ("/v1/lists/vips/members", {"users": ["ada"]})):
        answer = pipeline.api.put(path, json=document)
        assert answer.is_success, answer.text


def _broadcast(pipeline: Pipeline) -> None:
    """Send a message to both members, whose instant has passed when they entered."""
    entered = max(item["entered_at"] for item in pipeline.api.get("/v1/segments/buyers/members").json()["items"])
    variants = [{"key": "a", "weight": 100, "content": {"subject": "Hello", "text": "Hello"}}]
    campaign = {
        "key": "sale",
        "name": "Sale",
        "channel": "email",
        "target": "smtp",
        "purpose": "transactional",
        "variants": variants,
    }
    pipeline.define("/v1/campaigns", {**campaign, "trigger": {"broadcast": "buyers", "at": entered}})
    eventually(partial(_is_activated, pipeline, "sale"))
    eventually(lambda: pipeline.api.get("/v1/campaigns/sale").json()["broadcast"] == {"state": "done", "written": 2})


def _is_activated(pipeline: Pipeline, key: str) -> bool:
    return pipeline.api.post(f"/v1/campaigns/{key}/activate").is_success


def _send_the_rest(pipeline: Pipeline) -> None:
    """Send an item of each kind, one that is rejected, and the requests of the API that ask the broker."""
    about = {"userId": "ada"}
    batch = [
        {"type": "track", "userId": "no event"},
        {"type": "identify", "traits": {"plan": "pro"}, **about},
        {"type": "group", "groupId": "team", **about},
        {"type": "alias", "previousId": "a-17", **about},
        {"type": "page", "name": "Home", **about},
        {"type": "screen", "name": "Home", **about},
    ]
    assert pipeline.ingest.post("/v1/batch", json={"batch": batch}).json()["accepted"] == 5
    for path, document in (("/v1/tokens", {"name": "reports", "role": "viewer"}), ("/v1/write-keys", {"name": "shop"})):
        answer = pipeline.api.post(path, json=document)
        assert answer.is_success, answer.text
    answer = pipeline.api.put("/v1/policy", json={"quiet_hours": {"from": "21:00", "to": "08:00"}})
    assert answer.is_success, answer.text
    answer = pipeline.api.put("/v1/users/ada/consent", json={"channel": "email", "granted": True})
    assert answer.is_success, answer.text
    answer = pipeline.api.post("/v1/campaigns/thanks/test", json={"user": "ada", "to": ["author@example.com"]})
    assert answer.is_success, answer.text
    answer = pipeline.api.post("/v1/campaigns/text/test", json={"user": "ada", "to": ["+4915112345679"]})
    assert answer.is_success, answer.text
    answer = pipeline.api.post("/v1/campaigns/push/test", json={"user": "ada", "to": [json.dumps(BROWSER)]})
    assert answer.is_success, answer.text
    answer = pipeline.api.post("/v1/campaigns/post/test", json={"user": "ada", "to": ["http://127.0.0.1:9"]})
    assert answer.is_success, answer.text
    of_mail = Link("default", "ada", "d-1", "email", "smtp", "news", None)
    link = Links(parse_keys(SECRETS_KEY, "test")).token(LinkKind.UNSUBSCRIBE, of_mail)
    answer = pipeline.tracker.post(f"/u/{link}")
    assert answer.is_success, answer.text
    for mark in (None, Links(parse_keys(SECRETS_KEY, "test")).callback_token(Callback(of_mail, "d" * 64))):
        eventually(partial(_is_taken, pipeline, notification(mark)))
    answer = pipeline.api.post("/v1/suppressions/email", json={"addresses": ["bounced@example.com"]})
    assert answer.is_success, answer.text
    answer = pipeline.api.post("/v1/campaigns/thanks/dry-run")
    assert answer.is_success, answer.text
    # The mails, the text, the webhook, the notification and the broadcast.
    eventually(lambda: len(_messages(pipeline)) == len(THANKS) + 5)
    for message in _messages(pipeline):
        if message["status"] == "requested" and message["campaign"] in THANKS:
            bounced = of_mail._replace(user_id="grace", delivery_id=message["delivery_id"], campaign=message["campaign"])
            mark = Links(parse_keys(SECRETS_KEY, "test")).callback_token(Callback(bounced, "e" * 64))
            assert _is_taken(pipeline, notification(mark, status="4.2.2"))
    eventually(lambda: sum("BOUNCED" in str(one["outcomes"]) for one in _messages(pipeline)) == len(THANKS))
    for path in ("/v1/feed", "/v1/audit", "/v1/outcomes"):
        assert pipeline.api.get(path).json()["items"], path
    assert pipeline.api.post("/v1/segments/preview", json={"where": {"event": "Bought"}}).json()["estimate"] == 2


def _messages(pipeline: Pipeline) -> list[dict[str, Any]]:
    items: list[dict[str, Any]] = pipeline.api.get("/v1/users/grace/messages").json()["items"]
    return items


def _is_taken(pipeline: Pipeline, body: bytes) -> bool:
    """Return whether the tracker, which may not know the target yet, has taken a callback: of a mail, or of an unknown one."""
    headers = {"Authorization": f"Bearer {SECRET}"}
    return pipeline.tracker.post("/p/default/smtp", content=body, headers=headers).is_success


@pytest.fixture
def as_user(secure: Secure, monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[[str], None]]:
    """Gives this process the environment of a service."""

    def use(service: str) -> None:
        for name, value in secure.environment(service).items():
            monkeypatch.setenv(name, value)
        kafka_security.cache_clear()

    yield use
    monkeypatch.undo()
    kafka_security.cache_clear()


def _write(brokers: str) -> None:
    produce_and_wait(Producer(producer_config(brokers)), "ingest.dlq", key=b"k", value=b"v", headers=[])


def _begin_transaction(brokers: str) -> None:
    Producer(producer_config(brokers, **{"transactional.id": "starling-normalizer-other"})).init_transactions(20)


def _read(brokers: str) -> None:
    list(read_topic(brokers, "normalizer.dlq"))


def _name_a_group(brokers: str) -> None:
    """Read without a membership, as every bounded read does. The client looks up the coordinator of the group all the same."""
    consumer = range_consumer(brokers, "starling-reader")
    try:
        consumer.assign([TopicPartition("normalizer.dlq", 0, OFFSET_BEGINNING)])
        for message in (consumer.poll(0.5) for _ in range(8)):
            _check(message)
    finally:
        consumer.close()


def _check(message: Message | None) -> None:
    error = None if message is None else message.error()
    if error is not None and error.code() != PARTITION_EOF:
        raise KafkaException(error)


def _join(brokers: str) -> None:
    consumer = Consumer(consumer_config(brokers, "starling-projector-events", **{"enable.partition.eof": True}))
    try:
        consumer.subscribe(["events.behaviour"])
        _check(eventually(lambda: consumer.poll(1)))
    finally:
        consumer.close()


def _request_offsets(brokers: str) -> None:
    consumer = Consumer(consumer_config(brokers, "starling-api-backfill"))
    try:
        offsets(consumer, [("events.behaviour", 0)], OFFSET_END, 10)
    finally:
        consumer.close()


def _read_the_feed_state(brokers: str) -> None:
    consumer = range_consumer(brokers, "starling-api")
    try:
        for messages in read_range(consumer, {("segments.membership-state", 0): OFFSET_BEGINNING}):
            assert messages
    finally:
        consumer.close()


_long = partial(pytest.param, marks=pytest.mark.long)


def _await_the_projector(brokers: str) -> None:
    ProjectorPosition(brokers, 1, lambda _: True).awaits(0)


@pytest.mark.parametrize(
    ("service", "resource", "name", "operation", "call"),
    [
        ("ingest", Resource.TOPIC, "ingest.dlq", Operation.WRITE, _write),
        ("normalizer", Resource.TRANSACTIONAL_ID, "starling-normalizer-", Operation.WRITE, _begin_transaction),
        ("operator", Resource.TOPIC, "normalizer.dlq", Operation.READ, _read),
        _long("operator", Resource.GROUP, "starling-reader", Operation.DESCRIBE, _name_a_group),
        _long("projector", Resource.GROUP, "starling-projector-events", Operation.READ, _join),
        _long("api", Resource.TOPIC, "events.behaviour", Operation.DESCRIBE, _request_offsets),
        _long("api", Resource.TOPIC, "segments.membership-state", Operation.READ, _read_the_feed_state),
        ("api", Resource.GROUP, "starling-projector", Operation.DESCRIBE, _await_the_projector),
    ],
    ids=["write", "transactions", "read", "name a group", "join a group", "offsets", "feed's state", "projector"],
)
def test_each_class_of_rights_is_needed(  # noqa: PLR0917 - a table of cases
    secure: Secure,
    as_user: Callable[[str], None],
    service: str,
    resource: Resource,
    name: str,
    operation: Operation,
    call: Callable[[str], None],
) -> None:
    as_user(service)
    call(secure.broker.password)
    admin = AdminClient({"bootstrap.servers": secure.broker.opened})
    [right] = [one for one in _service(service).rights if (one.resource, one.name, one.operation) == (resource, name, operation)]
    rules = rules_of([Service(service, "", [right])], PRINCIPALS)
    remove(admin, rules)
    try:
        # The client repeats a request for the offsets of a group that is refused, until it times out.
        refusal = r"(?i)authoriz|unknown partition|committed offsets: Local: Timed out"
        with pytest.raises((BrokerUnavailable, KafkaException), match=refusal):
            # A rule takes effect a moment after its removal.
            eventually(lambda: call(secure.broker.password), 30)
    finally:
        create(admin, rules)


def _service(name: str) -> Service:
    return next(one for one in load_services(load_catalogue()) if one.name == name)


STRANGERS = {"ingest": "projector", "normalizer": "ingest", "delivery": "api"}
"""Service -> the service whose user it has."""


@pytest.fixture(scope="module")
def strangers(secure: Secure) -> Iterator[Mapping[str, Process]]:
    """Started at once, because each start takes seconds."""
    with ExitStack() as last:
        yield {name: last.enter_context(secure.process(name, user, ready=False)) for name, user in STRANGERS.items()}


@pytest.mark.parametrize(("service", "user"), STRANGERS.items())
def test_a_service_with_the_user_of_another_one_waits_and_reports_it(
    strangers: Mapping[str, Process], service: str, user: str
) -> None:
    process, reason = strangers[service], f"the user starling-{user} is not that of {service}"
    assert reason in eventually(lambda: _problem(process))
    assert f"starling deploy acls --service {service} --apply" in _problem(process)
    assert httpx.get(f"{process.url}/healthz", trust_env=False).status_code == 200
    assert process.process.poll() is None
    assert reason in process.log.read_text()


def test_a_wrong_password_is_reported(secure: Secure) -> None:
    with secure.process("projector", ready=False, STARLING_KAFKA__SASL_PASSWORD="guessed") as process:
        assert "does not accept the connection" in eventually(lambda: _problem(process))
        assert process.process.poll() is None


@pytest.mark.long
def test_an_expired_certificate_of_the_broker_or_of_a_service_is_reported(secure: Secure) -> None:
    without_password = {name: value for name, value in secure.environment("projector").items() if "SASL" not in name}
    settings = without_password | secure.broker.with_expired_certificate()
    log = secure.home / "expired.log"
    with (
        secure.process("projector", ready=False, STARLING_KAFKA__BROKERS=secure.broker.expired) as process,
        running("starling_projector", settings, log, ready=False) as own,
    ):
        certificate = secure.broker.expired_certificate
        for one, reason in (
            (process, "(the certificate of the broker: certificate has expired)"),
            (own, f"the broker refuses the certificate {certificate}"),
        ):
            problem = eventually(partial(_problem, one))
            assert "does not accept the connection" in problem
            assert reason in problem
            assert httpx.get(f"{one.url}/healthz", trust_env=False).status_code == 200
            assert problem in one.log.read_text()


@pytest.mark.long
def test_a_service_goes_on_when_its_rights_are_granted(secure: Secure) -> None:
    admin = AdminClient({"bootstrap.servers": secure.broker.opened})
    remove(admin, [one for one in rules_of([_service("normalizer")], PRINCIPALS) if one.name == "starling-normalizer-"])
    remove(admin, [one for one in rules_of([_service("projector")], PRINCIPALS) if one.name == "segments.progress"])
    with secure.process("normalizer", ready=False) as normalizer, secure.process("projector", ready=False) as projector:
        assert "read segments.progress" in eventually(lambda: _problem(projector))
        assert "transactional id" in eventually(lambda: _problem(normalizer, "transactions"))
        assert secure.acls("--apply")[-1] == "2 created, 0 removed"
        eventually(projector.is_ready)
        eventually(normalizer.is_ready)


def _problem(process: Process, check: str = "broker") -> str:
    """Return the reason of a failed check; empty while there is none."""
    assert process.process.poll() is None, process.log.read_text()
    try:
        answer = httpx.get(f"{process.url}/readyz", timeout=15, trust_env=False)
    except httpx.TransportError:
        return ""
    found: str = answer.json()["checks"].get(check, "ok")
    return "" if found == "ok" else found


def test_a_second_run_changes_nothing_and_prune_removes_what_no_service_needs(secure: Secure) -> None:
    admin = AdminClient({"bootstrap.servers": secure.broker.opened})
    needless = Right(Resource.TOPIC, "events.profile", False, Operation.READ, "")
    other = rules_of([Service("ingest", "", [needless])], Principals("User:somebody-{service}"))  # vocabulary: somebody: a name
    create(admin, [*rules_of([Service("ingest", "", [needless])], PRINCIPALS), *other])
    line = "User:starling-ingest  read  topic events.profile"
    assert secure.acls("--dry-run") == [
        "1 other rights of the same users stay: --prune removes them",
        "0 would be created, 0 would be removed",
    ]
    assert secure.acls("--dry-run", "--prune") == [f"- {line}", "0 would be created, 1 would be removed"]
    assert secure.acls("--apply", "--prune") == [f"- {line}", "0 created, 1 removed"]
    assert secure.acls("--apply", "--prune") == ["0 created, 0 removed"]
    remove(admin, other)


@pytest.mark.long
def test_the_commands_for_kafka_acls_create_the_same_rights(secure: Secure, tmp_path: Path) -> None:
    words = ("--service", "segmenter", "--principal", "User:CN={service},O=Example")
    config = tmp_path / "client.properties"
    config.write_text("")
    java = [find_java().command, "-Xmx128m", "-cp", f"{runtime_jars('kafka')[0].parent}/*", "org.apache.kafka.tools.AclCommand"]
    commands = [line for line in secure.acls(*words, "--format", "kafka-acls") if not line.startswith("#")]
    for command in commands:
        tool, *arguments = shlex.split(command.replace("$BROKERS", secure.broker.opened).replace("$CONFIG", str(config)))
        assert tool == "kafka-acls.sh"
        subprocess.run([*java, *arguments], check=True, capture_output=True)
    assert secure.acls(*words, "--dry-run") == ["0 would be created, 0 would be removed"]


@pytest.mark.parametrize("arguments", [("--dry-run",), ("--apply",)])
def test_a_broker_that_does_not_let_the_user_administer_access_is_named_with_the_cure(
    secure: Secure, stack: Stack, arguments: tuple[str, ...]
) -> None:
    refused = secure.command("deploy", "acls", *arguments, user="deploy")
    assert (refused.returncode, refused.stdout) == (1, "")
    assert "this user may not administer access: use a user of super.users" in refused.stderr
    without: dict[str, Any] = {"STARLING_KAFKA__BROKERS": stack.brokers}
    unsecured = run([sys.executable, "-m", "starling_cli", "deploy", "acls", *arguments], without)
    assert unsecured.returncode == 1
    assert "the broker has no authorizer" in unsecured.stderr


def test_the_step_of_the_chart_does_the_same(secure: Secure) -> None:
    environment = secure.broker.with_password() | {"STARLING_ACLS_PRUNE": "true"}
    done = run([sys.executable, "-m", "starling_common.kafka.access.deploy"], environment)
    assert (done.returncode, done.stdout) == (0, "0 created, 0 removed\n"), done.stderr
    refused = run([sys.executable, "-m", "starling_common.kafka.access.deploy"], secure.environment("deploy"))
    assert refused.returncode == 1
    assert "may not administer access" in refused.stderr
