"""Adapter: `/healthz`, `/readyz` and `/metrics` of a worker, answered by a small thread of its own."""

import json
from collections.abc import Callable, Mapping
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Thread

from prometheus_client import CONTENT_TYPE_LATEST, CollectorRegistry, generate_latest

Checks = Callable[[], Mapping[str, str | None]]
"""Name of a check -> what is wrong, or None when it is well."""


class HealthServer:
    """Serves until `stop`. `alive` failing asks for a restart, `ready` failing asks for no traffic."""

    def __init__(self, address: tuple[str, int], registry: CollectorRegistry, *, alive: Checks, ready: Checks) -> None:
        """Raises: OSError when the address is taken."""
        routes = {
            "/healthz": lambda: _checks(alive),
            "/readyz": lambda: _checks(ready),
            "/metrics": lambda: (200, CONTENT_TYPE_LATEST, generate_latest(registry)),
        }
        self._server = ThreadingHTTPServer(address, _handler(routes))
        self._server.daemon_threads = True
        self._thread = Thread(target=self._server.serve_forever, args=(0.1,), name="health", daemon=True)

    @property
    def port(self) -> int:
        """The port in use; the system's choice when 0 was asked for."""
        return self._server.server_port

    def start(self) -> None:
        """Begin to answer."""
        self._thread.start()

    def stop(self) -> None:
        """Stop answering and free the port."""
        self._server.shutdown()
        self._server.server_close()
        self._thread.join(timeout=5)


Answer = tuple[int, str, bytes]


def checks_answer(checks: Mapping[str, str | None]) -> Answer:
    """Status, content type and body for a set of checks; also for services that serve these paths themselves."""
    wrong = {name: problem for name, problem in checks.items() if problem is not None}
    body = {"status": "fail" if wrong else "pass", "checks": {name: wrong.get(name, "ok") for name in checks}}
    return (503 if wrong else 200), "application/json", json.dumps(body).encode()


def _checks(ask: Checks) -> Answer:
    return checks_answer(ask())


def _handler(routes: Mapping[str, Callable[[], Answer]]) -> type[BaseHTTPRequestHandler]:
    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            """Answer one request."""
            route = routes.get(self.path.partition("?")[0])
            status, content_type, body = route() if route else (404, "text/plain", b"not found\n")
            self.send_response(status)
            self.send_header("Content-Type", content_type)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, format: str, *args: object) -> None:  # noqa: A002 - the library's name
            """Say nothing: probes come every second."""

    return Handler
