"""Edge: `events.delivery`, the outcomes of messages, which are events of the messages' recipients."""

from starling_rules.events import Reported
from starling_rules.history import reported_ms
from starling_segmenter.handlers.behaviour import handle_event
from starling_segmenter.handlers.handler import Handler
from starling_segmenter.state.states import State, user_state
from starling_stream.model.processor import Decoded, Inbound, Unit


class DeliveryHandler(Handler):
    """An outcome without a meaning for segments, such as a retry, is ignored."""

    def decode(self, value: bytes) -> Decoded:
        """Return a `Reported` or None. Raises: DecodeError."""
        return self._formats.past.decode_report(value)

    def handle(self, record: Inbound, unit: Unit[State]) -> None:
        """Fold the outcome as an event. An outcome that no condition refers to is not stored for a known user."""
        reported: Reported | None = record.value
        if reported is None:
            return
        emitter = self._emitter
        rules = emitter.rules_of(record.key, unit)
        if rules.plan.touches(reported.name) or user_state(unit, record.key) is None:
            time_ms = reported_ms(record.received_at, emitter.clock, unit.stream_time_ms)
            handle_event(record, reported.at(time_ms), unit, emitter)
