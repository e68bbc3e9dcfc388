"""Traces: which are sampled, what spans contain, and what a process without them imports."""

import subprocess
import sys

import pytest
from opentelemetry.trace import StatusCode

from starling_common.settings import TraceSettings
from starling_common.telemetry.traces import CALL, EDGE, open_traces
from tests.unit.traces import MemoryTraces

LOW, HIGH = "0" * 16 + "1" * 16, "1" * 16 + "f" * 16


def traceparent(trace_id: str, flags: str = "01") -> str:
    return f"00-{trace_id}-{'2' * 16}-{flags}"


def test_without_an_endpoint_there_are_no_traces_and_nothing_of_them_is_imported() -> None:
    assert open_traces(TraceSettings(), "ingest", "ingest-0") is None
    code = (
        "import sys, starling_common.telemetry.traces as t; from starling_common.settings import TraceSettings; "
        "assert t.open_traces(TraceSettings(), 'a', 'b') is None; "
        "assert not [m for m in sys.modules if m.startswith('opentelemetry')]"
    )
    subprocess.run([sys.executable, "-c", code], check=True)


def test_a_span_continues_the_trace_of_its_parent() -> None:
    memory = MemoryTraces()
    traces = memory.traces
    span = traces.begin("POST /v1/track", traceparent(LOW), EDGE, {"http.route": "/v1/track"}, [traceparent(HIGH), None])
    assert span is not None
    span.set("http.response.status_code", 200)
    span.end()
    [found] = memory.spans()
    assert found.parent is not None
    assert found.context is not None
    assert (f"{found.context.trace_id:032x}", f"{found.parent.span_id:016x}") == (LOW, "2" * 16)
    assert span.traceparent == f"00-{LOW}-{found.context.span_id:016x}-01"
    assert dict(found.attributes or {}) == {"http.route": "/v1/track", "http.response.status_code": 200}
    assert [f"{link.context.trace_id:032x}" for link in found.links] == [HIGH]


def test_a_trace_is_sampled_by_its_id_alike_in_each_process() -> None:
    memory = MemoryTraces(0.5)
    traces = memory.traces
    assert [traces.begin("a", traceparent(one), CALL, {}) is not None for one in (LOW, HIGH)] == [True, False]
    assert memory.spans() == ()
    begun = [traces.begin("a", None, EDGE, {}) for _ in range(200)]
    sampled = [span.traceparent for span in begun if span is not None]
    assert 50 < len(sampled) < 150  # of 200 fair coins; outside once in 10^13 runs
    assert all(traces.is_sampled(one) for one in sampled)


@pytest.mark.parametrize(
    "sent", [traceparent(LOW, "00"), traceparent(LOW, "0x"), "", "00", "ä" * 55, traceparent("g" * 32), traceparent(LOW) + "1"]
)
def test_a_trace_context_that_is_invalid_or_not_sampled_has_no_span(sent: str) -> None:
    traces = MemoryTraces().traces
    assert not traces.is_sampled(sent)
    assert traces.begin("a", sent, EDGE, {}) is None


def test_a_failed_span_has_the_reason() -> None:
    memory = MemoryTraces()
    traces = memory.traces
    span = traces.begin("a", None, EDGE, {})
    assert span is not None
    span.fail("not delivered")
    span.end()
    [found] = memory.spans()
    assert (found.status.status_code, found.status.description) == (StatusCode.ERROR, "not delivered")


def test_missing_packages_are_reported_with_the_cure(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "opentelemetry.exporter.otlp.proto.http.trace_exporter", None)
    with pytest.raises(ValueError, match=r"pip install 'starling\[traces\]'"):
        open_traces(TraceSettings(endpoint="http://127.0.0.1:1"), "ingest", "ingest-0")
