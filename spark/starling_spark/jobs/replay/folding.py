"""Pure core: one person's past, folded by the plan in force, as the segmenter folds it live."""

from collections.abc import Iterable, Mapping, Sequence
from functools import cached_property
from typing import Any, NamedTuple

from starling_common.outcome import Done, Refused
from starling_common.values import split_key, workspace_of
from starling_rules.definitions import Definitions, fold
from starling_rules.events import Behaviour, Listed, Profile, parse_object, unreadable
from starling_rules.history import REFUSED_CHANGES
from starling_rules.rules import NO_RULES, Rules, compile_rules
from starling_segments import UserState, belong_to
from starling_spark.history.records import InputRecord

PAUSED = "it is paused: its members stay as they are"


class Folded(NamedTuple):
    """What happened, and stream time in its partition then, epoch ms."""

    happened: InputRecord
    stream_ms: int


class InForce:
    """The definitions in force after some of their records, compiled once."""

    def __init__(self, records: Sequence[Mapping[str, Any]]) -> None:
        """`records`: of `segments.definitions`, in their order. Those that the segmenter refuses are refused here too."""
        self.definitions = Definitions()
        for record in records:
            outcome = fold(self.definitions, dict(record))
            if isinstance(outcome, Done):
                self.definitions = outcome.value

    @cached_property
    def rules(self) -> Mapping[bytes, Rules]:
        """By workspace, as in record keys."""
        return compile_rules(self.definitions, {})

    def of(self, key: bytes) -> Rules:
        """The rules for the person with that record key."""
        return self.rules.get(workspace_of(key), NO_RULES)

    def not_compared(self) -> dict[tuple[str, str], str]:
        """(workspace, segment) -> why the past does not say who is in it; what is built on such a one is among them."""
        told: dict[tuple[str, str], str] = {}
        for workspace, rules in self.rules.items():
            name = workspace.decode()
            for compiled in rules.plan.segments:  # each comes after those that it uses
                key = compiled.segment.key
                if rules.definitions[key].paused:
                    told[name, key] = PAUSED
                elif used := [other for other in sorted(compiled.segment.uses) if (name, other) in told]:
                    told[name, key] = f"it is built on {', '.join(used)}"
        return told

    def versions(self) -> dict[tuple[str, str], int]:
        """(workspace, segment) -> version, of those in force."""
        return {
            (workspace.decode(), compiled.segment.key): compiled.segment.version
            for workspace, rules in self.rules.items()
            for compiled in rules.plan.segments
        }


def folded(key: bytes, past: Iterable[Folded], rules: Rules, now_ms: int) -> UserState:
    """The person's state at that instant, when time alone has changed what it had to, each at its own instant."""
    state = UserState(user_id=split_key(key)[1])
    for happened, stream_ms in past:
        _apply(state, happened, rules, stream_ms)
    rules.plan.on_timer(state, now_ms)
    return state


def _apply(state: UserState, happened: InputRecord, rules: Rules, stream_ms: int) -> None:
    """What was refused when it came is no part of the past."""
    match happened:
        case Behaviour():
            if unreadable(happened, rules) is None:
                state.anonymous_ids = happened.anonymous_ids or state.anonymous_ids
                rules.plan.on_event(state, happened, stream_ms)
        case Profile():
            traits = parse_object(happened.traits)
            if happened.change not in REFUSED_CHANGES and not isinstance(traits, Refused):
                moved = belong_to(state, happened.group_id)
                rules.plan.on_profile(state, traits, happened.anonymous_ids, stream_ms)
                if moved and not happened.group_id:
                    rules.plan.on_account(state, None, stream_ms)
        case Listed():
            if not happened.says_nothing_new(state):
                rules.plan.on_list(state, happened.list_key, happened.on_list, stream_ms)
