"""The span of an attempt, and the trace context of its request."""

import asyncio
from collections.abc import Sequence
from typing import Any

import pytest

from starling_common.http.outbound.connections import TRACEPARENT as OF_REQUEST
from starling_delivery.channel import Again, Answer, Delivered, Message
from starling_delivery.item import Item
from starling_delivery.sending.semantics import Attempted, Send
from starling_delivery.sending.traced import TracedSemantics
from tests.unit.traces import PARENT, TRACEPARENT, MemoryTraces, parent_of, traceparent_of

OTHER = f"00-{'a' * 32}-{'b' * 16}-01"


class Answering:
    """Semantics that answer with one result, and keep the trace context that the request of the attempt would have."""

    awaits_outcome = True

    def __init__(self, result: Attempted | Exception) -> None:
        self.seen: list[str | None] = []
        self._result = result

    async def attempt(self, _part: Any, _send: Send) -> Attempted:
        self.seen.append(OF_REQUEST.get())
        if isinstance(self._result, Exception):
            raise self._result
        return self._result

    def after(self, *arguments: object) -> Any:
        return arguments


def item(traceparent: str | None) -> Item:
    request = {
        "workspace": "acme",
        "target_key": "crm",
        "delivery_id": "d-1",
        "correlation_id": "c-1",
        "attempt": 2,
        "payload": "{}",
    }
    return Item(request, lambda: None, traceparent=traceparent)


def attempted(memory: MemoryTraces, part: Sequence[Item], inner: Answering) -> Attempted:
    async def send(_message: Message) -> Answer:
        return Delivered()

    async def attempt() -> Attempted:
        found = await TracedSemantics(inner, memory.traces, "webhook").attempt(tuple(part), send)
        assert OF_REQUEST.get() is None
        return found

    return asyncio.run(attempt())


def test_the_request_of_an_attempt_continues_its_span() -> None:
    memory, inner = MemoryTraces(), Answering(Delivered(204))
    assert attempted(memory, [item(TRACEPARENT)], inner) == Delivered(204)
    [span] = memory.spans()
    assert (inner.seen, parent_of(span), span.name) == ([traceparent_of(span)], PARENT, "send webhook")
    assert dict(span.attributes or {}) == {
        "starling.workspace": "acme",
        "starling.target": "crm",
        "starling.delivery_id": "d-1",
        "starling.correlation_id": "c-1",
        "starling.attempt": 2,
        "messaging.batch.message_count": 1,
        "http.response.status_code": 204,
    }
    assert span.status.is_unset


def test_a_batch_continues_the_first_sampled_trace_and_links_the_others() -> None:
    memory = MemoryTraces()
    attempted(memory, [item(None), item(TRACEPARENT), item(OTHER)], Answering(Delivered()))
    [span] = memory.spans()
    assert (parent_of(span), [f"{link.context.trace_id:032x}" for link in span.links]) == (PARENT, ["a" * 32])


def test_a_failed_attempt_is_a_failed_span_without_the_answer_of_the_receiver() -> None:
    memory = MemoryTraces()
    attempted(memory, [item(TRACEPARENT)], Answering(Again("the endpoint answered 503 for ada@example.com", 503)))
    [span] = memory.spans()
    assert (span.status.is_ok, span.status.description) == (False, "not delivered")
    assert dict(span.attributes or {})["http.response.status_code"] == 503
    assert "ada@" not in span.to_json()


def test_an_error_ends_the_span_and_is_raised() -> None:
    memory = MemoryTraces()
    with pytest.raises(KeyError):
        attempted(memory, [item(TRACEPARENT)], Answering(KeyError("x")))
    [span] = memory.spans()
    assert span.status.description == "KeyError"


@pytest.mark.parametrize("traceparent", [None, f"{TRACEPARENT[:-2]}00"])
def test_a_trace_that_is_not_sampled_has_no_span(traceparent: str | None) -> None:
    memory, inner = MemoryTraces(), Answering(Delivered())
    attempted(memory, [item(traceparent)], inner)
    assert (inner.seen, memory.spans()) == ([None], ())
