"""Fixtures of the delivery process: its topics, and an endpoint."""

import uuid
from collections.abc import Iterator

import pytest
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient

from starling_common.deploy import create_topics
from starling_common.kafka.clients import producer_config
from starling_common.kafka.topics import Topic
from starling_common.wire import Registry
from starling_demo.receiver import Receiver
from tests.conftest import Stack
from tests.integration.delivery.world import SCHEMAS, TIERS, World
from tests.unit.delivery.making import SECRET


@pytest.fixture
def world(stack: Stack) -> Iterator[World]:
    yield from worlds(stack, 1)


@pytest.fixture
def wide_world(stack: Stack) -> Iterator[World]:
    """A world for several processes: its topics have four partitions. `records` reads one of them."""
    yield from worlds(stack, 4)


def worlds(stack: Stack, partitions: int) -> Iterator[World]:
    prefix = f"test{uuid.uuid4().hex[:10]}"
    made = World(stack, prefix, Registry(stack.registry_url), Producer(producer_config(stack.brokers)))
    admin = AdminClient({"bootstrap.servers": stack.brokers})
    schemas = SCHEMAS | {f"retry.{tier}": SCHEMAS["retry"] for tier in TIERS}
    topics = [
        Topic(made.topic(name), schema, partitions, False, "delete", 3_600_000, "FULL_TRANSITIVE")
        for name, schema in schemas.items()
    ]
    create_topics(admin, topics, 1)
    for topic in topics:
        made.registry.register(topic.subject, topic.schema, topic.compatibility)
    yield made
    for pending in admin.delete_topics([topic.name for topic in topics]).values():
        pending.result()


@pytest.fixture
def receiver() -> Iterator[Receiver]:
    made = Receiver(SECRET)
    yield made
    made.close()
