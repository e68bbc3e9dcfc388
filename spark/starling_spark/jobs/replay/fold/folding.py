"""Pure core: one user's past records, folded by the plan in force, as the segmenter folds them live."""

from collections.abc import Mapping, Sequence
from functools import cached_property
from typing import Any

from starling_common.outcome import Done, Refused
from starling_common.values import split_key, workspace_of
from starling_rules.definitions import Definitions, fold
from starling_rules.events import Behaviour, Listed, Profile, json_error, parse_object
from starling_rules.history import REFUSED_CHANGES
from starling_rules.rules import NO_RULES, Rules, compile_rules
from starling_segments import UserState, set_account
from starling_spark.history.records import InputRecord

PAUSED = "it is paused: its members stay as they are"


class InForce:
    """The definitions in force after some of their records, compiled once."""

    def __init__(self, records: Sequence[Mapping[str, Any]]) -> None:
        """`records`: of `segments.definitions`, in their order. Records that the segmenter refuses are refused here too."""
        self.definitions = Definitions()
        for record in records:
            outcome = fold(self.definitions, dict(record))
            if isinstance(outcome, Done):
                self.definitions = outcome.value

    @cached_property
    def rules(self) -> Mapping[bytes, Rules]:
        """Return the rules by workspace, as in record keys."""
        return compile_rules(self.definitions, {})

    def of(self, key: bytes) -> Rules:
        """Return the rules for the user with that record key."""
        return self.rules.get(workspace_of(key), NO_RULES)

    def not_compared(self) -> dict[tuple[str, str], str]:
        """Return by (workspace, segment) why history does not determine its members; includes segments that refer to such a one."""
        reasons: dict[tuple[str, str], str] = {}
        for workspace, rules in self.rules.items():
            name = workspace.decode()
            for compiled in rules.plan.segments:  # each follows those that it uses
                key = compiled.segment.key
                if rules.definitions[key].paused:
                    reasons[name, key] = PAUSED
                elif used := [other for other in sorted(compiled.segment.uses) if (name, other) in reasons]:
                    reasons[name, key] = f"it is built on {', '.join(used)}"
        return reasons

    def versions(self) -> dict[tuple[str, str], int]:
        """Return the versions in force by (workspace, segment)."""
        return {
            (workspace.decode(), compiled.segment.key): compiled.segment.version
            for workspace, rules in self.rules.items()
            for compiled in rules.plan.segments
        }


def new_user(key: bytes) -> UserState:
    """Return the state of a user before the first record."""
    return UserState(user_id=split_key(key)[1])


def apply(state: UserState, record: InputRecord, rules: Rules, stream_ms: int) -> None:
    """Fold a record at the stream time of its partition, epoch ms; one that was refused live is skipped."""
    match record:
        case Behaviour():
            if json_error(record, rules) is None:
                state.anonymous_ids = record.anonymous_ids or state.anonymous_ids
                rules.evaluator.on_event(state, record, stream_ms)
        case Profile():
            traits = parse_object(record.traits)
            if record.change not in REFUSED_CHANGES and not isinstance(traits, Refused):
                moved = set_account(state, record.group_id)
                rules.evaluator.on_profile(state, traits, record.anonymous_ids, stream_ms)
                if moved and not record.group_id:
                    rules.evaluator.on_account(state, None, stream_ms)
        case Listed():
            if not record.changes_nothing(state):
                rules.evaluator.on_list(state, record.list_key, record.on_list, stream_ms)
