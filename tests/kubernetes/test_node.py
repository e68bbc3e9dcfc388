"""The parts of the node of the tests that need no API server: the kubelet's own server, and the listeners of Services."""

import json
import socket
import ssl
import struct
import sys
import threading
from collections.abc import Iterator, Sequence
from contextlib import closing
from pathlib import Path
from typing import Any

import httpx
import pytest

from tests.kubernetes.kubelet_server import KubeletServer
from tests.kubernetes.service_network import Addresses, Forwarder


class Pod:
    def __init__(self, log: Path) -> None:
        self.log = log

    def command(self, words: Sequence[str]) -> list[str]:
        return [sys.executable, *words]


@pytest.fixture
def server(tmp_path: Path) -> Iterator[KubeletServer]:
    pod = Pod(tmp_path / "log")
    pod.log.write_text("one\ntwo\nthree\n")
    found = {("shop", "api-0"): pod}
    with closing(KubeletServer(tmp_path, lambda *name: found.get(name))) as running:
        yield running


def test_logs_are_whole_or_their_last_lines(server: KubeletServer) -> None:
    with httpx.Client(base_url=f"https://127.0.0.1:{server.port}", verify=False) as client:  # noqa: S501 - as the API server does
        assert client.get("/containerLogs/shop/api-0/api").text == "one\ntwo\nthree\n"
        assert client.get("/containerLogs/shop/api-0/api", params={"tailLines": 2}).text == "two\nthree\n"
        assert client.get("/containerLogs/shop/api-1/api").status_code == 404


@pytest.mark.parametrize(("code", "status"), [(0, "Success"), (3, "Failure")])
def test_a_command_returns_its_output_and_its_exit_code(server: KubeletServer, code: int, status: str) -> None:
    source = f"import sys; print('x' * 70000); sys.stderr.write('why'); sys.exit({code})"
    frames = executed(server.port, "-c", source)
    assert (frames[1], frames[2]) == (b"x" * 70000 + b"\n", b"why")
    found = json.loads(frames[3])
    assert found["status"] == status
    assert [cause["message"] for cause in found.get("details", {}).get("causes", [])] == ([str(code)] if code else [])


def executed(port: int, *words: str) -> dict[int, bytes]:
    """Return channel -> data of a command, as WebSocket has them."""
    context = ssl.create_default_context()
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    query = httpx.QueryParams([("command", word) for word in words])
    head = (
        f"GET /exec/shop/api-0/api?{query} HTTP/1.1\r\nHost: node\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n"
        "Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n"
        "Sec-WebSocket-Protocol: v5.channel.k8s.io\r\n\r\n"
    )
    with socket.create_connection(("127.0.0.1", port), timeout=60) as plain, context.wrap_socket(plain) as connection:
        connection.sendall(head.encode())
        answer: Any = connection.makefile("rb")
        assert answer.readline() == b"HTTP/1.1 101 Switching Protocols\r\n"
        headers = dict(line.decode().strip().split(": ", 1) for line in iter(answer.readline, b"\r\n"))
        assert headers["Sec-WebSocket-Accept"] == "s3pPLMBiTxaQ9kYGzzhZRbK+xOo="  # the example of RFC 6455
        found: dict[int, bytes] = {}
        while (first := answer.read(2))[0] == 0x82:
            size = first[1]
            if size == 126:
                [size] = struct.unpack(">H", answer.read(2))
            elif size == 127:
                [size] = struct.unpack(">Q", answer.read(8))
            data = answer.read(size)
            found[data[0]] = found.get(data[0], b"") + data[1:]
        return found


def test_a_service_connects_with_the_pod_that_is_ready_now() -> None:
    addresses = Addresses()
    places: list[tuple[str, int]] = []
    with closing(Forwarder(addresses.new(), 18080, lambda: places[-1] if places else None)) as forwarder:
        with echo(addresses.new(), b"first") as place, socket.create_connection(forwarder.place, timeout=60) as client:
            places.append(place)  # after the connection: it waits for a pod
            client.sendall(b"x")
            client.shutdown(socket.SHUT_WR)
            assert client.makefile("rb").read() == b"firstx"
        with echo(addresses.new(), b"second") as place:
            places.append(place)
            with socket.create_connection(forwarder.place, timeout=60) as client:
                client.shutdown(socket.SHUT_WR)
                assert client.makefile("rb").read() == b"second"


class echo:
    """A server that answers one client with its name and what the client has sent."""

    def __init__(self, address: str, name: bytes) -> None:
        self._listener = socket.create_server((address, 0))
        self._name = name

    def __enter__(self) -> tuple[str, int]:
        self._thread = threading.Thread(target=self._serve, daemon=True)
        self._thread.start()
        host, port = self._listener.getsockname()
        return host, port

    def __exit__(self, *_: object) -> None:
        self._thread.join(60)
        self._listener.close()

    def _serve(self) -> None:
        client, _ = self._listener.accept()
        with client, client.makefile("rb") as received:
            client.sendall(self._name + received.read())
