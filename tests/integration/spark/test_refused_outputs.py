"""Outputs of a Spark worker that the broker or the database refuses, beside those that it accepts."""

import os
import uuid
from collections import Counter
from string import ascii_lowercase
from typing import Any

import pyarrow as pa
import pytest
from confluent_kafka import Consumer, TopicPartition

from starling_common.cassandra.database import Database
from starling_common.cassandra.sessions import StatementRefused, open_session
from starling_common.kafka.clients import BrokerUnavailable, consumer_config
from starling_common.kafka.topics import AGGREGATES
from starling_common.testing import own_keyspace
from starling_common.time.instants import wall_clock_ms
from starling_common.values import record_key
from starling_common.wire import Registry
from starling_spark.jobs.views.store import write_rows
from starling_spark.kafka.codec import topic_schemas
from starling_spark.kafka.sinks import OUTPUT, Letters, writer
from tests.conftest import Stack

DEAD_LETTERS = "profiles.dlq"
LARGE = 1_500_000
"""Bytes of a value: more than the topic accepts."""
LARGEST = 9 * 1024 * 1024
"""Bytes of a value: more than the client accepts."""


def _letters(stack: Stack, topic: str = DEAD_LETTERS) -> Letters:
    registry = Registry(stack.registry_url)
    return Letters("profiles", topic, topic_schemas(registry, stack.registry_url, [(topic, "DeadLetter")]))


def _row(workspace: str, user: str, value: bytes) -> tuple[Any, ...]:
    return AGGREGATES, -1, record_key(workspace, user), value, wall_clock_ms(), "c", None


def _written(stack: Stack, rows: list[tuple[Any, ...]], letters: Letters) -> Counter[tuple[str, str | None]]:
    names = [field.name for field in OUTPUT.fields]
    batch = pa.RecordBatch.from_pydict(dict(zip(names, map(list, zip(*rows, strict=True)), strict=True)))
    [counts] = writer(stack.brokers, "test", letters)([batch])
    return Counter({(row["topic"], row["refused"]): row["records"] for row in counts.to_pylist()})


def _values(stack: Stack, topic: str, workspace: str) -> list[tuple[bytes, bytes]]:
    consumer = Consumer(consumer_config(stack.brokers, f"test-{uuid.uuid4().hex}", **{"enable.partition.eof": True}))
    numbers = sorted(consumer.list_topics(topic, timeout=30).topics[topic].partitions)
    consumer.assign([TopicPartition(topic, number, 0) for number in numbers])
    found, ends = [], 0
    try:
        while ends < len(numbers):
            message = consumer.poll(30)
            assert message is not None
            if message.error() is not None:
                ends += 1
            elif (message.key() or b"").startswith(workspace.encode()):
                found.append((message.key() or b"", message.value() or b""))
    finally:
        consumer.close()
    return found


@pytest.mark.long
def test_an_output_that_the_broker_refuses_is_a_dead_letter_and_all_others_are_written(stack: Stack, workspace: str) -> None:
    users = [f"user-{number}" for number in range(20)]
    rows = [_row(workspace, user, user.encode()) for user in users]
    rows.insert(7, _row(workspace, "large", os.urandom(LARGE)))
    rows.insert(12, _row(workspace, "largest", os.urandom(LARGEST)))
    counts = _written(stack, rows, _letters(stack))
    assert counts == {(AGGREGATES, None): 20, (DEAD_LETTERS, "poison"): 2}
    expected = sorted((record_key(workspace, user), user.encode()) for user in users)
    assert sorted(_values(stack, AGGREGATES, workspace)) == expected
    codec = Registry(stack.registry_url).codec(DEAD_LETTERS, "DeadLetter")
    letters = {key: codec.decode(value) for key, value in _values(stack, DEAD_LETTERS, workspace)}
    assert letters.keys() == {record_key(workspace, "large"), record_key(workspace, "largest")}
    large = letters[record_key(workspace, "large")]
    assert (large["stage"], large["code"], large["origin_topic"], large["value"]) == ("profiles", "poison", "(fold)", b"")
    assert large["message"].startswith(f"the broker refuses a record of {LARGE} bytes for {AGGREGATES}: ")


@pytest.mark.long
def test_without_a_topic_the_job_fails_and_refuses_nothing(stack: Stack, workspace: str) -> None:
    missing = f"missing-{uuid.uuid4().hex}"
    rows = [(missing, *_row(workspace, "ada", b"1")[1:])]
    with pytest.raises(BrokerUnavailable, match="the broker did not acknowledge all records"):
        _written(stack, rows, _letters(stack))
    assert _values(stack, DEAD_LETTERS, workspace) == []


@pytest.mark.long
def test_a_row_that_cassandra_refuses_is_returned_and_all_others_are_written(stack: Stack, workspace: str) -> None:
    # More than a batch has, by number and by length.
    long = [letter * 60_000 for letter in ascii_lowercase]
    expected = {(number % 2, f"place-{number}") for number in range(450)} | {(0, place) for place in long}
    values = [(workspace, "spent", 1, start_ms, place, "{}", 1) for start_ms, place in sorted(expected)]
    values.insert(7, (workspace, "spent", 1, 0, "p" * 70_000, "{}", 1))
    with own_keyspace(stack.cassandra) as cassandra:
        database = Database(cassandra)
        try:
            [refused] = write_rows(database, values)
            assert (refused.workspace, refused.place, refused.window_start_ms) == (workspace, "p" * 200, 0)
            assert "65535" in refused.error
            statement = "SELECT window_start_ms, place FROM {ks}.view_rows WHERE workspace = ? AND name = 'spent' AND version = 1"
            found = database.read_each(statement + " AND window_start_ms = ?", [(workspace, start_ms) for start_ms in (0, 1)])
            assert {(row["window_start_ms"], row["place"]) for rows in found for row in rows} == expected
            session = open_session(cassandra)
            session.execute(f"DROP TABLE {cassandra.keyspace}.view_rows", timeout=60)
            session.cluster.shutdown()
            with pytest.raises(StatementRefused, match="view_rows"):
                write_rows(database, values)
        finally:
            database.close()
