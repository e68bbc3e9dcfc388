"""The broker is killed and started again. The projector and the API's feed go on without a restart of theirs."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import httpx
import pytest

from starling_common.cassandra.database import Database
from starling_common.kafka.topics import load_catalogue
from starling_common.testing import eventually, running
from starling_common.wire import Registry
from tests.conftest import Stack
from tests.integration.projector.broker import Broker
from tests.integration.projector.feed import Log

PARTITIONS = load_catalogue().profile_partitions
KILLS = 2
"""The leaders' epochs move with each."""


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


@pytest.mark.long
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
