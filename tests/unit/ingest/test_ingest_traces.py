"""The span of a request, and the trace context of its records."""

import pytest

from starling_common.headers import header
from starling_common.kafka.clients import BrokerUnavailable
from tests.unit.ingest.rig import Edge
from tests.unit.traces import PARENT, TRACE, TRACEPARENT, MemoryTraces, parent_of, traceparent_of

ITEM = {"event": "e", "userId": "u-1", "messageId": "m-1"}


def asked(edge: Edge, **headers: str) -> str:
    """Send one item; return the trace context of its record."""
    edge.ask("POST", "/v1/track", ITEM, headers={"x-write-key": "key", **headers})
    found = header(edge.log.headers[-1], "traceparent")
    assert found is not None
    return found


def test_a_request_continues_the_trace_of_its_client() -> None:
    memory = MemoryTraces()
    written = asked(Edge(traces=memory.traces).open(), traceparent=TRACEPARENT)
    [span] = memory.spans()
    assert (written, parent_of(span)) == (traceparent_of(span), PARENT)
    assert written[3:35] == TRACE
    attributes = dict(span.attributes or {})
    assert (span.name, attributes["http.route"], attributes["http.response.status_code"]) == ("POST /v1/track", "/v1/track", 200)
    assert attributes["starling.workspace"] == "acme"


@pytest.mark.parametrize("headers", [{}, {"traceparent": "no trace context"}])
def test_a_request_without_a_trace_begins_one(headers: dict[str, str]) -> None:
    memory = MemoryTraces()
    written = asked(Edge(traces=memory.traces).open(), **headers)
    [span] = memory.spans()
    assert (written, parent_of(span)) == (traceparent_of(span), "")


def test_a_trace_that_is_not_sampled_has_no_span_in_any_stage() -> None:
    memory = MemoryTraces(ratio=1e-18)
    edge = Edge(traces=memory.traces).open()
    assert asked(edge)[-2:] == "00"
    assert asked(edge, traceparent=TRACEPARENT) == TRACEPARENT
    declined = f"{TRACEPARENT[:-2]}00"
    edge = Edge(traces=MemoryTraces().traces).open()
    assert asked(edge, traceparent=declined) == declined
    assert memory.spans() == ()


def test_a_request_that_fails_ends_its_span() -> None:
    memory = MemoryTraces()
    edge = Edge(traces=memory.traces).open()
    edge.log.away = BrokerUnavailable("away")
    edge.ask("POST", "/v1/track", ITEM, headers={"x-write-key": "key"})
    [span] = memory.spans()
    assert dict(span.attributes or {})["http.response.status_code"] == 503


def test_without_traces_the_trace_context_of_the_client_is_passed_on() -> None:
    assert asked(Edge().open(), traceparent=TRACEPARENT) == TRACEPARENT
    assert asked(Edge().open())[-2:] == "01"
