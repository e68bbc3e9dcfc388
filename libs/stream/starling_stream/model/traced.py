"""Edge: a processor whose records are spans of their traces. It stands around a processor only where traces are on."""

from typing import Final, Generic

from starling_common.headers import header
from starling_common.telemetry.traces import STAGE, Span, Traces, Value
from starling_stream.model.processor import Inbound, Processor, S, Unit

_NAME: Final = "traceparent"


class TracedProcessor(Generic[S]):
    """A processor that gives each record of a sampled trace a span, whose trace context the outputs of the record continue.

    A batch that is repeated has its spans twice.
    """

    def __init__(self, processor: Processor[S], traces: Traces, stage: str) -> None:
        self._processor = processor
        self._traces = traces
        self._stage = stage
        self.decode = processor.decode
        self.encode_state = processor.encode_state
        self.decode_state = processor.decode_state
        self.fire = processor.fire
        self.adopt_plan = processor.adopt_plan
        self.has_plan = processor.has_plan
        self.before_switch = processor.before_switch
        self.switched_prefixes = processor.switched_prefixes
        self.switch = processor.switch
        self.after_switch = processor.after_switch

    def process(self, record: Inbound, unit: Unit[S]) -> None:
        """As `Processor.process`."""
        parent = header(record.headers, _NAME)
        span = self._begin(record, parent) if parent is not None and self._traces.is_sampled(parent) else None
        if span is None:
            self._processor.process(record, unit)
            return
        try:
            self._processor.process(_within(record, span), unit)
        except Exception as error:
            span.fail(type(error).__name__)
            raise
        finally:
            span.end()

    def _begin(self, record: Inbound, parent: str) -> Span | None:
        attributes: dict[str, Value] = {
            "messaging.system": "kafka",
            "messaging.destination.name": record.topic,
            "messaging.destination.partition.id": str(record.partition),
            "messaging.kafka.offset": record.offset,
            "starling.correlation_id": header(record.headers, "correlation_id") or "",
        }
        return self._traces.begin(f"{self._stage} {record.topic}", parent, STAGE, attributes)


def _within(record: Inbound, span: Span) -> Inbound:
    """Return the record with the span's trace context instead of its own."""
    others = [one for one in record.headers if one[0] != _NAME]
    return record._replace(headers=[*others, (_NAME, span.traceparent.encode())])
