"""The edge's life: start without what it needs, stop in the middle of the work, and a broker that is not there."""

import asyncio
import json
import os
import socket
import subprocess
import sys
import threading
import uuid
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import httpx
import pytest

from starling_common.kafka.clients import BrokerUnavailable
from starling_common.wire import Registry
from starling_ingest.publishing.intake import Outgoing, QueueFull
from starling_ingest.publishing.publish import Publisher
from tests.conftest import Stack
from tests.integration.ingest.edge_process import EdgeProcess, records, running

TRACK = {"userId": "u-1", "event": "e"}


@contextmanager
def silent_address() -> Iterator[str]:
    """An address that accepts no connection, reserved for the test."""
    with socket.socket() as holder:
        holder.bind(("127.0.0.1", 0))
        yield f"127.0.0.1:{holder.getsockname()[1]}"


def send_until_refused(edge: EdgeProcess, taken: list[str], started: threading.Event) -> None:
    with httpx.Client(headers={"x-write-key": "key"}, timeout=30) as client:
        while True:
            message_id = uuid.uuid4().hex
            try:
                answer = client.post(f"{edge.url}/v1/track", json={**TRACK, "messageId": message_id})
            except httpx.TransportError:
                return
            if answer.status_code != 200:
                assert answer.status_code == 503, answer.text
                assert answer.json()["code"] == "not_ready"
                return
            taken.append(message_id)
            if len(taken) > 100:
                started.set()


def test_a_stop_in_the_middle_of_the_work_loses_nothing_that_was_acknowledged(stack: Stack, workspace: str, tmp_path: Path) -> None:
    taken: list[str] = []
    started = threading.Event()
    with running(stack.environment() | {"STARLING_WRITE_KEYS": f"key={workspace}"}, tmp_path) as edge:
        senders = [threading.Thread(target=send_until_refused, args=(edge, taken, started)) for _ in range(8)]
        for sender in senders:
            sender.start()
        assert started.wait(60)
        assert edge.stop() == 0
        for sender in senders:
            sender.join(30)
    codec = Registry(stack.registry_url).codec("ingest.track", "IngestReceived")
    written = [codec.decode(message.value() or b"")["message_id"] for message in records(stack.brokers, "ingest.track", workspace)]
    assert set(taken) <= set(written)
    assert '"requests_given_up": 0' in edge.log.read_text()


@pytest.mark.parametrize("missing", ["STARLING_KAFKA__BROKERS", "STARLING_REGISTRY__URL"])
def test_without_a_dependency_it_waits_and_names_it(stack: Stack, tmp_path: Path, missing: str) -> None:
    with silent_address() as address:
        settings = stack.environment() | {
            "STARLING_WRITE_KEYS": "key=w",
            missing: address if "KAFKA" in missing else f"http://{address}",
        }
        with running(settings, tmp_path, until_ready=False) as edge:
            answer = httpx.get(f"{edge.url}/readyz")
            assert answer.status_code == 503
            assert answer.json()["checks"]["start"] != "ok"
            refused = httpx.post(f"{edge.url}/v1/track", json=TRACK, headers={"x-write-key": "key"})
            assert refused.status_code == 503
            assert refused.json()["code"] == "not_ready"
            assert int(refused.headers["retry-after"]) >= 1
            assert httpx.get(f"{edge.url}/healthz").status_code == 200
            assert edge.stop() == 0


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        ({}, "write_keys"),
        ({"STARLING_WRITE_KEYS": "nonsense"}, "key=workspace"),
        ({"STARLING_WRITE_KEYS": "k=w", "STARLING_HTTP__PORT": "0"}, "port"),
    ],
)
def test_settings_that_cannot_be_end_it_at_once(settings: dict[str, str], words: str) -> None:
    needed = {
        "STARLING_KAFKA__BROKERS": "127.0.0.1:1",
        "STARLING_REGISTRY__URL": "http://127.0.0.1:1",
        "STARLING_HTTP__PORT": "1",
        "STARLING_INSTANCE_ID": "edge",
    }
    plain = {name: value for name, value in os.environ.items() if not name.startswith("STARLING_")}
    ended = subprocess.run(
        [sys.executable, "-m", "starling_ingest"],
        env=plain | needed | settings,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert ended.returncode == 1
    assert words in ended.stderr


def test_a_port_that_is_taken_ends_it() -> None:
    with socket.socket() as holder:
        holder.bind(("127.0.0.1", 0))
        holder.listen()
        port = holder.getsockname()[1]
        settings = {
            "STARLING_KAFKA__BROKERS": "127.0.0.1:1",
            "STARLING_REGISTRY__URL": "http://127.0.0.1:1",
            "STARLING_HTTP__PORT": str(port),
            "STARLING_INSTANCE_ID": "edge",
            "STARLING_WRITE_KEYS": "key=w",
        }
        ended = subprocess.run(
            [sys.executable, "-m", "starling_ingest"],
            env=os.environ | settings,
            capture_output=True,
            text=True,
            timeout=60,
            check=False,
        )
    assert ended.returncode == 1
    assert ended.stderr == ""
    (logged,) = [record for record in map(json.loads, ended.stdout.splitlines()) if record["event"] == "cannot_listen"]
    assert logged["address"].endswith(f":{port}")
    assert logged["reason"].startswith("Address already in use")
    assert "STARLING_HTTP__PORT" in logged["cure"]


def test_unacknowledged_records_fail_in_time_and_leave_the_queue() -> None:
    async def story(address: str) -> None:
        publisher = Publisher(address, ack_timeout_ms=500, high_water_records=4, high_water_bytes=2**20)
        two = [Outgoing("ingest.track", b"w/u", b"value", 1), Outgoing("ingest.track", b"w/u", b"value", 2)]
        assert publisher.oldest() is None
        waiting = publisher.publish("w", two, [], 7)
        later = publisher.publish("other", two[:1], [], 9)
        assert publisher.oldest() == 7
        assert publisher.records_in_flight == 3
        with pytest.raises(QueueFull):
            publisher.publish("w", two, [])
        assert publisher.records_in_flight == 3
        for request in (waiting, later):
            with pytest.raises(BrokerUnavailable):
                await request
        assert publisher.oldest() is None
        assert publisher.records_in_flight == 0
        with pytest.raises(BrokerUnavailable):
            await publisher.publish("w", two, [])
        with pytest.raises(BrokerUnavailable):
            await asyncio.to_thread(publisher.topics, 0.2)
        assert await publisher.close(1) == 0

    with silent_address() as address:
        asyncio.run(story(address))


def test_bytes_are_bounded_as_well() -> None:
    async def story(address: str) -> None:
        publisher = Publisher(address, ack_timeout_ms=500, high_water_records=100, high_water_bytes=2**20)
        with pytest.raises(QueueFull):
            publisher.publish("w", [Outgoing("ingest.track", b"w/u", bytes(2**20 + 1), 1)], [])
        assert publisher.records_in_flight == 0
        assert await publisher.close(1) == 0

    with silent_address() as address:
        asyncio.run(story(address))


def test_a_workspace_that_fills_its_share_of_the_queue_leaves_room_for_others() -> None:
    async def story(address: str) -> None:
        publisher = Publisher(address, ack_timeout_ms=500, high_water_records=100, high_water_bytes=2**20)
        ten = [Outgoing("ingest.track", b"w/u", b"value", 1)] * 10
        waiting = [publisher.publish("busy", ten, []) for _ in range(5)]
        with pytest.raises(QueueFull):
            publisher.publish("busy", ten, [])
        waiting.append(publisher.publish("quiet", ten, []))
        for request in waiting:
            with pytest.raises(BrokerUnavailable):
                await request
        assert publisher.records_in_flight == 0
        assert await publisher.close(1) == 0

    with silent_address() as address:
        asyncio.run(story(address))


@pytest.mark.parametrize("chunked", [False, True], ids=["length", "chunked"])
def test_a_client_that_drips_its_body_is_cut_off(tmp_path: Path, chunked: bool) -> None:
    settings = {
        "STARLING_KAFKA__BROKERS": "127.0.0.1:1",
        "STARLING_REGISTRY__URL": "http://127.0.0.1:1",
        "STARLING_WRITE_KEYS": "key=w",
        "STARLING_BODY_TIMEOUT_SECONDS": "1",
    }
    framing = "Transfer-Encoding: chunked" if chunked else "Content-Length: 1000"
    byte = b"1\r\n{\r\n" if chunked else b"{"
    with running(settings, tmp_path, until_ready=False) as edge:
        host, port = edge.url.removeprefix("http://").split(":")
        with socket.create_connection((host, int(port)), timeout=30) as client:
            client.sendall(f"POST /v1/batch HTTP/1.1\r\nHost: edge\r\nX-Write-Key: key\r\n{framing}\r\n\r\n".encode())
            client.settimeout(0.1)
            answer, sent = b"", 0
            while not answer.endswith(b"}"):
                with suppress(TimeoutError):
                    received = client.recv(65_536)
                    assert received, f"closed without an answer, after {answer!r}"
                    answer += received
                if not answer:
                    client.sendall(byte)
                    sent += 1
            client.settimeout(30)
            with suppress(ConnectionResetError):
                assert client.recv(1) == b"", "the connection stays open"
        assert answer.startswith(b"HTTP/1.1 408 ")
        assert b'"code":"body_timeout"' in answer
        assert sent > 1
        assert httpx.get(f"{edge.url}/healthz").status_code == 200
