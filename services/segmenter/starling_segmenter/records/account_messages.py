"""Edge: the records between users and accounts, in the segmenter's own two topics."""

from collections.abc import Callable
from typing import Final

from starling_common.headers import header, record_headers
from starling_common.kafka.topics import ACCOUNT_ANSWERS
from starling_common.values import deterministic_id, record_key
from starling_segmenter.records.formats import Formats
from starling_segmenter.records.membership import STAGE, Cause, Subject
from starling_segmenter.state.accounts import Answered, Origin, Tallied, record_of
from starling_segmenter.state.states import State
from starling_segments import account_updates
from starling_stream.model.processor import Inbound, Output, Unit

_NO_REQUEST: Final = deterministic_id("segmenter", "accounts")
"""The correlation id of changes that a timer or a definition caused."""


class AccountMessages:
    """Encodes and sends the answers of users and the tallies of accounts."""

    def __init__(self, formats: Formats, now_micros: Callable[[], int]) -> None:
        self._formats = formats
        self._now_micros = now_micros

    def send_answers(self, subject: Subject, cause: Cause, unit: Unit[State]) -> None:
        """Send the answers that changed to the user's account; the state changes and must be put."""
        workspace, user_id, state = subject.workspace, subject.user_id, subject.state
        for update in account_updates(state, subject.plan):
            origin = Origin(state.clock, cause.kind, cause.message_id, cause.event_name, cause.correlation_id)
            answered = Answered(workspace, update.account, user_id, update.answers, origin)
            self.send(ACCOUNT_ANSWERS, record_key(workspace, update.account), answered, cause.record, unit)

    def send(self, topic: str, key: bytes, message: Answered | Tallied, source: Inbound | None, unit: Unit[State]) -> None:
        """Send one message. `source`: the record that caused it, whose trace it continues."""
        now = self._now_micros()
        codec = self._formats.answered if isinstance(message, Answered) else self._formats.tallied
        traceparent = None if source is None else header(source.headers, "traceparent")
        headers = record_headers(message.origin.correlation_id or _NO_REQUEST, STAGE, traceparent)
        unit.send(Output(topic, key, codec.encode(record_of(message, now)), now, headers))
