"""Edge: `accounts.tallies`, the answers of the other users of an account; processed in the user's partition."""

from starling_segmenter.handlers.handler import Handler
from starling_segmenter.records.membership import Cause
from starling_segmenter.state.accounts import Tallied, read_tallied
from starling_segmenter.state.states import State, user_state
from starling_segments import AccountTally
from starling_stream.model.processor import Decoded, Inbound, Unit


class AccountTallyHandler(Handler):
    """A tally of an account that the user has left is ignored."""

    def decode(self, value: bytes) -> Decoded:
        """Return a `Tallied`. It does not advance stream time. Raises: DecodeError."""
        record = self._formats.tallied.decode(value)
        return Decoded(read_tallied(record), record["received_at"], None)

    def handle(self, record: Inbound, unit: Unit[State]) -> None:
        """Evaluate the user's conditions on the account."""
        tallied: Tallied = record.value
        key, origin, emitter = record.key, tallied.origin, self._emitter
        state = user_state(unit, key)
        if state is None or state.belongs is None or state.belongs.reported_to != tallied.account_id:
            return
        rules = emitter.rules_of(key, unit)
        others = {condition: (tallied.others, matching) for condition, matching in tallied.matching.items()}
        # The instant of the other user's change, unless stream time of this partition has not reached it.
        now = min(origin.at, unit.stream_time_ms)
        emitter.pass_time((key, state, rules), now, unit)
        changes = rules.evaluator.on_account(state, AccountTally(tallied.account_id, others), now, origin.cause)
        cause = Cause(origin.cause, record, origin.message_id, origin.event_name, origin.correlation_id)
        emitter.conclude((key, state, rules), changes, cause, unit)
