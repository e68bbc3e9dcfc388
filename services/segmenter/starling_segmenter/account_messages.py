"""Edge: what users say to their accounts and accounts to their users, as records of the segmenter's own two topics."""

from collections.abc import Callable
from typing import Final

from starling_common.headers import header, record_headers
from starling_common.topics import ACCOUNT_ANSWERS, ACCOUNT_TALLIES
from starling_common.values import deterministic_id, record_key
from starling_segmenter.accounts import (
    AccountState,
    Answered,
    Tallied,
    Why,
    account_key,
    read_answered,
    read_tallied,
    record_of,
    take,
)  # fmt: skip
from starling_segmenter.formats import Formats
from starling_segmenter.membership import Cause, Subject
from starling_segmenter.states import State, account_state
from starling_segments import account_updates
from starling_stream.model.processor import Decoded, Inbound, Output, Unit

_NOBODY: Final = deterministic_id("segmenter", "accounts")
"""The correlation id of what time alone or a definition brought about."""


class AccountDesk:
    """Decodes and writes these records, and keeps the accounts' states, which lie beside the users'."""

    def __init__(self, formats: Formats, stage: str, now_micros: Callable[[], int]) -> None:
        self._formats = formats
        self._stage = stage
        self._now_micros = now_micros

    def decode(self, topic: str, value: bytes) -> Decoded:
        """An `Answered` for an account, a `Tallied` for a user. Neither moves stream time. Raises: DecodeError."""
        if topic == ACCOUNT_ANSWERS:
            record = self._formats.answered.decode(value)
            answered = read_answered(record)
            return Decoded(answered, record["received_at"], None, account_key(answered.workspace, answered.account_id))
        record = self._formats.tallied.decode(value)
        return Decoded(read_tallied(record), record["received_at"], None)

    def tell(self, subject: Subject, cause: Cause, unit: Unit[State]) -> None:
        """Tell the user's account what it does not know yet; the state must be put."""
        workspace, user_id, state = subject.workspace, subject.user_id, subject.state
        for said in account_updates(state, subject.plan):
            why = Why(state.clock, cause.kind, cause.message_id, cause.event_name, cause.correlation_id)
            answered = Answered(workspace, said.account, user_id, said.answers, why)
            self._send(ACCOUNT_ANSWERS, record_key(workspace, said.account), answered, cause.record, unit)

    def take(self, record: Inbound, unit: Unit[State]) -> None:
        """Keep what a user says, and tell the account's users whom it concerns."""
        answered: Answered = record.value
        account = account_state(unit, record.key) or AccountState()
        tidings = take(account, answered)
        if tidings is None:
            key = record_key(answered.workspace, answered.account_id)
            unit.refuse(record._replace(key=key), "account_too_large", "the account has more users than can be kept")
        for tallied in tidings or ():
            self._send(ACCOUNT_TALLIES, record_key(tallied.workspace, tallied.user_id), tallied, record, unit)
        if account.users or account.too_large:
            unit.put(record.key, account, None)
        else:
            unit.delete(record.key)

    def _send(self, topic: str, key: bytes, told: Answered | Tallied, source: Inbound | None, unit: Unit[State]) -> None:
        now = self._now_micros()
        codec = self._formats.answered if isinstance(told, Answered) else self._formats.tallied
        traceparent = None if source is None else header(source.headers, "traceparent")
        headers = record_headers(told.why.correlation_id or _NOBODY, self._stage, traceparent)
        unit.send(Output(topic, key, codec.encode(record_of(told, now)), now, headers))
