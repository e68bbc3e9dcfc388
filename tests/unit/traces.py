"""Traces that are recorded in memory."""

from collections.abc import Sequence

from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from opentelemetry.sdk.trace.sampling import TraceIdRatioBased

from starling_common.telemetry.traces import Traces

TRACE = "4bf92f3577b34da6a3ce929d0e0e4736"
PARENT = "00f067aa0ba902b7"
TRACEPARENT = f"00-{TRACE}-{PARENT}-01"


class MemoryTraces:
    """Traces, and the spans that were ended."""

    def __init__(self, ratio: float = 1.0) -> None:
        self._exporter = InMemorySpanExporter()
        provider = TracerProvider(sampler=TraceIdRatioBased(ratio))
        provider.add_span_processor(SimpleSpanProcessor(self._exporter))
        self.traces = Traces(provider.get_tracer("test"), ratio)

    def spans(self) -> Sequence[ReadableSpan]:
        return self._exporter.get_finished_spans()


def traceparent_of(span: ReadableSpan) -> str:
    """Return the trace context of what the span causes."""
    assert span.context is not None
    return f"00-{span.context.trace_id:032x}-{span.context.span_id:016x}-01"


def parent_of(span: ReadableSpan) -> str:
    """Return the id of the parent; empty for the first span of a trace."""
    return "" if span.parent is None else f"{span.parent.span_id:016x}"
