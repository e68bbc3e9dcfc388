"""What the API server asks a kubelet: the logs of a container, and a command in it, as `kubectl logs` and `kubectl exec` need them.

`exec` is a WebSocket with the protocol v5.channel.k8s.io: kubectl asks for it, and an API server without the feature
TranslateStreamCloseWebsocketRequests passes its stream on as it is.
"""

import base64
import hashlib
import json
import ssl
import struct
import subprocess
import threading
from collections.abc import Callable, Mapping, Sequence
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any, Final, Protocol
from urllib.parse import parse_qs, urlsplit

from tests.certificates import Authority

_PROTOCOL: Final = "v5.channel.k8s.io"
_MAGIC: Final = "258EAFA5-E914-47DA-95CA-C5AB0DC85B11"
_BINARY: Final = 2
_CLOSE: Final = 8
_STDOUT: Final = 1
_STDERR: Final = 2
_STATUS: Final = 3
_EXEC_SECONDS: Final = 600


class Running(Protocol):
    """A pod of the kubelet."""

    @property
    def log(self) -> Path: ...

    def command(self, words: Sequence[str]) -> list[str]:
        """Return the command as this machine runs it, with the environment of the container."""
        ...


class KubeletServer:
    """Listens on a free port of 127.0.0.1. `find`: returns a pod by namespace and name."""

    def __init__(self, directory: Path, find: Callable[[str, str], Running | None]) -> None:
        certificate = directory / "kubelet.pem"
        certificate.touch(mode=0o600)
        certificate.write_bytes(b"".join(Authority("kubelet").issue("node")))
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(certificate)
        self._server = ThreadingHTTPServer(("127.0.0.1", 0), _handler(find))
        self._server.socket = context.wrap_socket(self._server.socket, server_side=True)
        self._server.daemon_threads = True
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.1,), daemon=True)
        self._thread.start()

    @property
    def port(self) -> int:
        """The port, which the node's status has."""
        return self._server.server_port

    def close(self) -> None:
        """Stop listening."""
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()


def _handler(find: Callable[[str, str], Running | None]) -> type[BaseHTTPRequestHandler]:
    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_GET(self) -> None:
            address = urlsplit(self.path)
            _, what, namespace, name, *_ = [*address.path.split("/"), "", "", ""]
            pod, query = find(namespace, name), parse_qs(address.query)
            if pod is None:
                self._answer(HTTPStatus.NOT_FOUND, f"the node has no pod {namespace}/{name}".encode())
            elif what == "containerLogs":
                lines = pod.log.read_bytes().splitlines(keepends=True) if pod.log.exists() else []
                most = int(query.get("tailLines", [str(len(lines))])[0])
                self._answer(HTTPStatus.OK, b"".join(lines[len(lines) - min(most, len(lines)) :]))
            elif what == "exec" and _PROTOCOL in self.headers.get("Sec-WebSocket-Protocol", ""):
                self._run(pod, query["command"])
            else:
                self._answer(HTTPStatus.NOT_IMPLEMENTED, f"{what} is not implemented".encode())

        def _run(self, pod: Running, words: Sequence[str]) -> None:
            key = self.headers["Sec-WebSocket-Key"] + _MAGIC
            self.send_response(HTTPStatus.SWITCHING_PROTOCOLS)
            self.send_header("Upgrade", "websocket")
            self.send_header("Connection", "Upgrade")
            self.send_header(
                "Sec-WebSocket-Accept", base64.b64encode(hashlib.sha1(key.encode(), usedforsecurity=False).digest()).decode()
            )
            self.send_header("Sec-WebSocket-Protocol", _PROTOCOL)
            self.end_headers()
            done = subprocess.run(
                pod.command(words), stdin=subprocess.DEVNULL, capture_output=True, check=False, timeout=_EXEC_SECONDS
            )
            for channel, data in ((_STDOUT, done.stdout), (_STDERR, done.stderr), (_STATUS, _status(done.returncode))):
                if data:
                    self.wfile.write(_frame(_BINARY, bytes([channel]) + data))
            self.wfile.write(_frame(_CLOSE, struct.pack(">H", 1000)))
            self.wfile.flush()
            self.close_connection = True

        def _answer(self, status: HTTPStatus, body: bytes) -> None:
            self.send_response(status)
            self.send_header("Content-Type", "text/plain")
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, format: str, *args: object) -> None:  # noqa: A002 - the library's name
            """Suppress the access log."""

    return Handler


def _status(code: int) -> bytes:
    found: Mapping[str, Any] = {"metadata": {}, "status": "Success"}
    if code:
        cause = {"reason": "ExitCode", "message": str(code)}
        found = {
            "metadata": {}, "status": "Failure", "reason": "NonZeroExitCode", "details": {"causes": [cause]},
            "message": f"command terminated with exit code {code}",
        }  # fmt: skip
    return json.dumps(found).encode()


def _frame(kind: int, data: bytes) -> bytes:
    head = bytes([0x80 | kind])
    if len(data) < 126:
        return head + bytes([len(data)]) + data
    if len(data) < 65_536:
        return head + bytes([126]) + struct.pack(">H", len(data)) + data
    return head + bytes([127]) + struct.pack(">Q", len(data)) + data
