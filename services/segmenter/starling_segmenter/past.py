"""Core: a task's past, for a switch: what a backfill left of it, and what the task reads of it by itself."""

from collections.abc import Mapping, Sequence
from typing import TypeAlias

from starling_common.logs import log
from starling_common.settings import Clock
from starling_common.topics import BACKFILL_STATES
from starling_common.values import workspace_of
from starling_rules.backfills import Backfill, Part, Source, joined, narrowed, sources, states_of
from starling_rules.history import PAST, StreamTime, catch_up, fold_past, in_order, past_topics
from starling_rules.rules import Rules
from starling_segments import UserState, decode_state
from starling_stream.model.processor import History

States: TypeAlias = dict[bytes, UserState]
Leaves: TypeAlias = Mapping[bytes, frozenset[str]]

_FROM_THE_START = Part(inputs={}, stream_time_ms=0, first=0, end=0, users=0)


class PastReader:
    """Reads what the fresh leaves of a switch need; `rules`: those that the task is switched to."""

    def __init__(self, history: History, rules: Mapping[bytes, Rules], clock: Clock) -> None:
        self._history = history
        self._rules = rules
        self._clock = clock

    def past(self, fresh: Leaves, backfills: Sequence[Backfill]) -> States:
        """By key, what the task's past left in the fresh leaves; only what came after a backfill is read where there was one."""
        return joined([self._of(source) for source in sources(fresh, backfills, self._history.partition)])

    def _of(self, source: Source) -> States:
        if source.backfill is None:
            return self._folded(source.leaves, _FROM_THE_START, {})
        part = source.backfill.parts[self._history.partition]
        found = self._loaded(source.backfill.run, part, source.leaves)
        if found is None:
            # They are kept for days only, and this partition may have been away for longer. What they were made of is there.
            log(__name__).warning("backfill_gone", partition=self._history.partition, run=source.backfill.run)
            return self._folded(source.leaves, _FROM_THE_START, {})
        return self._folded(source.leaves, part, found)

    def _loaded(self, run: str, part: Part, leaves: Leaves) -> States | None:
        """None when they are not all there any more."""
        records = self._history.records(BACKFILL_STATES, part.first, part.end)
        found = states_of(run, ((record.key, record.value) for record in records))
        if len(found) != part.users:
            return None
        return {
            key: narrowed(decode_state(state), leaves[workspace])
            for key, state in found.items()
            if (workspace := workspace_of(key)) in leaves
        }

    def _folded(self, leaves: Leaves, part: Part, past: States) -> States:
        """Go on from there up to where the task stands."""
        history, rules, now = self._history, self._rules, self._history.stream_time_ms
        topics = past_topics(leaves, rules, self._clock)
        inputs = (history.records(topic, part.inputs.get(topic, 0)) for topic in topics)
        if topics != PAST:  # a window ends up the same, whenever its matches were folded
            return fold_past(in_order(inputs), leaves, rules, StreamTime(self._clock, now), past)
        fold_past(in_order(inputs), leaves, rules, StreamTime(self._clock, part.stream_time_ms), past)
        catch_up(past, leaves, rules, now)
        return past
