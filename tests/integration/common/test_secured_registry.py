"""The client of the registry, in front of a real one: TLS and basic authentication, as an ingress or a proxy requires them."""

import base64
import ssl
from collections.abc import Iterator
from dataclasses import dataclass
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread
from urllib.parse import urlsplit

import httpx
import pytest

from starling_common.wire import Registry, RegistryUnavailable
from starling_common.wire.registry import registry_security
from tests.certificates import Authority
from tests.conftest import Stack

PASSWORD = "of the registry"


@dataclass(frozen=True)
class Proxy:
    """`context`: of the running server, for its next connections."""

    url: str
    authority: Path
    foreign_authority: Path
    context: ssl.SSLContext


def _handler(target: str) -> type[BaseHTTPRequestHandler]:
    expected = "Basic " + base64.b64encode(f"starling:{PASSWORD}".encode()).decode()

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self._pass_on()

        def do_POST(self) -> None:
            self._pass_on()

        def do_PUT(self) -> None:
            self._pass_on()

        def _pass_on(self) -> None:
            body = self.rfile.read(int(self.headers.get("Content-Length") or 0)) or None
            if self.headers.get("Authorization") != expected:
                self._answer(401, b'{"error_code": 401, "message": "unauthorized"}')
                return
            kind = self.headers.get("Content-Type") or "application/json"
            answer = httpx.request(self.command, target + self.path, content=body, headers={"Content-Type": kind}, timeout=30)
            self._answer(answer.status_code, answer.content)

        def _answer(self, status: int, body: bytes) -> None:
            self.send_response(status)
            self.send_header("Content-Type", "application/json")
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, format: str, *args: object) -> None:  # noqa: A002 - the library's name
            pass

    return Handler


@pytest.fixture
def proxy(stack: Stack, tmp_path: Path) -> Iterator[Proxy]:
    authority, foreign = Authority("Starling tests"), Authority("Another authority")
    certificate, key = authority.issue("registry")
    paths = {name: tmp_path / f"{name}.pem" for name in ("authority", "foreign", "server")}
    for name, content in (("authority", authority.certificate), ("foreign", foreign.certificate), ("server", certificate + key)):
        paths[name].write_bytes(content)
    place = urlsplit(stack.registry_url)
    server = ThreadingHTTPServer(("127.0.0.1", 0), _handler(f"{place.scheme}://{place.netloc}"))
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(paths["server"])
    server.socket = context.wrap_socket(server.socket, server_side=True)
    server.daemon_threads = True
    thread = Thread(target=server.serve_forever, args=(0.05,), daemon=True)
    thread.start()
    yield Proxy(f"https://127.0.0.1:{server.server_port}{place.path}", paths["authority"], paths["foreign"], context)
    server.shutdown()
    server.server_close()
    thread.join()


@pytest.fixture
def secure(monkeypatch: pytest.MonkeyPatch, proxy: Proxy) -> Iterator[pytest.MonkeyPatch]:
    for name, value in (("USERNAME", "starling"), ("PASSWORD", PASSWORD), ("SSL_CA_FILE", str(proxy.authority))):
        monkeypatch.setenv(f"STARLING_REGISTRY__{name}", value)
    registry_security.cache_clear()
    yield monkeypatch
    monkeypatch.undo()
    registry_security.cache_clear()


@pytest.mark.usefixtures("secure")
def test_schemas_are_registered_and_read(proxy: Proxy) -> None:
    registry = Registry(proxy.url)
    schema_id = registry.register("secured-value", "ClockAdvanced", "FULL_TRANSITIVE")
    assert registry.newest("secured")[0] == schema_id
    assert registry.codec("secured", "ClockAdvanced").schema_id == schema_id


@pytest.mark.parametrize(
    ("variable", "value", "message"),
    [("PASSWORD", "wrong", "401|unauthorized"), ("SSL_CA_FILE", "foreign", "(?i)certificate verify failed")],
)
def test_a_refusal_has_its_reason(proxy: Proxy, secure: pytest.MonkeyPatch, variable: str, value: str, message: str) -> None:
    secure.setenv(f"STARLING_REGISTRY__{variable}", str(proxy.foreign_authority) if value == "foreign" else value)
    registry_security.cache_clear()
    with pytest.raises(RegistryUnavailable, match=message):
        Registry(proxy.url).newest("ingest.track")


def test_certificates_are_rotated_while_a_client_is_used(proxy: Proxy, secure: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """The steps of docs/explanation/security.md. Each call reads the file of authorities, so no process restarts."""
    authority, trusted, served = Authority("The next authority"), tmp_path / "trusted.pem", tmp_path / "next.pem"
    trusted.write_bytes(proxy.authority.read_bytes())
    secure.setenv("STARLING_REGISTRY__SSL_CA_FILE", str(trusted))
    registry_security.cache_clear()
    registry = Registry(proxy.url)
    first = registry.register("rotated-value", "ClockAdvanced", "FULL_TRANSITIVE")

    served.write_bytes(b"".join(authority.issue("registry")))
    proxy.context.load_cert_chain(served)
    with pytest.raises(RegistryUnavailable, match=r"(?i)certificate verify failed"):
        registry.newest("rotated")
    trusted.write_bytes(proxy.authority.read_bytes() + authority.certificate)
    assert registry.newest("rotated")[0] == first
    trusted.write_bytes(authority.certificate)
    assert registry.codec("rotated", "ClockAdvanced").schema_id == first
