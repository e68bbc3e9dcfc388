"""Read models of this session's own: a keyspace and a consumer group that nobody else uses, on the real stack."""

import uuid
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Producer

from starling_common.cassandra import create_tables, open_session
from starling_common.database import Database
from starling_common.headers import record_headers
from starling_common.kafka import produce_and_wait, producer_config
from starling_common.settings import Cassandra
from starling_common.testing import Service, running
from starling_common.topics import load_catalogue
from starling_common.wire import Codec, Registry
from tests.conftest import Stack


@dataclass
class Log:
    """Writes hand-made records to the real topics, as the segmenter and the normalizer would."""

    brokers: str
    registry: Registry
    workspace: str
    codecs: dict[str, Codec] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.producer = Producer(producer_config(self.brokers, **{"linger.ms": 0}))

    def encode(self, topic: str, record: dict[str, Any]) -> bytes:
        if topic not in self.codecs:
            self.codecs[topic] = self.registry.codec(topic, load_catalogue().topics[topic].schema)
        return self.codecs[topic].encode(record)

    def write(self, topic: str, key: str, record: dict[str, Any]) -> None:
        self.write_raw(topic, key, self.encode(topic, record))

    def write_raw(self, topic: str, key: str, value: bytes) -> None:
        produce_and_wait(
            self.producer, topic, key=f"{self.workspace}/{key}".encode(), value=value, headers=record_headers("test", "test")
        )

    def membership(self, user: str, segment: str, sequence: int, effective_at: int = 1_000) -> dict[str, Any]:
        return {
            "event_id": str(uuid.uuid4()),
            "workspace": self.workspace,
            "user_id": user,
            "anonymous_ids": [],
            "segment_key": segment,
            "segment_name": segment,
            "segment_version": 1,
            "status": "ENTERED" if sequence % 2 else "EXITED",
            "sequence": sequence,
            "effective_at": effective_at,
            "decided_at": 0,
            "cause": {"kind": "EVENT", "message_id": None, "event_name": None},
            "correlation_id": "test",
            "traits": "{}",
            "memberships": [segment] if sequence % 2 else [],
            "received_at": 0,
        }

    def change(self, user: str, segment: str, sequence: int, effective_at: int = 1_000) -> None:
        self.write("segments.membership", user, self.membership(user, segment, sequence, effective_at))


@pytest.fixture
def log(stack: Stack, workspace: str) -> Log:
    return Log(stack.brokers, Registry(stack.registry_url), workspace)


@pytest.fixture(scope="session")
def own_cassandra(stack: Stack) -> Iterator[Cassandra]:
    """The real Cassandra, with a keyspace of this session's own."""
    settings = stack.cassandra.model_copy(update={"keyspace": f"t{uuid.uuid4().hex[:12]}"})
    session = open_session(settings)
    create_tables(session, settings)
    yield settings
    session.execute(f"DROP KEYSPACE {settings.keyspace}", timeout=60)
    session.cluster.shutdown()


@pytest.fixture(scope="session")
def tables(own_cassandra: Cassandra) -> Iterator[Database]:
    database = Database(own_cassandra)
    yield database
    database.close()


Start = Callable[..., AbstractContextManager[Service]]


@pytest.fixture
def start(stack: Stack, own_cassandra: Cassandra, tmp_path: Path) -> Start:
    """Starts a projector on this session's tables; a group of its own unless told, then it reads from the start."""

    @contextmanager
    def started(group: str | None = None, *, cassandra: Cassandra = own_cassandra, ready: bool = True) -> Iterator[Service]:
        environment = {
            **replace(stack, cassandra=cassandra).environment(),
            "STARLING_GROUP": group or f"test-{uuid.uuid4().hex}",
        }
        with running("starling_projector", environment, tmp_path / "projector.log", ready=ready) as service:
            yield service

    return started
