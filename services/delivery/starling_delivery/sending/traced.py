"""Edge: attempts as spans of their traces. It stands around the semantics only where traces are on."""

from starling_common.http.outbound.connections import TRACEPARENT
from starling_common.telemetry.traces import CALL, Span, Traces, Value
from starling_delivery.channel import Answer, Delivered
from starling_delivery.item import Item
from starling_delivery.policy import Request, Schedule, Step
from starling_delivery.sending.lane import Batch
from starling_delivery.sending.semantics import Attempted, Semantics, Send


class TracedSemantics:
    """As the semantics, with a span for each attempt. A batch continues the first sampled trace, with links to the others."""

    def __init__(self, semantics: Semantics, traces: Traces, channel: str) -> None:
        self._semantics = semantics
        self._traces = traces
        self._channel = channel

    @property
    def awaits_outcome(self) -> bool:
        """As `Semantics.awaits_outcome`."""
        return self._semantics.awaits_outcome

    async def attempt(self, part: Batch, send: Send) -> Attempted:
        """As `Semantics.attempt`. The request of the attempt has the trace context of its span."""
        span = self._begin(part)
        if span is None:
            return await self._semantics.attempt(part, send)
        token = TRACEPARENT.set(span.traceparent)
        try:
            attempted = await self._semantics.attempt(part, send)
            _describe(span, attempted)
        except Exception as error:
            span.fail(type(error).__name__)
            raise
        else:
            return attempted
        finally:
            TRACEPARENT.reset(token)
            span.end()

    def after(self, request: Request, answer: Answer, schedule: Schedule, now_ms: int, jitter: float) -> Step:
        """As `Semantics.after`."""
        return self._semantics.after(request, answer, schedule, now_ms, jitter)

    def _begin(self, part: Batch) -> Span | None:
        sampled = [item for item in part if item.traceparent is not None and self._traces.is_sampled(item.traceparent)]
        if not sampled:
            return None
        first, *others = sampled
        others_of = [item.traceparent for item in others]
        return self._traces.begin(f"send {self._channel}", first.traceparent, CALL, _attributes(first, len(part)), others_of)


def _attributes(item: Item, size: int) -> dict[str, Value]:
    request = item.request
    return {
        "starling.workspace": item.workspace,
        "starling.target": item.target,
        "starling.delivery_id": request["delivery_id"],
        "starling.correlation_id": request["correlation_id"],
        "starling.attempt": request["attempt"],
        "messaging.batch.message_count": size,
    }


def _describe(span: Span, attempted: Attempted) -> None:
    status = getattr(attempted, "status_code", None)
    if isinstance(status, int):
        span.set("http.response.status_code", status)
    if not isinstance(attempted, Delivered):
        span.set("starling.outcome", type(attempted).__name__)
        # The reason may contain what the receiver has answered, or an address.
        span.fail("not delivered")
