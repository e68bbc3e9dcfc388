"""Pure core: what a run is for, and what each of its tasks has to do."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import NamedTuple

from starling_common.outcome import Done
from starling_common.settings import Clock
from starling_common.wire import Record
from starling_rules.backfills import Part
from starling_rules.definitions import Definitions, fold
from starling_rules.history import PAST, fresh_leaves, past_topics
from starling_rules.ledger import Run, Share
from starling_rules.rules import Rules, compile_rules
from starling_spark.jobs.backfill.positions import Cut


@dataclass(frozen=True, slots=True)
class Wanted:
    """`versions`: `workspace/key` -> version, of the segments that wait; `leaves`: what they ask of the past, by workspace.

    `topics`: what has to be read for that.
    """

    versions: Mapping[str, int]
    leaves: Mapping[str, list[str]]
    topics: tuple[str, ...]


class Stretch(NamedTuple):
    """Of one partition, the records from offset `first` up to and without `end`."""

    first: int
    end: int


@dataclass(frozen=True, slots=True)
class Assignment:
    """One task: a partition of a run. It travels to a worker, and a plan does not: `definitions` are the records to make it of,
    as they will be with the new segments in force, of the workspaces that have some. `topics`: what has to be read.
    `base`: what the run before it left. `kept`: topic -> what the lake gives of it; `starts`: topic -> where it goes on, of those
    of which the lake was asked.
    """

    run: Run
    share: Share
    definitions: tuple[Record, ...]
    clock: Clock
    topics: tuple[str, ...]
    slices: int
    base: Part | None = None
    kept: Mapping[str, "Stretch"] = field(default_factory=dict)
    starts: Mapping[str, int] = field(default_factory=dict)

    @property
    def in_order(self) -> bool:
        """Whether it counts when each record was folded, so that profiles, lists and clock are read, too."""
        return self.topics == PAST

    def rules(self) -> Mapping[bytes, Rules]:
        """The plan."""
        return compiled_from(self.definitions)


def wanted(definitions: Definitions, clock: Clock) -> Wanted | None:
    """What a backfill would be for; None when nothing waits for one. `clock`: what stream time goes by."""
    versions = definitions.awaited()
    if not versions:
        return None
    after = compile_rules(definitions.released(versions), {})
    fresh = fresh_leaves(compile_rules(definitions, {}), after)
    leaves = {workspace.decode(): sorted(found) for workspace, found in fresh.items()}
    return Wanted(versions, leaves, past_topics(fresh, after, clock) if leaves else ())


def assignments(run: Run, definitions: Definitions, clock: Clock, slices: int, base: Run | None = None) -> list[Assignment]:
    """The partitions that are not done yet. `base`: the run that it goes on from."""
    after = definitions.released(run.definitions)
    records = tuple(record for workspace in run.leaves for record in after.records(workspace))
    topics = topics_for(run, compiled_from(records), clock)
    parts = {} if base is None else {number: share.part for number, share in base.shares.items()}
    left = [share for _, share in sorted(run.shares.items()) if share.part is None]
    return [Assignment(run, share, records, clock, topics, slices, parts.get(share.number)) for share in left]


def with_lake(assignment: Assignment, ends: Mapping[str, int], left: Mapping[str, int], *, takes_all: bool) -> Assignment:
    """The same with what the lake gives of it: what the topics no longer have, or (`takes_all`) all that it has.

    `ends`: topic -> the first offset of the partition that the lake has not; `left`: the first one that the topic has still.
    """
    share, base = assignment.share, {} if assignment.base is None else assignment.base.inputs
    kept, starts = {}, {}
    for topic in [topic for topic in assignment.topics if topic in ends]:
        first, cut = base.get(topic, 0), share.inputs.get(topic, 0)
        end = min(cut, ends[topic]) if takes_all else min(cut, ends[topic], left[topic])
        if end > first:
            kept[topic] = Stretch(first, end)
        starts[topic] = max(first, end, min(left[topic], cut))
    return replace(assignment, kept=kept, starts=starts)


def lost(assignment: Assignment) -> dict[str, Stretch]:
    """Topic -> what neither the lake nor the topic has of the assignment's past."""
    base = {} if assignment.base is None else assignment.base.inputs
    known = {
        topic: max(base.get(topic, 0), assignment.kept[topic].end if topic in assignment.kept else 0) for topic in assignment.starts
    }
    return {topic: Stretch(known[topic], start) for topic, start in assignment.starts.items() if start > known[topic]}


def tail(run: Run, cuts: Iterable[Cut], topics: Iterable[str]) -> int:
    """Records that came in since the run's cut, in the partition that has most of them."""
    names = list(topics)
    known = [(run.shares[cut.partition].inputs, cut.inputs) for cut in cuts if cut.partition in run.shares]
    return max((_since(before, now, names) for before, now in known), default=0)


def _since(before: Mapping[str, int], now: Mapping[str, int], topics: Iterable[str]) -> int:
    return sum(max(0, now.get(topic, 0) - before.get(topic, 0)) for topic in topics)


def compiled_from(records: Iterable[Record]) -> Mapping[bytes, Rules]:
    """The rules that those definitions make."""
    definitions = Definitions()
    for record in records:
        outcome = fold(definitions, record)
        assert isinstance(outcome, Done)  # noqa: S101 - each was folded before, among the same others
        definitions = outcome.value
    return compile_rules(definitions, {})


def topics_for(run: Run, rules: Mapping[bytes, Rules], clock: Clock) -> tuple[str, ...]:
    """As `Wanted.topics`; leaves of a segment that was archived meanwhile ask nothing any more."""
    return past_topics(leaves_of(run, rules), rules, clock)


def leaves_of(run: Run, rules: Mapping[bytes, Rules]) -> dict[bytes, frozenset[str]]:
    """The run's leaves that the rules have, by workspace."""
    found = {
        name.encode(): frozenset(leaves).intersection(rules[name.encode()].plan.leaves)
        for name, leaves in run.leaves.items()
        if name.encode() in rules
    }
    return {workspace: leaves for workspace, leaves in found.items() if leaves}
