"""Edge: the segments in force, and the effects of each evaluation of a user: membership changes, answers and the stored state."""

from collections.abc import Callable, Mapping, Sequence
from typing import TypeAlias

from starling_common.headers import header, record_headers
from starling_common.kafka.topics import MEMBERSHIP, MEMBERSHIP_STATE
from starling_common.settings import Clock
from starling_common.values import split_key, workspace_of
from starling_rules.rules import NO_RULES, Rules
from starling_segmenter.counts import Counts
from starling_segmenter.records.account_messages import AccountMessages
from starling_segmenter.records.formats import Formats
from starling_segmenter.records.membership import REQUESTED, STAGE, TIME, Cause, Moment, Subject, membership_records, state_key
from starling_segmenter.state.states import State
from starling_segments import Change, UserState, reports_to_account
from starling_stream.model.processor import Unit

User: TypeAlias = tuple[bytes, UserState, Rules]
"""A user's key and state, and the rules of the workspace."""


class Emitter:
    """Shared by all handlers. `plans`: plan -> workspace (as in record keys) -> its segments; `Switcher` replaces them."""

    def __init__(self, formats: Formats, counts: Counts, clock: Clock, now_micros: Callable[[], int]) -> None:
        self.clock = clock
        self.plans: Mapping[bytes, Mapping[bytes, Rules]] = {}
        self.accounts = AccountMessages(formats, now_micros)
        self._formats = formats
        self._counts = counts
        self._now_micros = now_micros

    def rules_of(self, key: bytes, unit: Unit[State]) -> Rules:
        """Return the rules of a user: those of the plan that the task was last switched to, which may not be the newest one."""
        return self.plans[unit.plan].get(workspace_of(key), NO_RULES)

    def pass_time(self, user: User, until_ms: int, unit: Unit[State]) -> None:
        """Fire the user's timers before that instant, one instant after the other, if an account receives each change."""
        _, state, rules = user
        while reports_to_account(state, rules.plan) and (due := rules.evaluator.next_due(state)) is not None and due < until_ms:
            self.conclude(user, rules.evaluator.on_timer(state, due), TIME, unit)

    def conclude(self, user: User, changes: Sequence[Change], cause: Cause, unit: Unit[State]) -> None:
        """Emit the changes, send changed answers to the user's account, and store the state."""
        key, state, rules = user
        if changes:
            self._emit(changes, Subject.of(key, state, rules), cause, unit)
        if reports_to_account(state, rules.plan):
            self.accounts.send_answers(Subject.of(key, state, rules), cause, unit)
        unit.put(key, state, rules.evaluator.next_due(state))

    def _emit(self, changes: Sequence[Change], subject: Subject, cause: Cause, unit: Unit[State]) -> None:
        now, key, record = self._now_micros(), subject.key, cause.record
        received_at = now if record is None else record.received_at
        traceparent = None if record is None else header(record.headers, "traceparent")
        moment = Moment(received_at, now // 1000)
        emit, counts = unit.emit, self._counts.changes
        known_id: str | None = None
        for change, correlation_id, value in membership_records(changes, subject, cause, moment, self._formats.membership):
            if correlation_id != known_id:
                headers = record_headers(correlation_id, STAGE, traceparent if change.cause in REQUESTED else None)
                known_id = correlation_id
            emit(MEMBERSHIP, key, value, received_at, headers)
            emit(MEMBERSHIP_STATE, state_key(key, change.segment_key), value, received_at, headers)
            counts[change.status, change.cause] += 1


def with_user_id(key: bytes, state: UserState | None) -> UserState:
    """Return the state, or a new one; it contains the user's id, which percentage conditions depend on."""
    if state is None:
        return UserState(user_id=split_key(key)[1])
    if not state.user_id:
        state.user_id = split_key(key)[1]  # written by a release whose states had no id
    return state
