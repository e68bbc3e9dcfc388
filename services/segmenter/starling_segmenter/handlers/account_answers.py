"""Edge: `accounts.answers`, the answers of users to the conditions on their accounts; processed in the account's partition."""

from starling_common.kafka.topics import ACCOUNT_TALLIES
from starling_common.values import record_key
from starling_segmenter.handlers.handler import Handler
from starling_segmenter.state.accounts import AccountState, Answered, account_key, apply_answer, read_answered
from starling_segmenter.state.states import State, account_state
from starling_stream.model.processor import Decoded, Inbound, Unit


class AccountAnswerHandler(Handler):
    """Keeps the state of the account, which lies beside the states of users."""

    def decode(self, value: bytes) -> Decoded:
        """Return an `Answered` with the account's key. It does not advance stream time. Raises: DecodeError."""
        record = self._formats.answered.decode(value)
        answered = read_answered(record)
        return Decoded(answered, record["received_at"], None, account_key(answered.workspace, answered.account_id))

    def handle(self, record: Inbound, unit: Unit[State]) -> None:
        """Store the answers of one user; send a tally to each user of the account for whom it makes a difference."""
        answered: Answered = record.value
        account = account_state(unit, record.key) or AccountState()
        tallies = apply_answer(account, answered)
        if tallies is None:
            key = record_key(answered.workspace, answered.account_id)
            unit.refuse(record._replace(key=key), "account_too_large", "the account has more users than its state can hold")
        for tallied in tallies or ():
            user = record_key(tallied.workspace, tallied.user_id)
            self._emitter.accounts.send(ACCOUNT_TALLIES, user, tallied, record, unit)
        if account.users or account.too_large:
            unit.put(record.key, account, None)
        else:
            unit.delete(record.key)
