"""The spans of a stage."""

import pytest

from starling_common.headers import header
from starling_common.kafka.topics import BEHAVIOUR
from starling_stream.model.processor import Inbound
from starling_stream.model.traced import TracedProcessor
from tests.unit.traces import PARENT, TRACE, TRACEPARENT, MemoryTraces, parent_of, traceparent_of


class Recorded:
    """A processor that keeps the trace context of each record, and may raise."""

    def __init__(self, error: Exception | None = None) -> None:
        self.seen: list[str | None] = []
        self._error = error

    def process(self, record: Inbound, _unit: object) -> None:
        self.seen.append(header(record.headers, "traceparent"))
        assert header(record.headers, "correlation_id") == "c-1"
        if self._error is not None:
            raise self._error

    def __getattr__(self, name: str) -> object:
        return f"own {name}"


def inbound(traceparent: str | None) -> Inbound:
    headers = [("correlation_id", b"c-1"), *([] if traceparent is None else [("traceparent", traceparent.encode())])]
    return Inbound(BEHAVIOUR, 3, 17, b"acme/u", None, 1, 1, headers, b"")


def processed(memory: MemoryTraces, traceparent: str | None, error: Exception | None = None) -> list[str | None]:
    inner = Recorded(error)
    TracedProcessor(inner, memory.traces, "segmenter").process(inbound(traceparent), None)  # type: ignore[arg-type]
    return inner.seen


def test_the_outputs_of_a_record_continue_its_span() -> None:
    memory = MemoryTraces()
    seen = processed(memory, TRACEPARENT)
    [span] = memory.spans()
    assert (seen, parent_of(span), span.name) == ([traceparent_of(span)], PARENT, f"segmenter {BEHAVIOUR}")
    assert traceparent_of(span)[3:35] == TRACE
    attributes = dict(span.attributes or {})
    assert (attributes["messaging.kafka.offset"], attributes["starling.correlation_id"]) == (17, "c-1")
    assert "acme/u" not in str(attributes)


@pytest.mark.parametrize("traceparent", [None, "none", f"{TRACEPARENT[:-2]}00"])
def test_a_record_of_no_sampled_trace_is_passed_on_as_it_is(traceparent: str | None) -> None:
    memory = MemoryTraces()
    assert processed(memory, traceparent) == [traceparent]
    assert memory.spans() == ()


def test_an_error_ends_the_span_and_is_raised() -> None:
    memory = MemoryTraces()
    with pytest.raises(KeyError):
        processed(memory, TRACEPARENT, KeyError("u"))
    [span] = memory.spans()
    assert span.status.description == "KeyError"


def test_everything_else_is_that_of_the_processor() -> None:
    traced: TracedProcessor[object] = TracedProcessor(Recorded(), MemoryTraces().traces, "segmenter")  # type: ignore[arg-type]
    for name in (
        "decode",
        "encode_state",
        "decode_state",
        "fire",
        "adopt_plan",
        "has_plan",
        "before_switch",
        "switch",
        "after_switch",
    ):
        assert getattr(traced, name) == f"own {name}"
