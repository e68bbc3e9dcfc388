"""Edge: `events.behaviour`, the events of users."""

from starling_rules.events import Behaviour, json_error
from starling_segmenter.emitter import Emitter, with_user_id
from starling_segmenter.handlers.handler import Handler
from starling_segmenter.records.membership import Cause
from starling_segmenter.state.states import State, user_state
from starling_stream.model.processor import Decoded, Inbound, Unit


class BehaviourHandler(Handler):
    """One `BehaviourEvent` is one evaluation of its user."""

    def decode(self, value: bytes) -> Decoded:
        """Return a `Behaviour`. Raises: DecodeError."""
        return self._formats.past.decode_behaviour(value)

    def handle(self, record: Inbound, unit: Unit[State]) -> None:
        """Fold the event. Events with invalid JSON are refused before anything is folded."""
        handle_event(record, record.value, unit, self._emitter)


def handle_event(record: Inbound, event: Behaviour, unit: Unit[State], emitter: Emitter) -> None:
    """Fold an event into the state of its user, store the state and emit the changes."""
    # Hot: once for each event.
    key = record.key
    rules = emitter.rules_of(key, unit)
    error = json_error(event, rules)
    if error is not None:
        unit.refuse(record, "bad_json", error)
        return
    state = with_user_id(key, user_state(unit, key))
    state.anonymous_ids = event.anonymous_ids or state.anonymous_ids
    if state.belongs is not None:
        emitter.pass_time((key, state, rules), unit.stream_time_ms, unit)
    changes = rules.evaluator.on_event(state, event, unit.stream_time_ms)
    if changes or state.belongs is not None:
        cause = Cause("EVENT", record, event.message_id, event.name, event.correlation_id)
        emitter.conclude((key, state, rules), changes, cause, unit)
    else:
        unit.put(key, state, rules.evaluator.next_due(state))
