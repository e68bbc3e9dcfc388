"""Edge: changes of definitions. One task after the other is switched to the new plan; until then it keeps the one before."""

from collections.abc import Mapping, Sequence

from starling_common.failpoints.raising import Raising
from starling_common.outcome import Refused
from starling_common.records.dead_letters import SWITCH_ORIGIN
from starling_common.values import parts_of, workspace_of
from starling_rules.definitions import Definitions
from starling_rules.history import Place, Switch, all_of, changed_workspaces, doubtful_leaves, fresh_leaves
from starling_rules.rules import NO_RULES, Rules, compile_rules
from starling_segmenter.counts import Counts
from starling_segmenter.emitter import Emitter, with_user_id
from starling_segmenter.records.membership import Cause
from starling_segmenter.state.accounts import AccountState
from starling_segmenter.state.states import State
from starling_segmenter.switching.definition_log import DefinitionLog
from starling_segmenter.switching.past import PastReader
from starling_stream.model.processor import History, Inbound, Unit


class Switcher:
    """Compiles new definitions and evaluates each user of a task under them. The methods are those of a `Processor`."""

    def __init__(self, log: DefinitionLog, emitter: Emitter, counts: Counts, armed: Raising | None) -> None:
        """`armed`: the failpoint of the process, which may be `fold`."""
        self._log = log
        self._armed = armed
        self._emitter = emitter
        self._counts = counts
        self._definitions = Definitions()
        self._versions: dict[bytes, Mapping[str, int]] = {}
        """The versions of the plans of the emitter."""
        self._switches: dict[int, Switch] = {}
        self._refused: dict[int, Mapping[Place, tuple[bytes, Refused]]] = {}
        """Partition -> the records that its prepared switch left out of the history, with their keys."""
        self._switched_in: Unit[State] | None = None

    def versions(self, plan: bytes) -> Mapping[str, int]:
        """Return `workspace/key` -> version of the segments of that plan, which is one of the emitter's."""
        return self._versions[plan]

    def adopt_plan(self) -> bytes:
        """Compile the newest definitions; return the name of the set."""
        definitions = self._log.current()
        if definitions is not self._definitions:
            before, after, plans = self._definitions.name, definitions.name, self._emitter.plans
            # The plan before: tasks that are not yet switched have it.
            kept = {before: plans[before]} if before in plans else {}
            self._emitter.plans = kept | {after: compile_rules(definitions, kept.get(before, {}))}
            self._versions = {plan: self._versions[plan] for plan in kept} | {after: definitions.versions}
            self._definitions = definitions
            self._counts.segments(len(definitions.versions))
        return definitions.name

    def before_switch(self, history: History) -> None:
        """Fold the history of the task into the new leaves: a new segment counts what happened before its definition."""
        rules = self._emitter.plans[self._definitions.name]
        before = self._rules_of(history.applied_plan)
        fresh = fresh_leaves(before, rules)
        same = before is None or parts_of(history.applied_plan)[1] == parts_of(self._definitions.name)[1]
        doubtful = {} if same else doubtful_leaves(rules, fresh)
        reader = PastReader(history, rules, self._emitter.clock, self._armed)
        past = reader.past(all_of(fresh, doubtful), self._definitions.backfills)
        changed = changed_workspaces(before, rules) if same else None
        self._switches[history.partition] = Switch(before, fresh, doubtful, past, changed)
        self._refused[history.partition] = reader.refused

    def _rules_of(self, plan: bytes) -> Mapping[bytes, Rules] | None:
        """Return the rules of an applied plan; None if the topic never contained it."""
        rules = self._emitter.plans.get(plan)
        if rules is not None:
            return rules
        applied = self._log.at(plan)
        return None if applied is None else compile_rules(applied, {})

    def switched_prefixes(self, partition: int) -> Sequence[bytes] | None:
        """Return the key prefixes of the workspaces whose rules changed; None if that is unknown."""
        changed = self._switches[partition].changed
        return None if changed is None else sorted(workspace + b"/" for workspace in changed)

    def switch(self, key: bytes, state: State, unit: Unit[State]) -> None:
        """Evaluate one user under the new rules, history first; emit the net difference. Accounts have no rules."""
        if isinstance(state, AccountState):
            return
        with_user_id(key, state)
        self._switched_in = unit
        switch, workspace = self._switches[unit.partition], workspace_of(key)
        switch.adopt(key, state)
        rules = self._emitter.rules_of(key, unit)
        before = None if switch.before is None else switch.before.get(workspace, NO_RULES).evaluator
        changes = rules.evaluator.on_definition(state, unit.stream_time_ms, before)
        self._emitter.conclude((key, state, rules), changes, Cause("DEFINITION"), unit)

    def after_switch(self, unit: Unit[State]) -> None:
        """Release the history of the partition; the records that were left out of it are dead letters."""
        del self._switches[unit.partition]
        for (topic, partition, offset), (key, why) in self._refused.pop(unit.partition).items():
            message = f"{topic} {partition}@{offset} is left out of the history of new segments: {why.message}"
            received_at = max(0, unit.stream_time_ms) * 1000
            unit.refuse(Inbound(SWITCH_ORIGIN, partition, -1, key, None, received_at, None, (), b""), why.code, message)

    def ends_slice(self, unit: Unit[State]) -> bool:
        """Return whether the unit is a slice of a switch, after which the users of its task have different versions."""
        if self._switched_in is not unit:
            return False
        self._switched_in = None
        return True
