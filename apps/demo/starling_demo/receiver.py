"""Adapter: a local webhook endpoint that verifies signatures with the published library and stores the messages."""

import json
import sys
import threading
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

from standardwebhooks.webhooks import Webhook, WebhookVerificationError


@dataclass
class Receiver:
    """Answers 204 to a call with a valid signature, else 401; the first `failures` valid calls get `failure_status`."""

    secret: str
    failures: int = 0
    failure_status: int = 503
    calls: list[dict[str, Any]] = field(default_factory=list)
    forged: int = 0

    def __post_init__(self) -> None:
        self._lock = threading.Lock()
        self._server = _Server(("127.0.0.1", 0), _handler(self))
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.05,), name="webhook-receiver", daemon=True)
        self._thread.start()

    @property
    def url(self) -> str:
        """Return the address of the endpoint."""
        return f"http://127.0.0.1:{self._server.server_port}/hook"

    def close(self) -> None:
        """Stop the server."""
        self._server.shutdown()
        self._server.server_close()

    def take(self, headers: dict[str, str], body: bytes) -> int:
        """Return the status of the answer. `calls` contains each delivered message once, also after a retry."""
        try:
            Webhook(self.secret).verify(body, headers)
        except WebhookVerificationError:
            with self._lock:
                self.forged += 1
            return 401
        with self._lock:
            if self.failures > 0:
                self.failures -= 1
                return self.failure_status
            message = {"id": headers["webhook-id"], **json.loads(body)}
            if all(known["id"] != message["id"] for known in self.calls[-50:]):
                self.calls.append(message)
        return 204


class _Server(ThreadingHTTPServer):
    daemon_threads = True

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Print the error, unless the sender was killed."""
        if not isinstance(sys.exception(), ConnectionError):
            super().handle_error(request, client_address)


def _handler(receiver: Receiver) -> type[BaseHTTPRequestHandler]:
    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_POST(self) -> None:
            """Handle one call."""
            body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
            status = receiver.take({name.lower(): value for name, value in self.headers.items()}, body)
            self.send_response(status)
            self.send_header("Content-Length", "0")
            self.end_headers()

        def log_message(self, format: str, *args: object) -> None:  # noqa: A002 - the library's name
            """Suppress the access log."""

    return Handler
