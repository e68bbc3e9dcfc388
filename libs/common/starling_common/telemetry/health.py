"""Adapter: `/healthz`, `/readyz` and `/metrics` of a worker, served by a separate thread."""

import json
from collections.abc import Callable, Mapping
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Thread
from time import monotonic

from prometheus_client import CONTENT_TYPE_LATEST, CollectorRegistry, generate_latest

Checks = Callable[[], Mapping[str, str | None]]
"""Returns the error of each check by its name; None for a check that passes."""


class Degraded(str):
    """A problem with which the process goes on serving, such as an outage during which it uses what it knows."""

    __slots__ = ()


class Turns:
    """The turns of a loop, for its liveness. One thread turns, others may call `problem`."""

    def __init__(self, loop: str, most_seconds: float, clock: Callable[[], float] = monotonic) -> None:
        """`loop`: its name in the error. `most_seconds`: more than any wait of the loop that ends without a restart."""
        self._loop = loop
        self._most_seconds = most_seconds
        self._clock = clock
        self._last: float | None = None

    def turned(self) -> None:
        """Note that the loop turns, or that a wait for another process goes on."""
        self._last = self._clock()

    def rest(self) -> None:
        """Note that the loop has ended, or begins work of unknown duration; the next turn ends that."""
        self._last = None

    def problem(self) -> str | None:
        """Return the error of a loop that has not turned for too long; None before its first turn."""
        last = self._last
        silent = 0.0 if last is None else self._clock() - last
        return f"{self._loop} has not turned for {silent:.0f} s: restart this process" if silent > self._most_seconds else None


class HealthServer:
    """An HTTP server until `stop`. A failed `alive` check requests a restart; a failed `ready` check requests no traffic."""

    def __init__(self, address: tuple[str, int], registry: CollectorRegistry, *, alive: Checks, ready: Checks) -> None:
        """Bind the address. Raises: OSError if it is in use."""
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
        """The port of the server; the system chooses it if the requested port is 0."""
        return self._server.server_port

    def start(self) -> None:
        """Start to serve."""
        self._thread.start()

    def stop(self) -> None:
        """Stop serving and release the port."""
        self._server.shutdown()
        self._server.server_close()
        self._thread.join(timeout=5)


Answer = tuple[int, str, bytes]


def checks_answer(checks: Mapping[str, str | None]) -> Answer:
    """Return status, content type and body for the results of checks; also for services with their own HTTP server.

    The status is `warn` with 200 if every problem is `Degraded`.
    """
    problems = [problem for problem in checks.values() if problem is not None]
    failed = any(not isinstance(problem, Degraded) for problem in problems)
    status = "fail" if failed else "warn" if problems else "pass"
    body = {"status": status, "checks": {name: "ok" if problem is None else problem for name, problem in checks.items()}}
    return (503 if failed else 200), "application/json", json.dumps(body).encode()


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
            """Log nothing: probes arrive every second."""

    return Handler
