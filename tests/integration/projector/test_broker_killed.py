"""The broker is killed and started again. The projector and the API's feed go on without a restart of theirs."""

import os
import signal
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import httpx
import pytest

from starling_common.cassandra.database import Database
from starling_common.kafka.topics import load_catalogue
from starling_common.testing import eventually, own_keyspace, running
from starling_common.wire import Registry
from starling_local.instance import Instance
from starling_local.testing import embedded
from tests.conftest import Stack, deployed
from tests.integration.projector.feed import Log

PARTITIONS = load_catalogue().profile_partitions
KILLS = 2
"""The leaders' epochs move with each."""

RESTART_SECONDS = 300.0


@dataclass(frozen=True)
class Broker:
    """A broker of this test's own, which its supervisor starts again whenever it ends."""

    stack: Stack
    instance: Instance

    def kill(self, meanwhile: Callable[[], object]) -> None:
        """Return as soon as the broker answers again: its partitions have no leader yet, or one of an old epoch.

        `meanwhile` is called all the time: a client that asks during the restart gets metadata that is soon out of date.
        """
        killed = self._ready_pid()
        assert killed is not None
        os.kill(killed, signal.SIGKILL)

        def is_back() -> bool:
            meanwhile()
            return self._ready_pid() not in (None, killed)

        eventually(is_back, RESTART_SECONDS)

    def _ready_pid(self) -> int | None:
        report = self.instance.report()
        assert report is not None
        [kafka] = [part for part in report.parts if part.name == "kafka"]
        return kafka.pid if kafka.state == "ready" else None


@pytest.fixture
def broker(stack: Stack, tmp_path: Path) -> Iterator[Broker]:
    """With a keyspace of its own too: rows carry the offsets of this broker, which mean nothing beside those of another."""
    with own_keyspace(stack.cassandra) as cassandra, embedded({"kafka"}, tmp_path / "broker") as found:
        made = deployed(Stack(found.kafka, stack.registry_url, cassandra))
        yield Broker(made, Instance(found.data_dir))


@pytest.fixture
def tables(broker: Broker) -> Iterator[Database]:
    database = Database(broker.stack.cassandra)
    yield database
    database.close()


@contextmanager
def feed(stack: Stack, workspace: str, log: Path) -> Iterator[httpx.Client]:
    """The API, asked as this workspace's viewer."""
    environment = {**stack.environment(), "STARLING_TOKENS": f"token=viewer:{workspace}"}
    headers = {"Authorization": "Bearer token"}
    with (
        running("starling_api", environment, log) as service,
        httpx.Client(base_url=service.url, headers=headers, timeout=60, trust_env=False) as client,
    ):
        yield client


def users_in(client: httpx.Client) -> set[str]:
    """Those that the feed names; none while the broker is away."""
    answer = client.get("/v1/feed")
    return {one["user_id"] for one in answer.json()["items"]} if answer.status_code == 200 else set()


def test_readers_of_offsets_go_on(broker: Broker, workspace: str, tables: Database, tmp_path: Path) -> None:
    log = Log(broker.stack.brokers, Registry(broker.stack.registry_url), workspace)
    name, written = f"{workspace}/vip", set()

    def written_everywhere(version: int) -> None:
        user = f"user-{version}"
        written.add(user)
        log.change(user, "vip", 1)
        log.progress({"vip": version}, stream_time_ms=version * 1_000)
        eventually(lambda: users_in(client) == written)
        eventually(lambda: _partitions_at(tables, name, version) == PARTITIONS)

    with (
        running("starling_projector", broker.stack.environment(), tmp_path / "projector.log") as projector,
        feed(broker.stack, workspace, tmp_path / "api.log") as client,
    ):
        written_everywhere(1)
        for kill in range(KILLS):
            broker.kill(meanwhile=lambda: users_in(client))
            written_everywhere(2 + kill)
        eventually(projector.is_ready)


def _partitions_at(tables: Database, name: str, version: int) -> int:
    rows = tables.read("SELECT definitions FROM {ks}.segmenter_progress WHERE id = 0")
    return sum((row["definitions"] or {}).get(name) == version for row in rows)
