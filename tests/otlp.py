"""A small OpenTelemetry collector: an HTTP server that receives spans by OTLP, as Protocol Buffers."""

import gzip
import threading
from collections.abc import Mapping
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import NamedTuple

from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest, ExportTraceServiceResponse
from opentelemetry.proto.trace.v1.trace_pb2 import Span as ReceivedSpan


class Recorded(NamedTuple):
    """One span. `attributes`: as text."""

    service: str
    name: str
    trace_id: str
    span_id: str
    parent_id: str
    kind: str
    attributes: Mapping[str, str]
    links: tuple[str, ...]


class Collector:
    """Receives spans on a free port until it is closed."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._spans: list[Recorded] = []
        self._server = ThreadingHTTPServer(("127.0.0.1", 0), _handler(self))
        self._thread = threading.Thread(target=self._server.serve_forever, daemon=True)
        self._thread.start()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self._server.server_port}"

    def spans(self) -> list[Recorded]:
        with self._lock:
            return list(self._spans)

    def receive(self, body: bytes) -> None:
        request = ExportTraceServiceRequest.FromString(body)
        found = []
        for resource in request.resource_spans:
            service = next(one.value.string_value for one in resource.resource.attributes if one.key == "service.name")
            found += [_recorded(service, span) for scope in resource.scope_spans for span in scope.spans]
        with self._lock:
            self._spans += found

    def close(self) -> None:
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()


def _recorded(service: str, span: ReceivedSpan) -> Recorded:
    attributes = {one.key: one.value.string_value or str(one.value.int_value) for one in span.attributes}
    kind = ReceivedSpan.SpanKind.Name(span.kind).removeprefix("SPAN_KIND_")
    ids = (span.trace_id.hex(), span.span_id.hex(), span.parent_span_id.hex())
    return Recorded(service, span.name, *ids, kind, attributes, tuple(link.trace_id.hex() for link in span.links))


def _handler(collector: Collector) -> type[BaseHTTPRequestHandler]:
    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["Content-Length"]))
            if self.path != "/v1/traces" or self.headers["Content-Type"] != "application/x-protobuf":
                self.send_error(400)
                return
            collector.receive(gzip.decompress(body) if self.headers.get("Content-Encoding") == "gzip" else body)
            answer = ExportTraceServiceResponse().SerializeToString()
            self.send_response(200)
            self.send_header("Content-Type", "application/x-protobuf")
            self.send_header("Content-Length", str(len(answer)))
            self.end_headers()
            self.wfile.write(answer)

        def log_message(self, *_arguments: object) -> None:
            pass

    return Handler
