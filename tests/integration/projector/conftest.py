"""Read models of this session's own: a keyspace and a consumer group of its own, on the real stack."""

import uuid
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import replace
from pathlib import Path

import pytest

from starling_common.cassandra.database import Database
from starling_common.settings import Cassandra
from starling_common.testing import Service, own_keyspace, running
from starling_common.wire import Registry
from starling_local.instance import Instance
from starling_local.testing import embedded
from tests.conftest import Stack, deployed
from tests.integration.projector.broker import Broker
from tests.integration.projector.feed import Log


@pytest.fixture
def log(stack: Stack, workspace: str) -> Log:
    return Log(stack.brokers, Registry(stack.registry_url), workspace)


@pytest.fixture(scope="session")
def own_cassandra(stack: Stack) -> Iterator[Cassandra]:
    """The real Cassandra, with a keyspace of this session's own."""
    with own_keyspace(stack.cassandra) as settings:
        yield settings


@pytest.fixture(scope="session")
def tables(own_cassandra: Cassandra) -> Iterator[Database]:
    database = Database(own_cassandra)
    yield database
    database.close()


Start = Callable[..., AbstractContextManager[Service]]


@pytest.fixture
def start(stack: Stack, own_cassandra: Cassandra, tmp_path: Path) -> Start:
    """Starts a projector on this session's tables, by default with a new group that reads from the start."""

    @contextmanager
    def started(
        group: str | None = None,
        *,
        cassandra: Cassandra = own_cassandra,
        ready: bool = True,
        failpoint: str = "",
        history_days: int = 30,
    ) -> Iterator[Service]:
        environment = {
            **replace(stack, cassandra=cassandra).environment(),
            "STARLING_GROUP": group or f"test-{uuid.uuid4().hex}",
            "STARLING_HISTORY_DAYS": str(history_days),
            **({"STARLING_FAILPOINT": failpoint} if failpoint else {}),
        }
        with running("starling_projector", environment, tmp_path / "projector.log", ready=ready) as service:
            yield service

    return started


@pytest.fixture
def broker(stack: Stack, tmp_path: Path) -> Iterator[Broker]:
    """With a keyspace of its own too: rows carry the offsets of this broker, which mean nothing beside those of another."""
    with own_keyspace(stack.cassandra) as cassandra, embedded({"kafka"}, tmp_path / "broker") as found:
        made = deployed(Stack(found.kafka, stack.registry_url, cassandra))
        yield Broker(made, Instance(found.data_dir))
