"""The sink `opensearch` against a server with scripted answers: busy servers, large requests, logins and TLS."""

import json
import ssl
from base64 import b64encode
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from threading import Thread
from typing import Any

import httpx
import pytest
from pydantic import SecretStr

from starling_spark.sinks.catalogue import Destination, sink_of
from starling_spark.sinks.port import Run, Sink, SinkRefused, SinkUnavailable, Written
from tests.certificates import Authority
from tests.contract.sinks.sink_contract import SHAPE, batch, row

PASSWORD = "planted-3c9d"
SECRET = "the entry 'crm' of STARLING_EXPORTS_PASSWORDS"
BUSY = {"type": "rejected_execution_exception", "reason": "the queue is full"}


class Server(HTTPServer):
    """Answers bulk requests. `script`: statuses, headers and errors by document, in order; without one all are accepted.

    `versions`: by id, as external versions demand.
    """

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), Handler)
        self.script: list[tuple[int, dict[str, str], list[dict[str, Any] | None]]] = []
        self.versions: dict[str, int] = {}
        self.sizes: list[int] = []
        self.logins: list[str | None] = []
        self.most_documents = 1_000

    def bulk(self, lines: list[dict[str, Any]], errors: list[dict[str, Any] | None]) -> list[dict[str, Any]]:
        items = []
        for number, (action, document) in enumerate(zip(lines[::2], lines[1::2], strict=True)):
            asked = action["index"]
            assert asked["version_type"] == "external"
            assert asked["version"] == document["row_version"]
            error, status = (errors[number] if number < len(errors) else None), 201
            if error is not None:
                status = 429 if error is BUSY else 400
            elif self.versions.get(asked["_id"], -1) >= asked["version"]:
                error, status = {"type": "version_conflict_engine_exception", "reason": "version conflict"}, 409
            else:
                self.versions[asked["_id"]] = asked["version"]
            items.append({"index": {"status": status} | ({"error": error} if error else {})})
        return items


class Handler(BaseHTTPRequestHandler):
    server: Server

    def do_GET(self) -> None:
        self.server.logins.append(self.headers["Authorization"])
        self._answer(*(self.server.script.pop(0)[:2] if self.server.script else (200, {})), {})

    def do_POST(self) -> None:
        self.server.logins.append(self.headers["Authorization"])
        assert self.headers["Content-Type"] == "application/x-ndjson"
        lines = [json.loads(line) for line in self.rfile.read(int(self.headers["Content-Length"])).splitlines()]
        self.server.sizes.append(len(lines) // 2)
        if len(lines) // 2 > self.server.most_documents:
            self._answer(413, {}, {})
            return
        status, headers, errors = self.server.script.pop(0) if self.server.script else (200, {}, [])
        self._answer(status, headers, {"items": self.server.bulk(lines, errors)} if status == 200 else {"error": BUSY})

    def log_message(self, *_: object) -> None:
        """Print nothing."""

    def _answer(self, status: int, headers: dict[str, str], document: dict[str, Any]) -> None:
        body = json.dumps(document).encode()
        self.send_response(status)
        for name, value in (headers | {"Content-Length": str(len(body))}).items():
            self.send_header(name, value)
        self.end_headers()
        self.wfile.write(body)


@pytest.fixture
def server() -> Iterator[Server]:
    with Server() as made:
        Thread(target=made.serve_forever, args=(0.05,), daemon=True).start()
        yield made
        made.shutdown()


@pytest.fixture
def waits(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    found: list[float] = []
    monkeypatch.setattr("starling_spark.sinks.opensearch.time.sleep", found.append)
    return found


def sink(server: Server, user: str = "", password: str | None = None, scheme: str = "http") -> Sink:
    secret = None if password is None else SecretStr(password)
    return sink_of(Destination("opensearch", f"{scheme}://{user}127.0.0.1:{server.server_port}", "crm", secret, SECRET, ""))


def written(chosen: Sink, *users: str, version: int = 1) -> Written:
    return chosen.write(SHAPE, Run("members", 1), [batch([row(user, version) for user in users])], 10)


def test_a_repetition_and_an_older_writer_change_nothing(server: Server) -> None:
    for version in (2, 2, 1):
        assert written(sink(server), "ann", "bob", version=version).accepted == 2
    assert list(server.versions.values()) == [2, 2]
    assert written(sink(server), "ann", version=3) == Written(1)


def test_a_busy_server_and_busy_documents_are_asked_again(server: Server, waits: list[float]) -> None:
    refused = {"type": "mapper_parsing_exception", "reason": "failed to parse", "caused_by": {"reason": "no number"}}
    server.script = [(503, {}, []), (429, {"Retry-After": "7"}, []), (200, {}, [None, BUSY, refused, BUSY]), (200, {}, [BUSY])]
    found = written(sink(server), "ann", "bob", "eve", "zoe")
    assert (found.accepted, server.sizes) == (3, [4, 4, 4, 2, 1])
    (rejected,) = found.rejected
    assert (rejected.key, rejected.code, rejected.reason) == (
        "acme/eve", "mapper_parsing_exception", "failed to parse (no number)",
    )  # fmt: skip
    assert waits == [0.5, 7.0, 0.5, 1.0]


def test_a_server_that_stays_busy_ends_the_run(server: Server, waits: list[float]) -> None:
    server.script = [(429, {}, [])] * 100
    with pytest.raises(SinkUnavailable, match="the answer is 429, the queue is full: wait until it answers"):
        written(sink(server), "ann")
    server.script = [(200, {}, [BUSY])] * 100
    with pytest.raises(SinkUnavailable, match="crm: the queue is full: wait until the index accepts documents"):
        written(sink(server), "ann")
    assert sum(waits) >= 240
    server.server_close()
    with pytest.raises(SinkUnavailable, match="correct host and port, or start the server"):
        written(sink(server), "ann")


def test_a_request_that_is_too_large_is_divided(server: Server) -> None:
    server.most_documents = 1
    assert written(sink(server), "ann", "bob", "eve").accepted == 3
    assert server.sizes == [3, 1, 2, 1, 1]
    server.most_documents = 0
    assert [one.code for one in written(sink(server), "ann", "bob").rejected] == ["too_large", "too_large"]


def test_a_login_is_sent_and_a_wrong_one_is_one_clear_error(server: Server) -> None:
    sink(server, "loader@", PASSWORD).check(SHAPE)
    sink(server, "", PASSWORD).check(SHAPE)
    sink(server).check(SHAPE)
    assert server.logins == [f"Basic {b64encode(f'loader:{PASSWORD}'.encode()).decode()}", f"ApiKey {PASSWORD}", None]
    for status in (401, 403):
        server.script = [(status, {}, [])]
        with pytest.raises(SinkRefused, match=r"correct the entry 'crm' of STARLING_EXPORTS_PASSWORDS") as caught:
            sink(server, "loader@", PASSWORD).check(SHAPE)
        assert PASSWORD not in f"{caught.value}{caught.value.__cause__}{sink(server, 'loader@', PASSWORD)!r}"


def test_a_certificate_is_checked(server: Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    authority = Authority("tests")
    certificate, key = authority.issue("opensearch")
    (tmp_path / "node.pem").write_bytes(certificate + key)
    (tmp_path / "ca.pem").write_bytes(authority.certificate)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(tmp_path / "node.pem")
    server.socket = context.wrap_socket(server.socket, server_side=True)
    monkeypatch.setattr(server, "handle_error", lambda *_: None)
    monkeypatch.setattr(httpx._transports.default, "create_ssl_context", httpx.create_ssl_context)  # the tests have one context
    with pytest.raises(SinkRefused, match="correct the certificate, or SSL_CERT_FILE of the job"):
        sink(server, "loader@", PASSWORD, "https").check(SHAPE)
    monkeypatch.setenv("SSL_CERT_FILE", str(tmp_path / "ca.pem"))
    sink(server, "loader@", PASSWORD, "https").check(SHAPE)
    assert len(server.logins) == 1
