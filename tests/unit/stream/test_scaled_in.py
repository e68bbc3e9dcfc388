"""The hook of a stopping pod: a worker leaves its group after a scale-in, and stays a member in every other case."""

import json
import ssl
from collections.abc import Iterator
from dataclasses import dataclass
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread

import pytest

from starling_stream.worker.scaled_in import is_scaled_in, main
from tests.certificates import Authority

PATH = "/apis/apps/v1/namespaces/marketing/statefulsets/starling-segmenter/scale"


@pytest.mark.parametrize(
    ("pod", "replicas", "expected"), [("a-segmenter-3", 3, True), ("a-segmenter-2", 3, False), ("s-0", 0, True), ("s-10", 9, True)]
)
def test_a_pod_is_scaled_in_if_its_ordinal_is_not_below_the_replicas(pod: str, replicas: int, expected: bool) -> None:
    assert is_scaled_in(pod, replicas) is expected


def test_a_name_without_an_ordinal_is_refused() -> None:
    with pytest.raises(ValueError, match="not the name of a pod of a StatefulSet"):
        is_scaled_in("segmenter-7d9f", 1)


@dataclass
class Server:
    """An API server with one answer. `status` and `spec`: of the answer."""

    account: Path
    port: int = 0
    status: int = 200
    spec: str = '{"replicas": 2}'
    token: str | None = None

    def stop(self, pod: str) -> tuple[int, int]:
        """Return the exit code of the hook in that pod, and how often the worker was asked to leave."""
        left: list[None] = []
        environment = {
            "KUBERNETES_SERVICE_HOST": "127.0.0.1",
            "KUBERNETES_SERVICE_PORT": str(self.port),
            "STARLING_INSTANCE_ID": pod,
        }
        return main(["starling-segmenter"], environment, self.account, lambda: left.append(None)), len(left)


@pytest.fixture
def server(tmp_path: Path) -> Iterator[Server]:
    """The server with a certificate of an authority that the pod trusts."""
    authority = Authority("kubernetes")
    certificate, key = authority.issue("127.0.0.1")
    (tmp_path / "server.pem").write_bytes(certificate + key)
    (tmp_path / "ca.crt").write_bytes(authority.certificate)
    (tmp_path / "namespace").write_text("marketing")
    (tmp_path / "token").write_text("secret\n")
    server = Server(tmp_path)

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            server.token = self.headers["Authorization"]
            status = server.status if self.path == PATH else 500
            body = json.dumps({"spec": json.loads(server.spec)}).encode()
            self.send_response(status)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, format: str, *args: object) -> None:  # noqa: A002 - the library's name
            """Log nothing."""

    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(tmp_path / "server.pem")
    http = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    http.socket = context.wrap_socket(http.socket, server_side=True)
    server.port = http.server_port
    thread = Thread(target=http.serve_forever, args=(0.05,), daemon=True)
    thread.start()
    yield server
    http.shutdown()
    http.server_close()
    thread.join()


def test_a_worker_leaves_after_a_scale_in_and_stays_after_every_other_stop(server: Server) -> None:
    assert server.stop("starling-segmenter-2") == (0, 1)
    assert server.token == "Bearer secret"
    assert server.stop("starling-segmenter-1") == (0, 0)


def test_no_replicas_are_left_out_of_the_answer(server: Server) -> None:
    server.spec = "{}"
    assert server.stop("starling-segmenter-0") == (0, 1)


def test_without_the_stateful_set_a_worker_stays_a_member(server: Server) -> None:
    server.status = 404
    assert server.stop("starling-segmenter-5") == (0, 0)


def test_without_an_answer_a_worker_stays_a_member_and_the_hook_fails(
    server: Server, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    server.status = 403
    assert server.stop("starling-segmenter-5") == (1, 0)
    server.port = 1
    assert server.stop("starling-segmenter-5") == (1, 0)
    assert "the worker stays in its group: HTTPError: HTTP Error 403" in capsys.readouterr().err
    (tmp_path / "token").unlink()
    assert server.stop("starling-segmenter-5") == (1, 0)


def test_a_server_that_is_not_trusted_is_no_api_server(server: Server, tmp_path: Path) -> None:
    (tmp_path / "ca.crt").write_bytes(Authority("another").certificate)
    assert server.stop("starling-segmenter-5") == (1, 0)
