"""Adapter: OpenTelemetry traces, exported by OTLP over HTTP. A process without an endpoint imports nothing of OpenTelemetry.

A trace is sampled by its id, in each process alike, so that a sampled trace has the spans of all stages. A sender can decline
sampling by the flags of its trace context, and cannot enforce it.
"""

import re
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Final, TypeAlias

from starling_common.settings import TraceSettings

if TYPE_CHECKING:
    from opentelemetry import trace

Value: TypeAlias = str | int | bool
"""The value of an attribute."""

EDGE: Final = "SERVER"
STAGE: Final = "CONSUMER"
CALL: Final = "CLIENT"
"""The kinds of spans: a request to the platform, a record of a topic, and a request of the platform."""

_SAMPLED: Final = frozenset("13579bdf")
"""The last digits of a trace context whose sampled flag is set."""
_TRACEPARENT: Final = re.compile(r"(?!ff)[0-9a-f]{2}-(?!0{32})[0-9a-f]{32}-(?!0{16})[0-9a-f]{16}-[0-9a-f]{2}")
_IDS: Final = 1 << 64


class Span:
    """One recorded operation. `traceparent`: the trace context of what it causes."""

    def __init__(self, span: "trace.Span") -> None:
        self._span = span
        context = span.get_span_context()
        self.traceparent = f"00-{context.trace_id:032x}-{context.span_id:016x}-01"

    def set(self, name: str, value: Value) -> None:
        """Set an attribute."""
        self._span.set_attribute(name, value)

    def fail(self, why: str) -> None:
        """Mark the operation as failed."""
        from opentelemetry.trace import Status, StatusCode  # noqa: PLC0415 - imported by the first span at the latest

        self._span.set_status(Status(StatusCode.ERROR, why))

    def end(self) -> None:
        """Record the end; the span is exported later."""
        self._span.end()


class Traces:
    """Begins the spans of one process. Thread-safe. Spans that cannot be exported are dropped and logged."""

    def __init__(self, tracer: "trace.Tracer", ratio: float) -> None:
        """`ratio`: the share of traces to record, as of the sampler of the tracer."""
        self._tracer = tracer
        bound = round(ratio * _IDS)
        self._bound = f"{bound:016x}" if bound < _IDS else "g"
        """Digits of an id that is not sampled any more; every digit is less than `g`."""

    def begin(
        self, name: str, parent: str | None, kind: str, attributes: Mapping[str, Value], others: Sequence[str | None] = ()
    ) -> Span | None:
        """Return a span of a sampled trace, else None. `parent`: a trace context; None begins a trace. `others`: for links."""
        from opentelemetry import trace  # noqa: PLC0415 - nothing of it is imported while traces are off

        context = None
        if parent is not None:
            if not self.is_sampled(parent):
                return None
            context = trace.set_span_in_context(trace.NonRecordingSpan(_context_of(parent)))
        links = [trace.Link(_context_of(other)) for other in others if other is not None and self.is_sampled(other)]
        span = self._tracer.start_span(name, context, trace.SpanKind[kind], attributes, links)
        return Span(span) if span.is_recording() else None

    def is_sampled(self, traceparent: str) -> bool:
        """Return whether spans of the trace are recorded. Never raises: any text may be in a header."""
        # Hot: once for each record of each stage. Digits are compared as text, and the form is checked only for sampled ones.
        return traceparent[19:35] < self._bound and traceparent[-1:] in _SAMPLED and _TRACEPARENT.fullmatch(traceparent) is not None


def open_traces(settings: TraceSettings, service: str, instance_id: str) -> Traces | None:
    """Return the traces of a process; None without an endpoint. What is recorded is exported until the process ends.

    Raises: ValueError if the packages of OpenTelemetry are not installed.
    """
    if settings.endpoint is None:
        return None
    try:
        from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter  # noqa: PLC0415 - an optional package
        from opentelemetry.sdk.resources import Resource  # noqa: PLC0415
        from opentelemetry.sdk.trace import TracerProvider  # noqa: PLC0415
        from opentelemetry.sdk.trace.export import BatchSpanProcessor  # noqa: PLC0415
        from opentelemetry.sdk.trace.sampling import TraceIdRatioBased  # noqa: PLC0415
    except ImportError as cause:
        raise ValueError("STARLING_TRACES__ENDPOINT needs OpenTelemetry: pip install 'starling[traces]', or unset it") from cause
    resource = Resource(
        {"service.name": f"starling-{service}", "service.namespace": "starling", "service.instance.id": instance_id}
    )
    provider = TracerProvider(sampler=TraceIdRatioBased(settings.ratio), resource=resource)
    provider.add_span_processor(BatchSpanProcessor(OTLPSpanExporter(f"{settings.endpoint.rstrip('/')}/v1/traces")))
    return Traces(provider.get_tracer("starling"), settings.ratio)


def _context_of(traceparent: str) -> "trace.SpanContext":
    from opentelemetry import trace  # noqa: PLC0415 - nothing of it is imported while traces are off

    number, span = int(traceparent[3:35], 16), int(traceparent[36:52], 16)
    return trace.SpanContext(number, span, is_remote=True, trace_flags=trace.TraceFlags(trace.TraceFlags.SAMPLED))
