"""Edge: changes of definitions. A task is switched to the new plan before it processes another record."""

from collections.abc import Mapping

from starling_common.values import parts_of, workspace_of
from starling_rules.definitions import Definitions
from starling_rules.history import Switch, all_of, doubtful_leaves, fresh_leaves
from starling_rules.rules import NO_RULES, compile_rules
from starling_segmenter.counts import Counts
from starling_segmenter.emitter import Emitter, with_user_id
from starling_segmenter.records.membership import Cause
from starling_segmenter.state.accounts import AccountState
from starling_segmenter.state.states import State
from starling_segmenter.switching.definition_log import DefinitionLog
from starling_segmenter.switching.past import PastReader
from starling_stream.model.processor import History, Unit


class Switcher:
    """Compiles new definitions and evaluates each user of a task under them. The methods are those of a `Processor`."""

    def __init__(self, log: DefinitionLog, emitter: Emitter, counts: Counts) -> None:
        self._log = log
        self._emitter = emitter
        self._counts = counts
        self._definitions = Definitions()
        self._switches: dict[int, Switch] = {}
        self._switched_in: Unit[State] | None = None

    @property
    def versions(self) -> Mapping[str, int]:
        """`workspace/key` -> version of the segments in force."""
        return self._definitions.versions

    def adopt_plan(self) -> bytes:
        """Compile the newest definitions; return the name of the set."""
        definitions = self._log.current()
        if definitions is not self._definitions:
            self._emitter.rules = compile_rules(definitions, self._emitter.rules)
            self._definitions = definitions
            self._counts.segments(len(definitions.versions))
        return definitions.name

    def before_switch(self, history: History) -> None:
        """Fold the history of the task into the new leaves: a new segment counts what happened before its definition."""
        rules = self._emitter.rules
        applied = self._log.at(history.applied_plan)
        before = None if applied is None else compile_rules(applied, {})
        fresh = fresh_leaves(before, rules)
        same = before is None or parts_of(history.applied_plan)[1] == parts_of(self._definitions.name)[1]
        doubtful = {} if same else doubtful_leaves(rules, fresh)
        past = PastReader(history, rules, self._emitter.clock).past(all_of(fresh, doubtful), self._definitions.backfills)
        self._switches[history.partition] = Switch(before, fresh, doubtful, past)

    def switch(self, key: bytes, state: State, unit: Unit[State]) -> None:
        """Evaluate one user under the new rules, history first; emit the net difference. Accounts have no rules."""
        if isinstance(state, AccountState):
            return
        with_user_id(key, state)
        self._switched_in = unit
        switch, workspace = self._switches[unit.partition], workspace_of(key)
        switch.adopt(key, state)
        rules = self._emitter.rules.get(workspace, NO_RULES)
        before = None if switch.before is None else switch.before.get(workspace, NO_RULES).evaluator
        changes = rules.evaluator.on_definition(state, unit.stream_time_ms, before)
        self._emitter.conclude((key, state, rules), changes, Cause("DEFINITION"), unit)

    def after_switch(self, unit: Unit[State]) -> None:
        """Release the history of the partition."""
        del self._switches[unit.partition]

    def ends_slice(self, unit: Unit[State]) -> bool:
        """Return whether the unit is a slice of a switch, after which the users of its task have different versions."""
        if self._switched_in is not unit:
            return False
        self._switched_in = None
        return True
