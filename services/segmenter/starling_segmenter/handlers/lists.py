"""Edge: `lists.membership`, the users that were put on an uploaded list or taken off it."""

from starling_rules.events import Listed
from starling_segmenter.emitter import with_user_id
from starling_segmenter.handlers.handler import Handler
from starling_segmenter.records.membership import Cause
from starling_segmenter.state.states import State, user_state
from starling_stream.model.processor import Decoded, Inbound, Unit


class ListHandler(Handler):
    """The state of a user contains every list of the user, so a segment may be defined after the upload."""

    def decode(self, value: bytes) -> Decoded:
        """Return a `Listed` with the user's key: the record's own key names the list too. Raises: DecodeError."""
        return self._formats.past.decode_listed(value)

    def handle(self, record: Inbound, unit: Unit[State]) -> None:
        """Fold the change of a list; repeated records change nothing."""
        listed: Listed = record.value
        key, emitter = record.key, self._emitter
        found = user_state(unit, key)
        if listed.changes_nothing(found):
            return
        rules = emitter.rules_of(key, unit)
        state = with_user_id(key, found)
        emitter.pass_time((key, state, rules), unit.stream_time_ms, unit)
        changes = rules.evaluator.on_list(state, listed.list_key, listed.on_list, unit.stream_time_ms)
        cause = Cause("LIST", record, None, None, listed.correlation_id)
        emitter.conclude((key, state, rules), changes, cause, unit)
