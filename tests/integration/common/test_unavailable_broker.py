"""Every service that the chart installs, without a broker: it lives, is not ready, and names the broker."""

import os
import socket
import threading
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, closing

import httpx
import pytest

from starling_common.kafka.access.check import await_access, needs_of
from starling_common.security.sealing import new_key
from starling_common.testing import Service, eventually, free_port, running
from tests.conftest import Stack
from tests.installed_services import SERVICES

SHORT = {"api", "feeds", "segmenter"}
SERVING = {"api", "ingest", "tracker"}
"""Services that have something to do without the broker: their `/readyz` has checks of its own."""
CHANNELS = {"email", "feeds"}


@pytest.fixture(scope="module")
def broker() -> str:
    """An address at which nothing listens."""
    return f"127.0.0.1:{free_port()}"


@pytest.fixture(scope="module")
def processes(broker: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Mapping[str, Service]]:
    """Started at once, because each waits for an answer first."""
    home = tmp_path_factory.mktemp("without-broker")
    key = new_key("a")
    settings = {
        "STARLING_KAFKA__BROKERS": broker,
        "STARLING_REGISTRY__URL": f"http://127.0.0.1:{free_port()}/apis/ccompat/v7",
        "STARLING_CASSANDRA__CONTACT_POINTS": "127.0.0.1",
        "STARLING_CASSANDRA__PORT": str(free_port()),
        "STARLING_WRITE_KEYS": "key=default",
        "STARLING_TOKENS": "token=admin:default",
        "STARLING_SECRETS__KEYS": key,
        "STARLING_LINKS__KEYS": key,
    }
    with ExitStack() as last:
        found = {}
        for service in SERVICES if os.environ.get("STARLING_LONG") == "all" else sorted(SHORT):
            own = {"STARLING_STATE_DIR": str(home / service)} | ({"STARLING_CHANNEL": service} if service in CHANNELS else {})
            module = "starling_delivery" if service in CHANNELS else f"starling_{service}"
            found[service] = last.enter_context(running(module, settings | own, home / f"{service}.log", ready=False))
        yield found


@pytest.mark.parametrize("service", [name if name in SHORT else pytest.param(name, marks=pytest.mark.long) for name in SERVICES])
def test_a_service_without_a_broker_lives_and_names_it(service: str, processes: Mapping[str, Service], broker: str) -> None:
    process = processes[service]
    reason = f"the broker {broker} does not answer"

    def reported() -> bool:
        assert process.process.poll() is None, process.log.read_text()
        return reason in process.log.read_text()

    eventually(reported)
    assert "Connection refused" in process.log.read_text()
    assert "check STARLING_KAFKA__BROKERS" in process.log.read_text()

    def answers() -> dict[str, str]:
        try:
            found = httpx.get(f"{process.url}/readyz", timeout=15, trust_env=False)
        except httpx.TransportError:
            return {}
        assert found.status_code == 503
        checks: dict[str, str] = found.json()["checks"]
        return checks

    checks = eventually(answers)
    if service not in SERVING:
        assert reason in checks["broker"]
    assert httpx.get(f"{process.url}/healthz", timeout=15, trust_env=False).status_code == 200, "a restart would not help"


@pytest.mark.long
def test_a_service_goes_on_when_the_broker_answers(stack: Stack) -> None:
    port, http = free_port(), free_port()
    waiting = threading.Thread(
        target=await_access, args=(needs_of("normalizer"), f"127.0.0.1:{port}", ("127.0.0.1", http)), daemon=True
    )
    waiting.start()
    eventually(lambda: _is_reported(http))
    with closing(socket.create_server(("127.0.0.1", port))) as server:
        threading.Thread(target=_forward, args=(server, stack.brokers), daemon=True).start()
        waiting.join(120)
        assert not waiting.is_alive()


def _is_reported(port: int) -> bool:
    try:
        return "does not answer" in httpx.get(f"http://127.0.0.1:{port}/readyz", timeout=15, trust_env=False).text
    except httpx.TransportError:
        return False


def _forward(server: socket.socket, address: str) -> None:
    """Copy bytes between each client of the server and the address, until the server is closed."""
    host, _, port = address.rpartition(":")
    while True:
        try:
            client, _ = server.accept()
        except OSError:
            return
        broker = socket.create_connection((host, int(port)))
        for source, target in ((client, broker), (broker, client)):
            threading.Thread(target=_copy, args=(source, target), daemon=True).start()


def _copy(source: socket.socket, target: socket.socket) -> None:
    try:
        while data := source.recv(65_536):
            target.sendall(data)
    except OSError:
        return
    target.close()
