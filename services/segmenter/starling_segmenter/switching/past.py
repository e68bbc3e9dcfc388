"""Core: the history of a task for a switch: the states of a backfill, and the records that the task reads."""

from collections.abc import Mapping, Sequence
from typing import TypeAlias

from starling_common.failpoints.raising import Raising
from starling_common.kafka.topics import BACKFILL_STATES
from starling_common.outcome import Refused
from starling_common.settings import Clock
from starling_common.telemetry.logs import log
from starling_common.values import workspace_of
from starling_rules.backfills import Backfill, Part, Source, joined, narrowed, sources, states_of
from starling_rules.history import PAST, Isolation, Place, StreamTime, catch_up, fold_past, in_order, past_topics
from starling_rules.rules import Rules
from starling_segments import UserState, decode_state
from starling_stream.model.processor import History

States: TypeAlias = dict[bytes, UserState]
Leaves: TypeAlias = Mapping[bytes, frozenset[str]]

_FROM_THE_START = Part(inputs={}, stream_time_ms=0, first=0, end=0, users=0)


class PastReader:
    """Reads the history of the fresh leaf nodes of a switch. `rules`: those after the switch.

    A record that makes the fold raise is left out: `refused` has its place, its key and the reason. `armed`: the failpoint of the
    process, which may be `fold`.
    """

    def __init__(self, history: History, rules: Mapping[bytes, Rules], clock: Clock, armed: Raising | None = None) -> None:
        self._history = history
        self._rules = rules
        self._clock = clock
        self._armed = armed
        self.refused: dict[Place, tuple[bytes, Refused]] = {}

    def past(self, fresh: Leaves, backfills: Sequence[Backfill]) -> States:
        """Return key -> history of the fresh leaf nodes. After a backfill only the records that follow it are read."""
        return joined([self._isolated(source) for source in sources(fresh, backfills, self._history.partition)])

    def _isolated(self, source: Source) -> States:
        """Read once; again if users failed, to find the records of theirs that raise."""
        isolation = Isolation(armed=self._armed)
        past = self._read(source, isolation)
        if isolation.failed:
            isolation = Isolation(frozenset(isolation.failed), armed=self._armed)
            past = self._read(source, isolation)
        for place, why in isolation.refused.items():
            self.refused[place] = isolation.keys[place], why
            log(__name__).error(
                "history_refused", place=place, key=isolation.keys[place].decode(errors="replace"), reason=why.message
            )
        return past

    def _read(self, source: Source, isolation: Isolation) -> States:
        if source.backfill is None:
            return self._folded(source.leaves, _FROM_THE_START, {}, isolation)
        part = source.backfill.parts[self._history.partition]
        found = self._loaded(source.backfill.run, part, source.leaves)
        if found is None:
            # The topic retains the states for days, and this partition may have been idle for longer. Its inputs are complete.
            log(__name__).warning("backfill_states_expired", partition=self._history.partition, run=source.backfill.run)
            return self._folded(source.leaves, _FROM_THE_START, {}, isolation)
        return self._folded(source.leaves, part, found, isolation)

    def _loaded(self, run: str, part: Part, leaves: Leaves) -> States | None:
        """Return the states of the run, or None if the topic no longer contains all of them."""
        records = self._history.records(BACKFILL_STATES, part.first, part.end)
        found = states_of(run, ((record.key, record.value) for record in records))
        if len(found) != part.users:
            return None
        return {
            key: narrowed(decode_state(state), leaves[workspace])
            for key, state in found.items()
            if (workspace := workspace_of(key)) in leaves
        }

    def _folded(self, leaves: Leaves, part: Part, past: States, isolation: Isolation) -> States:
        """Fold the records from the end of `part` up to the task's offsets into `past`."""
        history, rules, now = self._history, self._rules, self._history.stream_time_ms
        topics = past_topics(leaves, rules, self._clock)
        inputs = (history.records(topic, part.inputs.get(topic, 0)) for topic in topics)
        if topics != PAST:  # the state of a window does not depend on the time of the fold
            return fold_past(in_order(inputs), leaves, rules, StreamTime(self._clock, now), past, isolation)
        fold_past(in_order(inputs), leaves, rules, StreamTime(self._clock, part.stream_time_ms), past, isolation)
        catch_up(past, leaves, rules, now, isolation, history.partition)
        return past
