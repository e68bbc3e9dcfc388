"""Published clients, unchanged, through a proxy that loses answers, refuses and resets: each item is accepted exactly once.

`make clients` runs it. The clients reach a real edge; the outcomes of the normalizer are compared with the items that were sent.
"""

import asyncio
import json
import os
import subprocess
import sys
import time
import uuid
from collections import Counter
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from threading import Thread

import pytest

from starling_common.kafka.topics import BEHAVIOUR, OUTCOMES
from tests.clients.proxy import FAULTS, LOST, FaultyProxy
from tests.conftest import ROOT, Stack
from tests.integration.ingest.edge_process import EdgeProcess, running
from tests.integration.normalizer.topics import Topics, Worker

ITEMS = 206
PATIENCE_SECONDS = 300.0
INSTALLED = ROOT / "out" / "published-clients"
HERE = Path(__file__).parent


@dataclass(frozen=True)
class Published:
    """A published client. `faults`: those after which it sends a request again; Jitsu's sends each item once."""

    name: str
    version: str
    script: str
    faults: tuple[str, ...] = FAULTS

    def command(self, url: str, write_key: str) -> list[str]:
        program = [sys.executable] if self.script.endswith(".py") else ["node"]
        browser = [os.environ.get("STARLING_CHROMIUM", "/usr/bin/chromium")] if self.script.startswith("browser") else []
        return [*program, str(HERE / self.script), self.name, url, write_key, str(ITEMS), *browser]


CLIENTS = (
    Published("segment-analytics-python", "2.4.0", "python_client.py"),
    Published("rudder-sdk-python", "2.1.9", "python_client.py"),
    Published("@segment/analytics-node", "3.1.0", "node_client.mjs"),
    Published("@rudderstack/rudder-sdk-node", "3.0.13", "node_client.mjs"),
    Published("analytics-node", "6.2.0", "node_client.mjs"),
    Published("@jitsu/js", "1.11.0", "node_client.mjs", (LOST,)),
    Published("@segment/analytics-next", "1.84.3", "browser_client.mjs"),
    Published("@rudderstack/analytics-js", "3.34.1", "browser_client.mjs"),
)


@pytest.fixture(scope="module")
def keys() -> dict[str, str]:
    """Client -> workspace, which is also the write key; Jitsu's client demands the form `WORKSPACE:secret`."""
    return {client.name: f"t{uuid.uuid4().hex[:12]}" for client in CLIENTS}


@pytest.fixture(scope="module")
def edge(stack: Stack, keys: dict[str, str], tmp_path_factory: pytest.TempPathFactory) -> Iterator[EdgeProcess]:
    listed = ",".join(f"{workspace}={workspace},{workspace}:secret={workspace}" for workspace in keys.values())
    with running(stack.environment() | {"STARLING_WRITE_KEYS": listed}, tmp_path_factory.mktemp("edge")) as found:
        yield found


@pytest.fixture(scope="module")
def _normalizer(stack: Stack, tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    worker = Worker(stack, tmp_path_factory.mktemp("normalizer"))
    yield
    worker.stop()


@contextmanager
def listening(proxy: FaultyProxy) -> Iterator[int]:
    """Serve in a thread; yield the port."""
    port: Future[int] = Future()
    stopping: Future[None] = Future()

    async def serve() -> None:
        async with proxy.listening() as found:
            port.set_result(found)
            await asyncio.wrap_future(stopping)

    thread = Thread(target=asyncio.run, args=(serve(),), daemon=True)
    thread.start()
    yield port.result(30)
    stopping.set_result(None)
    thread.join(30)


@pytest.mark.usefixtures("_normalizer")
@pytest.mark.parametrize("client", CLIENTS, ids=lambda client: f"{client.name} {client.version}")
def test_each_item_is_accepted_exactly_once(
    stack: Stack, edge: EdgeProcess, keys: dict[str, str], client: Published, tmp_path: Path
) -> None:
    workspace = keys[client.name]
    topics = Topics(stack, workspace)
    log = tmp_path / "client.log"
    proxy = FaultyProxy(int(edge.url.rpartition(":")[2]), client.faults)
    with listening(proxy) as port, log.open("wb") as out:
        write_key = f"{workspace}:secret" if client.name == "@jitsu/js" else workspace
        command = client.command(f"http://127.0.0.1:{port}", write_key)
        process = subprocess.Popen(command, cwd=INSTALLED, stdin=subprocess.PIPE, stdout=out, stderr=out)
        try:
            _until(topics, lambda: len(_accepted(topics)) >= ITEMS, lambda: f"{proxy.seen} {log.read_text()}")
        finally:
            assert process.stdin is not None
            process.stdin.close()
            try:
                code = process.wait(60)
            finally:
                process.kill()
    topics.read_to_end()
    topics.close()
    assert code == 0, log.read_text()
    accepted = _accepted(topics)
    assert Counter(accepted).most_common(1)[0][1] == 1
    assert len(accepted) == ITEMS
    assert {outcome["outcome"] for outcome in topics.seen[OUTCOMES]} <= {"ACCEPTED", "DUPLICATE"}
    numbers = [number for event in topics.seen[BEHAVIOUR] if (number := json.loads(event["properties"]).get("n", -1)) >= 0]
    assert sorted(numbers) == list(range(5, ITEMS))
    assert all(proxy.seen[fault] for fault in client.faults), proxy.seen


def _accepted(topics: Topics) -> list[str]:
    return [outcome["message_id"] for outcome in topics.seen[OUTCOMES] if outcome["outcome"] == "ACCEPTED"]


def _until(topics: Topics, enough: Callable[[], bool], explain: Callable[[], str]) -> None:
    deadline = time.monotonic() + PATIENCE_SECONDS
    while not enough():
        assert time.monotonic() < deadline, f"{len(_accepted(topics))} of {ITEMS} accepted: {explain()}"
        topics.read_some()
