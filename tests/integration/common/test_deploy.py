"""The deploy step against the real broker and registry: what it creates, and what it refuses."""

import json
import os
import uuid
from dataclasses import replace
from pathlib import Path

import pytest
from confluent_kafka import TIMESTAMP_LOG_APPEND_TIME, Message, Producer
from confluent_kafka.admin import AdminClient
from confluent_kafka.admin._config import ConfigResource
from confluent_kafka.admin._resource import ResourceType

from starling_common.deploy import DeployFailed, create_topics
from starling_common.kafka.clients import BrokerUnavailable, TopicView, produce_and_wait, producer_config
from starling_common.kafka.topic_range import read_topic
from starling_common.kafka.topics import BEHAVIOUR, Topic, load_catalogue
from starling_common.testing import eventually
from starling_common.time.instants import wall_clock_ms
from starling_common.wire import Registry, SchemaMissing, codec
from tests.conftest import Stack


def own_topic(partitions: int = 1) -> Topic:
    return Topic(f"test.{uuid.uuid4().hex}", "ClockAdvanced", partitions, False, "delete", 3_600_000, "FULL_TRANSITIVE")


def test_every_topic_and_subject_is_there(stack: Stack) -> None:
    existing = AdminClient({"bootstrap.servers": stack.brokers}).list_topics(timeout=30).topics
    registry = Registry(stack.registry_url)
    for topic in load_catalogue().topics.values():
        assert len(existing[topic.name].partitions) == topic.partitions
        assert registry.codec(topic.name, topic.schema).schema_id > 0


def test_a_topic_with_another_number_of_partitions_is_refused(stack: Stack) -> None:
    admin, topic = AdminClient({"bootstrap.servers": stack.brokers}), own_topic(partitions=1)
    create_topics(admin, [topic], 1)
    changed = Topic(topic.name, topic.schema, 3, topic.profile_keyed, topic.cleanup, topic.retention_ms, topic.compatibility)
    with pytest.raises(DeployFailed, match="has 1 partitions, not 3"):
        create_topics(admin, [changed], 1)
    admin.delete_topics([topic.name])[topic.name].result()


def _largest(admin: AdminClient, topic: Topic) -> int:
    place = ConfigResource(ResourceType.TOPIC, topic.name)
    return int(admin.describe_configs([place])[place].result()["max.message.bytes"].value or 0)


def test_a_topic_of_an_older_release_takes_records_as_large_as_todays(stack: Stack) -> None:
    admin, older = AdminClient({"bootstrap.servers": stack.brokers}), own_topic()
    create_topics(admin, [older], 1)
    newer = replace(older, max_record_bytes=2 * 1024 * 1024)
    producer = Producer(producer_config(stack.brokers))
    with pytest.raises(BrokerUnavailable, match="too large"):
        produce_and_wait(producer, older.name, key=b"k", value=os.urandom(1_500_000), headers=[])
    create_topics(admin, [newer], 1)
    produce_and_wait(producer, older.name, key=b"k", value=os.urandom(1_500_000), headers=[])
    create_topics(admin, [replace(older, max_record_bytes=1_500_000)], 1)  # what is set higher stays
    assert _largest(admin, older) == 2 * 1024 * 1024
    admin.delete_topics([older.name])[older.name].result()


def test_the_broker_refuses_a_record_whose_timestamp_is_far_ahead(stack: Stack) -> None:
    assert load_catalogue().topics[BEHAVIOUR].ahead_ms == 6 * 60_000
    admin, older = AdminClient({"bootstrap.servers": stack.brokers}), own_topic()
    producer, ahead_ms = Producer(producer_config(stack.brokers)), 10 * 60_000
    create_topics(admin, [older], 1)
    produce_and_wait(producer, older.name, key=b"k", value=b"", headers=[], timestamp_ms=wall_clock_ms() + ahead_ms)
    newer, new = replace(older, ahead_ms=6 * 60_000), replace(own_topic(), ahead_ms=6 * 60_000)
    create_topics(admin, [newer, new], 1)
    for topic in (newer, new):

        def is_refused(name: str = topic.name) -> bool:
            try:
                produce_and_wait(producer, name, key=b"k", value=b"", headers=[], timestamp_ms=wall_clock_ms() + ahead_ms)
            except BrokerUnavailable as error:
                return "timestamp" in str(error)
            return False

        eventually(is_refused)
        produce_and_wait(producer, topic.name, key=b"k", value=b"", headers=[], timestamp_ms=wall_clock_ms() + ahead_ms // 2)
        admin.delete_topics([topic.name])[topic.name].result()


def test_a_topic_of_an_older_release_gets_the_brokers_timestamps(stack: Stack) -> None:
    admin, older = AdminClient({"bootstrap.servers": stack.brokers}), own_topic()
    newer = replace(older, broker_timestamps=True)
    place = ConfigResource(ResourceType.TOPIC, older.name)

    def has_timestamps(kind: str) -> bool:
        return bool(admin.describe_configs([place])[place].result()["message.timestamp.type"].value == kind)

    create_topics(admin, [older], 1)
    eventually(lambda: older.name in admin.list_topics(timeout=30).topics)  # a broker that lags describes no new topic
    assert has_timestamps("CreateTime")
    create_topics(admin, [newer], 1)
    # A broker shows a new configuration once the controller's record of it has arrived there.
    eventually(lambda: has_timestamps("LogAppendTime"))
    admin.delete_topics([older.name])[older.name].result()


def test_a_dead_letter_of_a_record_that_is_older_than_the_retention_is_new(stack: Stack) -> None:
    admin, before_ms = AdminClient({"bootstrap.servers": stack.brokers}), wall_clock_ms()
    topic = replace(load_catalogue().topics["projector.dlq"], name=own_topic().name)
    create_topics(admin, [topic], 1)
    produce_and_wait(Producer(producer_config(stack.brokers)), topic.name, key=b"k", value=b"", headers=[], timestamp_ms=1_000)
    (letter,) = read_topic(stack.brokers, topic.name)
    kind, timestamp_ms = letter.timestamp()
    assert kind == TIMESTAMP_LOG_APPEND_TIME
    assert timestamp_ms >= before_ms
    admin.delete_topics([topic.name])[topic.name].result()


@pytest.mark.parametrize(
    "change",
    [
        pytest.param({"name": "added", "type": "string", "doc": "required"}, id="a new field without a default"),
        pytest.param({"name": "instant", "type": "string", "doc": "was a long"}, id="another type"),
    ],
)
def test_an_incompatible_change_is_refused_by_the_registry(
    stack: Stack, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, change: dict[str, str]
) -> None:
    registry, topic = Registry(stack.registry_url), own_topic()
    registry.register(topic.subject, topic.schema, topic.compatibility)
    schema = json.loads(codec.schema_text(topic.schema))
    kept = [field for field in schema["fields"] if field["name"] != change["name"]]
    (tmp_path / f"{topic.schema}.avsc").write_text(json.dumps({**schema, "fields": [*kept, change]}))
    monkeypatch.setattr(codec, "schema_directory", lambda: tmp_path)
    codec.schema_text.cache_clear()
    try:
        with pytest.raises(ValueError, match="is not FULL_TRANSITIVE"):
            registry.register(topic.subject, topic.schema, topic.compatibility)
    finally:
        codec.schema_text.cache_clear()


def test_a_compatible_change_gets_an_id_of_its_own(stack: Stack, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    registry, topic = Registry(stack.registry_url), own_topic()
    first = registry.register(topic.subject, topic.schema, topic.compatibility)
    schema = json.loads(codec.schema_text(topic.schema))
    added = {"name": "added", "type": ["null", "string"], "default": None}
    (tmp_path / f"{topic.schema}.avsc").write_text(json.dumps({**schema, "fields": [*schema["fields"], added]}))
    monkeypatch.setattr(codec, "schema_directory", lambda: tmp_path)
    codec.schema_text.cache_clear()
    try:
        assert registry.register(topic.subject, topic.schema, topic.compatibility) != first
    finally:
        codec.schema_text.cache_clear()


def test_a_service_without_a_deploy_step_names_the_command(stack: Stack) -> None:
    with pytest.raises(SchemaMissing, match=r"starling_common\.deploy"):
        Registry(stack.registry_url).codec(own_topic().name, "ClockAdvanced")


def test_a_view_holds_all_that_was_written_and_follows(stack: Stack) -> None:
    admin, topic = AdminClient({"bootstrap.servers": stack.brokers}), own_topic()
    create_topics(admin, [topic], 1)
    producer = Producer(producer_config(stack.brokers))
    seen: list[bytes] = []

    def remember(message: Message) -> None:
        seen.append(message.value() or b"")

    produce_and_wait(producer, topic.name, key=b"a", value=b"before", headers=[])
    view = TopicView(stack.brokers, topic.name, remember)
    view.start(30)
    try:
        assert seen == [b"before"]
        produce_and_wait(producer, topic.name, key=b"a", value=b"after", headers=[])
        assert view.wait_until_current(30)
        assert seen == [b"before", b"after"]
        assert view.problem() is None
    finally:
        view.stop()
        admin.delete_topics([topic.name])[topic.name].result()


def test_a_broken_view_reports_its_error(stack: Stack) -> None:
    admin, topic = AdminClient({"bootstrap.servers": stack.brokers}), own_topic()
    create_topics(admin, [topic], 1)
    produce_and_wait(Producer(producer_config(stack.brokers)), topic.name, key=b"a", value=b"x", headers=[])

    def fail(message: Message) -> None:
        raise RuntimeError("cannot read this")

    view = TopicView(stack.brokers, topic.name, fail)
    with pytest.raises(Exception, match="cannot read this"):
        view.start(30)
    view.stop()
    admin.delete_topics([topic.name])[topic.name].result()
