"""An HTTP server on a free port that keeps what it receives, and answers as a test lets it."""

from collections.abc import Callable, Mapping
from contextlib import suppress
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Event, Lock, Thread
from typing import Any, NamedTuple


class Received(NamedTuple):
    """One request. The names of the headers are in lower case."""

    path: str
    headers: Mapping[str, str]
    body: bytes


class Endpoint:
    """`respond` answers each request after it was received whole. By default it is 200 with an empty object."""

    def __init__(self) -> None:
        self.requests: list[Received] = []
        self.respond: Callable[[BaseHTTPRequestHandler], None] = answering(200)
        self.written_bytes = 0
        self.closing = Event()
        self._lock = Lock()
        endpoint = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def do_POST(self) -> None:
                body = self.rfile.read(int(self.headers["Content-Length"] or 0))
                headers = {name.lower(): value for name, value in self.headers.items()}
                with endpoint._lock:
                    endpoint.requests.append(Received(self.path, headers, body))
                with suppress(OSError):
                    endpoint.respond(self)

            def log_message(self, *_arguments: Any) -> None:
                return None

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self._server.daemon_threads = True
        self.url = f"http://127.0.0.1:{self._server.server_port}"
        Thread(target=self._server.serve_forever, args=(0.02,), daemon=True).start()

    def lose(self, handler: BaseHTTPRequestHandler) -> None:
        """Close the connection instead of an answer."""
        handler.close_connection = True

    def hang(self, handler: BaseHTTPRequestHandler) -> None:
        """Give no answer as long as the test takes."""
        handler.close_connection = True
        self.closing.wait(30)

    def flood(self, handler: BaseHTTPRequestHandler) -> None:
        """Send a gigabyte, as far as the other side reads it."""
        handler.close_connection = True
        handler.wfile.write(b"HTTP/1.1 200 OK\r\nContent-Length: 1073741824\r\n\r\n")
        part = bytes(65_536)
        for _ in range(16_384):
            handler.wfile.write(part)
            self.written_bytes += len(part)

    def close(self) -> None:
        if self.closing.is_set():
            return
        self.closing.set()
        self._server.shutdown()
        self._server.server_close()


def answering(status: int, body: bytes = b"{}", **headers: str) -> Callable[[BaseHTTPRequestHandler], None]:
    """Return a function that answers with a status. `headers`: with `_` in place of `-`."""

    def respond(handler: BaseHTTPRequestHandler) -> None:
        handler.send_response(status)
        for name, value in headers.items():
            handler.send_header(name.replace("_", "-"), value)
        handler.send_header("Content-Length", str(len(body)))
        handler.end_headers()
        handler.wfile.write(body)

    return respond
