"""Edge: the segmenter as the stream layer runs it."""

from collections.abc import Callable, Mapping, Sequence
from typing import Final, TypeAlias

from starling_common.headers import header, record_headers
from starling_common.outcome import Refused
from starling_common.settings import Clock
from starling_common.topics import (
    ACCOUNT_ANSWERS,
    ACCOUNT_TALLIES,
    BACKFILL_STATES,
    BEHAVIOUR,
    CLOCK,
    DELIVERY,
    LIST_MEMBERSHIP,
    MEMBERSHIP,
    MEMBERSHIP_STATE,
    PROFILE,
    PROGRESS,
)  # fmt: skip
from starling_common.values import deterministic_id, parts_of, split_key, workspace_of
from starling_rules.backfills import Stored
from starling_rules.definitions import Definitions
from starling_rules.events import Behaviour, Listed, Profile, Reported, parse_object, unreadable
from starling_rules.history import PAST, REFUSED_CHANGES, Switch, all_of, doubtful_leaves, fresh_leaves, reported_ms
from starling_rules.rules import NO_RULES, Rules, compile_rules
from starling_segmenter.account_messages import AccountDesk
from starling_segmenter.accounts import AccountState, Tallied
from starling_segmenter.counts import Counts
from starling_segmenter.definition_log import DefinitionLog
from starling_segmenter.formats import Formats
from starling_segmenter.membership import ASKED, TIME, Cause, Moment, Subject, announcements, state_key
from starling_segmenter.past import PastReader
from starling_segmenter.progress import Reporter, progress
from starling_segmenter.states import State, decode, encode, user_state
from starling_segments import AccountTally, Change, UserState, reports_to_account, set_account
from starling_stream.model.processor import Decoded, History, Inbound, Service, Unit

STAGE: Final = "segmenter"
INPUTS: Final = (*PAST, ACCOUNT_ANSWERS, ACCOUNT_TALLIES)
_HOLD_MS: Final = 20
"""An event and the profile change of the same request come on two topics, one after the other."""
_REPORT_ID: Final = deterministic_id("segmenter", "progress")
"""Progress records answer nobody's request; they share one correlation id."""

User: TypeAlias = tuple[bytes, UserState, Rules]
"""A user's key and state, and the rules of the workspace."""


class Segmenter:
    """A `Processor`: events and profiles in, membership changes out; the state of a key is a `State`."""

    def __init__(self, formats: Formats, log: DefinitionLog, counts: Counts, clock: Clock, now_micros: Callable[[], int]) -> None:
        """`clock` is what stream time goes by; `now_micros` is the wall clock."""
        self.clock = clock
        self._formats = formats
        self._log = log
        self._counts = counts
        self._now_micros = now_micros
        self._definitions = Definitions()
        self._rules: Mapping[bytes, Rules] = {}
        self._switches: dict[int, Switch] = {}
        self._reporter = Reporter(clock)
        self._accounts = AccountDesk(formats, STAGE, now_micros)
        self._switched_in: Unit[State] | None = None

    def decode(self, topic: str, value: bytes) -> Decoded:
        """Raises: DecodeError."""
        if topic in PAST:
            return self._formats.past.decode(topic, value)
        if topic == BACKFILL_STATES:
            record = self._formats.backfilled.decode(value)
            return Decoded(Stored(record["run"], record["state"]), record["recorded_at"], None)
        return self._accounts.decode(topic, value)

    def encode_state(self, state: State) -> bytes:
        """Return the bytes of a user's or an account's state."""
        return encode(state)

    def decode_state(self, data: bytes) -> State:
        """Return the state that was encoded."""
        return decode(data)

    def process(self, record: Inbound, unit: Unit[State]) -> None:
        """Fold one record into its user's state and announce what changed."""
        if record.topic == BEHAVIOUR:
            self._process_behaviour(record, record.value, unit)
        elif record.topic == PROFILE:
            self._process_profile(record, record.value, unit)
        elif record.topic == LIST_MEMBERSHIP:
            self._process_listed(record, record.value, unit)
        elif record.topic == DELIVERY:
            self._process_reported(record, record.value, unit)
        elif record.topic == ACCOUNT_TALLIES:
            self._process_tallied(record, record.value, unit)
        else:
            self._accounts.take(record, unit)

    def _process_behaviour(self, record: Inbound, event: Behaviour, unit: Unit[State]) -> None:
        # Hot: once for each event.
        key = record.key
        rules = self._rules.get(workspace_of(key), NO_RULES)
        fault = unreadable(event, rules)
        if fault is not None:
            unit.refuse(record, "bad_json", fault)
            return
        state = _known_by_id(key, user_state(unit, key))
        state.anonymous_ids = event.anonymous_ids or state.anonymous_ids
        if state.belongs is not None:
            self._pass_time((key, state, rules), unit.stream_time_ms, unit)
        changes = rules.evaluator.on_event(state, event, unit.stream_time_ms)
        if changes or state.belongs is not None:
            cause = Cause("EVENT", record, event.message_id, event.name, event.correlation_id)
            self._conclude((key, state, rules), changes, cause, unit)
        else:
            unit.put(key, state, rules.evaluator.next_due(state))

    def _process_profile(self, record: Inbound, profile: Profile, unit: Unit[State]) -> None:
        if profile.change in REFUSED_CHANGES:
            unit.refuse(record, "not_yet", f"profile changes of the kind {profile.change} are known but not done yet")
            return
        traits = parse_object(profile.traits)
        if isinstance(traits, Refused):
            unit.refuse(record, traits.code, traits.message)
            return
        key = record.key
        rules = self._rules.get(workspace_of(key), NO_RULES)
        state = _known_by_id(key, user_state(unit, key))
        self._pass_time((key, state, rules), unit.stream_time_ms, unit)
        moved = set_account(state, profile.group_id)
        changes = rules.evaluator.on_profile(state, traits, profile.anonymous_ids, unit.stream_time_ms)
        if moved and not profile.group_id:
            changes += rules.evaluator.on_account(state, None, unit.stream_time_ms)
        cause = Cause("EVENT", record, profile.message_id, None, profile.correlation_id)
        self._conclude((key, state, rules), changes, cause, unit)

    def _process_reported(self, record: Inbound, reported: Reported | None, unit: Unit[State]) -> None:
        """What became of a message is an event of its user; nothing is stored for one that no leaf asks for."""
        if reported is None:
            return
        rules = self._rules.get(workspace_of(record.key), NO_RULES)
        if rules.plan.touches(reported.name) or user_state(unit, record.key) is None:
            time_ms = reported_ms(record.received_at, self.clock, unit.stream_time_ms)
            self._process_behaviour(record, reported.at(time_ms), unit)

    def _process_listed(self, record: Inbound, listed: Listed, unit: Unit[State]) -> None:
        key = record.key
        found = user_state(unit, key)
        if listed.says_nothing_new(found):
            return
        rules = self._rules.get(workspace_of(key), NO_RULES)
        state = _known_by_id(key, found)
        self._pass_time((key, state, rules), unit.stream_time_ms, unit)
        changes = rules.evaluator.on_list(state, listed.list_key, listed.on_list, unit.stream_time_ms)
        cause = Cause("LIST", record, None, None, listed.correlation_id)
        self._conclude((key, state, rules), changes, cause, unit)

    def _process_tallied(self, record: Inbound, tallied: Tallied, unit: Unit[State]) -> None:
        key, why = record.key, tallied.why
        state = user_state(unit, key)
        if state is None or state.belongs is None or state.belongs.reported_to != tallied.account_id:
            return  # has left it since
        rules = self._rules.get(workspace_of(key), NO_RULES)
        others = {asked: (tallied.others, matching) for asked, matching in tallied.matching.items()}
        # At the very instant at which the other user's answer changed, unless this partition's time is not there yet.
        now = min(why.at, unit.stream_time_ms)
        self._pass_time((key, state, rules), now, unit)
        changes = rules.evaluator.on_account(state, AccountTally(tallied.account_id, others), now, why.cause)
        cause = Cause(why.cause, record, why.message_id, why.event_name, why.correlation_id)
        self._conclude((key, state, rules), changes, cause, unit)

    def fire(self, key: bytes, unit: Unit[State]) -> None:
        """Let time alone change what it has to, up to and at the unit's stream time."""
        state = user_state(unit, key)
        if state is None:
            return
        rules = self._rules.get(workspace_of(key), NO_RULES)
        self._pass_time((key, state, rules), unit.stream_time_ms, unit)
        changes = rules.evaluator.on_timer(state, unit.stream_time_ms)
        self._conclude((key, state, rules), changes, TIME, unit)

    def _pass_time(self, user: User, until_ms: int, unit: Unit[State]) -> None:
        """Fire what is due before then, one instant after the other where an account has to hear of each."""
        _, state, rules = user
        while reports_to_account(state, rules.plan) and (due := rules.evaluator.next_due(state)) is not None and due < until_ms:
            self._conclude(user, rules.evaluator.on_timer(state, due), TIME, unit)

    def adopt_plan(self) -> bytes:
        """Take over the newest definitions; the name says which segments and versions are in force."""
        definitions = self._log.current()
        if definitions is not self._definitions:
            self._rules = compile_rules(definitions, self._rules)
            self._definitions = definitions
            self._counts.segments(len(definitions.versions))
        return definitions.name

    def before_switch(self, history: History) -> None:
        """Fold the task's past into the leaves that its rules lacked: a new segment counts what happened before it."""
        applied = self._log.at(history.applied_plan)
        before = None if applied is None else compile_rules(applied, {})
        fresh = fresh_leaves(before, self._rules)
        same = before is None or parts_of(history.applied_plan)[1] == parts_of(self._definitions.name)[1]
        doubtful = {} if same else doubtful_leaves(self._rules, fresh)
        past = PastReader(history, self._rules, self.clock).past(all_of(fresh, doubtful), self._definitions.backfills)
        self._switches[history.partition] = Switch(before, fresh, doubtful, past)

    def switch(self, key: bytes, state: State, unit: Unit[State]) -> None:
        """Bring one user under the rules in force, history first; announce the net difference. Accounts know no rules."""
        if isinstance(state, AccountState):
            return
        _known_by_id(key, state)
        self._switched_in = unit
        switch, workspace = self._switches[unit.partition], workspace_of(key)
        switch.adopt(key, state)
        rules = self._rules.get(workspace, NO_RULES)
        before = None if switch.before is None else switch.before.get(workspace, NO_RULES).evaluator
        changes = rules.evaluator.on_definition(state, unit.stream_time_ms, before)
        self._conclude((key, state, rules), changes, Cause("DEFINITION"), unit)

    def after_switch(self, unit: Unit[State]) -> None:
        """The past is not needed any more; tell the world which definitions are in force here."""
        del self._switches[unit.partition]
        self._report(unit.partition, unit.stream_time_ms, unit)

    def on_stream_time(self, partition: int, stream_time_ms: int, unit: Unit[State]) -> None:
        """Say how far the partition is, now and then; not while it is being switched: its versions are neither nor."""
        self._counts.publish()
        if self._switched_in is unit:
            self._switched_in = None
        elif self._reporter.is_due(partition, stream_time_ms, self._now_micros() // 1000):
            self._report(partition, stream_time_ms, unit)

    def _report(self, partition: int, stream_time_ms: int, unit: Unit[State]) -> None:
        now = self._now_micros()
        self._reporter.said(partition, stream_time_ms, now // 1000)
        value = self._formats.progress.encode(progress(partition, stream_time_ms, self._definitions.versions, now))
        unit.emit(PROGRESS, str(partition).encode(), value, now, record_headers(_REPORT_ID, STAGE))

    def _conclude(self, user: User, changes: Sequence[Change], cause: Cause, unit: Unit[State]) -> None:
        """Announce what changed, tell the user's account, and store."""
        key, state, rules = user
        if changes:
            self._announce(changes, Subject.of(key, state, rules), cause, unit)
        if reports_to_account(state, rules.plan):
            self._accounts.tell(Subject.of(key, state, rules), cause, unit)
        unit.put(key, state, rules.evaluator.next_due(state))

    def _announce(self, changes: Sequence[Change], subject: Subject, cause: Cause, unit: Unit[State]) -> None:
        now, key, record = self._now_micros(), subject.key, cause.record
        received_at = now if record is None else record.received_at
        traceparent = None if record is None else header(record.headers, "traceparent")
        moment = Moment(received_at, now // 1000)
        emit, counts, known_id = unit.emit, self._counts.changes, ""
        for change, correlation_id, value in announcements(changes, subject, cause, moment, self._formats.membership):
            if correlation_id != known_id:
                headers = record_headers(correlation_id, STAGE, traceparent if change.cause in ASKED else None)
                known_id = correlation_id
            emit(MEMBERSHIP, key, value, received_at, headers)
            emit(MEMBERSHIP_STATE, state_key(key, change.segment_key), value, received_at, headers)
            counts[change.status, change.cause] += 1


def _known_by_id(key: bytes, state: UserState | None) -> UserState:
    """The state of a user, who is told by id what buckets ask for."""
    if state is None:
        return UserState(user_id=split_key(key)[1])
    if not state.user_id:
        state.user_id = split_key(key)[1]  # written before states held it
    return state


def describe(segmenter: Segmenter) -> Service[State]:
    """The segmenter and its place."""
    return Service(
        stage=STAGE,
        inputs=INPUTS,
        processor=segmenter,
        hold_ms=_HOLD_MS,
        clock=segmenter.clock,
        clock_topics=(CLOCK,),
        bulk_topics=(LIST_MEMBERSHIP,),
        on_stream_time=segmenter.on_stream_time,
    )
