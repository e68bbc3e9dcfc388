"""Schema ids that the registry does not know."""

import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import NoReturn

import pytest

from starling_common.wire import Registry, RegistryUnavailable, UnknownSchema


class EmptyRegistry(BaseHTTPRequestHandler):
    """A registry without schemas, which lists the requests."""

    paths: list[str]

    def do_GET(self) -> None:
        self.paths.append(self.path.split("?")[0])
        body = b'{"error_code": 40403, "message": "no schema has this id"}'
        self.send_response(404)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_: object) -> None:
        """Stay silent."""


@pytest.fixture
def asked() -> Iterator[tuple[str, list[str]]]:
    """Return the address of an empty registry, and the requests that it received."""
    paths: list[str] = []
    with ThreadingHTTPServer(("127.0.0.1", 0), type("Handler", (EmptyRegistry,), {"paths": paths})) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield f"http://127.0.0.1:{server.server_port}", paths
        server.shutdown()


def test_an_unknown_id_is_looked_up_once(asked: tuple[str, list[str]]) -> None:
    url, paths = asked
    registry = Registry(url)
    for schema_id in (7, 7, 8, 7, 8):
        with pytest.raises(UnknownSchema, match=str(schema_id)):
            registry.schema(schema_id)
    assert paths == ["/schemas/ids/7", "/schemas/ids/8"]


def test_unknown_ids_take_bounded_memory(asked: tuple[str, list[str]], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("starling_common.wire.registry._MOST_UNKNOWN", 2)
    url, paths = asked
    registry = Registry(url)
    for schema_id in (1, 2, 3, 1):
        with pytest.raises(UnknownSchema):
            registry.schema(schema_id)
    assert len(paths) == 4


def test_an_unknown_id_is_looked_up_again_later(asked: tuple[str, list[str]], monkeypatch: pytest.MonkeyPatch) -> None:
    now = [100.0]
    monkeypatch.setattr("starling_common.wire.registry.monotonic", lambda: now[0])
    url, paths = asked
    registry = Registry(url)
    for later in (0.0, 299.0, 2.0):
        now[0] += later
        with pytest.raises(UnknownSchema):
            registry.schema(5)
    assert len(paths) == 2


@pytest.mark.parametrize(
    ("url", "reads_authorities"),
    [
        ("http://127.0.0.1:1", False),
        ("https://127.0.0.1:1", True),
        ("HTTPS://127.0.0.1:1", True),
        ("http://127.0.0.1:1,https://127.0.0.1:2", True),
    ],
)
def test_only_a_connection_without_tls_reads_no_authorities(
    url: str, reads_authorities: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    configurations: list[dict[str, object]] = []

    def client(configuration: dict[str, object]) -> NoReturn:
        configurations.append(configuration)
        raise OSError("no registry")

    monkeypatch.setattr("starling_common.wire.registry.SchemaRegistryClient", client)
    with pytest.raises(RegistryUnavailable):
        Registry(url).schema(7)
    assert [configuration.get("ssl.ca.location", True) for configuration in configurations] == [reads_authorities]
