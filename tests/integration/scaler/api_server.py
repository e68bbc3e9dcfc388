"""The parts of an API server that the scaler uses, in memory: versions, conflicts and refusals as Kubernetes has them.

The real API server is in `tests/kubernetes/scaling.py`, which is no part of `make test`.
"""

import json
import re
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any, Final

import yaml

NAMESPACE: Final = "marketing"
STATEFUL_SET: Final = "starling-segmenter"
LEASE: Final = "starling-scaler"
_SCALE: Final = f"/apis/apps/v1/namespaces/{NAMESPACE}/statefulsets/{STATEFUL_SET}/scale"
_PODS: Final = f"/api/v1/namespaces/{NAMESPACE}/pods"
_EVENTS: Final = f"/api/v1/namespaces/{NAMESPACE}/events"
_LEASES: Final = f"/apis/coordination.k8s.io/v1/namespaces/{NAMESPACE}/leases"


class Refusal(Exception):
    """An answer other than 200."""

    def __init__(self, status: int, reason: str) -> None:
        super().__init__(reason)
        self.status, self.reason = status, reason


class ApiServer:
    """One StatefulSet with two replicas and its pods, at the addresses of `workers`; the Lease and the Events."""

    def __init__(self, workers: list[str]) -> None:
        self.workers = workers
        self.replicas = 2
        self.lease: dict[str, Any] | None = None
        self.events: list[dict[str, Any]] = []
        self.may_create_events = True
        self._version = 1
        self._lock = threading.Lock()

    def answer(self, method: str, path: str, body: dict[str, Any]) -> Mapping[str, Any]:
        """Return the answer to a request. Raises: Refusal."""
        path = path.partition("?")[0]
        with self._lock:
            if path == _SCALE:
                return self._scale(method, body)
            if (method, path) == ("GET", _PODS):
                return {"apiVersion": "v1", "kind": "PodList", "metadata": {}, "items": list(self._pods())}
            if (method, path) == ("POST", _EVENTS):
                return self._event(body)
            if path in {_LEASES, f"{_LEASES}/{LEASE}"}:
                return self._lease(method, body)
        if re.fullmatch(r".*/(statefulsets/missing/scale|leases/missing)", path):
            raise Refusal(404, "NotFound")
        raise Refusal(403, "Forbidden")

    def _scale(self, method: str, body: dict[str, Any]) -> Mapping[str, Any]:
        if method == "PUT":
            self._check(body, str(self._version))
            self.replicas = body["spec"]["replicas"]
            self._version += 1
        return {
            "apiVersion": "autoscaling/v1",
            "kind": "Scale",
            "metadata": {"name": STATEFUL_SET, "namespace": NAMESPACE, "uid": "u-1", "resourceVersion": str(self._version)},
            "spec": {"replicas": self.replicas} if self.replicas else {},
            "status": {"replicas": self.replicas, "selector": "app=segmenter"},
        }

    def _pods(self) -> Iterator[Mapping[str, Any]]:
        for number in range(self.replicas):
            address, port = self.workers[number % len(self.workers)].split(":")
            container = {"name": "segmenter", "ports": [{"name": "http", "containerPort": int(port)}]}
            yield {
                "metadata": {"name": f"{STATEFUL_SET}-{number}"},
                "spec": {"containers": [container]},
                "status": {"phase": "Running", "podIP": address},
            }

    def _event(self, body: dict[str, Any]) -> Mapping[str, Any]:
        if not self.may_create_events:
            raise Refusal(403, "Forbidden")
        self.events.append(body)
        return body

    def _lease(self, method: str, body: dict[str, Any]) -> Mapping[str, Any]:
        if method == "POST":
            if self.lease is not None:
                raise Refusal(409, "AlreadyExists")
        elif self.lease is None:
            raise Refusal(404, "NotFound")
        elif method == "PUT":
            self._check(body, self.lease["metadata"]["resourceVersion"])
        if method != "GET":
            self._version += 1
            self.lease = {**body, "metadata": {**body["metadata"], "resourceVersion": str(self._version)}}
        assert self.lease is not None
        return self.lease

    @staticmethod
    def _check(body: dict[str, Any], version: str) -> None:
        if body["metadata"].get("resourceVersion") not in {None, version}:
            raise Refusal(409, "Conflict")


class Server:
    """The API server over HTTP, which can be away."""

    def __init__(self, api: ApiServer) -> None:
        self.api = api
        self._http: ThreadingHTTPServer | None = None
        self._thread: threading.Thread | None = None
        self.port = 0
        self.start()

    def start(self) -> None:
        """Serve, at the port of the last time."""
        self._http = ThreadingHTTPServer(("127.0.0.1", self.port), _handler(self.api))
        self._http.daemon_threads = True
        self.port = self._http.server_port
        self._thread = threading.Thread(target=self._http.serve_forever, args=(0.05,), daemon=True)
        self._thread.start()

    def stop(self) -> None:
        """Refuse connections."""
        if self._http is not None and self._thread is not None:
            self._http.shutdown()
            self._http.server_close()
            self._thread.join()
            self._http = None

    def kubeconfig(self, path: Path) -> Path:
        """Write a file with the address, and return its path."""
        access = {
            "apiVersion": "v1",
            "kind": "Config",
            "clusters": [{"name": "tests", "cluster": {"server": f"http://127.0.0.1:{self.port}"}}],
            "users": [{"name": "tests", "user": {"token": "of-the-tests"}}],
            "contexts": [{"name": "tests", "context": {"cluster": "tests", "user": "tests"}}],
            "current-context": "tests",
        }
        path.write_text(yaml.safe_dump(access))
        return path


@contextmanager
def serving(api: ApiServer) -> Iterator[Server]:
    """Yield the running server."""
    server = Server(api)
    try:
        yield server
    finally:
        server.stop()


def _handler(api: ApiServer) -> type[BaseHTTPRequestHandler]:
    class Handler(BaseHTTPRequestHandler):
        def _do(self) -> None:
            length = int(self.headers.get("Content-Length") or 0)
            body = json.loads(self.rfile.read(length)) if length else {}
            status = 200
            try:
                found = api.answer(self.command, self.path, body)
            except Refusal as refusal:
                status = refusal.status
                found = {"apiVersion": "v1", "kind": "Status", "metadata": {}, "code": status, "reason": refusal.reason}
            text = json.dumps(found).encode()
            self.send_response(status)
            self.send_header("Content-Type", "application/json")
            self.send_header("Content-Length", str(len(text)))
            self.end_headers()
            self.wfile.write(text)

        def do_GET(self) -> None:
            self._do()

        def do_PUT(self) -> None:
            self._do()

        def do_POST(self) -> None:
            self._do()

        def log_message(self, format: str, *args: object) -> None:  # noqa: A002 - the library's name
            """Log nothing."""

    return Handler
