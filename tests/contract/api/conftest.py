"""The real API and the real projector on the real stack: own tables, own group, and a workspace for each test."""

import json
import uuid
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import httpx
import pytest
from confluent_kafka import Consumer, TopicPartition

from starling_common.cassandra.database import Database
from starling_common.kafka.clients import consumer_config
from starling_common.kafka.topics import load_catalogue, stage
from starling_common.security.sealing import new_key
from starling_common.settings import Cassandra
from starling_common.testing import Service, eventually, own_keyspace, running
from tests.conftest import Stack, until_the_last_of

HERE = "tests/contract/api/"
POOL = [f"t{uuid.uuid4().hex[:12]}" for _ in range(200)]
"""Workspaces that the API knows tokens of; each test takes one."""


FIRST_KEY = new_key("first")


@dataclass(frozen=True, slots=True)
class Client:
    """One workspace's view of the API, as admin by default."""

    workspace: str
    url: str
    http: httpx.Client

    def call(self, method: str, path: str, body: object = None, *, role: str = "admin", **headers: str) -> httpx.Response:
        sent = {"Authorization": f"Bearer {role}-{self.workspace}"}
        sent |= {name.replace("_", "-"): text for name, text in headers.items()}
        content = body if isinstance(body, bytes | None) else json.dumps(body).encode()
        return self.http.request(method, path, content=content, headers=sent)


@pytest.fixture(scope="session")
def own_cassandra(stack: Stack) -> Iterator[Cassandra]:
    with until_the_last_of(HERE) as last:
        yield last.enter_context(own_keyspace(stack.cassandra))


@pytest.fixture(scope="session")
def database(own_cassandra: Cassandra) -> Database:
    database = Database(own_cassandra)
    until_the_last_of(HERE).callback(database.close)
    return database


@pytest.fixture(scope="session")
def projector(stack: Stack, own_cassandra: Cassandra, tmp_path_factory: pytest.TempPathFactory) -> Service:
    """It would project the events of all later tests too."""
    group = f"test-{uuid.uuid4().hex}"
    environment = {**replace(stack, cassandra=own_cassandra).environment(), "STARLING_GROUP": group}
    log = tmp_path_factory.mktemp("projector") / "log"
    service = until_the_last_of(HERE).enter_context(running("starling_projector", environment, log))
    # The topics have records of earlier tests, which a test that reads its own writes must not wait for.
    for name in ("projector", "projector-events"):
        _catch_up(stack, group + name.removeprefix("projector"), stage(name).inputs)
    return service


def _catch_up(stack: Stack, group: str, topics: Sequence[str]) -> None:
    """Waits until the group has gone through what is in its topics now."""
    consumer = Consumer(consumer_config(stack.brokers, group))
    try:
        parts = [TopicPartition(name, n) for name in topics for n in range(load_catalogue().topics[name].partitions)]
        spans = [consumer.get_watermark_offsets(part, timeout=10) for part in parts]
        behind = [(part, high) for part, (low, high) in zip(parts, spans, strict=True) if high > low]
        wanted = [part for part, _ in behind]
        eventually(
            lambda: all(at.offset >= end for at, (_, end) in zip(consumer.committed(wanted, timeout=10), behind, strict=True)),
            300,
        )
    finally:
        consumer.close()


@pytest.fixture(scope="session")
def api_environment(stack: Stack, own_cassandra: Cassandra) -> dict[str, str]:
    tokens = ",".join(f"{role}-{workspace}={role}:{workspace}" for workspace in POOL for role in ("viewer", "marketer", "admin"))
    # Generated requests come as fast as the API answers, each test with one token.
    limits = {f"STARLING_{limit}_PER_SECOND": "1000000" for limit in ("TOKEN_READS", "TOKEN_WRITES", "ADDRESS_REQUESTS")}
    own = {"STARLING_TOKENS": tokens, "STARLING_SECRETS__KEYS": FIRST_KEY}
    return {**replace(stack, cassandra=own_cassandra).environment(), **limits, **own}


@pytest.fixture(scope="session")
def api(api_environment: dict[str, str], projector: Service, tmp_path_factory: pytest.TempPathFactory) -> Service:
    return until_the_last_of(HERE).enter_context(running("starling_api", api_environment, tmp_path_factory.mktemp("api") / "log"))


@pytest.fixture(scope="session")
def http(api: Service) -> httpx.Client:
    return until_the_last_of(HERE).enter_context(httpx.Client(base_url=api.url, timeout=30, trust_env=False))


@pytest.fixture
def another(api: Service, http: httpx.Client) -> Client:
    """A second workspace."""
    return Client(POOL.pop(), api.url, http)


@pytest.fixture
def client(api: Service, http: httpx.Client) -> Client:
    return Client(POOL.pop(), api.url, http)


@pytest.fixture
def log_path(tmp_path: Path) -> Path:
    return tmp_path / "log"
