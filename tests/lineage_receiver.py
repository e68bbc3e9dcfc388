"""An HTTP server that receives events of OpenLineage, as Marquez does."""

import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

from starling_spark.lineage.runs import Lineage
from starling_spark.lineage.settings import LineageSettings
from starling_spark.session.lineage import opened_lineage
from starling_spark.session.settings import SparkSettings


class LineageReceiver:
    """Receives events on a free port until it is closed. `status`: of its answers; a cleared `answers` keeps requests waiting."""

    def __init__(self, status: int = 201) -> None:
        self.status = status
        self.answers = threading.Event()
        self.answers.set()
        self.tokens: list[str | None] = []
        self.bodies: list[str] = []
        self._server = ThreadingHTTPServer(("127.0.0.1", 0), _handler(self))
        self._thread = threading.Thread(target=self._server.serve_forever, daemon=True)
        self._thread.start()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self._server.server_port}/api/v1/lineage"

    def events(self) -> list[dict[str, Any]]:
        return [json.loads(body) for body in self.bodies]

    def close(self) -> None:
        self.answers.set()
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()


def _handler(receiver: LineageReceiver) -> type[BaseHTTPRequestHandler]:
    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["Content-Length"])).decode()
            receiver.answers.wait(30)
            if self.path == "/api/v1/lineage" and receiver.status < 300:
                receiver.tokens.append(self.headers.get("Authorization"))
                receiver.bodies.append(body)
            self.send_response(receiver.status)
            self.send_header("Content-Length", "0")
            self.end_headers()

        def log_message(self, format: str, *args: object) -> None:  # noqa: A002 - as the library names it
            pass

    return Handler


@contextmanager
def sent_lineage(settings: SparkSettings) -> Iterator[tuple[Lineage, LineageReceiver]]:
    """Yield the runs of a job, and the server that receives their events. At the end of the block they are complete."""
    receiver = LineageReceiver()
    try:
        with opened_lineage(settings.model_copy(update={"lineage": LineageSettings(url=receiver.url)})) as lineage:
            yield lineage, receiver
    finally:
        receiver.close()


def in_file(path: Path) -> list[dict[str, Any]]:
    """Return the events in a file."""
    return [json.loads(line) for line in path.read_text().splitlines()]


def places(datasets: list[dict[str, Any]]) -> list[tuple[str, str]]:
    """Return the namespace and the name of each dataset of an event."""
    return [(one["namespace"], one["name"]) for one in datasets]


def rows_of(event: dict[str, Any]) -> dict[str, int | None]:
    """Return the number of written rows by the name of an output."""
    return {one["name"]: one["outputFacets"].get("outputStatistics", {}).get("rowCount") for one in event["outputs"]}
